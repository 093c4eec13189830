//! The workload `io`: applications that compute, read and write; the disk that they share; and what is done about
//! descheduled vCPUs that issue no I/O.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `kind = "io"`: an application that computes, reads and writes, beside tasks that compute for ever. Only on the simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// Name of the application that runs; one of `applications`. Must be given.
    pub application: String,
    /// The applications, by name. Must be given.
    pub applications: IndexMap<String, Application>,
    /// Threads of each task of the application; 0 for as many as each names. At most 256 over all tasks.
    #[schemars(range(min = 0, max = 256))]
    pub clients: u32,
    /// Time between the starts of two threads of a task, beyond those that the task names, in ms; 0 to start all at once.
    #[schemars(range(min = 0, max = 60_000))]
    pub join_every_ms: u64,
    /// The window ends when this much was read, in MiB; 0 for a window of its own length.
    #[schemars(range(min = 0, max = 1 << 24))]
    pub work_mib: u64,
    /// Tasks in the guest that compute for ever, each pinned to a vCPU, from the first one on. At most `guest.vcpus`.
    pub computing: u32,
    /// Weight of the computing tasks in the guest's scheduler: 1024 is nice 0, 3 is Linux's idle class.
    #[schemars(range(min = 2, max = 1 << 18))]
    pub computing_weight: u32,
    /// Time over which the neighbours begin, each at a time of its own, in ms. If all began at once, every pCPU would run the
    /// guest's vCPUs in the same turn, and all would be off at once, which no VM that lives beside others sees.
    #[schemars(range(min = 0, max = 10_000))]
    pub stagger_ms: u64,
    /// What is done about inactivity.
    pub system: IoSystem,
    /// Settings of the systems.
    pub systems: IoSystems,
    /// Further VMs like the guest, with the same application and system, on the same pCPUs and disk.
    #[schemars(range(min = 0, max = 16))]
    pub rivals: u32,
    /// CPU weight of the rivals' vCPUs; other vCPUs have 1024.
    #[schemars(range(min = 2, max = 1 << 18))]
    pub rival_weight: u32,
    /// The guest's block layer and page cache.
    pub block: BlockLayer,
    /// The disk.
    pub disk: Disk,
}

/// Weight of nice 0 in Linux's schedulers.
const NICE_0: u32 = 1_024;

impl Default for Io {
    fn default() -> Self {
        Io {
            application: String::new(),
            applications: IndexMap::new(),
            clients: 0,
            join_every_ms: 0,
            work_mib: 0,
            computing: 0,
            computing_weight: NICE_0,
            stagger_ms: 200,
            system: IoSystem::default(),
            systems: IoSystems::default(),
            rivals: 0,
            rival_weight: NICE_0,
            block: BlockLayer::default(),
            disk: Disk::default(),
        }
    }
}

/// What is done about I/O inactivity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IoSystem {
    /// Nothing: the host's scheduler as it is.
    #[default]
    Plain,
    /// The host runs the guest's vCPUs more often, in shorter slices.
    Vslicer,
    /// The guest pauses a vCPU that would only compute.
    Xballoon,
    /// The guest moves I/O tasks to vCPUs that stay on.
    Vmigrater,
}

/// Settings of the systems. Defaults: four micro-slices and 1 ms for a CPU-bound task are free choices; 30 ms is the
/// accounting period of Xen's credit scheduler; beats of 1 and 4 ms are those of the live daemon; CPU times are estimates for
/// a native guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IoSystems {
    /// vSlicer: micro-slices that a slice is cut into, spread over a round of all VMs.
    #[schemars(range(min = 1, max = 64))]
    pub micro_slices: u32,
    /// xBalloon: time between two accountings of the host, in ms.
    #[schemars(range(min = 1, max = 1_000))]
    pub accounting_ms: u64,
    /// xBalloon: a task that has computed for this long since it last waited is CPU-bound, in us.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cpu_bound_us: u64,
    /// vMigrater: time between two beats of a vCPU while there is something to win, in us.
    #[schemars(range(min = 100, max = 10_000))]
    pub beat_us: u64,
    /// vMigrater: time between two beats while nothing is wrong, in us. At least `beat_us`.
    #[schemars(range(min = 100, max = 100_000))]
    pub calm_beat_us: u64,
    /// vMigrater: CPU time of a beat in its thread, for two system calls and a write, in ns.
    #[schemars(range(min = 1, max = 100_000))]
    pub beat_ns: u64,
    /// vMigrater: grain of the steal time that the guest can read, in us; `/proc/stat` has 10 ms.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub steal_grain_us: u64,
    /// vMigrater: CPU time to record a request's start or end, in ns.
    #[schemars(range(min = 0, max = 100_000))]
    pub trace_ns: u64,
}

impl Default for IoSystems {
    fn default() -> Self {
        IoSystems {
            micro_slices: 4,
            accounting_ms: 30,
            cpu_bound_us: 1_000,
            beat_us: 1_000,
            calm_beat_us: 4_000,
            beat_ns: 2_000,
            steal_grain_us: 10_000,
            trace_ns: 300,
        }
    }
}

/// An application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Application {
    /// One line that says what the application does.
    pub label: String,
    /// Its tasks, 1 to 16.
    pub tasks: Vec<IoTask>,
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IoTask {
    /// Threads of the task.
    #[schemars(range(min = 1, max = 256))]
    pub threads: u32,
    /// What each thread does in a loop, in 1 to 64 steps. One pass is one operation.
    pub steps: Vec<Step>,
    /// Size of the file that each thread reads, and of another one that it writes, in MiB.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub file_mib: u64,
    /// Memory that a thread must fetch again on another vCPU, in KiB.
    #[schemars(range(min = 0, max = 1 << 20))]
    pub working_set_kib: u64,
}

impl Default for IoTask {
    fn default() -> Self {
        IoTask { threads: 1, steps: Vec::new(), file_mib: 16 << 10, working_set_kib: 0 }
    }
}

impl IoTask {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Write { .. }))
    }
}

/// One step of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Step {
    /// Computes in user space.
    Compute {
        /// CPU time of the step, mean, in us.
        #[schemars(range(min = 1, max = 10_000_000))]
        us: u64,
        /// The time is uniform from (1 - s) to (1 + s) times `us`, where s is this, in per cent.
        #[serde(default)]
        #[schemars(range(min = 0, max = 100))]
        spread_percent: u64,
    },
    /// Reads from the one file.
    Read {
        /// Where in the file.
        access: Access,
        /// How much, in KiB: whole pages of the cache.
        kib: u64,
    },
    /// Writes to the other file, and waits until it is on the disk.
    Write {
        /// Where in the file.
        access: Access,
        /// How much, in KiB: whole pages of the cache.
        kib: u64,
    },
}

/// Where in its file a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// After the last one; from the start again at the end.
    Sequential,
    /// Anywhere, aligned to its size.
    Random,
}

/// The guest's block layer and page cache. Defaults: read-ahead, largest request and ring are those of Linux and of QEMU's
/// virtio-blk; the virtual delay is calibrated (`io-calibration`); CPU times are estimates for a native guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlockLayer {
    /// Memory for the page cache, in MiB.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub cache_mib: u64,
    /// Size of a simulated page of the cache, which is read and kept as a whole, in KiB.
    #[schemars(range(min = 4, max = 1 << 10))]
    pub page_kib: u64,
    /// Most that is read ahead, in KiB.
    #[schemars(range(min = 0, max = 1 << 15))]
    pub read_ahead_kib: u64,
    /// Largest request, in KiB. At least `page_kib`.
    #[schemars(range(min = 4, max = 1 << 15))]
    pub request_kib: u64,
    /// Requests that the virtual disk takes at a time.
    #[schemars(range(min = 1, max = 1_024))]
    pub ring: u32,
    /// CPU time to submit a request, in ns.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub submit_ns: u64,
    /// CPU time of the interrupt for each completed request, in ns.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub complete_ns: u64,
    /// CPU time to copy a KiB out of the cache, in ns.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub copy_ns_per_kib: u64,
    /// CPU time of a system call, in ns.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub call_ns: u64,
    /// Time by which virtualisation delays each request without CPU time of the guest, in ns; half before the
    /// disk, half after it.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub virtual_ns: u64,
}

impl Default for BlockLayer {
    fn default() -> Self {
        BlockLayer {
            cache_mib: 1_024,
            page_kib: 4,
            read_ahead_kib: 128,
            request_kib: 512,
            ring: 128,
            submit_ns: 2_000,
            complete_ns: 1_000,
            copy_ns_per_kib: 100,
            call_ns: 500,
            virtual_ns: 22_000,
        }
    }
}

/// The disk, and the host's I/O scheduler before it. Defaults: the SSD's link and access time are calibrated
/// (`io-calibration`); those of the HDD are of the class of 1 TB drives with 7200 rotations a minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Disk {
    /// Kind of disk.
    pub kind: DiskKind,
    /// Requests that the disk works on at a time.
    #[schemars(range(min = 1, max = 1_024))]
    pub queue_depth: u32,
    /// Bandwidth of its interface (SSD) or of its medium (HDD), in MB/s.
    #[schemars(range(min = 1, max = 100_000))]
    pub mb_per_s: u64,
    /// SSD: time from a read to its first data, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub access_us: u64,
    /// HDD: shortest seek, in us. At most `seek_max_us`.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub seek_min_us: u64,
    /// HDD: seek over the whole disk, in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub seek_max_us: u64,
    /// HDD: rotations per minute.
    #[schemars(range(min = 1_000, max = 30_000))]
    pub rpm: u64,
    /// HDD: size of a track, in KiB.
    #[schemars(range(min = 16, max = 1 << 16))]
    pub track_kib: u64,
    /// HDD: most that it reads ahead, in KiB.
    #[schemars(range(min = 0, max = 1 << 20))]
    pub buffer_kib: u64,
    /// HDD: bandwidth of its interface, for data in its buffer, in MB/s.
    #[schemars(range(min = 1, max = 100_000))]
    pub interface_mb_per_s: u64,
    /// Size of the disk, in GiB.
    #[schemars(range(min = 1, max = 1 << 17))]
    pub gib: u64,
    /// Host's I/O scheduler: how long it serves a VM before the next one, in ms; 0 to choose anew for each
    /// request.
    #[schemars(range(min = 0, max = 10_000))]
    pub slice_ms: u64,
    /// Host's I/O scheduler: how long it keeps the disk idle for the next request of the VM that it serves,
    /// in us.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub idle_us: u64,
    /// Host's I/O scheduler: weight of each VM, the guest's first; 100 for those that are
    /// not named.
    #[schemars(inner(range(min = 1, max = 10_000)))]
    pub weights: Vec<u64>,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            kind: DiskKind::Ssd,
            queue_depth: 32,
            mb_per_s: 520,
            access_us: 48,
            seek_min_us: 500,
            seek_max_us: 15_000,
            rpm: 7_200,
            track_kib: 1_024,
            buffer_kib: 4_096,
            interface_mb_per_s: 300,
            gib: 1_000,
            slice_ms: 0,
            idle_us: 0,
            weights: Vec::new(),
        }
    }
}

/// Kinds of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// Flash: every place is as near as any other.
    #[default]
    Ssd,
    /// Rotating: a head that moves over tracks.
    Hdd,
}

impl Io {
    /// The application that runs; a scenario's check has seen that there is one.
    pub fn running(&self) -> &Application {
        &self.applications[&self.application]
    }

    /// Threads of that task.
    pub fn threads(&self, task: &IoTask) -> u32 {
        if self.clients == 0 { task.threads } else { self.clients }
    }
}
