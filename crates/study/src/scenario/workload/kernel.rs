//! Workloads that allocate and free kernel memory: `memory`, `clone` and `postmark`. Simulated and real guests run them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `kind = "memory"`: kernel threads, each on a vCPU of its own, that allocate objects and free them through `call_rcu()`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Size of an object, in bytes.
    #[schemars(range(min = 16, max = 1 << 16))]
    pub object_bytes: u64,
    /// Pairs of allocation and `call_rcu()` between two voluntary context switches.
    #[schemars(range(min = 1, max = 100_000))]
    pub burst: u32,
    /// Pause after each burst, in us, which sets the rate; 0 for none.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub pause_us: u64,
    /// The workers pause while more memory than this, in MiB, waits to be freed; 0 for half of the guest's memory. At most
    /// the guest's memory.
    pub backlog_limit_mib: u64,
    /// Frees objects in batches, by `kfree_rcu()`, instead of one by one. Only on the simulator.
    pub batched: bool,
    /// Kernel threads, on the first vCPUs; 0 for one on each vCPU that `computing` leaves. At most `guest.vcpus`.
    pub workers: u32,
    /// Processes that compute in user space, pinned to the vCPUs after those of the kernel threads, of which at least one
    /// must remain.
    pub computing: u32,
    /// CPU time in the kernel after each burst for other work than freeing, in us. Only on the simulator.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub kernel_us: u64,
    /// CPU time in user mode after each burst, in us. Only on the simulator.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub user_us: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            object_bytes: 1_024,
            burst: 10,
            pause_us: 0,
            backlog_limit_mib: 0,
            batched: false,
            workers: 0,
            computing: 0,
            kernel_us: 0,
            user_us: 0,
        }
    }
}

impl Memory {
    /// Kernel threads in a guest of that many vCPUs.
    pub fn workers_on(&self, vcpus: usize) -> usize {
        match self.workers as usize {
            0 => vcpus - self.computing as usize,
            workers => workers,
        }
    }
}

/// `kind = "clone"`: processes, each pinned to a vCPU, that `clone()` into new namespaces in a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Clones {
    /// Processes; 0 for one on each vCPU. At most `guest.vcpus`.
    pub workers: u32,
    /// The new namespaces, of `net`, `ipc`, `uts`, `pid` and `mnt`.
    pub namespaces: Vec<String>,
    /// The workers pause while less memory than this, in MiB, is available in the guest. At most the guest's memory.
    pub stop_below_mib: u64,
    /// Processes that compute in user space, pinned to the vCPUs after those of `workers`, which must leave as many free.
    pub computing: u32,
}

impl Clones {
    /// Every namespace that the workload knows.
    pub(in crate::scenario) const NAMESPACES: [&str; 5] = ["net", "ipc", "uts", "pid", "mnt"];
}

impl Default for Clones {
    fn default() -> Self {
        let namespaces = Clones::NAMESPACES.map(String::from).to_vec();
        Clones { workers: 0, namespaces, stop_below_mib: 64, computing: 0 }
    }
}

/// `kind = "postmark"`: several processes of Debian's `postmark`, on tmpfs. The window ends with the last of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Postmark {
    /// Processes.
    #[schemars(range(min = 1, max = 64))]
    pub processes: u32,
    /// Files at the start, over all processes. Must be given: at least one for each process, and no more than fit into three
    /// quarters of the guest's memory.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub files: u64,
    /// Transactions, over all processes. Must be given: at least one for each process.
    #[schemars(range(min = 0, max = 100_000_000))]
    pub transactions: u64,
    /// Size of the smallest file, in bytes. At most `size_max_bytes`.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub size_min_bytes: u64,
    /// Size of the largest file, in bytes.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub size_max_bytes: u64,
    /// CPU time in user mode between two transactions, in us, which sets the share of time in the kernel. Only on the
    /// simulator.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub think_us: u64,
}

impl Default for Postmark {
    fn default() -> Self {
        Postmark {
            processes: 2,
            files: 0,
            transactions: 0,
            size_min_bytes: 500,
            size_max_bytes: 4_000,
            think_us: 0,
        }
    }
}
