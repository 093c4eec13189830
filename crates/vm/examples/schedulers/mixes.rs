//! The mixes of threads, and what is said of each thread afterwards.

use reprieve_study::units::SECOND_NS;
use serde::{Deserialize, Serialize};

/// A thread, or several that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub count: usize,
    pub nice: i32,
    pub work: Work,
    /// Per cent of the CPU, of a period in ms.
    pub quota: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub enum Work {
    Spin,
    /// Sleeps and works, us; a sleep is from half to three halves of that, so that threads do not keep step with each
    /// other, or with ticks.
    Sleeps {
        sleep_us: u64,
        work_us: u64,
    },
}

pub struct Mix {
    pub name: &'static str,
    pub kinds: &'static [Kind],
}

/// Threads that compute for ever.
const fn busy(count: usize, nice: i32) -> Kind {
    Kind { count, nice, work: Work::Spin, quota: None }
}

const fn sleeping(count: usize, nice: i32, sleep_us: u64, work_us: u64) -> Kind {
    Kind { count, nice, work: Work::Sleeps { sleep_us, work_us }, quota: None }
}

const fn limited(percent: u64, period_ms: u64) -> Kind {
    Kind { quota: Some((percent, period_ms)), ..busy(1, 0) }
}

/// All on one CPU. Chosen before any was run; that sleeps spread came after the first run, in which some were in step with the
/// 4 ms of a tick, so that their phase decided.
pub const MIXES: [Mix; 12] = [
    Mix { name: "two busy", kinds: &[busy(2, 0)] },
    Mix { name: "three busy", kinds: &[busy(3, 0)] },
    Mix { name: "six busy", kinds: &[busy(6, 0)] },
    Mix { name: "twelve busy", kinds: &[busy(12, 0)] },
    Mix { name: "busy, nice 0 and 5", kinds: &[busy(1, 0), busy(1, 5)] },
    Mix { name: "busy, nice -5, 0 and 10", kinds: &[busy(1, -5), busy(1, 0), busy(1, 10)] },
    Mix { name: "one busy, one often awake", kinds: &[busy(1, 0), sleeping(1, 0, 2_000, 300)] },
    Mix { name: "two busy, two often awake", kinds: &[busy(2, 0), sleeping(2, 0, 7_000, 1_000)] },
    Mix { name: "one busy, one long awake", kinds: &[busy(1, 0), sleeping(1, 0, 20_000, 12_000)] },
    Mix { name: "two busy, one awake at nice 10", kinds: &[busy(2, 0), sleeping(1, 10, 5_000, 500)] },
    Mix { name: "busy, one with 20 ms of 100 ms", kinds: &[busy(1, 0), limited(20, 100)] },
    Mix { name: "busy, with 40 ms of 50 ms and 5 ms of 20 ms", kinds: &[limited(80, 50), limited(25, 20)] },
];

/// What one thread saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    pub run_ns: u64,
    /// How long it was kept from running at a time, ns.
    pub off_ns: Vec<u64>,
    /// How late it ran after it should have woken, ns.
    pub late_ns: Vec<u64>,
}

/// Shorter ones are interrupts.
pub const LEAST_OFF_NS: u64 = 150_000;
/// Nothing is noted before.
pub const WARM_UP_NS: u64 = SECOND_NS;
/// Ten seconds at first: then a p99 that stands between two ticks hung on a handful of times.
pub const WINDOW_NS: u64 = 60 * SECOND_NS;
