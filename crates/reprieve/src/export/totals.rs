//! Samples, added up since the exporter began. Pure: nothing here reads a clock or a file.
//!
//! Invariant: once all vCPUs have been seen, adding a sample allocates nothing.

use std::collections::BTreeMap;

use prometheus_client::metrics::histogram::Histogram;
use reprieve_policy::canary::seen_ns;
use reprieve_policy::explain::State;
use reprieve_policy::sample::{Memory, Sample, VcpuSample};

/// Upper bounds of the buckets of both histograms, s. Below 1 ms beats see nothing; RCU's own stall warnings begin at 21 s.
const BUCKETS_S: [f64; 13] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// The longest time that a sample covers, ns: it should be a second.
const MOST_OBSERVED_NS: u64 = 1_500_000_000;

/// What has happened so far. `None` stands for what this kernel does not tell, or not to this user.
#[derive(Debug)]
pub struct Totals {
    /// Time that samples cover, ns.
    pub observed_ns: u64,
    /// By number.
    pub vcpus: BTreeMap<usize, VcpuTotals>,
    /// How long vCPUs were off, s.
    pub offs: Histogram,
    /// Grace periods cannot be timed here.
    pub is_without_graces: bool,
    /// How long waits for grace periods took, s.
    pub grace_periods: Histogram,
    /// How long the open wait has taken, ns.
    pub open_grace_period_ns: u64,
    /// Throttling of the exporter's own cgroup, ns.
    pub throttled_ns: Option<u64>,
    /// Time during which some task waited for a CPU, ns.
    pub cpu_wait_ns: Option<u64>,
    /// The same for memory, ns.
    pub memory_wait_ns: Option<u64>,
    /// The same for I/O, ns.
    pub io_wait_ns: Option<u64>,
    /// How long RCU's kthread could run and did not, ns.
    pub kthread_wait_ns: Option<u64>,
    /// How far the clock of the day moved against CLOCK_MONOTONIC, ns.
    pub moved_ns: i64,
    /// Time suspended, ns.
    pub suspended_ns: u64,
    /// Memory at the last sample.
    pub memory: Option<Memory>,
    /// Time between two beats in the last sample, ns.
    pub beat_ns: u64,
    /// Whether all beats had real-time priority in the last sample.
    pub real_time: bool,
    /// What is known of now.
    pub state: State,
    /// What the exporter has cost.
    pub own: Own,
}

/// One vCPU.
#[derive(Debug, Default)]
pub struct VcpuTotals {
    /// Beats.
    pub beats: u64,
    /// Time off, ns.
    pub off_ns: u64,
    /// Times off that were not kept one by one.
    pub lost: u64,
    /// Time that the VM's own tasks kept the beats waiting, ns.
    pub kept_ns: u64,
    /// Idle time, ns.
    pub idle_ns: Option<u64>,
    /// Steal, ns.
    pub steal_ns: Option<u64>,
    /// Time that tasks waited for this vCPU, ns.
    pub run_delay_ns: Option<u64>,
}

/// What a process has cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Memory in RAM, bytes.
    pub resident_bytes: Option<u64>,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals {
            observed_ns: 0,
            vcpus: BTreeMap::new(),
            offs: Histogram::new(BUCKETS_S),
            is_without_graces: false,
            grace_periods: Histogram::new(BUCKETS_S),
            open_grace_period_ns: 0,
            throttled_ns: None,
            cpu_wait_ns: None,
            memory_wait_ns: None,
            io_wait_ns: None,
            kthread_wait_ns: None,
            moved_ns: 0,
            suspended_ns: 0,
            memory: None,
            beat_ns: 0,
            real_time: false,
            state: State::Quiet,
            own: Own::default(),
        }
    }
}

impl Totals {
    /// Adds the next sample.
    pub fn add(&mut self, sample: &Sample) {
        // What was between two samples that are far apart, nobody has looked at.
        self.observed_ns = self.observed_ns.saturating_add(sample.span_ns.min(MOST_OBSERVED_NS));
        for seen in &sample.vcpus {
            let vcpu = self.vcpus.entry(seen.vcpu).or_default();
            vcpu.add(seen);
            for off in &seen.offs {
                let off_ns = seen_ns(off, sample.beat_ns);
                vcpu.off_ns = vcpu.off_ns.saturating_add(off_ns);
                self.offs.observe(seconds(off_ns));
            }
        }
        sample.grace_periods_ns.iter().for_each(|ns| self.grace_periods.observe(seconds(*ns)));
        self.open_grace_period_ns = sample.open_grace_period_ns;
        grow(&mut self.throttled_ns, sample.throttled_ns);
        grow(&mut self.cpu_wait_ns, sample.cpu_wait_ns);
        grow(&mut self.memory_wait_ns, sample.memory_wait_ns);
        grow(&mut self.io_wait_ns, sample.io_wait_ns);
        grow(&mut self.kthread_wait_ns, sample.kthread_wait_ns);
        self.moved_ns = self.moved_ns.saturating_add(sample.stepped_ns);
        self.suspended_ns = self.suspended_ns.saturating_add(sample.suspended_ns);
        self.memory = sample.memory;
        self.beat_ns = sample.beat_ns;
        self.real_time = sample.real_time;
    }
}

impl VcpuTotals {
    fn add(&mut self, seen: &VcpuSample) {
        self.beats = self.beats.saturating_add(seen.beats);
        self.lost = self.lost.saturating_add(seen.lost);
        self.kept_ns = self.kept_ns.saturating_add(seen.kept_ns);
        grow(&mut self.idle_ns, seen.idle_ns);
        grow(&mut self.steal_ns, seen.steal_ns);
        grow(&mut self.run_delay_ns, seen.run_delay_ns);
    }
}

fn grow(total: &mut Option<u64>, by: Option<u64>) {
    if let Some(by) = by {
        *total = Some(total.unwrap_or(0).saturating_add(by));
    }
}

/// In seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::page::{Form, Pages};
    use super::*;
    use reprieve_policy::fingerprint::Off;

    const MS: u64 = 1_000_000;

    fn sample(beat_ns: u64, off_ns: u64) -> Sample {
        let off = Off { since_ns: MS, back_ns: MS + off_ns };
        let vcpu = VcpuSample { vcpu: 3, beats: 5, offs: vec![off], kept_ns: 7, ..VcpuSample::default() };
        Sample { span_ns: 1000 * MS, beat_ns, vcpus: vec![vcpu], stepped_ns: -4, ..Sample::default() }
    }

    /// A value of the text that these totals make.
    fn shown(totals: Totals, name: &str) -> String {
        let text = Pages::of(Arc::new(Mutex::new(totals))).text(Form::Prometheus);
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next().unwrap().to_string()
    }

    #[test]
    fn samples_add_up() {
        let mut totals = Totals::default();
        totals.add(&sample(MS, 9 * MS));
        let mut second = sample(MS, 11 * MS);
        second.vcpus[0].steal_ns = Some(30);
        second.throttled_ns = Some(8);
        totals.add(&second);
        let vcpu = &totals.vcpus[&3];
        assert_eq!((vcpu.beats, vcpu.off_ns, vcpu.kept_ns, vcpu.steal_ns), (10, 20 * MS, 14, Some(30)));
        assert_eq!((vcpu.idle_ns, totals.throttled_ns, totals.moved_ns), (None, Some(8), -8));
        assert_eq!(totals.observed_ns, 2000 * MS);
        assert_eq!(shown(totals, "reprieve_off_duration_seconds_count"), "2");
    }

    #[test]
    fn of_a_frugal_look_only_what_is_sure_counts() {
        let mut totals = Totals::default();
        // One beat in 50 ms, late by 2 ms.
        totals.add(&sample(50 * MS, 27 * MS));
        totals.add(&sample(50 * MS, 20 * MS));
        assert_eq!(totals.vcpus[&3].off_ns, 2 * MS);
        assert_eq!(shown(totals, "reprieve_off_duration_seconds_sum"), "0.002");
    }
}
