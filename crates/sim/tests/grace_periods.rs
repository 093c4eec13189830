//! How long a grace period of a guest with nothing else to do lasts, in closed form. The guest is made by hand, so that
//! it runs what is said here and nothing else.

mod support;

use reprieve_sim::guest::costs::Costs;
use reprieve_sim::guest::env::Env;
use reprieve_sim::guest::ids::Mode;
use reprieve_sim::guest::task::{Op, Program};
use reprieve_sim::world::World;
use reprieve_study::GracePeriod;
use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};
use support::world_of;

const HZ: [u64; 5] = [100, 250, 300, 600, 1_000];

/// Calls `synchronize_rcu()`, and sleeps in between.
struct Caller {
    pause_ns: u64,
    sleeps: bool,
}

impl Program for Caller {
    fn next(&mut self, _env: &mut Env<'_>) -> Op {
        self.sleeps = !self.sleeps;
        if self.sleeps { Op::Sleep { ns: self.pause_ns } } else { Op::Synchronize }
    }
}

/// Computes for ever, and calls `schedule()` every 50 us.
struct Busy {
    mode: Mode,
    gives_way: bool,
}

impl Program for Busy {
    fn next(&mut self, _env: &mut Env<'_>) -> Op {
        self.gives_way = !self.gives_way;
        if self.gives_way { Op::Schedule } else { Op::Run { ns: 50_000, mode: self.mode } }
    }
}

/// A started world of one guest, with a caller on vCPU 0 and, if told, something busy on each vCPU; one vCPU a pCPU.
fn world(vcpus: usize, hz: u64, busy: Option<Mode>, pause_ns: u64) -> World {
    world_of(vcpus, hz, |guest| {
        guest.add_program(Box::new(Caller { pause_ns, sleeps: false }), Some(0));
        if let Some(mode) = busy {
            for vcpu in 0..vcpus {
                guest.add_program(Box::new(Busy { mode, gives_way: true }), Some(vcpu));
            }
        }
    })
}

/// The grace periods up to that time.
fn ended(world: &mut World, until_ns: u64) -> Vec<GracePeriod> {
    assert!(world.run_until(until_ns, u64::MAX));
    world.check().unwrap();
    world.guest_mut(0).rcu.finished().collect()
}

/// How long the grace periods of a second last.
fn durations(vcpus: usize, hz: u64, busy: Option<Mode>) -> Vec<u64> {
    // No multiple of a tick: calls come at different times of a tick.
    let mut world = world(vcpus, hz, busy, 43_456_789);
    let durations: Vec<u64> = ended(&mut world, SECOND_NS).iter().map(|gp| gp.span.length_ns()).collect();
    assert!(durations.len() > 10, "only {} grace periods", durations.len());
    durations
}

/// Alone, the caller's vCPU has switched to idle before its next tick, which it takes because it has a callback; there
/// it reports, and nobody else is waited for.
#[test]
fn of_one_idle_vcpu_it_is_a_tick() {
    for hz in HZ {
        let durations = durations(1, hz, None);
        let tick_ns = SECOND_NS / hz;
        assert!(durations.iter().all(|ns| ns.abs_diff(tick_ns) < 100_000), "HZ {hz}: {durations:?}");
    }
}

/// Idle vCPUs report nothing: the first scan sees them. The kthread sleeps for it 1 jiffy (2 above HZ 250, 3 above 500)
/// from a point just after a tick, and the timer wheel rounds up by one.
#[test]
fn of_idle_vcpus_it_ends_by_the_first_scan() {
    for hz in HZ {
        let jiffies = 2 + u64::from(hz > 250) + u64::from(hz > 500);
        let of = |vcpus: usize| {
            let (durations, costs) = (durations(vcpus, hz, None), Costs::at_speed(1_000));
            let due_ns = jiffies * (SECOND_NS / hz);
            // What the start lies after its tick, the scan does after its own, but for the cost of visiting CPUs.
            let visits_ns = costs.kthread_visit_ns * (vcpus as u64 + 5);
            let most_ns = costs.tick_ns + costs.kthread_step_ns + visits_ns;
            assert!(
                durations.iter().all(|ns| ns.abs_diff(due_ns) < most_ns),
                "{vcpus}, HZ {hz}: {durations:?}"
            );
            durations[10]
        };
        of(2);
        // 48 CPUs more, in 3 leaves more (and with a root): the scan's visits are all that differs.
        let visit_ns = Costs::at_speed(1_000).kthread_visit_ns;
        assert_eq!(of(64) - of(16), visit_ns * (48 + 3), "HZ {hz}");
    }
}

/// A busy vCPU learns of the grace period at its first tick, by a softirq. Then it switches context, or is in user mode
/// at its next tick, and reports by the softirq of that one. Nothing else runs softirqs here, and no vCPU is idle for a
/// scan to see. The kthread's own vCPU knows from the start: alone, it reports at the first tick.
#[test]
fn of_busy_vcpus_it_ends_at_their_second_tick() {
    for hz in HZ {
        for (vcpus, ticks) in [(1, 1), (2, 2), (17, 2)] {
            for mode in [Mode::Kernel, Mode::User] {
                let durations = durations(vcpus, hz, Some(mode));
                // The start and the end lie as long after their ticks as a stretch of 50 us in the kernel lasts.
                let due_ns = ticks * (SECOND_NS / hz);
                let near = durations.iter().all(|ns| ns.abs_diff(due_ns) < 75_000);
                assert!(near, "{vcpus} in {mode:?} mode, HZ {hz}: {durations:?}");
            }
        }
    }
}

/// While a busy vCPU is paused, the grace period that was in progress may end, if it had that vCPU's report; the next
/// one cannot. Back, the vCPU takes the tick that waited, and learns of the grace period by it if it had not; switches
/// context; and reports at its next tick, or at once if it knew.
#[test]
fn a_pause_holds_it_until_the_vcpu_is_back_and_a_tick_longer_at_most() {
    const TICK_NS: u64 = 4 * MILLISECOND_NS;
    /// From that tick on: tick, softirq, stretch of 50 us of who runs where the kthread wakes, step of the kthread.
    const WORK_NS: u64 = 200_000;
    let lengths_ns = [20 * MILLISECOND_NS, 33_333_333, 100 * MILLISECOND_NS, 400 * MILLISECOND_NS];
    for (number, for_ns) in (0..64).zip(lengths_ns.into_iter().cycle()) {
        let mode = if number % 8 < 4 { Mode::Kernel } else { Mode::User };
        let mut world = world(3, 250, Some(mode), 1_000);
        // Anywhere within two ticks.
        let paused_ns = 200 * MILLISECOND_NS + 123_457 * number;
        ended(&mut world, paused_ns);
        world.pause(0, 2, for_ns);
        let back_ns = paused_ns + for_ns;
        let while_paused = ended(&mut world, back_ns);
        assert!(while_paused.len() <= 1, "{number}: {while_paused:?}");
        let after = ended(&mut world, back_ns + 50 * MILLISECOND_NS);
        let held = &after[0];
        assert!(held.span.start_ns < back_ns && held.cleared_ns[2].unwrap() >= back_ns, "{number}: {held:?}");
        let longer_ns = held.span.end_ns - back_ns;
        assert!(longer_ns <= TICK_NS + WORK_NS, "{number}: {longer_ns} ns longer than the pause");
    }
}
