//! Readers that hold up a grace period: who they are, and since when.
//!
//! Readers keep no time. A scanner that finds a reader late notes the reader's word and the time; while the
//! word stays the same, the reader is late since then.

use crate::core::Core;
use crate::fence::NoFence;
use crate::freeing::PutAside;
use crate::record::Record;
use crate::retired::discard;
use crate::sync::Ordering;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A reader that holds up a grace period, or did when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateReader {
    /// The name given at registration; the thread's name, for readers that were registered implicitly.
    pub name: String,
    /// The thread's id, as in /proc/self/task; on systems other than 64-bit Linux, a number of this crate.
    pub tid: i32,
    /// The thread has ended, or exists only in the parent of this fork: its guard was leaked, and its section lasts as long
    /// as the domain.
    pub ended: bool,
    /// Whether it was in a section when this was made.
    pub in_section: bool,
    /// How long ago a writer first found it in this section, in nanoseconds.
    pub late_ns: u64,
}

impl LateReader {
    pub(crate) fn of(record: &Record, now_ns: u64) -> Self {
        let word = record.word.load(Ordering::Relaxed);
        let known = word != 0 && record.late_word.load(Ordering::Relaxed) == word;
        let since_ns = if known { record.late_since_ns.load(Ordering::Relaxed) } else { now_ns };
        let (tid, ended) = record.owner();
        Self {
            name: record.name.lock().clone(),
            tid,
            ended,
            in_section: word != 0,
            late_ns: now_ns.saturating_sub(since_ns),
        }
    }
}

impl fmt::Display for LateReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.in_section { "in a section" } else { "not in a section" };
        write!(
            f,
            "reader \"{}\" (thread {}{}), {place}, late for {} us",
            self.name,
            self.tid,
            if self.ended { ", which has ended" } else { "" },
            self.late_ns / 1_000
        )
    }
}

/// A CPU for which membarrier waits, or did: a vCPU that the hypervisor has descheduled, as a rule. Noticed once calls
/// take longer than [`Options::call_limit_ns`](crate::Options::call_limit_ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateCpu {
    /// Its number, as the process sees it. Also the CPU on which the thread that calls membarrier was itself kept from running.
    pub cpu: usize,
    /// How long it has kept a call waiting that has not ended, in nanoseconds; 0 if none waits.
    pub waiting_ns: u64,
    /// How long callers last waited for a slow answer to the thread that calls membarrier for them, in nanoseconds.
    pub last_ns: u64,
    /// How many answers to that thread were slow so far, of whichever CPU.
    pub times: u64,
}

impl fmt::Display for LateCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waiting_ns {
            0 => write!(f, "CPU {} kept membarrier waiting for {} us", self.cpu, self.last_ns / 1_000)?,
            ns => write!(f, "CPU {} has not answered membarrier for {} us", self.cpu, ns / 1_000)?,
        }
        write!(f, "; {} slow answers in this process so far", self.times)
    }
}

/// A grace period did not end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// Who held it up. May be empty: the last may have left in the meantime.
    pub readers: Vec<LateReader>,
    /// The CPU for which membarrier still waits, if it does.
    pub cpu: Option<LateCpu>,
    /// The kernel refuses membarrier, which it allowed before: no grace period ends any more.
    pub membarrier_refused: bool,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.membarrier_refused {
            return write!(f, "the grace period cannot end: {NoFence}");
        }
        if let Some(cpu) = self.cpu {
            return write!(f, "the grace period did not end in time: {cpu}");
        }
        write!(f, "the grace period did not end in time; it waits for {} reader(s)", self.readers.len())?;
        self.readers.iter().try_for_each(|r| write!(f, "; {r}"))
    }
}

impl std::error::Error for Late {}

/// What is called when a reader is late.
pub(crate) struct Hook {
    pub(crate) limit_ns: u64,
    pub(crate) call: Box<dyn Fn(&LateReader) + Send + Sync>,
}

impl Core {
    /// Notes that `record` is late, since now unless it is known. Calls the hook, once per section.
    pub(crate) fn note_late(&self, record: &Record, now_ns: u64) {
        let word = record.word.load(Ordering::Relaxed);
        if word == 0 {
            return;
        }
        // Relaxed: scanners race here, and any of their times will do.
        if record.late_word.load(Ordering::Relaxed) != word {
            record.late_since_ns.store(now_ns, Ordering::Relaxed);
            record.late_word.store(word, Ordering::Relaxed);
        }
        let Some(hook) = self.hook() else { return };
        let late = now_ns.saturating_sub(record.late_since_ns.load(Ordering::Relaxed)) >= hook.limit_ns;
        if late && record.reported_word.swap(word, Ordering::Relaxed) != word {
            // The panic hook has reported a panic. It must not end the caller, which has objects in hand.
            let _aside = PutAside::begin();
            let call = || (hook.call)(&LateReader::of(record, now_ns));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
                discard(payload);
            }
        }
    }

    /// The domain's hook.
    pub(crate) fn hook(&self) -> Option<Arc<Hook>> {
        self.hook.lock().clone()
    }

    /// In how many nanoseconds a waiter must look again for the hook's sake.
    pub(crate) fn hook_due_ns(&self, token: u64, now_ns: u64) -> Option<u64> {
        let hook = self.hook()?;
        let unreported =
            |r: &&Record| r.reported_word.load(Ordering::Relaxed) != r.word.load(Ordering::Relaxed);
        let due = |r: &Record| {
            r.late_since_ns
                .load(Ordering::Relaxed)
                .saturating_add(hook.limit_ns)
                .saturating_sub(now_ns)
                .max(1)
        };
        self.late(token).filter(unreported).map(due).min()
    }
}
