//! The workload `io`: applications that compute, read and write; the disk that they share; and what is done about
//! descheduled vCPUs that issue no I/O.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// `kind = "io"`: an application that computes, reads and writes, beside tasks that compute for ever. Only on the simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// Name of the application that runs; one of `applications`. Must be given.
    pub application: String,
    /// The applications, by name. Must be given.
    pub applications: IndexMap<String, Application>,
    /// Threads of each task of the application; 0 for as many as each names. At most 256 over all tasks.
    pub clients: u32,
    /// Time between the starts of two threads of a task, beyond those that the task names, in ms; 0 to start all at once.
    pub join_every_ms: u64,
    /// The window ends when this much was read, in MiB; 0 for a window of its own length.
    pub work_mib: u64,
    /// Tasks in the guest that compute for ever, each pinned to a vCPU, from the first one on. At most `guest.vcpus`.
    pub computing: u32,
    /// Weight of the computing tasks in the guest's scheduler: 1024 is nice 0, 3 is Linux's idle class.
    pub computing_weight: u32,
    /// Time over which the neighbours begin, each at a time of its own, in ms. If all began at once, every pCPU would run the
    /// guest's vCPUs in the same turn, and all would be off at once, which no VM that lives beside others sees.
    pub stagger_ms: u64,
    /// What is done about inactivity.
    pub system: IoSystem,
    /// Settings of the systems.
    pub systems: IoSystems,
    /// Further VMs like the guest, with the same application and system, on the same pCPUs and disk.
    pub rivals: u32,
    /// CPU weight of the rivals' vCPUs; other vCPUs have 1024.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IoSystems {
    /// vSlicer: micro-slices that a slice is cut into, spread over a round of all VMs.
    pub micro_slices: u32,
    /// xBalloon: time between two accountings of the host.
    pub accounting_ms: u64,
    /// xBalloon: a task that has computed for so long since it last waited is CPU-bound.
    pub cpu_bound_us: u64,
    /// vMigrater: time between two beats of a vCPU while there is something to win.
    pub beat_us: u64,
    /// vMigrater: the same while nothing is wrong.
    pub calm_beat_us: u64,
    /// vMigrater: CPU time of a beat in its thread: two system calls and a write.
    pub beat_ns: u64,
    /// vMigrater: grain of the steal that the guest can read; `/proc/stat` has 10 ms.
    pub steal_grain_us: u64,
    /// vMigrater: CPU time of recording a request's start or end.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Application {
    /// What it does, in a line.
    pub label: String,
    /// Its tasks, 1 to 16.
    pub tasks: Vec<IoTask>,
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IoTask {
    /// Threads of the task.
    pub threads: u32,
    /// What each thread does in a loop, in 1 to 64 steps; a pass is one operation.
    pub steps: Vec<Step>,
    /// Size of the file that each thread reads, and of another one that it writes, if it does either, in MiB.
    pub file_mib: u64,
    /// Memory that a thread must fetch anew on another vCPU, in KiB.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Step {
    /// Computes in user space.
    Compute {
        /// CPU time, mean.
        us: u64,
        /// Uniform from (1 - s) to (1 + s) times that, s in per cent.
        #[serde(default)]
        spread_percent: u64,
    },
    /// Reads from the one file.
    Read {
        /// Where.
        access: Access,
        /// How much.
        kib: u64,
    },
    /// Writes to the other file, and waits until it is on the disk.
    Write {
        /// Where.
        access: Access,
        /// How much.
        kib: u64,
    },
}

/// Where in its file a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// After the last one; from the start again at the end.
    Sequential,
    /// Anywhere, aligned to its size.
    Random,
}

/// The guest's block layer and page cache. Defaults: read-ahead, largest request and ring are those of Linux and of QEMU's
/// virtio-blk; the virtual delay is calibrated (`io-calibration`); CPU times are estimates for a native guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockLayer {
    /// Memory for the page cache.
    pub cache_mib: u64,
    /// A page of the cache, as far as it is simulated: what is read and kept at a time.
    pub page_kib: u64,
    /// Most that is read ahead.
    pub read_ahead_kib: u64,
    /// Largest request.
    pub request_kib: u64,
    /// Requests that the virtual disk takes at a time.
    pub ring: u32,
    /// CPU time to submit a request.
    pub submit_ns: u64,
    /// CPU time of an interrupt for each request that is done.
    pub complete_ns: u64,
    /// CPU time to copy a KiB out of the cache.
    pub copy_ns_per_kib: u64,
    /// CPU time of a system call.
    pub call_ns: u64,
    /// Time, without CPU time of the guest, by which virtualisation delays each request; half on either way.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Disk {
    /// What it is.
    pub kind: DiskKind,
    /// Requests that it works on at a time.
    pub queue_depth: u32,
    /// What its interface or its medium carries.
    pub mb_per_s: u64,
    /// SSD: time of a read until its data flows.
    pub access_us: u64,
    /// HDD: shortest seek.
    pub seek_min_us: u64,
    /// HDD: seek over the whole disk.
    pub seek_max_us: u64,
    /// HDD: rotations per minute.
    pub rpm: u64,
    /// HDD: bytes of a track.
    pub track_kib: u64,
    /// HDD: what it reads ahead at most.
    pub buffer_kib: u64,
    /// HDD: what its interface carries, when the data is in the buffer.
    pub interface_mb_per_s: u64,
    /// Its size.
    pub gib: u64,
    /// Host's I/O scheduler: a VM is served for so long before the next; 0 to choose anew for each request.
    pub slice_ms: u64,
    /// And its disk is kept idle for so long in the hope of its next request.
    pub idle_us: u64,
    /// And this is each VM's weight, the guest's first; 100 for those that are not named.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
