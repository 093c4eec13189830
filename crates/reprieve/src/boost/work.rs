//! Watches guests from the first attempt to attach to their end, and sees to those that arrive, end or start anew.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use reprieve_linux::boost::{Aim, Boosting, Group, LOOK_NS, Limited, Plan, SETTINGS, limits};
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::{Guarded, put_back};
use reprieve_vm::VmError;
use reprieve_vm::attach::{self, Ended, Given, Qemu, Watched};

use super::guards::Guards;
use super::guest::{Guest, State};
use super::metrics;
use super::words::Words;
use crate::cli::BoostArguments;
use crate::failure::Failure;
use crate::guests::MAX_GUESTS;

/// Between two looks of those that only watch, ns: a quarter of the cost.
const WATCH_NS: u64 = 1_000_000;
/// Guests that are looked at at the full rate; of more, each is looked at less often.
const AT_FULL_RATE: usize = 4;
/// Between two looks at what the guests' threads did.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two writes of the metrics, and two looks for guests that have arrived.
const METRICS_EVERY: Duration = Duration::from_secs(1);
const ARRIVALS_EVERY: Duration = Duration::from_secs(3);
/// A guest that was watched for this long is well: what went wrong before no longer counts.
const WELL: Duration = Duration::from_secs(60);

/// What all guests have in common.
pub struct Work<'a> {
    pub root: ProcRoot,
    pub given: Given,
    /// None for one that only watches.
    pub guards: Option<Guards>,
    /// Whether guests that arrive are watched, too.
    pub takes_all: bool,
    pub words: &'a Words,
    pub interrupt: &'a Interrupt,
}

/// The guests that are watched or waited for, and the number of those that have ended since and were told of.
#[derive(Default)]
pub struct Guests {
    pub present: Vec<Guest>,
    pub past: usize,
    /// Of these, those with visits.
    pub past_visited: usize,
}

impl Work<'_> {
    /// Attaches to a guest, which is one of so many; gives why that failed.
    pub fn attach(&self, qemu: Qemu, count: usize) -> (Guest, Option<VmError>) {
        let mut guest = Guest::new(qemu);
        let failed = self.start(&mut guest, count).err();
        if failed.is_some() {
            self.release(&mut guest);
        }
        (guest, failed)
    }

    /// Attaches, and begins to look.
    fn start(&self, guest: &mut Guest, count: usize) -> Result<(), VmError> {
        // What could not be put back is put back first: else a quota that was lent would be taken for the group's own.
        if let Some(error) = self.release(guest) {
            return Err(error.into());
        }
        // Found while QEMU started, it may have had no thread for some of its vCPUs.
        let qemu = attach::of(&self.root, guest.qemu.pid)?;
        if !guest.is(&qemu) {
            return Err(VmError::Introspect(format!("process {} has ended", guest.qemu.pid)));
        }
        guest.qemu = qemu;
        guest.seen.lock().unwrap_or_else(PoisonError::into_inner).make_room(guest.qemu.vcpus.len());
        let is_raised = || self.interrupt.is_raised();
        let attached = attach::attach(&self.root, guest.qemu.clone(), &self.given, &is_raised)?;
        let release = attached.kernel.release.clone();
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
            look_ns: self.look_ns(count),
            aim: Aim::GracePeriods,
            may_act: self.guards.is_some(),
        };
        let boosting = Boosting::start(plan, watched)?;
        guest.release = release;
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

    /// Between two looks at each of so many guests, ns.
    fn look_ns(&self, count: usize) -> u64 {
        let one_ns = if self.guards.is_some() { LOOK_NS } else { WATCH_NS };
        one_ns * count.div_ceil(AT_FULL_RATE) as u64
    }

    /// Waits until the time is over, and sees to guests that arrive, end or are started anew.
    pub fn watch(
        &self,
        guests: &mut Guests,
        arguments: &BoostArguments,
        length: Option<Duration>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let (mut metrics_at, mut arrivals_at, mut can_write) = (began, began, true);
        while !self.interrupt.is_raised() && length.is_none_or(|length| began.elapsed() < length) {
            std::thread::sleep(PAUSE);
            let count = guests.present.len();
            guests.present.iter_mut().for_each(|guest| self.tend(guest, count));
            if self.takes_all && arrivals_at.elapsed() >= ARRIVALS_EVERY {
                self.bid_farewell(guests)?;
                self.welcome(&mut guests.present);
                arrivals_at = Instant::now();
            }
            if let Some(path) = arguments.metrics.as_deref().filter(|_| metrics_at.elapsed() >= METRICS_EVERY)
            {
                metrics_at = Instant::now();
                can_write = self.tell(&guests.present, arguments.apply, path, can_write);
            }
            let waits_for_arrivals = self.takes_all && arguments.apply;
            if !waits_for_arrivals
                && guests.present.iter().all(|guest| matches!(guest.state, State::Ended(_)))
            {
                break;
            }
        }
        if let Some(path) = &arguments.metrics {
            self.tell(&guests.present, arguments.apply, path, can_write);
        }
        Ok(())
    }

    /// Prints what was seen of guests that have ended, and forgets them.
    fn bid_farewell(&self, guests: &mut Guests) -> Result<(), Failure> {
        // One whose quota could not be put back stays, and is tried again.
        let has_ended =
            |guest: &mut Guest| matches!(guest.state, State::Ended(_)) && self.release(guest).is_none();
        for guest in guests.present.extract_if(.., has_ended) {
            guests.past += 1;
            guests.past_visited += usize::from(guest.given().visits > 0);
            self.words.guest(&guest)?;
        }
        Ok(())
    }

    /// Attaches to guests that were not there before. One that cannot be attached to, perhaps because it boots, waits.
    fn welcome(&self, guests: &mut Vec<Guest>) {
        // Processes that cannot be listed now may be later.
        let found = attach::all(&self.root).unwrap_or_default();
        for qemu in found {
            if self.interrupt.is_raised() {
                return;
            }
            if guests.len() >= MAX_GUESTS || guests.iter().any(|guest| guest.is(&qemu)) {
                continue;
            }
            let name = self.words.name(&qemu);
            let (guest, failed) = self.attach(qemu, guests.len() + 1);
            let how = failed.as_ref().map_or("is watched".into(), |error| format!("is tried again: {error}"));
            self.words.warn(&format!("{name} has arrived and {how}"));
            guests.push(if failed.is_some() { waiting(guest) } else { guest });
        }
    }

    /// Writes the metrics. Boosts do not end if that fails: the first failure in a row is a warning. Gives whether it has
    /// succeeded.
    fn tell(&self, guests: &[Guest], acting: bool, path: &Path, could_before: bool) -> bool {
        let written = metrics::text(guests, acting).write(path);
        if let (Err(error), true) = (&written, could_before) {
            self.words.warn(&format!("metrics are not written: {error}"));
        }
        written.is_ok()
    }

    /// Sees whether a guest has ended or was started anew.
    fn tend(&self, guest: &mut Guest, count: usize) {
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
                let again = if guest.was_watched() { " again" } else { "" };
                match self.start(guest, count) {
                    Ok(()) => self.words.warn(&format!("{name} is watched{again}")),
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
    pub fn end(&self, guest: &mut Guest, why: &str) -> Option<String> {
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

/// A guest that is attached to again later.
pub fn waiting(mut guest: Guest) -> Guest {
    // The second attempt is not made at once: what it lacked a moment ago, it lacks still.
    guest.failures = 1;
    guest.wait();
    guest
}
