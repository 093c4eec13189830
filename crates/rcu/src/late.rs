//! Readers that hold up a grace period: which they are, and since when.
//!
//! Readers keep no time. A scanner that finds a reader late records the reader's word and the time. While the word
//! stays the same, the reader has been late since then.

use crate::fence::{LateCpu, NoFence};
use crate::reader_record::Record;
use crate::sync::Ordering;
use std::fmt;

/// A reader that holds up a grace period, or held one up when this was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateReader {
    /// The name given at registration. For readers that were registered implicitly, the thread's name.
    pub name: String,
    /// The thread's id, as in /proc/self/task. On systems other than 64-bit Linux, a number that this crate assigns.
    pub tid: i32,
    /// The thread has ended, or exists only in the parent of this fork. Its guard was leaked, so its section lasts as
    /// long as the domain.
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

/// A grace period did not end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// The readers that hold it up. May be empty, because the last of them may have left meanwhile.
    pub readers: Vec<LateReader>,
    /// The CPU for which membarrier still waits, if it does.
    pub cpu: Option<LateCpu>,
    /// The kernel refuses membarrier, which it allowed before. No grace period ends any more.
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
