//! The workloads: one type for each kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BadScenario, Cause, GroundKind};

mod delete_free;
pub mod fio;
pub mod io;
mod kernel;
mod latency;
mod tasks;

pub use delete_free::DeleteFree;
pub use fio::{Fio, Placement};
pub use io::{Io, IoSystem};
pub use kernel::{Clones, Memory, Postmark};
pub use latency::{Requests, Wakeup};
pub use tasks::{Phase, TaskStep, TaskThreads, Tasks};

/// What runs in the guest, by `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Workload {
    /// Allocates objects, and frees them after a grace period.
    Memory(Memory),
    /// Makes processes in new namespaces.
    Clone(Clones),
    /// Creates, uses and deletes small files.
    Postmark(Postmark),
    /// Sleeps and works in turn.
    Wakeup(Wakeup),
    /// Answers requests over the network.
    Requests(Requests),
    /// Computes, sleeps and wakes in a set order, as rt-app's tasks.
    Tasks(Tasks),
    /// Computes, reads and writes on a simulated disk.
    Io(Box<Io>),
    /// Runs fio on a real guest's disk.
    Fio(Fio),
    /// Looks up and deletes elements of a hash table.
    #[serde(rename = "delete-free")]
    DeleteFree(DeleteFree),
}

impl Workload {
    /// What one operation is, for the throughput's caption.
    pub fn operation(&self) -> &'static str {
        match self {
            Workload::Memory(_) => "allocation and call_rcu() pairs",
            Workload::Clone(_) => "clones",
            Workload::Postmark(_) => "transactions",
            Workload::Wakeup(_) => "wake-ups",
            Workload::Requests(_) => "round trips",
            Workload::Tasks(_) => "passes of the tasks' phases",
            Workload::DeleteFree(_) => "look-ups",
            Workload::Io(_) => "passes of the application's loops",
            Workload::Fio(_) => "reads",
        }
    }

    /// The grounds that run it.
    pub fn grounds(&self) -> &'static [GroundKind] {
        match self {
            Workload::Memory(_) | Workload::Clone(_) | Workload::Postmark(_) => {
                &[GroundKind::Sim, GroundKind::Vm]
            }
            Workload::Wakeup(_) => &[GroundKind::Sim, GroundKind::Xen],
            Workload::Requests(_) | Workload::Tasks(_) | Workload::Io(_) => &[GroundKind::Sim],
            Workload::Fio(_) => &[GroundKind::Vm],
            Workload::DeleteFree(_) => &[GroundKind::Threads, GroundKind::Vm],
        }
    }

    /// The error for a ground that does not run it.
    pub fn not_on(&self, ground: GroundKind) -> BadScenario {
        let others: Vec<_> = self.grounds().iter().map(|ground| format!("--on {ground}")).collect();
        let problem = format!("does not run on {ground}; choose {}", others.join(" or "));
        BadScenario::new("workload.kind", format!("{} {problem}", self.kind()))
    }

    /// The name in a scenario file.
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Memory(_) => "memory",
            Workload::Clone(_) => "clone",
            Workload::Postmark(_) => "postmark",
            Workload::Wakeup(_) => "wakeup",
            Workload::Requests(_) => "requests",
            Workload::Tasks(_) => "tasks",
            Workload::Io(_) => "io",
            Workload::Fio(_) => "fio",
            Workload::DeleteFree(_) => "delete-free",
        }
    }

    /// The metrics that matter most for it, in the order in which they are shown.
    pub fn rows(&self) -> &'static [&'static str] {
        use crate::observe::metric::*;
        match self {
            Workload::Memory(_) | Workload::Clone(_) | Workload::Postmark(_) => {
                &[GP_MEAN, GP_P99, GP_MAX, FOOTPRINT_PEAK, BACKLOG_PEAK, SYNC_MEAN, THROUGHPUT, CPU_SHARE]
            }
            Workload::Wakeup(_) | Workload::Requests(_) | Workload::Tasks(_) => {
                &[LATENCY_MEAN, LATENCY_P50, LATENCY_P99, LATENCY_MAX, LATE, CPU_SHARE]
            }
            Workload::DeleteFree(_) => {
                &[DELAY_P50, DELAY_P99, DELAY_MAX, WRITER_COST, LOOKUP_COST, GARBAGE_PEAK]
            }
            Workload::Io(_) => &[IO_RATE, IO_INACTIVE_SHARE, DISK_BUSY, COMPUTING_CPU, NEIGHBOUR_CPU],
            Workload::Fio(_) => &[THROUGHPUT, REGAINED, BEATS_CPU],
        }
    }

    /// Whether it makes a guest's kernel free memory through RCU.
    pub fn loads_rcu(&self) -> bool {
        matches!(self, Workload::Memory(_) | Workload::Clone(_) | Workload::Postmark(_))
    }

    /// Whether its latency is measured, and not the guest's RCU or memory.
    pub fn is_latency(&self) -> bool {
        matches!(self, Workload::Wakeup(_) | Workload::Requests(_) | Workload::Tasks(_))
    }

    /// The reason why it can never lose throughput to that cause in the simulator, if there is one. Nothing is
    /// attributed to such a cause.
    pub fn cannot_lose_to(&self, cause: Cause) -> Option<&'static str> {
        let cannot = matches!((self, cause), (Workload::Postmark(_), Cause::ReaderPreemption));
        cannot.then_some(
            "The simulated Postmark never waits for a grace period and frees little after one, and memory that is cold is as \
             quick as memory that is warm",
        )
    }

    /// The workload `io`, if it is that.
    pub fn io(&self) -> Option<&Io> {
        let Workload::Io(io) = self else { return None };
        Some(io)
    }

    /// The workload `fio`, if it is that.
    pub fn fio(&self) -> Option<&Fio> {
        let Workload::Fio(fio) = self else { return None };
        Some(fio)
    }

    /// Number of latencies after which the window ends; `None` if the window has a fixed length.
    pub fn latencies(&self) -> Option<u64> {
        match self {
            Workload::Wakeup(wakeup) => Some(wakeup.samples).filter(|samples| *samples > 0),
            Workload::Requests(served) => Some(served.requests).filter(|requests| *requests > 0),
            _ => None,
        }
    }
}
