//! The contract: however a sweep is cut into shards, in whatever order and how often these run, whatever is killed or damaged, the table
//! is the same to the byte, or the refusal says what to do. The runs are not simulated here; the command's tests do that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use reprieve_study::observation::Provenance;
use reprieve_study::scenario::{Memory, PlannedRun, Workload};
use reprieve_study::{Observation, overrides};
use reprieve_sweep::merge::{Merged, merge};
use reprieve_sweep::shard::{self, Runner, Standing};
use reprieve_sweep::status::Status;
use reprieve_sweep::{Plan, Shard, SweepError, plan};
use tempfile::TempDir;

const SIMULATOR: &str = "1+ab";
/// Its burst of 7 fails, and that of 9 panics.
const TEXT: &str = "
    name = 't'
    title = 't'
    run.repeat = 2
    workload = { kind = 'memory' }
    [conditions.a]
    [conditions.b]
    overcommit = 2.0
    [space.axes.burst]
    key = 'workload.burst'
    values = [1, 2, 3, 7, 9]
    [space.axes.overcommit]
    key = 'conditions.b.overcommit'
    range = { from = 1.1, to = 3.0, steps = 4 }
";
/// Points by conditions by repetitions.
const ROWS: u64 = 5 * 4 * 2 * 2;
/// The condition `a` is the same at all four values of the overcommit.
const RUNS: u64 = 5 * 2 + 5 * 4 * 2;

/// Gives numbers that depend on the run alone.
#[derive(Default)]
struct Fake {
    runs: AtomicU64,
    /// The user stops it after so many, if more than 0.
    stop_after: u64,
    /// It is a machine that computes something else.
    is_wrong: bool,
}

impl Runner for Fake {
    fn run(&self, run: &PlannedRun, _: &(dyn Fn() -> bool + Sync)) -> Option<Result<Observation, String>> {
        if self.is_stopped() {
            return None;
        }
        self.runs.fetch_add(1, Ordering::Relaxed);
        let Workload::Memory(Memory { burst, .. }) = run.scenario.workload else { panic!() };
        if burst == 7 {
            return Some(Err("out of memory, \"they say\"".into()));
        }
        assert_ne!(burst, 9, "a planted fault");
        let provenance =
            Provenance { ground: "fake".into(), events: u64::from(burst), ..Provenance::default() };
        let mut observation = Observation::new(&run.condition, run.repetition, provenance);
        let overcommit = run.scenario.conditions[&run.condition].overcommit;
        let value = f64::from(burst) / 3.0
            + overcommit
            + f64::from(run.repetition)
            + f64::from(u8::from(self.is_wrong));
        observation.metrics.insert("gp_p99_ns".into(), value);
        Some(Ok(observation))
    }

    fn is_stopped(&self) -> bool {
        self.stop_after > 0 && self.runs.load(Ordering::Relaxed) >= self.stop_after
    }
}

struct Sweep {
    folder: TempDir,
    plan: Plan,
}

impl Sweep {
    fn new() -> Sweep {
        let folder = tempfile::tempdir().unwrap();
        let plan = planned(folder.path(), TEXT).unwrap();
        Sweep { folder, plan }
    }

    fn run(&self, shard: &str, jobs: usize, fake: &Fake) -> Result<Standing, SweepError> {
        shard::run(&self.plan, shard.parse().unwrap(), jobs, fake, &mut |_| {})
    }

    fn run_all(&self) -> Standing {
        self.run("1/1", 2, &Fake::default()).unwrap()
    }

    fn merge(&self) -> Result<Merged, SweepError> {
        merge(&self.plan, &mut |_| Ok(()))
    }

    /// Both tables.
    fn tables(&self) -> (String, Vec<u8>) {
        let Merged::Whole { files, rows, .. } = self.merge().unwrap() else { panic!("runs are missing") };
        assert_eq!(rows, ROWS);
        (fs::read_to_string(&files[0]).unwrap(), fs::read(&files[1]).unwrap())
    }

    fn parts(&self) -> Vec<PathBuf> {
        let mut parts: Vec<PathBuf> = fs::read_dir(self.folder.path().join("parts"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        parts.sort();
        parts
    }
}

fn planned(folder: &Path, text: &str) -> Result<Plan, SweepError> {
    let scenario = overrides::read(text, None, &[]).unwrap();
    plan::write(folder, &scenario, "test", SIMULATOR, &mut |_| Ok(()))
}

fn undisturbed() -> (String, Vec<u8>) {
    let sweep = Sweep::new();
    sweep.run_all();
    sweep.tables()
}

#[test]
fn a_run_that_several_rows_have_is_done_once() {
    let sweep = Sweep::new();
    assert_eq!((sweep.plan.rows(), sweep.plan.runs()), (ROWS, RUNS));
    let fake = Fake::default();
    let standing = sweep.run("1/1", 2, &fake).unwrap();
    assert_eq!((standing.runs, standing.before, standing.now), (RUNS, 0, RUNS));
    assert_eq!(fake.runs.into_inner(), RUNS);
    assert_eq!(
        sweep.run_all(),
        Standing { runs: RUNS, before: RUNS, ..Standing::default() },
        "nothing is done again"
    );
}

#[test]
fn a_run_that_fails_is_a_row_with_its_error() {
    let (table, _) = undisturbed();
    let rows: Vec<Vec<String>> = csv::Reader::from_reader(table.as_bytes())
        .records()
        .map(|row| row.unwrap().iter().map(str::to_string).collect())
        .collect();
    let head: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|head| *head == name).unwrap();
    let of =
        |burst: &str| rows.iter().filter(|row| row[column("burst")] == burst).cloned().collect::<Vec<_>>();
    assert!(of("7").iter().all(|row| row[column("error")] == "out of memory, \"they say\""));
    assert!(of("9").iter().all(|row| row[column("error")].contains("a planted fault")));
    assert!(
        of("7").iter().all(|row| row[column("gp_p99_ns")].is_empty() && row[column("events")].is_empty())
    );
    assert_eq!((of("7").len(), of("3").len()), (16, 16));
    let row = of("3")
        .into_iter()
        .find(|row| row[column("condition")] == "b" && row[column("overcommit")] == "3.0")
        .unwrap();
    let repetition: f64 = row[column("repetition")].parse().unwrap();
    assert_eq!(row[column("gp_p99_ns")].parse(), Ok(1.0 + 3.0 + repetition));
    assert!(row[column("error")].is_empty() && row[column("simulator")] == SIMULATOR);
    assert!(rows.is_sorted_by_key(|row| row[0].clone()));
}

#[test]
fn any_shards_in_any_order_and_repeated_give_the_same_table() {
    let expected = undisturbed();
    let ways: [&[&str]; 4] = [
        &["7/7", "6/7", "5/7", "4/7", "3/7", "2/7", "1/7"],
        &["1/3", "1/5", "2/5", "3/5", "4/5", "5/5"],
        &["2/2", "2/2", "1/2", "1/1"],
        &["50/100", "1/1"],
    ];
    for shards in ways {
        let sweep = Sweep::new();
        for shard in shards {
            sweep.run(shard, 3, &Fake::default()).unwrap();
        }
        assert_eq!(sweep.tables(), expected, "{shards:?}");
    }
}

#[test]
fn parts_of_other_machines_can_be_gathered_and_equal_ones_are_allowed() {
    let (one, other) = (Sweep::new(), Sweep::new());
    one.run("1/2", 1, &Fake::default()).unwrap();
    other.run_all();
    for part in other.parts() {
        fs::copy(&part, one.folder.path().join("parts").join(part.file_name().unwrap())).unwrap();
    }
    assert_eq!(one.tables(), undisturbed());
}

#[test]
fn what_was_finished_before_an_interruption_is_not_done_again() {
    let sweep = Sweep::new();
    let mut done = 0;
    for stop_after in [1, 7, 20] {
        let fake = Fake { stop_after, ..Fake::default() };
        assert!(matches!(sweep.run("1/1", 1, &fake), Err(SweepError::Interrupted)));
        done += fake.runs.into_inner();
        assert!(matches!(sweep.merge().unwrap(), Merged::Missing { runs, .. } if runs == RUNS - done));
        let status = Status::read(&sweep.plan, SystemTime::now(), &|| Ok(())).unwrap();
        assert_eq!((status.done, status.runs, status.rows), (done, RUNS, ROWS));
    }
    assert_eq!(sweep.run_all().now, RUNS - done);
    assert_eq!(sweep.tables(), undisturbed());
}

#[test]
fn a_torn_or_damaged_line_costs_its_own_run_alone() {
    let sweep = Sweep::new();
    sweep.run_all();
    let part = sweep.parts().remove(0);
    let whole = fs::read(&part).unwrap();
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 40;
    for (damaged, missing) in
        [(whole[..whole.len() - 1].to_vec(), 1), (flipped(&whole, second), 1), (Vec::new(), RUNS)]
    {
        fs::write(&part, damaged).unwrap();
        let found = Status::read(&sweep.plan, SystemTime::now(), &|| Ok(())).unwrap();
        assert_eq!(found.done, RUNS - missing);
        assert_eq!(sweep.run_all().now, missing);
        assert_eq!(sweep.tables(), undisturbed());
        sweep
            .parts()
            .iter()
            .filter(|other| **other != part)
            .for_each(|other| fs::remove_file(other).unwrap());
    }
}

fn flipped(bytes: &[u8], place: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[place] ^= 1;
    bytes
}

#[test]
fn results_that_differ_are_refused_with_both_parts() {
    let sweep = Sweep::new();
    sweep.run("1/2", 1, &Fake::default()).unwrap();
    let wrong = Sweep::new();
    wrong.run("1/2", 1, &Fake { is_wrong: true, ..Fake::default() }).unwrap();
    let part = wrong.parts().remove(0);
    fs::copy(&part, sweep.folder.path().join("parts").join(part.file_name().unwrap())).unwrap();
    let Err(SweepError::Differ { one, other, .. }) = sweep.merge() else { panic!("it was not refused") };
    assert!(one != other && one.exists() && other.exists());
}

#[test]
fn another_simulator_is_refused_by_the_plan_and_in_a_part() {
    let sweep = Sweep::new();
    sweep.run_all();
    let refused = Plan::open(sweep.folder.path(), "2+cd").err().unwrap().to_string();
    assert!(refused.contains("it was made for simulator 1+ab, and this program is 2+cd"), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let scenario = overrides::read(TEXT, None, &[]).unwrap();
    let newer = plan::write(folder.path(), &scenario, "test", "2+cd", &mut |_| Ok(())).unwrap();
    fs::create_dir(folder.path().join("parts")).unwrap();
    for part in sweep.parts() {
        fs::copy(&part, folder.path().join("parts").join(part.file_name().unwrap())).unwrap();
    }
    let refused = merge(&newer, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(refused.contains("move this file out of the folder"), "{refused}");
    assert!(shard::run(&newer, Shard::ALL, 1, &Fake::default(), &mut |_| {}).is_err());
}

#[test]
fn a_plan_is_never_changed() {
    let sweep = Sweep::new();
    assert!(planned(sweep.folder.path(), TEXT).is_ok(), "the same plan again is no harm");
    let other = planned(sweep.folder.path(), &TEXT.replace("repeat = 2", "repeat = 3")).err().unwrap();
    assert!(other.to_string().contains("the folder has another plan"));
    for name in ["runs.jsonl", "plan.json"] {
        sweep.run_all();
        let path = sweep.folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        for damaged in [text.replacen("7", "8", 1), text[..text.len() / 2].into(), String::new()] {
            fs::write(&path, damaged).unwrap();
            let used =
                Plan::open(sweep.folder.path(), SIMULATOR).and_then(|plan| merge(&plan, &mut |_| Ok(())));
            let refused = used.unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("sweep"), "{refused}");
            if name == "plan.json" {
                fs::remove_file(&path).unwrap();
            }
            planned(sweep.folder.path(), TEXT).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "the same plan again repairs it");
        }
    }
    assert_eq!(sweep.tables(), undisturbed());
    assert!(
        Plan::open(tempfile::tempdir().unwrap().path(), SIMULATOR)
            .err()
            .unwrap()
            .to_string()
            .contains("sweep plan")
    );
}

#[test]
fn an_axis_that_changes_nothing_is_refused() {
    let refused = |axis: &str| {
        let folder = tempfile::tempdir().unwrap();
        let refused = planned(folder.path(), &format!("{TEXT}[space.axes.x]\n{axis}")).err();
        assert!(!folder.path().join("plan.json").exists() || refused.is_none());
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    let of_vm = refused("key = 'guest.boot_limit_ms'\nvalues = [60000]");
    assert!(of_vm.starts_with("space.axes.x: guest.boot_limit_ms: has no effect here"), "{of_vm}");
    let of_a = "key = 'conditions.a.overcommit'\nvalues = [2.0]";
    assert_eq!(refused(of_a), "");
    assert!(refused("key = 'guest.vcpus'\nvalues = [65]").contains("guest.vcpus: 65 is not within 1 to 64"));
    assert!(refused("key = 'guest.vcpu'\nvalues = [2]").contains("did you mean guest.vcpus?"));
}
