//! Everything that a placer is told, as one type, and its text form: a line of a record.
//!
//! A record of signals replayed into a placer with the same settings gives the same decisions; that is how a live run is
//! checked against this code. A number that is not known is `-`.

use std::fmt;
use std::str::FromStr;

use crate::beat::Beat;
use crate::cpus::CpuSet;

/// One thing that a placer is told. Times are ns on one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A vCPU's beat.
    Beat(Beat),
    /// Time has passed: look whether anything is due. Once a period of beats is enough.
    Tick {
        /// Now.
        at_ns: u64,
    },
    /// A task to look after; takes the place of an earlier one of that number.
    Admit {
        /// The caller's number for it, below the settings' `tasks`.
        task: usize,
        /// What is known of it.
        admission: Admission,
        /// Now.
        at_ns: u64,
    },
    /// The task has ended, or is none of ours any more.
    Dismiss {
        /// The task.
        task: usize,
        /// Now.
        at_ns: u64,
    },
    /// Its user (or a cpuset) has given the task another mask, which holds now; what was done to it is undone thereby.
    Mask {
        /// The task.
        task: usize,
        /// Where it may run now.
        mask: CpuSet,
        /// Now.
        at_ns: u64,
    },
    /// The task was seen on a vCPU. Matters for tasks that are not placed.
    Seen {
        /// The task.
        task: usize,
        /// Where.
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
    /// Where there are no I/O events: how long the task has had I/O outstanding in all, ns.
    IoSampled {
        /// The task.
        task: usize,
        /// When.
        at_ns: u64,
        /// Since it began, or since anything: only differences count.
        outstanding_ns: u64,
    },
    /// Where there are no I/O events: how long I/Os of some device took in the mean since the last such signal, ns. To be given
    /// several times a second, for the mean holds waits for vCPUs that were off, and counts as the least of eight.
    Completion {
        /// When.
        at_ns: u64,
        /// How long.
        took_ns: u64,
    },
    /// The oracle's: when a vCPU goes off next, and when it comes back. Only [`Policy::Oracle`](crate::place::Policy::Oracle)
    /// listens.
    NextOff {
        /// The vCPU.
        vcpu: usize,
        /// When it goes off.
        off_ns: u64,
        /// When it is back.
        back_ns: u64,
    },
    /// What follows with a time before `until_ns` is old, for the caller has not looked for a while: the placer learns from it,
    /// and moves nothing until a signal of that time or later. To be given ahead of such a batch.
    CatchUp {
        /// Until when.
        until_ns: u64,
    },
    /// Release all tasks and move none until told to go on: acting did not pay, or the end is near.
    Halt {
        /// Now.
        at_ns: u64,
    },
    /// Go on after [`Signal::Halt`].
    Resume {
        /// Now.
        at_ns: u64,
    },
}

/// What is known of a task as it is handed to the placer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Where its user lets it run. Never left.
    pub mask: CpuSet,
    /// The vCPU it was last seen on, if known.
    pub on: Option<usize>,
    /// What it touches again and again, bytes; 0 if not known.
    pub working_set_bytes: u64,
}

impl Admission {
    /// A task without a known working set.
    pub fn new(mask: CpuSet, on: Option<usize>) -> Admission {
        Admission { mask, on, working_set_bytes: 0 }
    }
}

impl Signal {
    /// When it was, ns; for [`Signal::NextOff`] and [`Signal::CatchUp`] the first time they speak of.
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

/// A number of the text form; `-` if it is not known.
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

/// A line that is no signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSignal;

impl fmt::Display for BadSignal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("expected a signal, such as `tick 1000` or `io-begin 1000 3`")
    }
}

impl std::error::Error for BadSignal {}

/// The words of a line, read one by one.
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

/// The signal of this kind and time, from the rest of its line.
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
