//! What runs in the guest.

use serde::{Deserialize, Serialize};

use super::{Cause, Fio, Io};

/// What runs in the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Kernel threads, one a vCPU, that allocate objects and free them through `call_rcu()`.
    Memory {
        /// Size of an object.
        #[serde(default = "kib")]
        object_bytes: u64,
        /// Pairs of allocation and `call_rcu()` between two voluntary context switches.
        #[serde(default = "ten")]
        burst: u32,
        /// Pause after each burst; 0 for none. Sets the rate.
        #[serde(default)]
        pause_us: u64,
        /// The workers pause above this much unreclaimed memory, in MiB; 0 for half of the guest's.
        #[serde(default)]
        backlog_limit_mib: u64,
        /// Whether objects are freed in batches, by `kfree_rcu()`, instead of `call_rcu()`. Only on the simulator.
        #[serde(default)]
        batched: bool,
    },
    /// Processes, pinned one a vCPU, that `clone()` into new namespaces in a loop.
    Clone {
        /// Processes; 0 for one a vCPU.
        #[serde(default)]
        workers: u32,
        /// The namespaces: of `net`, `ipc`, `uts`, `pid`, `mnt`.
        #[serde(default = "all_namespaces")]
        namespaces: Vec<String>,
        /// The workers pause while the guest has less memory available than this, in MiB.
        #[serde(default = "sixty_four")]
        stop_below_mib: u64,
        /// Processes beside them that compute in user space, pinned one a vCPU after the workers'. Only on the
        /// simulator.
        #[serde(default)]
        computing: u32,
    },
    /// Debian's `postmark`, several processes, on tmpfs.
    Postmark {
        /// Processes.
        #[serde(default = "two")]
        processes: u32,
        /// Files at the start, over all processes.
        files: u64,
        /// Transactions, over all processes.
        transactions: u64,
        /// Smallest file.
        #[serde(default = "five_hundred")]
        size_min_bytes: u64,
        /// Largest file.
        #[serde(default = "four_thousand")]
        size_max_bytes: u64,
        /// CPU time in user mode between two transactions: sets the share of time in the kernel. Only on the
        /// simulator.
        #[serde(default)]
        think_us: u64,
    },
    /// A task that sleeps until a time and works, in a loop; what counts is how late it runs. The window ends with the
    /// last of the samples.
    Wakeup {
        /// Time from the end of its work to the time at which it wants to run.
        #[serde(default = "thousand")]
        sleep_us: u64,
        /// 0 for sleeps of that length; s for lengths that are uniform from 1 - s to 1 + s times it.
        #[serde(default)]
        sleep_spread: f64,
        /// What it computes each time, in user space.
        #[serde(default = "two_hundred")]
        work_us: u64,
        /// Wake-ups that are measured; 0 for as many as the window holds.
        #[serde(default)]
        samples: u64,
    },
    /// A UDP ping server, as Sockperf's, and its client on another machine; what counts is the round trip. Without a
    /// rate the loop is closed: the client waits for each answer. Only on the simulator.
    Requests {
        /// Closed loop: time from an answer to the next request.
        #[serde(default)]
        gap_us: u64,
        /// Open loop: requests per second, whatever is answered; 0 for a closed loop.
        #[serde(default)]
        rate_per_s: u64,
        /// 0 for gaps, or times between requests, of that length; s for uniform ones from 1 - s to 1 + s times it.
        #[serde(default)]
        gap_spread: f64,
        /// What the server computes for each request, in user space.
        #[serde(default = "ten_us")]
        service_us: u64,
        /// The network's delay in one direction.
        #[serde(default = "fifty")]
        network_us: u64,
        /// Round trips that are measured; 0 for as many as the window holds.
        #[serde(default)]
        requests: u64,
    },
    /// An application that computes, reads and writes, beside tasks that compute for ever. Only on the simulator.
    Io(Box<Io>),
    /// fio on a disk, beside tasks that compute for ever on every vCPU. Only in real guests.
    Fio(Fio),
    /// Threads that look up random elements of a hash table while one deletes elements and a reclamation scheme frees
    /// them. On real threads and in real guests.
    #[serde(rename = "delete-free")]
    DeleteFree {
        /// Which scheme frees: the name of a program of the peers (`liburcu-memb`, `reprieve-restartable`, ...).
        scheme: String,
        /// Scheme whose readers do nothing but look up, in the same language: the zero of this one's read cost.
        #[serde(default = "none")]
        bare: String,
        /// Elements of the table.
        #[serde(default = "four_mi")]
        entries: u64,
        /// Threads that look up.
        #[serde(default = "eight")]
        readers: u32,
        /// CPUs on which they may run.
        #[serde(default = "first_cpu")]
        reader_cpus: Vec<usize>,
        /// CPUs on which the writer, and threads that reclaim, may run.
        #[serde(default = "second_cpu")]
        writer_cpus: Vec<usize>,
        /// Elements that the writer deletes (and inserts again) per second.
        #[serde(default = "five_thousand")]
        deletes_per_s: u64,
        /// A reader computes so long between two look-ups.
        #[serde(default)]
        think_ns: u64,
        /// And so long within the read-side section of one.
        #[serde(default)]
        section_ns: u64,
        /// One reader stays in a section, or without a quiescent state, so long once in the window; 0 for never.
        #[serde(default)]
        stall_ms: u64,
        /// Readers of schemes with quiescent states pass one every so many look-ups.
        #[serde(default = "one")]
        quiescent_every: u32,
    },
}

fn kib() -> u64 {
    1024
}
fn ten() -> u32 {
    10
}
fn thousand() -> u64 {
    1_000
}
fn two_hundred() -> u64 {
    200
}
fn ten_us() -> u64 {
    10
}
fn fifty() -> u64 {
    50
}
fn two() -> u32 {
    2
}
fn sixty_four() -> u64 {
    64
}
fn none() -> String {
    "none".into()
}
fn four_mi() -> u64 {
    4 << 20
}
fn eight() -> u32 {
    8
}
fn first_cpu() -> Vec<usize> {
    vec![0]
}
fn second_cpu() -> Vec<usize> {
    vec![1]
}
fn five_thousand() -> u64 {
    5_000
}
fn one() -> u32 {
    1
}
fn five_hundred() -> u64 {
    500
}
fn four_thousand() -> u64 {
    4_000
}
/// Every kind of namespace that the clone workload knows.
pub(super) fn all_namespaces() -> Vec<String> {
    ["net", "ipc", "uts", "pid", "mnt"].map(String::from).to_vec()
}

impl Workload {
    /// What one operation is, for the throughput's caption.
    pub fn operation(&self) -> &'static str {
        match self {
            Workload::Memory { .. } => "allocation and call_rcu() pairs",
            Workload::Clone { .. } => "clones",
            Workload::Postmark { .. } => "transactions",
            Workload::Wakeup { .. } => "wake-ups",
            Workload::Requests { .. } => "round trips",
            Workload::DeleteFree { .. } => "look-ups",
            Workload::Io(_) => "passes of the application's loops",
            Workload::Fio(_) => "reads",
        }
    }

    /// Whether real guests can run it as well as simulated ones.
    pub fn runs_in_guests(&self) -> bool {
        matches!(self, Workload::Memory { .. } | Workload::Clone { .. } | Workload::Postmark { .. })
    }

    /// The metrics that matter most for it, in the order in which they are told.
    pub fn rows(&self) -> &'static [&'static str] {
        use crate::observe::metric::*;
        match self {
            Workload::Memory { .. } | Workload::Clone { .. } | Workload::Postmark { .. } => {
                &[GP_MEAN, GP_P99, GP_MAX, FOOTPRINT_PEAK, BACKLOG_PEAK, SYNC_MEAN, THROUGHPUT, CPU_SHARE]
            }
            Workload::Wakeup { .. } | Workload::Requests { .. } => {
                &[LATENCY_MEAN, LATENCY_P50, LATENCY_P99, LATENCY_MAX, LATE, CPU_SHARE]
            }
            Workload::DeleteFree { .. } => {
                &[DELAY_P50, DELAY_P99, DELAY_MAX, WRITER_COST, LOOKUP_COST, GARBAGE_PEAK]
            }
            Workload::Io(_) => &[IO_RATE, IO_INACTIVE_SHARE, DISK_BUSY, COMPUTING_CPU, NEIGHBOUR_CPU],
            Workload::Fio(_) => &[THROUGHPUT, GIVEN_BACK, BEATS_CPU],
        }
    }

    /// Whether its latency is what counts, and not the guest's RCU or memory.
    pub fn is_latency(&self) -> bool {
        matches!(self, Workload::Wakeup { .. } | Workload::Requests { .. })
    }

    /// Why none of its throughput can be lost to that cause in the simulator, whatever happens: then nothing is attributed to it.
    pub fn cannot_lose_to(&self, cause: Cause) -> Option<&'static str> {
        let cannot = matches!((self, cause), (Workload::Postmark { .. }, Cause::ReaderPreemption));
        cannot.then_some(
            "The simulated Postmark never waits for a grace period and frees little after one, and memory that is cold is as \
             quick as memory that is warm",
        )
    }

    /// What it does, if it is an application that does I/O.
    pub fn io(&self) -> Option<&Io> {
        match self {
            Workload::Io(io) => Some(io),
            _ => None,
        }
    }

    /// What fio does, if it is that.
    pub fn fio(&self) -> Option<&Fio> {
        match self {
            Workload::Fio(fio) => Some(fio),
            _ => None,
        }
    }

    /// Latencies after which the window ends; none if it always has its length.
    pub fn latencies(&self) -> Option<u64> {
        match self {
            Workload::Wakeup { samples: 0, .. } | Workload::Requests { requests: 0, .. } => None,
            Workload::Wakeup { samples: many, .. } | Workload::Requests { requests: many, .. } => Some(*many),
            _ => None,
        }
    }
}
