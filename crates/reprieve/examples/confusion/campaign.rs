//! Works through the plan, guest by guest, and writes the record after each run: whatever ends it, what was measured is there.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::HumanDuration;
use reprieve_linux::signals::Interrupt;
use reprieve_study::ground::time_left;
use reprieve_vm::lab::Lab;

use crate::Arguments;
use crate::causes::{Judged, judge};
use crate::draw::Case;
use crate::guest::{Bench, Error, Guest};
use crate::kept::Kept;
use crate::plan::plan;
use crate::record::{Record, Run, VERSION};
use crate::runs::{self, Setting, is_interrupt};

/// A guest that fails so often, one run after the other, is given up.
const FAILURES: usize = 3;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All was done.
    Done,
    /// The user had enough.
    Interrupted,
}

/// All guests.
///
/// # Errors
/// Something of the machine is missing, the record cannot be written, or guests fail again and again.
pub fn run(arguments: &Arguments, path: &Path, interrupt: Interrupt) -> Result<(Record, Ended), Error> {
    let vcpus: Vec<usize> = arguments.vcpus.iter().map(|vcpus| (*vcpus).into()).collect();
    let plan = plan(&arguments.wanted(), arguments.kernels.len() * vcpus.len());
    let bench = Bench::open(interrupt)?;
    let total = plan.iter().map(Vec::len).sum();
    let keep = arguments.keep.as_deref().map(Kept::make).transpose()?;
    let setting = Setting { seed: arguments.seed, watch_s: arguments.watch, keep };
    let record = match arguments.goes_on {
        true => gone_on(arguments, Record::read(path)?)?,
        false => begun(arguments, &bench, total),
    };
    // Before hours of work.
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    record.write(path)?;
    let mut work = Work {
        bench,
        setting,
        record,
        path,
        total,
        done: 0,
        began: Instant::now(),
        retries: arguments.retries,
    };
    let mut plan = plan.into_iter();
    for series in &arguments.kernels {
        let lab = work.bench.lab(series)?;
        work.record.accelerator = format!("{}: {}", lab.chosen.accel.name(), lab.chosen.reason);
        for vcpus in &vcpus {
            let mut cases = plan.next().unwrap_or_default();
            let planned = cases.len();
            cases.retain(|case| !work.has(&lab.image.kernel.release, *vcpus, case));
            work.total -= planned - cases.len();
            match work.guest(&lab, *vcpus, cases) {
                Err(error) if is_interrupt(&error) => return Ok((work.record, Ended::Interrupted)),
                done => done?,
            }
        }
    }
    Ok((work.record, Ended::Done))
}

fn begun(arguments: &Arguments, bench: &Bench, planned: usize) -> Record {
    let words: Vec<String> = std::env::args().skip(1).collect();
    Record {
        confusion_version: VERSION,
        command: format!("cargo run --release -p reprieve --example confusion -- {}", words.join(" ")),
        seed: arguments.seed,
        watch_s: arguments.watch,
        accelerator: String::new(),
        host_kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        host_pcpus: bench.pcpus.len(),
        rule: runs::rule(),
        planned,
        runs: Vec::new(),
    }
}

/// A record whose runs stay.
fn gone_on(arguments: &Arguments, record: Record) -> Result<Record, Error> {
    if (record.seed, record.watch_s) == (arguments.seed, arguments.watch) {
        return Ok(record);
    }
    let (seed, watch_s) = (record.seed, record.watch_s);
    Err(format!("the record is of --seed {seed} --watch {watch_s}; give these, or another --json").into())
}

/// What another try could change: the values stay the same, so an injection without effect stays so.
fn is_spoiled(run: &Run) -> bool {
    run.rejected.as_ref().is_some_and(|why| !why.starts_with("not in effect"))
}

/// Work in progress.
struct Work<'a> {
    bench: Bench,
    setting: Setting,
    record: Record,
    path: &'a Path,
    total: usize,
    done: usize,
    began: Instant,
    retries: u8,
}

impl Work<'_> {
    /// All runs of one guest.
    fn guest(&mut self, lab: &Lab, vcpus: usize, cases: Vec<Case>) -> Result<(), Error> {
        if cases.is_empty() {
            return Ok(());
        }
        let mut left: VecDeque<(Case, u8)> = cases.into_iter().map(|case| (case, self.retries)).collect();
        let mut guest = Guest::boot(&self.bench, lab, vcpus)?;
        let mut failures = 0;
        while let Some((case, retries)) = left.pop_front() {
            let run = match runs::one(&self.bench, &mut guest, case, &self.setting) {
                Ok(run) => {
                    failures = 0;
                    run
                }
                Err(error) if is_interrupt(&error) => return Err(error),
                Err(error) => {
                    failures += 1;
                    if failures > FAILURES {
                        return Err(error);
                    }
                    let run = runs::failed(&self.bench, &guest, case, &self.setting, &error.to_string());
                    // The next one must not suffer from it.
                    drop(guest);
                    guest = Guest::boot(&self.bench, lab, vcpus)?;
                    run
                }
            };
            match is_spoiled(&run) && retries > 0 {
                true => left.push_back((case, retries - 1)),
                false => self.done += 1,
            }
            self.say(&run);
            self.record.runs.push(run);
            self.record.write(self.path)?;
        }
        Ok(())
    }

    /// Whether the record has this case already.
    fn has(&self, kernel: &str, vcpus: usize, case: &Case) -> bool {
        let wanted = (kernel, vcpus, case.cause, case.strength, case.repetition);
        let is_it =
            |run: &Run| (run.kernel.as_str(), run.vcpus, run.cause, run.strength, run.repetition) == wanted;
        self.record.runs.iter().any(|run| is_it(run) && !is_spoiled(run))
    }

    fn say(&self, run: &Run) {
        let named = run.verdict.as_ref().map_or(Vec::new(), |verdict| verdict.causes.clone());
        let judged = match judge(run.cause, &named) {
            Judged::Right => "right",
            Judged::NotFirst => "right, but not first",
            Judged::Unknown => "nothing found",
            Judged::Wrong => "wrong",
        };
        let standing =
            run.rejected.as_ref().map_or(judged.to_string(), |why| format!("{judged}; rejected: {why}"));
        let left = time_left(self.began, self.done, self.total).unwrap_or(Duration::ZERO);
        eprintln!(
            "{}/{}, about {} left: {}, {} vCPUs, {} {}: [{}] {standing}",
            self.done,
            self.total,
            HumanDuration(left),
            run.kernel,
            run.vcpus,
            run.cause.name(),
            run.strength + 1,
            named.join(", "),
        );
    }
}
