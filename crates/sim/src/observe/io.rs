//! Observes a run with block I/O: throughput, inactivity, CPU cost, and what neighbours lose.

use reprieve_study::Scenario;
use reprieve_study::derive::put;
use reprieve_study::metric;
use reprieve_study::observation::Observation;
use reprieve_study::timeline::Timeline;
use reprieve_study::units::{MIB, SECOND_NS};

use super::GUEST;
use super::costs::Neighbours;
use crate::guest::Guest;
use crate::guest::ids::TaskId;
use crate::sched::Entity;
use crate::world::World;

/// Totals of one guest up to a moment, or over a window.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: u64,
    inactive_ns: u64,
    whole_inactive_ns: u64,
    moves: u64,
    busy_ns: u64,
    daemon_ns: u64,
    computing_ns: u64,
}

impl Sums {
    fn of(world: &World, number: usize) -> Sums {
        let guest = world.guest(number);
        let Some(io) = guest.io() else { return Sums::default() };
        let sum = |tasks: &[TaskId]| tasks.iter().map(|task| guest.task_ns(*task)).sum();
        Sums {
            bytes: guest.counters().io_bytes,
            inactive_ns: io.inactive_ns(world.now_ns),
            whole_inactive_ns: io.whole_inactive_ns(world.now_ns),
            moves: io.moves,
            busy_ns: world.vcpu_times(number).iter().map(|(run_ns, _)| run_ns).sum(),
            daemon_ns: guest.daemon_ns(),
            computing_ns: sum(&io.computing),
        }
    }

    /// The difference to an earlier moment.
    fn since(&self, start: &Sums) -> Sums {
        Sums {
            bytes: self.bytes - start.bytes,
            inactive_ns: self.inactive_ns - start.inactive_ns,
            whole_inactive_ns: self.whole_inactive_ns - start.whole_inactive_ns,
            moves: self.moves - start.moves,
            busy_ns: self.busy_ns - start.busy_ns,
            daemon_ns: self.daemon_ns - start.daemon_ns,
            computing_ns: self.computing_ns - start.computing_ns,
        }
    }
}

/// The state at the window's start, and the rate since.
pub(super) struct Watched {
    start: Vec<Sums>,
    start_ns: u64,
    disk_busy_ns: u64,
    neighbours: Neighbours,
    computing: u32,
    rate: Timeline,
    last: (u64, u64),
}

/// The number of guests that do block I/O; they come first.
fn guests(world: &World) -> usize {
    (0..world.guests()).take_while(|guest| world.guest(*guest).io().is_some()).count()
}

impl Watched {
    /// Starts the window.
    pub(super) fn begin(world: &World, scenario: &Scenario, neighbours: &[Entity]) -> Watched {
        let start: Vec<Sums> = (0..guests(world)).map(|guest| Sums::of(world, guest)).collect();
        Watched {
            last: (world.now_ns, start.first().map_or(0, |sums| sums.bytes)),
            start,
            start_ns: world.now_ns,
            disk_busy_ns: world.disk().map_or(0, |disk| disk.busy_ns(world.now_ns)),
            neighbours: Neighbours::begin(world, neighbours),
            computing: scenario.workload.io().map_or(0, |io| io.computing),
            rate: Timeline::default(),
        }
    }

    /// Samples the rate of I/O ten times a second.
    pub(super) fn look(&mut self, world: &World) {
        let bytes = world.guest(GUEST).counters().io_bytes;
        let (last_ns, last_bytes) = self.last;
        let elapsed_ns = world.now_ns - last_ns;
        if elapsed_ns >= SECOND_NS / 10 {
            let rate = (bytes - last_bytes) as f64 * SECOND_NS as f64 / elapsed_ns as f64;
            self.rate.push(world.now_ns - self.start_ns, rate);
            self.last = (world.now_ns, bytes);
        }
    }

    /// Ends the window.
    pub(super) fn observe(self, out: &mut Observation, world: &World) {
        let window_ns = out.provenance.window_ns;
        if window_ns == 0 {
            return;
        }
        let window = window_ns as f64;
        let all: Vec<Sums> =
            self.start.iter().enumerate().map(|(guest, start)| Sums::of(world, guest).since(start)).collect();
        let per_s = |sums: &Sums| sums.bytes as f64 * SECOND_NS as f64 / window;
        let own = &all[GUEST];
        put(out, metric::IO_RATE, per_s(own));
        put(out, metric::IO_INACTIVE, own.inactive_ns as f64);
        let tasks = world.guest(GUEST).io().map_or(0, |io| io.tasks.len()).max(1);
        put(out, metric::IO_INACTIVE_SHARE, own.inactive_ns as f64 / window / tasks as f64);
        put(out, metric::IO_INACTIVE_VM, own.whole_inactive_ns as f64);
        let disk_ns = world.disk().map_or(0, |disk| disk.busy_ns(world.now_ns)) - self.disk_busy_ns;
        put(out, metric::DISK_BUSY, disk_ns as f64 / window);
        if own.bytes > 0 {
            let mib = own.bytes as f64 / MIB as f64;
            put(out, metric::IO_CPU, own.busy_ns.saturating_sub(own.computing_ns) as f64 / mib);
        }
        if self.computing > 0 {
            put(out, metric::COMPUTING_CPU, own.computing_ns as f64 / window / f64::from(self.computing));
        }
        self.neighbours.observe(out, world);
        put(out, metric::MOVES, own.moves as f64 * SECOND_NS as f64 / window);
        put(out, metric::BEATS_CPU, own.daemon_ns as f64 / window);
        if all.len() > 1 {
            let rates: Vec<f64> = all.iter().map(per_s).collect();
            put(out, metric::RIVAL_RATE, rates[1..].iter().sum::<f64>() / (rates.len() - 1) as f64);
            put(out, metric::JAIN, jain(&rates));
        }
        out.timelines.insert(reprieve_study::observation::IO_OVER_TIME.into(), self.rate);
    }
}

/// Jain's index of fairness: 1 if all rates are equal, 1/n if one guest has all (Jain, Chiu, Hawe, 1984).
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 1.0 }
}

/// Whether the work of the window is done. It began when `start_bytes` had been read.
pub fn is_worked(guest: &Guest, scenario: &Scenario, start_bytes: u64) -> bool {
    let Some(io) = scenario.workload.io().filter(|io| io.work_mib > 0) else { return false };
    guest.counters().read_bytes - start_bytes >= io.work_mib * MIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_s_index_is_one_for_equals_and_a_share_for_one_alone() {
        assert_eq!(jain(&[3.0, 3.0]), 1.0);
        assert_eq!(jain(&[5.0, 0.0]), 0.5);
        assert!((jain(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }
}
