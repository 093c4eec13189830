//! A run of the daemon: starts the threads, keeps house until the end, gives the masks back.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reprieve_policy::beat::Pace;
use reprieve_policy::guard::Guard;
use reprieve_policy::place::{Policy, Settings};
use reprieve_policy::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::daemon::Daemon;
use super::foretold::Foretold;
use super::forks::Forks;
use super::heirs::Heirs;
use super::house::{House, Plan, unwritten};
use super::masks::{Doubtful, Restored, StateFile};
use super::only::{Filter, may_lock_all};
use super::roster::{Roots, Roster};
use super::scan::Scan;
use super::source::Source;
use super::table::Table;
use super::witness::Witness;
use super::{Told, clock, record};
use crate::error::{Error, Result};
use crate::proc::{ProcRoot, SysCpus, allowed_cpus};
use crate::signals::Interrupt;

/// Tasks looked after at a time.
const TASKS: usize = 256;

/// What a run is told.
pub struct Options<'a> {
    /// Carry decisions out; else only tell them.
    pub apply: bool,
    /// Which tasks may be looked after.
    pub filter: Filter,
    /// How tasks are placed.
    pub policy: Policy,
    /// What an oracle is told; nothing for other policies.
    pub foretold: Foretold,
    /// Give up when throughput falls.
    pub guard: bool,
    /// Where masks are saved. Used only with `apply`.
    pub state: PathBuf,
    /// Where signals and decisions are written.
    pub record: Option<Box<dyn Write + 'a>>,
    /// Where metrics are written.
    pub metrics: Option<PathBuf>,
    /// End after so long.
    pub limit: Option<Duration>,
    /// Shortest and longest time between beats, ns.
    pub period_ns: (u64, u64),
    /// Where `/proc` is.
    pub proc: ProcRoot,
    /// Where `/sys` is.
    pub sys: PathBuf,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Masks given back at the start, of a daemon that was killed.
    pub found: Restored,
    /// Masks given back at the end.
    pub restored: Restored,
    /// Affinities changed.
    pub moves: u64,
    /// CPU time of the daemon, ns.
    pub cpu_ns: u64,
    /// How long it ran, ns.
    pub ran_ns: u64,
}

/// The policy's settings of a run on so many vCPUs.
pub fn settings(policy: Policy, vcpus: usize) -> Settings {
    Settings::new(vcpus, TASKS).with(policy)
}

/// Runs until `interrupt` is raised or the limit is reached; tells `tell` what happens. Masks are given back however it ends.
///
/// # Errors
/// [`Error::Missing`] with fewer than two vCPUs, what [`StateFile::open`] gives, and any failure to save masks or to write
/// record or metrics, upon which masks are given back and the run ends.
pub fn run(mut options: Options<'_>, interrupt: &Interrupt, tell: &mut dyn FnMut(Told)) -> Result<Summary> {
    let roots = Roots { proc: options.proc.clone(), sys: SysCpus::new(&options.sys) };
    let vcpus = allowed_cpus()?;
    let Some(count) = vcpus.last().map(|last| last + 1).filter(|_| vcpus.len() >= 2) else {
        let way_out = "run it in a machine with two vCPUs or more";
        let path = roots.proc.path().join("stat");
        return Err(Error::Missing { what: "second vCPU to move tasks to", path, way_out });
    };
    let state = options.apply.then(|| StateFile::open(&options.state, &roots.proc)).transpose()?;
    let found = state
        .as_ref()
        .map_or(Ok(Restored::default()), |state| state.restore(&roots.proc, &roots.sys, Doubtful::Leave))?;
    let (source, events, no_events) = Source::open(&roots.proc);
    no_events.into_iter().for_each(|why| tell(Told::Warning(why)));
    let heirs = watch_heirs(&roots, state.as_ref(), tell)?;
    let giver = Giver { roots: roots.clone(), table: Arc::new(Table::new(TASKS, state)) };
    tell(Told::Began { vcpus: vcpus.len(), source });
    lock_memory(&roots.proc, tell);
    let settings = settings(options.policy, count);
    let mut daemon = Daemon::start(&options, settings, &vcpus, &giver.table, events, tell)?;
    let (began_ns, limit_ns) = (clock::now_ns(), options.limit.map(|limit| limit.as_nanos() as u64));
    let mut joints = daemon.joints.take().expect("made by start");
    let (table, outcomes) = (Arc::clone(&giver.table), Arc::clone(&joints.outcomes));
    let roster = Roster::new(roots.clone(), source, options.filter, count, table, heirs, outcomes);
    let (fastest_ns, slowest_ns) = options.period_ns;
    if let Some(out) = &mut options.record {
        record::write_header(out, &settings).map_err(unwritten)?;
    }
    let plan = Plan {
        scan: Scan::new(&roots.proc, source, std::process::id() as i32),
        roots,
        source,
        roster,
        pace: Pace::new(vcpus.len(), fastest_ns, slowest_ns),
        guard: (options.apply && options.guard).then(Guard::default),
        applies: options.apply,
        record: options.record,
        metrics: options.metrics,
        tell,
    };
    if plan.guard.is_some() {
        // It is watched first what throughput is without.
        joints.signals.push(Signal::Halt { at_ns: began_ns });
    }
    let mut house = House::new(plan, joints, began_ns);
    let kept = keep(&mut house, interrupt, began_ns, limit_ns);
    let moves = daemon.end();
    let finished = house.finish(clock::now_ns());
    let restored = giver.give_back();
    // Their masks first, so that nothing is inherited any more.
    let in_doubt = house.finish_heirs(clock::now_ns());
    kept.and(finished)?;
    let restored = Restored { in_doubt: in_doubt?, ..restored? };
    giver.table.state().map_or(Ok(()), StateFile::remove_if_empty)?;
    let ran_ns = clock::now_ns() - began_ns;
    Ok(Summary { found, restored, moves, cpu_ns: clock::own_cpu_ns(), ran_ns })
}

/// Gives masks back when it is dropped, whatever has ended the run. To be dropped after the threads have ended.
struct Giver {
    roots: Roots,
    table: Arc<Table>,
}

impl Giver {
    fn give_back(&self) -> Result<Restored> {
        let state = self.table.state();
        let give_back =
            |state: &StateFile| state.give_back(&self.roots.proc, &self.roots.sys, Doubtful::Leave);
        state.map_or(Ok(Restored::default()), give_back)
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        // After an orderly end there is nothing left to do; else what fails stays in the state file.
        if let Some(state) = self.table.state() {
            let _ = state.finish(&self.roots.proc, &self.roots.sys, Doubtful::Leave);
        }
    }
}

/// What looks after inherited bindings, where decisions are carried out.
fn watch_heirs(roots: &Roots, state: Option<&StateFile>, tell: &mut dyn FnMut(Told)) -> Result<Heirs> {
    let forks = state.and_then(|_| match Forks::open(&roots.sys.online()) {
        Ok(forks) => Some(forks),
        Err(e) => {
            let text = format!("children of moved tasks are searched for instead of told by the kernel: {e}");
            tell(Told::Warning(text));
            None
        }
    });
    let witness = state.map_or_else(Witness::blind, |_| open_witness(roots, tell));
    Heirs::new(&roots.proc, &roots.sys, forks, witness, TASKS, state)
}

/// What tells a mask that its user has set from one that we have.
fn open_witness(roots: &Roots, tell: &mut dyn FnMut(Told)) -> Witness {
    let opened = Witness::open(roots.sys.path(), &roots.sys.online(), clock::now_ns());
    let (witness, text) = match opened {
        Ok(witness) if !witness.slows_all() => return witness,
        Ok(witness) => (
            witness,
            "this kernel has no kprobes: calls of sched_setaffinity(2) are told by a tracepoint, which slows every \
             system call of every task a little until this ends"
                .into(),
        ),
        Err(e) => (
            Witness::blind(),
            format!(
                "a task that inherits a binding cannot be told from one that its user has bound there, and is left as it \
                 is; tasks that fork while they are bound are looked after no more: {e}"
            ),
        ),
    };
    tell(Told::Warning(text));
    witness
}

/// Keeps house until the end.
fn keep(house: &mut House, interrupt: &Interrupt, began_ns: u64, limit_ns: Option<u64>) -> Result<()> {
    loop {
        let now_ns = clock::now_ns();
        if interrupt.is_raised() || limit_ns.is_some_and(|limit_ns| now_ns - began_ns >= limit_ns) {
            return Ok(());
        }
        let next_ns = house.round(now_ns)?;
        let end_ns = limit_ns.map_or(next_ns, |limit_ns| next_ns.min(began_ns + limit_ns));
        wait(house, interrupt, end_ns)?;
    }
}

/// Waits until then or until a signal raises the token, and sees to what forks meanwhile.
fn wait(house: &mut House, interrupt: &Interrupt, until_ns: u64) -> Result<()> {
    loop {
        let now_ns = clock::now_ns();
        if now_ns >= until_ns || interrupt.is_raised() {
            return Ok(());
        }
        // Forks that are not listened to now are so again in a moment.
        let wake_ns = house.listens_from_ns(now_ns).map_or(until_ns, |from_ns| until_ns.min(from_ns));
        let wait_ns = wake_ns.saturating_sub(now_ns).min(1_000_000_000);
        let wait =
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let forked = house.readable(now_ns).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut ends: Vec<PollFd> =
            std::iter::once(PollFd::new(interrupt, PollFlags::IN)).chain(forked).collect();
        let _ = poll(&mut ends, Some(&wait));
        let forked = ends[1..].iter().any(|end| !end.revents().is_empty());
        drop(ends);
        if forked {
            house.see_to_forks(clock::now_ns())?;
        }
    }
}

/// Locks and prefaults all memory, now and later: a page fault in the decider would wait for the very I/O it looks after.
/// Under a limit only what is there now is locked: the kernel would refuse memory beyond it later on.
fn lock_memory(root: &ProcRoot, tell: &mut dyn FnMut(Told)) {
    use rustix::mm::{MlockAllFlags, mlockall};
    let later = if may_lock_all(root) { MlockAllFlags::FUTURE } else { MlockAllFlags::empty() };
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | later) {
        tell(Told::Warning(format!("memory is not locked ({e}): run as root, or raise ulimit -l")));
    }
}
