//! Workloads whose latency counts, and not the guest's RCU or memory: `wakeup` and `requests`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `kind = "wakeup"`: a task that sleeps until a time and then works, in a loop; its latency is how late it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Wakeup {
    /// Time from the end of the task's work to the time at which it wants to run, in us.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub sleep_us: u64,
    /// Sleeps are uniform from 1 - s to 1 + s times `sleep_us`, where s is this; 0 for sleeps of the same length.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sleep_spread: f64,
    /// CPU time that the task takes after each sleep, in user space, in us.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub work_us: u64,
    /// Wake-ups to measure, after which the window ends; 0 for as many as the window holds.
    #[schemars(range(min = 0, max = 100_000_000))]
    pub samples: u64,
}

impl Default for Wakeup {
    fn default() -> Self {
        Wakeup { sleep_us: 1_000, sleep_spread: 0.0, work_us: 200, samples: 0 }
    }
}

/// `kind = "requests"`: a UDP ping server, as Sockperf's, and its client on another machine; the latency is the round trip.
/// Without a rate the loop is closed: the client waits for each answer. Only on the simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Requests {
    /// Closed loop: time from an answer to the next request, in us. Not together with `rate_per_s`.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub gap_us: u64,
    /// Open loop: requests per second, whether or not they are answered; 0 for a closed loop.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub rate_per_s: u64,
    /// Gaps, or times between requests, are uniform from 1 - s to 1 + s times the stated one, where s is this; 0 for gaps
    /// of the same length.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gap_spread: f64,
    /// CPU time that the server takes for each request, in user space, in us.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub service_us: u64,
    /// The network's delay in one direction, in us.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub network_us: u64,
    /// Round trips to measure, after which the window ends; 0 for as many as the window holds.
    #[schemars(range(min = 0, max = 100_000_000))]
    pub requests: u64,
}

impl Default for Requests {
    fn default() -> Self {
        Requests { gap_us: 0, rate_per_s: 0, gap_spread: 0.0, service_us: 10, network_us: 50, requests: 0 }
    }
}
