//! Tests families: a parent is moved while its children bind themselves or inherit its binding. No mask that a user set
//! may be lost, and every child that only inherited gets the user's mask back or is in doubt.
//!
//! `REPRIEVE_TEST_PINS` sets the number of children in each family, by default 60. `make wishes` sets 1,334, of which
//! 1,000 bind themselves.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::migrate::{
    CallWatch, Children, Doubtful, Forks, Held, Restored, Roots, Saved, SetByOther, StateFile, Table,
    follow_call,
};
use reprieve_linux::proc::{ProcRoot, SysCpus, TaskStatReader};
use reprieve_linux::threads;
use reprieve_policy::cpus::CpuSet;

const PINS: &str = "REPRIEVE_TEST_PINS";
const ROLE: &str = "REPRIEVE_TEST_ROLE";
/// One child in this many does not bind itself, and inherits.
const INHERITS_ONE_IN: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);
/// Names a program that starts this one, if this one cannot be started by its own name.
const SELF: &str = "REPRIEVE_TEST_SELF";
const S: u64 = reprieve_policy::SECOND_NS;

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * S + now.tv_nsec as u64
}

/// Two CPUs to move between; without them, prints that the test is skipped.
fn two_cpus() -> Option<(usize, usize)> {
    let own = threads::affinity_set(threads::own_tid()).unwrap();
    let two = own.iter().next().zip(own.iter().nth(1));
    if two.is_none() {
        eprintln!("skipped: one CPU");
    }
    two
}

fn table(folder: &Path) -> Table {
    Table::new(4, Some(StateFile::open(&folder.join("state"), &ProcRoot::default()).unwrap()))
}

/// Watches for children without any records of the kernel's.
fn blind(table: &Table) -> Children {
    Children::new(&Roots::default(), None, CallWatch::blind(), 4, table.state()).unwrap()
}

/// Watches for children with records of forks and of calls, if permitted.
fn children(table: &Table) -> Option<Children> {
    let roots = Roots::default();
    let sys = &roots.sys;
    let forks = Forks::open(&sys.online());
    let call_watch = CallWatch::open(sys.path(), &sys.online(), now_ns());
    let both = forks.and_then(|forks| Ok((forks, call_watch?)));
    let (forks, call_watch) = both.inspect_err(|e| eprintln!("skipped: {e}")).ok()?;
    eprintln!("the probe of calls slows all system calls: {}", call_watch.slows_all());
    // A fork's child may have copied its parent's mask up to this long before; calls must be recorded from then on.
    std::thread::sleep(Duration::from_millis(100));
    Some(Children::new(&roots, Some(forks), call_watch, 4, table.state()).unwrap())
}

fn pins() -> usize {
    std::env::var(PINS).ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// A child process or thread.
#[derive(Clone, Copy, Debug)]
struct Kin {
    tid: i32,
    bound_to: Option<usize>,
}

/// Not a test: the role of the parent. For a line `process CPU` or `thread CPU` it starts a child that binds itself to
/// that CPU, or does not bind itself (`-`), and answers with its id; for `self -` it answers with its own thread id.
#[test]
#[ignore = "started by the tests that need it"]
fn role_of_a_parent() {
    match std::env::var(ROLE).as_deref() {
        Ok("parent") => {}
        Ok("storm") => loop {
            let _ = Command::new("true").status();
        },
        _ => return,
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (form, cpu) = line.split_once(' ').unwrap();
        let cpu = cpu.parse::<usize>().ok();
        let tid = match form {
            "self" => threads::own_tid(),
            "thread" => start_thread(cpu),
            _ => start_process(cpu),
        };
        // Not by println, whose output the test harness captures.
        std::io::stdout().write_all(format!("started {tid}\n").as_bytes()).unwrap();
    }
    std::process::exit(0);
}

fn start_process(cpu: Option<usize>) -> i32 {
    let mut command = match cpu {
        Some(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), "sleep"]);
            command
        }
        None => Command::new("sleep"),
    };
    command.arg("300").stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn().unwrap().id()
        as i32
}

fn start_thread(cpu: Option<usize>) -> i32 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        if let Some(cpu) = cpu {
            threads::set_affinity(threads::own_tid(), &[cpu]).unwrap();
        }
        tell.send(threads::own_tid()).unwrap();
        loop {
            std::thread::park();
        }
    });
    told.recv().unwrap()
}

/// The parent and its children. Dropping this kills them all.
struct Family {
    parent: Child,
    asked: ChildStdin,
    told: BufReader<ChildStdout>,
    form: &'static str,
    kin: Vec<Kin>,
    /// The thread that starts the others.
    tid: i32,
}

impl Family {
    fn start(form: &'static str) -> Family {
        let mut parent = role("parent").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (asked, told) = (parent.stdin.take().unwrap(), BufReader::new(parent.stdout.take().unwrap()));
        let mut family = Family { parent, asked, told, form, kin: Vec::new(), tid: 0 };
        family.tid = family.ask("self", "-");
        family
    }

    fn pid(&self) -> i32 {
        self.parent.id() as i32
    }

    /// Sends the parent a line, and returns the id it answers with.
    fn ask(&mut self, form: &str, cpu: &str) -> i32 {
        writeln!(self.asked, "{form} {cpu}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.told.read_line(&mut line).unwrap() > 0, "the parent has ended");
            // The harness prints some words before, without a newline.
            if let Some((_, tid)) = line.split_once("started ") {
                return tid.trim().parse().unwrap();
            }
        }
    }

    fn add(&mut self, bound_to: Option<usize>) {
        let cpu = bound_to.map_or("-".into(), |cpu| cpu.to_string());
        let tid = self.ask(self.form, &cpu);
        self.kin.push(Kin { tid, bound_to });
    }

    /// Number of children that bound themselves and are no longer so bound; and number of others without the right
    /// mask.
    fn wrong(&self, mask: &CpuSet) -> (usize, usize) {
        let is_wrong = |kin: &&Kin| {
            let should = kin.bound_to.map_or(*mask, CpuSet::of);
            threads::affinity_set(kin.tid).unwrap() != should
        };
        let wrong: Vec<&Kin> = self.kin.iter().filter(is_wrong).collect();
        let lost = wrong.iter().filter(|kin| kin.bound_to.is_some()).count();
        (lost, wrong.len() - lost)
    }

    /// Waits until all children have started and bound themselves, if they do.
    fn wait_until_bound(&self) {
        let since = Instant::now();
        let has_come = |kin: &Kin| {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", kin.tid)).unwrap();
            self.form == "thread" || comm == "sleep\n"
        };
        while !self.kin.iter().all(has_come) {
            assert!(since.elapsed() < PATIENCE, "they do not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.form == "process" {
            let pids = self.kin.iter().filter_map(|kin| rustix::process::Pid::from_raw(kin.tid));
            pids.for_each(|pid| {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            });
        }
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

fn role(name: &str) -> Command {
    let program = std::env::var_os(SELF).unwrap_or_else(|| std::env::current_exe().unwrap().into());
    let mut command = Command::new(program);
    let of = concat!(module_path!(), "::role_of_a_parent");
    let (_, of) = of.split_once("::").expect("the name of this program is before it");
    command.args(["--exact", of, "--ignored", "--nocapture"]).env(ROLE, name).stderr(Stdio::null());
    command
}

/// A process that forks as fast as it can. Dropping this kills it.
struct Storm(Child);

impl Storm {
    fn start() -> Storm {
        Storm(role("storm").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Adds children. With `children`, the parent is meanwhile bound to one CPU, the other, or none, in turn.
fn grow(family: &mut Family, table: &Table, mut children: Option<&mut Children>, cpus: [usize; 2]) {
    for index in 0..pins() {
        let number = index / INHERITS_ONE_IN;
        if children.is_some() {
            bind(table, 0, [Some(cpus[0]), Some(cpus[1]), None][(index / 3) % 3]);
        }
        family.add((index % INHERITS_ONE_IN != 0).then(|| cpus[number % 2]));
        if let Some(children) = &mut children {
            children.round(table, now_ns()).unwrap();
        }
    }
}

fn bind(table: &Table, slot: usize, cpu: Option<usize>) {
    table.want(slot, cpu);
    table.carry_out(slot, |_| ());
}

fn held(family: &Family) -> Held {
    let (pid, tid) = (family.pid(), family.tid);
    let mask = threads::affinity_set(tid).unwrap();
    let stat = TaskStatReader::open(&ProcRoot::default(), pid, tid).unwrap().read().unwrap();
    let whole = SysCpus::default().cpuset_of(&ProcRoot::default(), pid, tid).is_subset(&mask);
    let (start_ticks, bound_ticks) = (stat.start_ticks, stat.start_ticks);
    Held::new(Saved { pid, tid, start_ticks, bound_ticks, mask, whole }, mask, None)
}

/// Four forms: processes or threads, each alone or in a storm of forks by others.
#[test]
fn no_wish_is_lost_and_every_inherited_mask_is_restored() {
    let Some((one, other)) = two_cpus() else { return };
    for (form, in_a_storm) in [("process", false), ("thread", false), ("process", true), ("thread", true)] {
        let folder = tempfile::tempdir().unwrap();
        let table = table(folder.path());
        let Some(mut children) = children(&table) else { return };
        let mut family = Family::start(form);
        let _storm = in_a_storm.then(Storm::start);
        let parent = held(&family);
        let mask = parent.saved.mask;
        table.fill(0, parent).unwrap();
        grow(&mut family, &table, Some(&mut children), [one, other]);
        family.wait_until_bound();
        let since = Instant::now();
        while family.wrong(&mask).1 > children.judge.unrestored.in_doubt() && since.elapsed() < PATIENCE {
            children.round(&table, now_ns()).unwrap();
        }
        let ((lost, bound), doubtful) = (family.wrong(&mask), children.judge.unrestored.in_doubt());
        let (all, restored) = (family.kin.len(), children.judge.restored);
        eprintln!(
            "{form}, in a storm: {in_a_storm}: of {all}, {lost} wishes lost, {bound} children left bound, {doubtful} in doubt, {restored} restored"
        );
        assert_eq!((lost, children.judge.unrestored.count()), (0, 0));
        // If more calls come than the rings hold, children are left bound, and counted as in doubt.
        assert!(bound <= doubtful, "{bound} children are left bound, {doubtful} are in doubt");
        assert!(restored > 0, "nothing was inherited");
    }
}

#[test]
fn no_wish_is_lost_without_records() {
    let Some((one, other)) = two_cpus() else { return };
    for form in ["process", "thread"] {
        let folder = tempfile::tempdir().unwrap();
        let table = table(folder.path());
        let mut children = blind(&table);
        let mut family = Family::start(form);
        let parent = held(&family);
        let (mask, of_parent) = (parent.saved.mask, (parent.saved.tid, parent.saved.start_ticks));
        table.fill(0, parent).unwrap();
        bind(&table, 0, Some(one));
        grow(&mut family, &table, Some(&mut children), [one, other]);
        family.wait_until_bound();
        children.round(&table, now_ns() + 3 * S).unwrap();
        let (lost, bound) = family.wrong(&mask);
        assert_eq!((lost, children.judge.restored), (0, 0), "{form}");
        assert!(
            bound > 0 && children.judge.unrestored.in_doubt() >= bound && children.judge.is_barred(of_parent),
            "they are in doubt"
        );
    }
}

/// The daemon was killed while the parent was bound, so nobody recorded which children bound themselves.
#[test]
fn no_wish_is_lost_by_restoring_what_a_killed_daemon_has_left() {
    let Some((one, other)) = two_cpus() else { return };
    let roots = Roots::default();
    for form in ["process", "thread"] {
        let folder = tempfile::tempdir().unwrap();
        let table = table(folder.path());
        let mut family = Family::start(form);
        let parent = held(&family);
        let mask = parent.saved.mask;
        table.fill(0, parent).unwrap();
        bind(&table, 0, Some(one));
        grow(&mut family, &table, None, [one, other]);
        family.wait_until_bound();
        drop(table);
        let state = StateFile::open(&folder.path().join("state"), &roots.proc).unwrap();
        let restored = state.finish(&roots, Doubtful::Leave).unwrap();
        let (lost, bound) = family.wrong(&mask);
        assert_eq!((lost, restored.restored, threads::affinity_set(family.tid).unwrap()), (0, 1, mask));
        assert!(bound > 0 && restored.in_doubt >= bound, "{restored:?}, {bound} bound");
        let restored = state.finish(&roots, Doubtful::Restore).unwrap();
        assert_eq!((family.wrong(&mask).1, restored.failed), (0, Restored::default().failed));
    }
}

/// xorshift64*, for random histories.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }
}

/// Sets a task's mask from another process, as its user would.
fn pin(tid: i32, mask: &CpuSet) {
    let mut taskset = Command::new("taskset");
    let done = taskset.args(["-p", "-c", &mask.to_string(), &tid.to_string()]).stdout(Stdio::null()).status();
    assert!(done.unwrap().success());
}

/// Follows calls by others on the parent's mask, as the roster does.
fn follow_calls(table: &Table, children: &mut Children, followed_ns: &mut u64) {
    let roots = Roots { proc: ProcRoot::default(), sys: SysCpus::default() };
    children.round(table, now_ns()).unwrap();
    let numbers = table.look(0, |held| held.numbers.clone()).unwrap();
    let set = children.judge.call_watch.since(&numbers, *followed_ns);
    if let SetByOther::By { began_ns, ended_ns } | SetByOther::Unclear { began_ns, noticed_ns: ended_ns } =
        set
    {
        follow_call(&roots, table, 0, began_ns).unwrap();
        *followed_ns = ended_ns + 1;
    }
}

/// Random histories: the daemon moves the parent; its user binds it anew; children start, bind themselves, are bound by
/// others, or inherit. In the end each task must have the mask that its user set last, or else the user mask that its
/// parent had at the fork. A child in doubt may stay bound.
#[test]
fn in_random_histories_the_last_wish_of_each_task_s_user_holds() {
    let Some((one, other)) = two_cpus() else { return };
    let both: CpuSet = [one, other].into_iter().collect();
    let masks = [CpuSet::of(one), CpuSet::of(other), both];
    for seed in 1..=pins() as u64 / 10 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let folder = tempfile::tempdir().unwrap();
        let table = table(folder.path());
        let Some(mut children) = children(&table) else { return };
        let mut family = Family::start(["process", "thread"][random.below(2)]);
        let mut parent = held(&family);
        // Only these two CPUs: the machine may have more.
        threads::set_affinity_set(family.tid, &both).unwrap();
        (parent.saved.mask, parent.saved.whole, parent.usable) = (both, false, both);
        let tid = parent.saved.tid;
        let mut held = Held::new(parent.saved, both, None);
        held.numbers = vec![tid];
        table.fill(0, held).unwrap();
        let (mut wished, mut of_kin, mut history) = (both, Vec::new(), Vec::new());
        let mut followed_ns = now_ns();
        for _ in 0..40 {
            match random.below(10) {
                0..3 => {
                    let to = [None, Some(one), Some(other)][random.below(3)].filter(|_| wished == both);
                    history.push(format!("move to {to:?}"));
                    bind(&table, 0, to);
                }
                3..6 => {
                    let to = [None, Some(one), Some(other)][random.below(3)];
                    history.push(format!("child bound to {to:?}"));
                    family.add(to);
                    of_kin.push(to.map_or(wished, CpuSet::of));
                    family.wait_until_bound();
                }
                6 if !of_kin.is_empty() => {
                    let (kin, mask) = (random.below(of_kin.len()), masks[random.below(3)]);
                    history.push(format!("child {kin} set to {mask}"));
                    pin(family.kin[kin].tid, &mask);
                    of_kin[kin] = mask;
                }
                7 if random.below(3) == 0 => {
                    wished = masks[random.below(3)];
                    history.push(format!("parent set to {wished}"));
                    pin(tid, &wished);
                    follow_calls(&table, &mut children, &mut followed_ns);
                }
                _ => {
                    history.push("round".into());
                    children.round(&table, now_ns() + 50_000_000 * random.below(2) as u64).unwrap();
                }
            }
        }
        bind(&table, 0, None);
        children.finish(&table, now_ns()).unwrap();
        assert_eq!(threads::affinity_set(tid).unwrap(), wished, "the parent; seed {seed}: {history:#?}");
        for (index, (kin, wish)) in family.kin.iter().zip(&of_kin).enumerate() {
            let now = threads::affinity_set(kin.tid).unwrap();
            let left = children.judge.unrestored.has(kin.tid) && now.is_subset(wish);
            assert!(now == *wish || left, "child {index} has {now}, not {wish}; seed {seed}: {history:#?}");
        }
    }
}
