//! Signals: all input of a [`Placer`](crate::place::Placer) as one type, and its text form, one line of a record each.
//!
//! A record of signals, replayed into a placer with the same settings, gives the same decisions. Tests check recorded
//! live runs against this code that way. In the text, `-` stands for an unknown number.

use std::fmt;
use std::str::FromStr;

use crate::beat::Beat;
use crate::cpus::CpuSet;

/// One input of a placer. Times are ns on one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A vCPU's beat.
    Beat(Beat),
    /// Time has passed, and the placer should check whether anything is due. Once a beat period is enough.
    Tick {
        /// Now.
        at_ns: u64,
    },
    /// A new task; replaces an earlier one of the same number.
    Admit {
        /// The caller's number for the task, below the settings' `tasks`.
        task: usize,
        /// Its mask, place and working set.
        admission: Admission,
        /// Now.
        at_ns: u64,
    },
    /// The task has ended, or is no longer the placer's.
    Dismiss {
        /// The task.
        task: usize,
        /// Now.
        at_ns: u64,
    },
    /// The user (or a cpuset) gave the task another mask. It is in force now, and replaces the placer's own.
    Mask {
        /// The task.
        task: usize,
        /// The CPUs it may run on now.
        mask: CpuSet,
        /// Now.
        at_ns: u64,
    },
    /// The task was seen on a vCPU. Ignored for tasks that the placer has placed.
    Seen {
        /// The task.
        task: usize,
        /// The vCPU.
        on: usize,
        /// Now.
        at_ns: u64,
    },
    /// An I/O of the task was issued.
    IoBegin {
        /// The task.
        task: usize,
        /// When.
        at_ns: u64,
    },
    /// An I/O of the task has ended.
    IoEnd {
        /// The task.
        task: usize,
        /// When.
        at_ns: u64,
        /// How long it took, ns, if known.
        took_ns: Option<u64>,
    },
    /// Without I/O events: the task's total time with I/O outstanding.
    IoSampled {
        /// The task.
        task: usize,
        /// When.
        at_ns: u64,
        /// The total since any fixed moment, ns: only differences count.
        outstanding_ns: u64,
    },
    /// Without I/O events: the mean time that a device's I/Os took since the last such signal. Give it several times a
    /// second: the mean includes waits for vCPUs that were off, so the placer uses the least of eight.
    Completion {
        /// When.
        at_ns: u64,
        /// The mean, ns.
        took_ns: u64,
    },
    /// For the oracle policies, which alone use it: when a vCPU goes off next, and when it comes back. The text form
    /// calls it `told`.
    NextOff {
        /// The vCPU.
        vcpu: usize,
        /// When it goes off.
        off_ns: u64,
        /// When it is back.
        back_ns: u64,
    },
    /// Signals older than `until_ns` follow, because the caller was held up. The placer learns from them, but moves
    /// nothing until a signal of that time or later.
    CatchUp {
        /// The end of the old signals, ns.
        until_ns: u64,
    },
    /// Release all tasks, and move none until [`Signal::Resume`]: moves did not pay, or the daemon is stopping.
    Halt {
        /// Now.
        at_ns: u64,
    },
    /// Move tasks again after [`Signal::Halt`].
    Resume {
        /// Now.
        at_ns: u64,
    },
}

/// What the placer is told about a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The CPUs that its user allows. The placer never leaves them.
    pub mask: CpuSet,
    /// The vCPU it was last seen on, if known.
    pub on: Option<usize>,
    /// Memory that it uses again and again, bytes; 0 if unknown.
    pub working_set_bytes: u64,
}

impl Admission {
    /// A task without a known working set.
    pub fn new(mask: CpuSet, on: Option<usize>) -> Admission {
        Admission { mask, on, working_set_bytes: 0 }
    }
}

impl Signal {
    /// The signal's time, ns; for [`Signal::NextOff`] and [`Signal::CatchUp`] the first time they name.
    pub fn at_ns(&self) -> u64 {
        match *self {
            Signal::Beat(beat) => beat.at_ns,
            Signal::NextOff { off_ns, .. } => off_ns,
            Signal::CatchUp { until_ns } => until_ns,
            Signal::Tick { at_ns }
            | Signal::Admit { at_ns, .. }
            | Signal::Dismiss { at_ns, .. }
            | Signal::Mask { at_ns, .. }
            | Signal::Seen { at_ns, .. }
            | Signal::IoBegin { at_ns, .. }
            | Signal::IoEnd { at_ns, .. }
            | Signal::IoSampled { at_ns, .. }
            | Signal::Completion { at_ns, .. }
            | Signal::Halt { at_ns }
            | Signal::Resume { at_ns } => at_ns,
        }
    }
}

/// A number in the text form; `-` if unknown.
pub(crate) struct Known<T>(pub(crate) Option<T>);

impl<T: fmt::Display> fmt::Display for Known<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(out),
            None => out.write_str("-"),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Signal::Beat(Beat { vcpu, due_ns, at_ns, period_ns, steal_ns, run_delay_ns }) => {
                let (steal, delay) = (Known(steal_ns), Known(run_delay_ns));
                write!(out, "beat {at_ns} {vcpu} {due_ns} {period_ns} {steal} {delay}")
            }
            Signal::Tick { at_ns } => write!(out, "tick {at_ns}"),
            Signal::Admit { task, admission: Admission { mask, on, working_set_bytes }, at_ns } => {
                write!(out, "admit {at_ns} {task} {mask} {} {working_set_bytes}", Known(on))
            }
            Signal::Dismiss { task, at_ns } => write!(out, "dismiss {at_ns} {task}"),
            Signal::Mask { task, mask, at_ns } => write!(out, "mask {at_ns} {task} {mask}"),
            Signal::Seen { task, on, at_ns } => write!(out, "seen {at_ns} {task} {on}"),
            Signal::IoBegin { task, at_ns } => write!(out, "io-begin {at_ns} {task}"),
            Signal::IoEnd { task, at_ns, took_ns } => write!(out, "io-end {at_ns} {task} {}", Known(took_ns)),
            Signal::IoSampled { task, at_ns, outstanding_ns } => {
                write!(out, "io-sampled {at_ns} {task} {outstanding_ns}")
            }
            Signal::Completion { at_ns, took_ns } => write!(out, "completion {at_ns} {took_ns}"),
            Signal::NextOff { vcpu, off_ns, back_ns } => write!(out, "told {off_ns} {vcpu} {back_ns}"),
            Signal::CatchUp { until_ns } => write!(out, "catch-up {until_ns}"),
            Signal::Halt { at_ns } => write!(out, "halt {at_ns}"),
            Signal::Resume { at_ns } => write!(out, "resume {at_ns}"),
        }
    }
}

/// The error for a line that is not a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSignal;

impl fmt::Display for BadSignal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("expected a signal, such as `tick 1000` or `io-begin 1000 3`")
    }
}

impl std::error::Error for BadSignal {}

/// Reads a line word by word.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn value<T: FromStr>(&mut self) -> Result<T, BadSignal> {
        self.0.next().and_then(|word| word.parse().ok()).ok_or(BadSignal)
    }

    fn known<T: FromStr>(&mut self) -> Result<Option<T>, BadSignal> {
        match self.0.next().ok_or(BadSignal)? {
            "-" => Ok(None),
            word => word.parse().map(Some).map_err(|_| BadSignal),
        }
    }
}

impl FromStr for Signal {
    type Err = BadSignal;

    fn from_str(line: &str) -> Result<Signal, BadSignal> {
        let mut words = Words(line.split_ascii_whitespace());
        let kind: String = words.value()?;
        let at_ns = words.value()?;
        let signal = read(&kind, at_ns, &mut words)?;
        match words.0.next() {
            None => Ok(signal),
            Some(_) => Err(BadSignal),
        }
    }
}

/// Reads the signal of this kind and time from the rest of its line.
fn read(kind: &str, at_ns: u64, words: &mut Words<'_>) -> Result<Signal, BadSignal> {
    Ok(match kind {
        "beat" => Signal::Beat(Beat {
            vcpu: words.value()?,
            due_ns: words.value()?,
            at_ns,
            period_ns: words.value()?,
            steal_ns: words.known()?,
            run_delay_ns: words.known()?,
        }),
        "tick" => Signal::Tick { at_ns },
        "admit" => Signal::Admit {
            task: words.value()?,
            admission: Admission {
                mask: words.value()?,
                on: words.known()?,
                working_set_bytes: words.value()?,
            },
            at_ns,
        },
        "dismiss" => Signal::Dismiss { task: words.value()?, at_ns },
        "mask" => Signal::Mask { task: words.value()?, mask: words.value()?, at_ns },
        "seen" => Signal::Seen { task: words.value()?, on: words.value()?, at_ns },
        "io-begin" => Signal::IoBegin { task: words.value()?, at_ns },
        "io-end" => Signal::IoEnd { task: words.value()?, at_ns, took_ns: words.known()? },
        "io-sampled" => Signal::IoSampled { task: words.value()?, at_ns, outstanding_ns: words.value()? },
        "completion" => Signal::Completion { at_ns, took_ns: words.value()? },
        "told" => Signal::NextOff { off_ns: at_ns, vcpu: words.value()?, back_ns: words.value()? },
        "catch-up" => Signal::CatchUp { until_ns: at_ns },
        "halt" => Signal::Halt { at_ns },
        "resume" => Signal::Resume { at_ns },
        _ => return Err(BadSignal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_they_are_written() {
        let lines = [
            "beat 2000 1 1000 1000 - 30",
            "tick 5",
            "admit 5 3 0-3,8 - 4096",
            "dismiss 5 3",
            "mask 5 3 1",
            "seen 5 3 1",
            "io-begin 5 3",
            "io-end 6 3 1",
            "io-sampled 7 3 100",
            "completion 7 500",
            "told 7 1 9",
            "catch-up 7",
            "halt 7",
            "resume 8",
        ];
        for line in lines {
            assert_eq!(line.parse::<Signal>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "tick", "tick x", "tick 5 6", "beat 1 2 3", "frobnicate 5", "mask 5 3 9999"] {
            assert_eq!(line.parse::<Signal>(), Err(BadSignal), "{line:?}");
        }
    }
}
