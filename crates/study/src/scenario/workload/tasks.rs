//! `kind = "tasks"`: threads that compute, sleep and wake one another in a set order, as those that rt-app runs.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `kind = "tasks"`: threads that compute, sleep and wake one another. What counts is their wake-up latency: how late they run after a
/// sleep or a timer. Only on the simulator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// The tasks, by name: 1 to 64, with at most 256 threads. Must be given.
    pub tasks: IndexMap<String, TaskThreads>,
}

/// One task: threads that do the same, each for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskThreads {
    /// Its threads.
    #[schemars(range(min = 1, max = 256))]
    pub threads: u32,
    /// vCPUs that may run them, from 0; empty for all.
    pub vcpus: Vec<u32>,
    /// Weight in the guest's scheduler: 1024 is nice 0, 3 is SCHED_IDLE.
    #[schemars(range(min = 2, max = 262_144))]
    pub weight: u32,
    /// Time before a thread begins, in us.
    #[schemars(range(min = 0, max = 60_000_000))]
    pub delay_us: u64,
    /// How often a thread does all its phases; 0 for ever.
    #[schemars(range(min = 0, max = 100_000_000))]
    pub loops: u32,
    /// What a thread does, one phase after the other, 1 to 64. One pass of all phases is one operation.
    pub phases: Vec<Phase>,
}

impl Default for TaskThreads {
    fn default() -> Self {
        TaskThreads { threads: 1, vcpus: Vec::new(), weight: 1024, delay_us: 0, loops: 0, phases: Vec::new() }
    }
}

/// Steps that are done several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Phase {
    /// How often, before the next phase.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub loops: u32,
    /// The steps, 1 to 64.
    pub steps: Vec<TaskStep>,
}

impl Default for Phase {
    fn default() -> Self {
        Phase { loops: 1, steps: Vec::new() }
    }
}

/// One step of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum TaskStep {
    /// Computes in user space.
    Run {
        /// CPU time, in us.
        #[schemars(range(min = 1, max = 10_000_000))]
        us: u64,
    },
    /// Sleeps.
    Sleep {
        /// Length of the sleep, in us.
        #[schemars(range(min = 1, max = 60_000_000))]
        us: u64,
    },
    /// Sleeps until a period after the last use of the same timer by the same thread; at first, after the thread's start.
    Timer {
        /// The timer's name; each thread has timers of its own.
        #[serde(default)]
        name: String,
        /// The period, in us.
        #[schemars(range(min = 1, max = 60_000_000))]
        period_us: u64,
        /// After a missed deadline: true keeps the original grid of times, false begins anew from now.
        #[serde(default)]
        absolute: bool,
    },
    /// Sleeps until another thread resumes this task.
    Suspend {},
    /// Wakes the threads of a task that sleep in a `suspend`; the others go on as they would.
    Resume {
        /// The task's name.
        task: String,
    },
    /// Lets other tasks of its vCPU run.
    Yield {},
}
