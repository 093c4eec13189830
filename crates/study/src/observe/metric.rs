//! The one table of what is measured. Every ground fills these identifiers and every output (terminal,
//! JSON, HTML) takes label, unit and definition from here, so that a figure means the same everywhere.

use crate::units;

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Things per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// A share of a whole, 0 to 1.
    Share,
    /// An index without dimension, 0 to 1.
    Index,
}

impl Unit {
    /// The value as people read it, with its unit.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".into();
        }
        match self {
            Unit::Nanoseconds => units::duration(value),
            Unit::Bytes => units::size(value),
            Unit::Count => units::count(value),
            Unit::PerSecond => format!("{}/s", units::count(value)),
            Unit::BytesPerSecond => format!("{} MB/s", units::significant(value / 1e6)),
            Unit::Share => format!("{} %", units::significant(value * 100.0)),
            Unit::Index => units::significant(value),
        }
    }
}

/// One measured quantity: a scalar per run.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Key in JSON and scenario files; ends in its unit.
    pub id: &'static str,
    /// Row heading.
    pub label: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// What exactly is counted, and from what.
    pub definition: &'static str,
}

macro_rules! metrics {
    ($($name:ident $id:literal $unit:ident $label:literal $definition:literal)*) => {
        $(#[doc = $definition] pub const $name: &str = $id;)*
        /// Every metric, in the order in which outputs show them.
        pub const ALL: &[Metric] = &[
            $(Metric { id: $id, label: $label, unit: Unit::$unit, definition: $definition }),*
        ];
    };
}

metrics! {
    GP_MEAN "gp_mean_ns" Nanoseconds "GP duration, average"
        "Mean time from a grace period's start to its end, as gp_seq in the guest's memory shows it."
    GP_P50 "gp_p50_ns" Nanoseconds "GP duration, median"
        "Median grace-period duration."
    GP_P99 "gp_p99_ns" Nanoseconds "GP duration, p99"
        "99th percentile of grace-period durations."
    GP_MAX "gp_max_ns" Nanoseconds "GP duration, longest"
        "Longest grace period of the window; a grace period that is still open at the end counts with its age."
    GP_COUNT "gp_count" Count "GPs completed"
        "Grace periods that ended in the window."
    READER_PREEMPTIONS "reader_preemptions_count" Count "Reader preemptions during GPs"
        "Times a vCPU was preempted or throttled by the host, for at least one sampling interval, while its bit was still set in the open grace period's quiescent-state mask."
    READER_PREEMPTIONS_LAST "reader_preemptions_last_count" Count "Reader preemptions that ended a GP late"
        "Reader preemptions during grace periods, counted only for the vCPU whose bit was the last to clear."
    READER_HELD "reader_held_ns" Nanoseconds "GP time with a descheduled holdout"
        "Time within grace periods during which at least one holdout was descheduled."
    GP_COMPUTE "gp_compute_ns" Nanoseconds "CPU time per GP"
        "CPU time of the grace-period kthread plus all time in softirq, which is where RCU's core and its callbacks run, per grace period; from samples in which the vCPU was on a pCPU."
    GP_COMPUTE_GUEST "gp_compute_guest_ns" Nanoseconds "CPU time per GP, guest's clock"
        "CPU time per grace period as the guest's own clock counts it, which includes the time that a vCPU is descheduled in the middle."
    GP_KTHREAD "gp_kthread_ns" Nanoseconds "GP kthread's CPU time per GP"
        "CPU time of the grace-period kthread per grace period."
    KERNEL_CPU "kernel_cpu_share" Share "Kernel CPU utilisation"
        "Guest's system, irq and softirq time over all its accounted CPU time."
    LOCK_SPIN "lock_spin_share" Share "CPU time spinning for locks"
        "CPU time that vCPUs spent spinning for locks, over the guest's accounted CPU time."
    IDLE_CPU "idle_cpu_share" Share "Guest idle"
        "Guest's idle time over all its accounted CPU time."
    FOOTPRINT_PEAK "footprint_peak_bytes" Bytes "Memory footprint, peak"
        "Managed pages less free pages in the buddy lists of all zones, largest sample."
    FOOTPRINT_MEAN "footprint_mean_bytes" Bytes "Memory footprint, average"
        "Managed pages less free pages in the buddy lists of all zones, mean over samples."
    SLAB_PEAK "slab_peak_bytes" Bytes "Slab, peak"
        "Reclaimable and unreclaimable slab pages, largest sample."
    UNUSABLE_PEAK "unusable_index_peak" Index "External fragmentation, peak"
        "Unusable free space index at order 9 over all zones, largest sample."
    UNUSABLE_MEAN "unusable_index_mean" Index "External fragmentation, average"
        "Unusable free space index at order 9 over all zones, mean over samples."
    BACKLOG_PEAK "backlog_peak_count" Count "Callback backlog, peak"
        "Callbacks queued by call_rcu() and not yet invoked, all CPUs, largest sample."
    BACKLOG_MEAN "backlog_mean_count" Count "Callback backlog, average"
        "Callbacks queued by call_rcu() and not yet invoked, all CPUs, mean over samples."
    THROUGHPUT "throughput_per_s" PerSecond "Throughput"
        "Operations of the workload per second: pairs of allocation and call_rcu, clones, Postmark transactions, look-ups, or reads."
    IO_RATE "io_bytes_per_s" BytesPerSecond "Read and written"
        "Bytes that the application's threads read, from the page cache or the disk, and wrote, per second of the window."
    IO_INACTIVE "io_inactivity_ns" Nanoseconds "I/O inactivity"
        "Time of the window during which an I/O task could not continue because a vCPU was not on a pCPU: the vCPU on which the task was runnable, or the vCPU that would take the interrupt of its request. Sum over the I/O tasks."
    IO_INACTIVE_SHARE "io_inactivity_share" Share "I/O inactivity, of the window"
        "I/O inactivity over the window, mean over the I/O tasks."
    IO_INACTIVE_VM "io_vm_inactivity_ns" Nanoseconds "I/O inactivity of the whole VM"
        "Time of the window during which the VM had I/O to do but none of it was at the device, because every vCPU that would issue a request or take its completion had work and was not on a pCPU."
    IO_CPU "io_cpu_per_mib_ns" Nanoseconds "CPU time per MiB"
        "CPU time of the VM's vCPUs per MiB read and written, without tasks that compute for ever: the cost of I/O, with interrupts, daemons and switches."
    MOVES "io_moves_per_s" PerSecond "Moves of I/O tasks"
        "Changes of affinity of I/O tasks per second of the window."
    BEATS_CPU "beats_cpu_share" Share "Daemon's CPU, of one CPU"
        "CPU time over the window of the beat threads with their moves, of their timers' interrupts, wake-ups and switches, and of the tracepoints of requests."
    COMPUTING_CPU "computing_cpu_share" Share "CPU of the VM's own CPU-bound tasks"
        "CPU time of the VM's tasks that compute for ever, as a share of one CPU, mean over the tasks."
    NEIGHBOUR_CPU "neighbour_cpu_share" Share "CPU of the neighbours' vCPUs"
        "Run time of the neighbour VMs' busy vCPUs over the window, mean over the vCPUs."
    REGAINED "given_back_share" Share "Share of lost throughput regained"
        "(x - pinned) / (undisturbed - pinned) of the throughputs within a repetition: 100 % regains all that the disturbance took, and 0 is no better than jobs that never move."
    COMPUTING_LOOPS "computing_loops_per_s" PerSecond "Loops of the VM's own CPU-bound tasks"
        "Loops of all tasks that compute for ever in the VM, per second of the guest's clock."
    LATE_BEATS "late_beats_count" Count "Late beats"
        "Beats of the daemon's threads in the window that came more than 5 ms late, by the guest's clock."
    REPLAYED "replayed_decisions_count" Count "Decisions replayed"
        "Decisions of the daemon's recorded run that a replay on the host was compared with; the run is an error if one differs."
    BOOSTS "boosts_per_s" PerSecond "Boosts of vCPUs"
        "Times that a descheduled vCPU was let on because a grace period waited for it, per second of the window."
    BOOSTED_CPU "boosted_cpu_share" Share "CPU within boosts, of one vCPU"
        "Run time of the vCPUs within boosts over the window, mean over the vCPUs."
    BOOST_CPU "boost_cpu_share" Share "CPU of the boosting daemon, of one CPU"
        "CPU time over the window of the thread that looks at the guest and boosts its vCPUs."
    QUOTA_PEAK "quota_peak_share" Share "CPU in any 1 s, of the quota"
        "The most that a vCPU with a quota ran within any second of the window, over what its quota grants in a second; the largest of the vCPUs."
    IPIS "ipis_per_s" PerSecond "Interrupts between vCPUs"
        "Interrupts by which the guest's vCPUs asked each other to schedule or to report, per second of the window."
    GRANTS "extra_slices_per_s" PerSecond "Extra slices of readers"
        "Times that a vCPU kept its pCPU for one more slice because it was within a marked read-side section, per second of the window."
    GRANTED_CPU "extra_slice_cpu_share" Share "CPU within extra slices, of one vCPU"
        "Run time of the vCPUs within such slices over the window, mean over the vCPUs."
    MARKS_CPU "reader_marks_cpu_share" Share "CPU for marks of readers, of one vCPU"
        "CPU time that the guest takes to mark the entry and exit of read-side sections over the window, mean over the vCPUs."
    GANGS "gang_slices_per_s" PerSecond "Slices of vCPUs together"
        "Times that the host began to let all vCPUs of the VM run together, per second of the window."
    LEFT_ALONE "left_alone_share" Share "vCPUs left alone for their steal"
        "Time during which the guest's scheduler kept tasks off a vCPU because of its steal, over the window, mean over the vCPUs."
    DISK_BUSY "disk_busy_share" Share "Disk busy"
        "Time of the window during which the disk worked on a request of any VM."
    RIVAL_RATE "rival_io_bytes_per_s" BytesPerSecond "Read and written by a rival VM"
        "Bytes that another VM with the same application read and wrote, per second of the window; mean over these VMs."
    JAIN "jain_index" Index "Jain's index of fairness"
        "Square of the sum of what the VMs that run the application read and write, over their number times the sum of the squares: 1 when all have the same rate."
    STALLS "stalls_count" Count "Workload pauses, memory limit"
        "Times the workload paused because its limit on unreclaimed memory was reached."
    SYNC_MEAN "sync_mean_ns" Nanoseconds "synchronize_rcu, average"
        "Mean latency of membarrier(MEMBARRIER_CMD_GLOBAL) in the guest, which is one synchronize_rcu(), from the workload's start to its stop."
    SYNC_MAX "sync_max_ns" Nanoseconds "synchronize_rcu, longest"
        "Longest latency of membarrier(MEMBARRIER_CMD_GLOBAL), which is one synchronize_rcu(), in the run."
    DELAY_P50 "delay_p50_ns" Nanoseconds "Delete-free delay, median"
        "Median time from the removal of an element to the moment right before its memory is freed, for elements removed within the window."
    DELAY_MEAN "delay_mean_ns" Nanoseconds "Delete-free delay, average"
        "Mean delete-free delay, for elements removed within the window."
    DELAY_P99 "delay_p99_ns" Nanoseconds "Delete-free delay, p99"
        "99th percentile of the delete-free delay, for elements removed within the window."
    DELAY_MAX "delay_max_ns" Nanoseconds "Delete-free delay, longest"
        "Longest delete-free delay, for elements removed within the window."
    DELIVERED "deletes_per_s" PerSecond "Deletes delivered"
        "Elements that the writer removed per second of the window."
    WRITER_COST "writer_cost_ns" Nanoseconds "Writer's CPU time per delete"
        "CPU time of the writer's thread in the window per removed element, with the removal and the insertion of elements."
    WRITER_LATE "writer_late_mean_ns" Nanoseconds "Writer's lateness, average"
        "Mean time from when a delete was due to when the writer began it. A writer that waits, or that is descheduled, is late."
    WRITER_LATE_MAX "writer_late_max_ns" Nanoseconds "Writer's lateness, longest"
        "Longest time from when a delete was due to when the writer began it."
    RETIRE_P999 "retire_p999_ns" Nanoseconds "Retire call, p99.9"
        "99.9th percentile of the duration of the call by which the writer hands a removed element to the scheme."
    RETIRE_MAX "retire_max_ns" Nanoseconds "Retire call, longest"
        "Longest call by which the writer hands a removed element to the scheme."
    MEMBARRIERS "membarrier_count" Count "membarrier calls"
        "Calls of membarrier(2) by the scheme's writers in the whole run, warm-up included."
    MEMBARRIER_P50 "membarrier_p50_ns" Nanoseconds "membarrier, median"
        "Median duration of the membarrier calls, by the clock of the machine that the program runs in; at most 1/16 too large."
    MEMBARRIER_P99 "membarrier_p99_ns" Nanoseconds "membarrier, p99"
        "99th percentile of the duration of the membarrier calls."
    MEMBARRIER_MAX "membarrier_max_ns" Nanoseconds "membarrier, longest"
        "Longest membarrier call."
    SWITCHES "fence_switches_count" Count "Switches between membarrier and fences"
        "How often an adaptive domain moved its readers to fences of their own, or back, in the whole run."
    BACKGROUND_COST "background_cost_ns" Nanoseconds "Scheme's own thread, CPU time per delete"
        "CPU time of the scheme's own thread in the window, if it has one, per removed element."
    LOOKUP_COST "lookup_cost_ns" Nanoseconds "Reader's CPU time per look-up"
        "CPU time of the reader threads per look-up, with the choice of keys."
    GARBAGE_PEAK "garbage_peak_count" Count "Garbage, peak"
        "Largest number of elements that were removed and not yet freed."
    GARBAGE_PEAK_BYTES "garbage_peak_bytes" Bytes "Garbage, peak memory"
        "Largest memory of elements that were removed and not yet freed."
    LATENCY_MEAN "latency_mean_ns" Nanoseconds "Latency, average"
        "Mean latency. Of a wake-up: the time from when a task wanted to run until it ran. Of a request: the whole round trip from the client's sending to its answer (Sockperf prints half of it)."
    LATENCY_P50 "latency_p50_ns" Nanoseconds "Latency, median"
        "Median latency."
    LATENCY_P90 "latency_p90_ns" Nanoseconds "Latency, p90"
        "90th percentile of latencies."
    LATENCY_P99 "latency_p99_ns" Nanoseconds "Latency, p99"
        "99th percentile of latencies."
    LATENCY_P999 "latency_p999_ns" Nanoseconds "Latency, p99.9"
        "99.9th percentile of latencies."
    LATENCY_P9999 "latency_p9999_ns" Nanoseconds "Latency, p99.99"
        "99.99th percentile of latencies."
    LATENCY_MAX "latency_max_ns" Nanoseconds "Latency, longest"
        "Longest latency."
    LATENCY_COUNT "latency_count" Count "Latencies measured"
        "Wake-ups, or answered requests, of the window."
    LOST "lost_count" Count "Requests lost"
        "Requests that the guest dropped because too many waited; they have no latency."
    LATE "late_count" Count "Stalls above 1 ms"
        "Latencies of more than 1 ms; a round trip counts without the network's delay."
    LATE_HOG_BOOSTED "late_hog_boosted_count" Count "Stalls: boosted hog"
        "Stalls in which the vCPU waited for another one that had BOOST by its own migration (credit, bug 1)."
    LATE_INACTIVE_OVER "late_inactive_over_count" Count "Stalls: inactive, then OVER"
        "Stalls in which the vCPU waited as OVER for debt that it had made while it was not accounted for (credit, bug 2)."
    LATE_BOOST_ERASED "late_boost_erased_count" Count "Stalls: BOOST erased"
        "Stalls in which accounting took the vCPU's BOOST after the wake-up had stored it (credit, bug 3)."
    LATE_RATE_LIMIT "late_rate_limit_count" Count "Stalls: rate limit"
        "Stalls in which the running vCPU had not yet run for the rate limit (credit, credit2)."
    LATE_SLICE_END "late_slice_end_count" Count "Stalls: slice end"
        "Stalls in which the vCPU had no claim to preempt and waited until a slice or a budget ended."
    LATE_OTHER "late_other_count" Count "Stalls: other causes"
        "Stalls that no event of the scheduler explains."
    SPINNER_CPU "spinner_cpu_share" Share "CPU share of a spinner"
        "Run time of a spinner VM over the window; mean over all spinners."
    CPU_SHARE "vcpu_cpu_share" Share "CPU share of the vCPUs"
        "Run time of all vCPU threads, over the number of vCPUs times the window."
    OVERCOMMIT "overcommit_ratio" Count "Overcommit, worst vCPU"
        "Run time plus time runnable but descheduled, over run time, of the vCPU for which this is largest."
    OBSERVER_CPU "observer_cpu_share" Share "Observer's CPU, of one core"
        "CPU time of the observing threads over the window."
}

/// The metric of that identifier, if there is one.
pub fn find(id: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_and_name_their_unit() {
        for (index, metric) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.id != metric.id), "{}", metric.id);
            let endings: &[&str] = match metric.unit {
                Unit::Nanoseconds => &["_ns"],
                Unit::Bytes => &["_bytes"],
                Unit::Count => &["_count", "_ratio"],
                Unit::PerSecond | Unit::BytesPerSecond => &["_per_s"],
                Unit::Share => &["_share"],
                Unit::Index => &["_index_peak", "_index_mean", "_index"],
            };
            assert!(endings.iter().any(|ending| metric.id.ends_with(ending)), "{}", metric.id);
        }
    }
}
