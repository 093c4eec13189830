//! A run of the daemon: starts the threads, runs the main loop until the end, and restores the masks.

use std::sync::Arc;

use reprieve_policy::SECOND_NS;
use reprieve_policy::beat::Pace;
use reprieve_policy::guard::Guard;
use reprieve_policy::place::{Policy, Settings};
use reprieve_policy::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock;
use crate::migrate::daemon::Daemon;
use crate::migrate::find::{Scan, Source, may_lock_all};
use crate::migrate::inherit::Children;
use crate::migrate::main_loop::{MainLoop, Pacing, Plan, Search, Throughput, unwritten};
use crate::migrate::masks::{Doubtful, Restored, StateFile, Table};
use crate::migrate::report::run_record;
use crate::migrate::roster::Roster;
use crate::migrate::watch::{CallWatch, Forks};
use crate::migrate::{Notice, Options, Roots};
use crate::proc::{ProcRoot, allowed_cpus};
use crate::signals::Interrupt;
use crate::{Error, Result};

/// The most tasks managed at a time.
const TASKS: usize = 256;

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Masks restored at the end.
    pub restored: Restored,
    /// Number of changes of affinity.
    pub moves: u64,
    /// Number of decisions, carried out or not.
    pub decisions: u64,
    /// Late beats of all vCPUs that were the host's doing: how often it took a vCPU away for longer than a beat's period.
    pub host_gaps: u64,
    /// CPU time of the daemon, ns.
    pub cpu_ns: u64,
    /// Length of the run, ns.
    pub ran_ns: u64,
}

/// The policy's settings for a run on this many vCPUs.
pub fn settings(policy: Policy, vcpus: usize) -> Settings {
    Settings::new(vcpus, TASKS).with(policy)
}

/// Runs until `interrupt` is raised or the limit is reached, and passes notices to `tell`. Masks are restored however
/// the run ends.
///
/// # Errors
/// [`Error::Missing`] with fewer than two vCPUs; as [`StateFile::open`]; and any failure to save masks or to write the record
/// or the metrics, which ends the run and restores masks.
pub fn run(mut options: Options<'_>, interrupt: &Interrupt, tell: &mut dyn FnMut(Notice)) -> Result<Summary> {
    let roots = options.roots.clone();
    let vcpus = allowed_cpus()?;
    let Some(count) = vcpus.last().map(|last| last + 1).filter(|_| vcpus.len() >= 2) else {
        let way_out = "run it in a virtual machine with at least two vCPUs, and allow it to use two";
        let path = roots.proc.path().join("stat");
        return Err(Error::Missing { what: "second vCPU to move tasks to", path, way_out });
    };
    let state = options.apply.then(|| StateFile::open(&options.state, &roots.proc)).transpose()?;
    if let Some(state) = &state {
        state.restore(&roots, Doubtful::Leave)?;
    }
    let (source, events, no_events) = Source::open(&roots.proc);
    no_events.into_iter().for_each(|why| tell(Notice::Warning(why)));
    let children = watch_children(&roots, state.as_ref(), tell)?;
    let restorer = Restorer { roots: roots.clone(), table: Arc::new(Table::new(TASKS, state)) };
    tell(Notice::Began { vcpus: vcpus.len(), source });
    lock_memory(&roots.proc, tell);
    let settings = settings(options.policy, count);
    let mut daemon = Daemon::start(&options, settings, &vcpus, &restorer.table, events, tell)?;
    let (began_ns, limit_ns) = (clock::now_ns(), options.limit.map(|limit| limit.as_nanos() as u64));
    let mut links = daemon.links.take().expect("made by start");
    let (table, outcomes) = (Arc::clone(&restorer.table), Arc::clone(&links.outcomes));
    let roster = Roster::new(roots.clone(), source, options.filter, count, table, children, outcomes);
    let (fastest_ns, slowest_ns) = options.period_ns;
    if let Some(out) = &mut options.record {
        run_record::write_header(out, &settings).map_err(unwritten)?;
    }
    let guard = (options.apply && options.guard).then(Guard::default);
    let plan = Plan {
        search: Search::new(Scan::new(&roots.proc, source, std::process::id() as i32), source),
        pacing: Pacing::new(Pace::new(vcpus.len(), fastest_ns, slowest_ns)),
        throughput: Throughput::new(&roots, guard),
        roots,
        roster,
        applies: options.apply,
        record: options.record,
        metrics: options.metrics,
        tell,
    };
    if guard.is_some() {
        // First measure throughput without moves. The ring is still empty, so this fits.
        let _ = links.signals.push(Signal::Halt { at_ns: began_ns });
    }
    let mut main_loop = MainLoop::new(plan, links, began_ns);
    let looped = run_loop(&mut main_loop, interrupt, began_ns, limit_ns);
    let moves = daemon.end();
    let finished = main_loop.finish(clock::now_ns());
    let (decisions, host_gaps) = main_loop.decisions_and_host_gaps();
    // Managed tasks get their masks before the last children do, so that no new child inherits a binding.
    let restored = restorer.restore();
    let in_doubt = main_loop.finish_children(clock::now_ns());
    looped.and(finished)?;
    let restored = Restored { in_doubt: in_doubt?, ..restored? };
    restorer.table.state().map_or(Ok(()), StateFile::remove_if_empty)?;
    let ran_ns = clock::now_ns() - began_ns;
    Ok(Summary { restored, moves, decisions, host_gaps, cpu_ns: clock::own_cpu_ns(), ran_ns })
}

/// Restores masks when it is dropped, whatever ended the run. Drop it after the threads have ended.
struct Restorer {
    roots: Roots,
    table: Arc<Table>,
}

impl Restorer {
    fn restore(&self) -> Result<Restored> {
        let restore = |state: &StateFile| state.restore_records(&self.roots, Doubtful::Leave);
        self.table.state().map_or(Ok(Restored::default()), restore)
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        // After an orderly end nothing is left to do. Otherwise a mask that cannot be restored stays in the state file.
        if let Some(state) = self.table.state() {
            let _ = state.finish(&self.roots, Doubtful::Leave);
        }
    }
}

/// Watches for children that inherit bindings, if decisions are carried out (there is a state file).
fn watch_children(
    roots: &Roots,
    state: Option<&StateFile>,
    tell: &mut dyn FnMut(Notice),
) -> Result<Children> {
    let forks = state.and_then(|_| match Forks::open(&roots.sys.online()) {
        Ok(forks) => Some(forks),
        Err(e) => {
            let text = format!("children of moved tasks are found by searching /proc once a second: {e}");
            tell(Notice::Warning(text));
            None
        }
    });
    let call_watch = state.map_or_else(CallWatch::blind, |_| open_call_watch(roots, tell));
    Children::new(roots, forks, call_watch, TASKS, state)
}

/// Watches the calls that set masks, to distinguish a user's mask from the daemon's.
fn open_call_watch(roots: &Roots, tell: &mut dyn FnMut(Notice)) -> CallWatch {
    let opened = CallWatch::open(roots.sys.path(), &roots.sys.online(), clock::now_ns());
    let (call_watch, text) = match opened {
        Ok(call_watch) if !call_watch.slows_all() => return call_watch,
        Ok(call_watch) => (
            call_watch,
            "this kernel has no kprobes: a tracepoint watches sched_setaffinity(2), and slows every system call of every \
             task a little while this runs"
                .into(),
        ),
        Err(e) => (
            CallWatch::blind(),
            format!(
                "children that inherit a binding are left bound, because their users may have bound them to the same CPU; \
                 tasks that fork while they are bound are no longer managed: {e}"
            ),
        ),
    };
    tell(Notice::Warning(text));
    call_watch
}

/// Runs the main loop until the end.
fn run_loop(
    main_loop: &mut MainLoop,
    interrupt: &Interrupt,
    began_ns: u64,
    limit_ns: Option<u64>,
) -> Result<()> {
    loop {
        let now_ns = clock::now_ns();
        if interrupt.is_raised() || limit_ns.is_some_and(|limit_ns| now_ns - began_ns >= limit_ns) {
            return Ok(());
        }
        let next_ns = main_loop.round(now_ns)?;
        let end_ns = limit_ns.map_or(next_ns, |limit_ns| next_ns.min(began_ns + limit_ns));
        wait(main_loop, interrupt, end_ns)?;
    }
}

/// Waits until this time or until `interrupt` is raised, and handles forks meanwhile.
fn wait(main_loop: &mut MainLoop, interrupt: &Interrupt, until_ns: u64) -> Result<()> {
    loop {
        let now_ns = clock::now_ns();
        if now_ns >= until_ns || interrupt.is_raised() {
            return Ok(());
        }
        // The main loop may start to listen for forks before `until_ns`.
        let wake_ns = main_loop.listens_from_ns(now_ns).map_or(until_ns, |from_ns| until_ns.min(from_ns));
        let wait = clock::timespec(wake_ns.saturating_sub(now_ns).min(SECOND_NS));
        let forked = main_loop.readable(now_ns).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut ends: Vec<PollFd> =
            std::iter::once(PollFd::new(interrupt, PollFlags::IN)).chain(forked).collect();
        let _ = poll(&mut ends, Some(&wait));
        let forked = ends[1..].iter().any(|end| !end.revents().is_empty());
        drop(ends);
        if forked {
            main_loop.handle_forks(clock::now_ns())?;
        }
    }
}

/// Locks and prefaults all memory, present and future: a page fault in the decider would wait for the very I/O that it
/// is to speed up. With a limit on locked memory, only present memory is locked, since the kernel would refuse memory
/// beyond it.
fn lock_memory(root: &ProcRoot, tell: &mut dyn FnMut(Notice)) {
    use rustix::mm::{MlockAllFlags, mlockall};
    let later = if may_lock_all(root) { MlockAllFlags::FUTURE } else { MlockAllFlags::empty() };
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | later) {
        tell(Notice::Warning(format!("memory is not locked ({e}): run as root, or raise ulimit -l")));
    }
}
