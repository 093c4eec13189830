//! `reprieve boost`: on the host, sees how long RCU grace periods of guests wait for vCPUs that are off, and lets such vCPUs
//! run for a moment.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reprieve_linux::boost::{Aim, Boosting, Group, LOOK_NS, Limited, Plan, SETTINGS, limits};
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::{Guarded, put_back};
use reprieve_vm::VmError;
use reprieve_vm::attach::{self, Ended, Given, Qemu, Seen, Watched};

use crate::boost_guards::Guards;
use crate::boost_metrics;
use crate::boost_words::Words;
use crate::cli::BoostArguments;
use crate::failure::Failure;

/// Most guests at a time.
pub const MAX_GUESTS: usize = 64;
/// Between two looks of those that only watch, ns: a quarter of the cost.
const WATCH_NS: u64 = 1_000_000;
/// Guests that are looked at at the full rate; of more, each is looked at less often.
const AT_FULL_RATE: usize = 4;
/// Between two looks at what the guests' threads did.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two writes of the metrics, and two tries to attach again.
const METRICS_EVERY: Duration = Duration::from_secs(1);
const AGAIN_EVERY: Duration = Duration::from_secs(3);
/// The longest time until a guest is attached to again.
const AGAIN_AT_THE_LATEST: Duration = Duration::from_secs(300);
/// A guest that was watched for this long is well: what went wrong before no longer counts.
const WELL: Duration = Duration::from_secs(60);

/// A guest, from the first attempt to attach to it.
pub struct Guest {
    /// Its process.
    pub qemu: Qemu,
    /// Release of its kernel.
    pub release: String,
    /// What was seen of it, over all its starts.
    pub seen: Arc<Mutex<Seen>>,
    /// The groups whose quota limits its vCPUs.
    pub limits: Vec<Limited>,
    /// The share of the first of these that could have shorter periods: a quota and a period, ns.
    pub shorter: Option<(u64, u64)>,
    /// Whether these are known: someone who may only watch may not be able to see them.
    pub knows_limits: bool,
    /// What boosts gave, or would have given, before it was last attached to.
    pub earlier: reprieve_linux::boost::Given,
    /// How often it was started anew meanwhile.
    pub restarts: u64,
    state: State,
    /// Quotas that the warden guards: those that are, or may be, lent of. Each is the first that the group had.
    guarded: Vec<Guarded>,
    /// Times in a row that it was attached to, or tried to, without being watched for long.
    failures: u32,
}

enum State {
    /// Since when.
    Watched(Boosting, Instant),
    /// It was started anew, or its groups were changed; the next attempt to attach.
    Waits(Instant),
    Ended(String),
}

impl Guest {
    /// What boosts gave, or would have given.
    pub fn given(&self) -> reprieve_linux::boost::Given {
        let mut given = self.earlier;
        if let State::Watched(boosting, _) = &self.state {
            let now = boosting.given();
            given.visits += now.visits;
            given.lent_ns += now.lent_ns;
            given.own_cpu_ns += now.own_cpu_ns;
            given.looks += now.looks;
        }
        given
    }

    /// Why it is no longer watched, unless because all is over.
    pub fn ended(&self) -> Option<&str> {
        match &self.state {
            State::Ended(why) => Some(why.as_str()).filter(|why| !why.is_empty()),
            State::Waits(_) => Some("its kernel was not found again yet"),
            State::Watched(..) => None,
        }
    }

    /// Attaches again later: ever later, if it does not help.
    fn wait(&mut self) {
        self.state = State::Waits(Instant::now() + pause(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// What was seen of it up to now.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all guests have in common.
struct Work<'a> {
    root: ProcRoot,
    given: Given,
    /// None for one that only watches.
    guards: Option<Guards>,
    look_ns: u64,
    words: &'a Words,
    interrupt: &'a Interrupt,
}

/// Runs the verb.
pub fn boost(arguments: &BoostArguments) -> Result<(), Failure> {
    let root = ProcRoot::default();
    let words = Words { json: arguments.json, apply: arguments.apply };
    let found = find(&root, &arguments.pids)?;
    // A second ^C does not hurry the end: quotas are put back, which takes no time.
    let interrupt = Interrupt::install_patient()?;
    let guards = arguments.apply.then(Guards::new).transpose()?;
    let given = Given { btf: arguments.btf.clone(), symbols: arguments.symbols.clone() };
    let look_ns =
        if arguments.apply { LOOK_NS } else { WATCH_NS } * found.len().div_ceil(AT_FULL_RATE) as u64;
    let work = Work { root, given, guards, look_ns, words: &words, interrupt: &interrupt };
    let (mut guests, mut failures) = (Vec::new(), Vec::new());
    let one = found.len() == 1;
    for qemu in found {
        let name = words.name(&qemu);
        match work.attach(qemu) {
            Ok(guest) => guests.push(guest),
            Err(error) => {
                let failure = failure(&name, error);
                if !one {
                    words.warn(&failure.to_string());
                }
                failures.push(failure);
            }
        }
    }
    let refused = failures.len();
    if let Some(first) = failures.into_iter().next().filter(|_| guests.is_empty()) {
        return Err(first);
    }
    let seconds =
        if arguments.apply { arguments.limit_s } else { arguments.limit_s.or(Some(arguments.for_s)) };
    words.began(&guests, seconds)?;
    work.watch(&mut guests, arguments, seconds.map(Duration::from_secs));
    let notes: Vec<String> = guests.iter_mut().filter_map(|guest| work.end(guest, "")).collect();
    notes.iter().for_each(|note| words.warn(note));
    guests.iter().try_for_each(|guest| words.guest(guest))?;
    words.verdict(&guests)?;
    match refused {
        0 => Ok(()),
        _ if arguments.pids.is_empty() => Ok(()),
        _ => {
            Err(Failure::Failed(format!("{refused} of {} guests could not be watched", arguments.pids.len())))
        }
    }
}

/// Until a guest is attached to again, after so many failures before.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        1.. => AGAIN_EVERY.saturating_mul(1 << (failures - 1).min(16)).min(AGAIN_AT_THE_LATEST),
    }
}

/// Why a guest cannot be watched.
fn failure(name: &str, error: VmError) -> Failure {
    match error {
        VmError::Introspect(problem) => Failure::Failed(format!("{name}: {problem}")),
        other => match Failure::from(other) {
            Failure::Failed(text) => Failure::Failed(format!("{name}: {text}")),
            Failure::Usage(text) => Failure::Usage(format!("{name}: {text}")),
            Failure::Missing(text) => Failure::Missing(format!("{name}: {text}")),
        },
    }
}

/// The guests that were named, or all.
fn find(root: &ProcRoot, pids: &[i32]) -> Result<Vec<Qemu>, Failure> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    let found = match pids.is_empty() {
        false => pids.iter().map(|pid| attach::of(root, *pid)).collect::<Result<Vec<_>, VmError>>(),
        true => attach::all(root),
    };
    let found = found.map_err(|error| match error {
        VmError::Host(error) if error.is_gone() => Failure::Usage(error.to_string()),
        VmError::Introspect(problem) => Failure::Usage(problem),
        other => other.into(),
    })?;
    match found.len() {
        0 => Err(Failure::Missing(
            "no QEMU guest runs on this host that this user can see: run as root, in the host's PID namespace, or name one with \
             --pid"
                .into(),
        )),
        count if count > MAX_GUESTS => Err(Failure::Usage(format!(
            "{count} guests are more than {MAX_GUESTS}: name some with --pid"
        ))),
        _ => Ok(found),
    }
}

impl Work<'_> {
    fn attach(&self, qemu: Qemu) -> Result<Guest, VmError> {
        let seen = Arc::new(Mutex::new(Seen::new(qemu.vcpus.len())));
        let mut guest = Guest {
            qemu,
            release: String::new(),
            seen,
            limits: Vec::new(),
            shorter: None,
            earlier: reprieve_linux::boost::Given::default(),
            knows_limits: false,
            restarts: 0,
            state: State::Ended(String::new()),
            guarded: Vec::new(),
            failures: 0,
        };
        match self.start(&mut guest) {
            Ok(()) => Ok(guest),
            Err(error) => {
                self.release(&mut guest);
                Err(error)
            }
        }
    }

    /// Attaches, and begins to look.
    fn start(&self, guest: &mut Guest) -> Result<(), VmError> {
        // What could not be put back is put back first: else a quota that was lent would be taken for the group's own.
        if let Some(error) = self.release(guest) {
            return Err(error.into());
        }
        let is_raised = || self.interrupt.is_raised();
        let attached = attach::attach(&self.root, guest.qemu.clone(), &self.given, &is_raised)?;
        guest.release = attached.kernel.release.clone();
        let limits = self.limits(&guest.qemu)?;
        guest.knows_limits = limits.is_some();
        guest.limits = limits.unwrap_or_default();
        let watched = Watched::new(&self.root, attached, Arc::clone(&guest.seen))?;
        let groups = guest.limits.iter().map(|limited| Group::open(&limited.directory));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        guest.shorter = groups.iter().find_map(Group::in_short_periods);
        if let Some(guards) = &self.guards {
            for object in groups.iter().map(Group::guarded) {
                guards.guard(&object)?;
                guest.guarded.push(object);
            }
        }
        let plan = Plan {
            proc_root: self.root.clone(),
            pid: guest.qemu.pid,
            tids: guest.qemu.vcpus.clone(),
            limits: guest.limits.clone(),
            settings: SETTINGS,
            look_ns: self.look_ns,
            aim: Aim::GracePeriods,
            may_act: self.guards.is_some(),
        };
        let boosting = Boosting::start(plan, watched)?;
        guest.state = State::Watched(boosting, Instant::now());
        Ok(())
    }

    /// Puts quotas back that are guarded still, and guards those no longer. Those that cannot be put back stay guarded; gives
    /// why.
    fn release(&self, guest: &mut Guest) -> Option<reprieve_linux::Error> {
        let mut problem = None;
        guest.guarded.retain(|object| match put_back(object) {
            Ok(()) => {
                self.forget(object);
                false
            }
            Err(error) => {
                problem = Some(error);
                true
            }
        });
        problem
    }

    fn forget(&self, object: &Guarded) {
        if let Some(guards) = &self.guards {
            guards.release(object);
        }
    }

    /// The groups that limit a guest. One that only watches does without those that it cannot look at: `None`.
    fn limits(&self, qemu: &Qemu) -> Result<Option<Vec<Limited>>, VmError> {
        match limits(&self.root, qemu.pid, &qemu.vcpus) {
            Err(error) if self.guards.is_none() => {
                let name = self.words.name(qemu);
                self.words.warn(&format!("{name}: quotas are not looked at: {error}"));
                Ok(None)
            }
            other => Ok(Some(other?)),
        }
    }

    /// Waits until the time is over, and sees to guests that end or are started anew.
    fn watch(&self, guests: &mut [Guest], arguments: &BoostArguments, length: Option<Duration>) {
        let began = Instant::now();
        let (mut metrics_at, mut can_write) = (began, true);
        while !self.interrupt.is_raised() && length.is_none_or(|length| began.elapsed() < length) {
            std::thread::sleep(PAUSE);
            guests.iter_mut().for_each(|guest| self.tend(guest));
            if let Some(path) = arguments.metrics.as_deref().filter(|_| metrics_at.elapsed() >= METRICS_EVERY)
            {
                metrics_at = Instant::now();
                can_write = self.tell(guests, arguments.apply, path, can_write);
            }
            if guests.iter().all(|guest| matches!(guest.state, State::Ended(_))) {
                break;
            }
        }
        if let Some(path) = &arguments.metrics {
            self.tell(guests, arguments.apply, path, can_write);
        }
    }

    /// Writes the metrics. Boosts do not end if that fails: the first failure in a row is a warning. Gives whether it has
    /// succeeded.
    fn tell(&self, guests: &[Guest], acting: bool, path: &Path, could_before: bool) -> bool {
        let written = boost_metrics::text(guests, acting).write(path);
        if let (Err(error), true) = (&written, could_before) {
            self.words.warn(&format!("metrics are not written: {error}"));
        }
        written.is_ok()
    }

    /// Sees whether a guest has ended or was started anew.
    fn tend(&self, guest: &mut Guest) {
        let name = self.words.name(&guest.qemu);
        match &guest.state {
            State::Watched(boosting, since) if boosting.has_ended() => {
                if since.elapsed() >= WELL {
                    guest.failures = 0;
                }
                let restarted = guest.seen().ended == Some(Ended::Restarted);
                let problem = self.end(guest, "").unwrap_or_default();
                if !attach::is_there(&self.root, &guest.qemu) {
                    self.words.warn(&format!("{name} has ended"));
                    guest.state = State::Ended("it has ended".into());
                } else if restarted {
                    guest.restarts += 1;
                    self.words.warn(&format!("{name} was started anew: its kernel is looked for again"));
                    guest.wait();
                } else {
                    // A group was removed, or the kernel refused a quota, as when its parent has less by now.
                    self.words.warn(&format!("{problem}: it is attached to again"));
                    guest.wait();
                }
            }
            State::Waits(next) if Instant::now() >= *next => {
                guest.seen.lock().unwrap_or_else(PoisonError::into_inner).ended = None;
                match self.start(guest) {
                    Ok(()) => self.words.warn(&format!("{name} is watched again")),
                    Err(error) if !attach::is_there(&self.root, &guest.qemu) => {
                        self.release(guest);
                        guest.state = State::Ended(format!("it has ended: {error}"));
                    }
                    Err(_) => {
                        // Until the next attempt, whoever owns the quota may change it.
                        self.release(guest);
                        guest.wait();
                    }
                }
            }
            _ => {}
        }
    }

    /// Ends the looks at a guest and puts its quotas back. Says what was not as it should be.
    fn end(&self, guest: &mut Guest, why: &str) -> Option<String> {
        let given = guest.given();
        let last = std::mem::replace(&mut guest.state, State::Ended(why.into()));
        let State::Watched(boosting, _) = last else {
            guest.state = last;
            return self.release(guest).map(|error| format!("{}: {error}", self.words.name(&guest.qemu)));
        };
        guest.earlier = given;
        let finished = boosting.finish();
        match &finished {
            Ok(_) => std::mem::take(&mut guest.guarded).iter().for_each(|object| self.forget(object)),
            // The loop's own try may have failed.
            Err(_) => drop(self.release(guest)),
        }
        let name = self.words.name(&guest.qemu);
        match finished {
            Ok(notes) if notes.is_empty() => None,
            Ok(notes) => Some(format!("{name}: {}", notes.join("; "))),
            Err(error) => Some(format!("{name}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_fails_again_and_again_is_attached_to_ever_later() {
        let seconds = [0, 1, 2, 3, 4, 30, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(seconds, [0, 3, 6, 12, 24, 300, 300]);
    }
}
