//! Shares, slices, lag, wakes and yields on one CPU.

use proptest::prelude::*;

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as S};

use crate::sched::cfs::Cfs;
use crate::sched::eevdf::Eevdf;
use crate::sched::fair::{Fair, Policy};
use crate::sched::machine::{Machine, Run, Work};
use crate::sched::{Cpu, Entity, Spec, Tunables};

fn eevdf_machine(cpus: usize, tunables: &Tunables) -> Machine<Eevdf> {
    Machine::new(cpus, Fair::new(cpus, tunables, Eevdf::new(tunables)))
}

fn cfs_machine(cpus: usize, tunables: &Tunables) -> Machine<Cfs> {
    Machine::new(cpus, Fair::new(cpus, tunables, Cfs::new(tunables)))
}

fn weight(weight: u32) -> Spec {
    Spec { weight, ..Spec::default() }
}

/// Spinners of those weights on one CPU, for that long.
fn spinners<P: Policy>(mut machine: Machine<P>, weights: &[u32], for_ns: u64) -> Machine<P> {
    for &of in weights {
        machine.spawn(0, Work::Spin, &weight(of));
    }
    machine.run_until(for_ns, |_| {});
    machine
}

fn assert_alternate(runs: &[Run], run_ns: u64) {
    // The first runs begin with half a slice or a debt, and the last is cut off.
    let settled = &runs[4..runs.len() - 1];
    assert!(settled.len() > 10);
    for pair in settled.windows(2) {
        assert_ne!(pair[0].entity, pair[1].entity);
        assert_eq!(pair[0].to_ns - pair[0].from_ns, run_ns, "{pair:?}");
    }
}

#[test]
fn two_equals_alternate_by_slices_rounded_up_to_ticks() {
    for hz in [100, 250, 300, 1000] {
        for cpus in [1, 2, 4, 8] {
            let tunables = Tunables::linux(cpus, hz);
            let tick_ns = tunables.tick_ns();
            let machine = spinners(eevdf_machine(1, &tunables), &[1024, 1024], S);
            assert_alternate(&machine.runs, tunables.base_slice_ns.next_multiple_of(tick_ns));
            // CFS lets a slice pass, then looks: a slice of whole ticks takes one more.
            let machine = spinners(cfs_machine(1, &tunables), &[1024, 1024], S);
            assert_alternate(&machine.runs, (tunables.latency_ns / 2 / tick_ns + 1) * tick_ns);
        }
    }
}

#[test]
fn run_time_is_by_weight() {
    fn test<P: Policy>(machine: Machine<P>) {
        let machine = spinners(machine, &[1024, 2048], 10 * S);
        let ran_ns = [0, 1].map(|entity| machine.ran_ns(Entity(entity), 0, 10 * S));
        assert_eq!(ran_ns[0] + ran_ns[1], 10 * S);
        assert!(ran_ns[1].abs_diff(2 * ran_ns[0]) < 2 * ran_ns[0] / 100, "{ran_ns:?}");
    }
    for hz in [100, 250, 1000] {
        let tunables = Tunables::linux(2, hz);
        test(eevdf_machine(1, &tunables));
        test(cfs_machine(1, &tunables));
    }
}

/// When each of some sleepers, beside a spinner, ran after each wake: the longest wait.
fn longest_wait_ns<P: Policy>(mut machine: Machine<P>) -> u64 {
    machine.spawn(0, Work::Spin, &Spec::default());
    let (run_ns, sleep_ns) = (MS / 10, 20 * MS + 12_345);
    let sleeper = machine.spawn(50 * MS, Work::Bursts { run_ns, sleep_ns }, &Spec::default());
    machine.run_until(5 * S, |_| {});
    let runs: Vec<_> = machine.runs.iter().filter(|run| run.entity == sleeper).collect();
    assert!(runs.len() > 200);
    // (Each burst is run in one piece.)
    runs[1..].windows(2).map(|pair| pair[1].from_ns - pair[0].to_ns - sleep_ns).max().unwrap()
}

#[test]
fn cfs_lets_a_sleeper_preempt_at_once() {
    assert_eq!(longest_wait_ns(cfs_machine(1, &Tunables::linux(4, 250))), 0);
    let mut strict = Tunables::linux(4, 250);
    strict.wakeup_granularity_ns = strict.latency_ns;
    assert!(longest_wait_ns(cfs_machine(1, &strict)) > MS);
}

#[test]
fn eevdf_lets_a_sleeper_wait_for_a_slice_at_most() {
    let tunables = Tunables::linux(4, 1000);
    let wait_ns = longest_wait_ns(eevdf_machine(1, &tunables));
    assert!(wait_ns > 0 && wait_ns <= tunables.base_slice_ns + tunables.tick_ns(), "{wait_ns}");
}

#[test]
fn eevdf_makes_who_was_ahead_pay_until_others_have_caught_up() {
    // Two spinners, and one that runs for 2.5 slices at a time: it is ahead when it goes to sleep.
    let lag_ns = |sleep_ns| {
        let tunables = Tunables { base_slice_ns: 3 * MS, ..Tunables::linux(1, 1000) };
        let mut machine = eevdf_machine(1, &tunables);
        machine.spawn(0, Work::Spin, &Spec::default());
        machine.spawn(0, Work::Spin, &Spec::default());
        let work = Work::Bursts { run_ns: 15 * MS / 2, sleep_ns };
        let sleeper = machine.spawn(100 * MS, work, &Spec::default());
        let mut asleep_since_ns = None;
        let mut lag_ns = None;
        machine.run_until(S, |machine| {
            let lag = machine.sched.lags_ns(Cpu(0)).into_iter().find(|lag| lag.0 == sleeper);
            match (asleep_since_ns, lag) {
                (None, None) if machine.now_ns > 101 * MS => asleep_since_ns = Some(machine.now_ns),
                (Some(_), Some((_, woken_with_ns))) if lag_ns.is_none() => lag_ns = Some(woken_with_ns),
                _ => {}
            }
        });
        lag_ns.unwrap()
    };
    assert!(lag_ns(10_000) < -(MS as i64) / 2, "{}", lag_ns(10_000));
    assert_eq!(lag_ns(50 * MS), 0);
}

#[test]
fn who_yields_gets_little_beside_a_spinner() {
    fn test<P: Policy>(mut machine: Machine<P>, least: u64) {
        let spinner = machine.spawn(0, Work::Spin, &Spec::default());
        let yielder = machine.spawn(0, Work::Yields { run_ns: 10_000 }, &Spec::default());
        machine.run_until(S, |_| {});
        let (ran_ns, yielded_ns) = (machine.ran_ns(spinner, 0, S), machine.ran_ns(yielder, 0, S));
        assert!(yielded_ns > 0 && ran_ns > least * yielded_ns, "{ran_ns} {yielded_ns}");
    }
    let tunables = Tunables::linux(8, 1000);
    test(eevdf_machine(1, &tunables), 100);
    // CFS passes over it while it is not more than the wake-up granularity behind: by default that is soon.
    test(cfs_machine(1, &tunables), 0);
    let tunables = Tunables { wakeup_granularity_ns: S, ..tunables };
    test(cfs_machine(1, &tunables), 100);
}

/// The longest time for which each of the entities 0.. that never sleep waited.
fn longest_gaps_ns(runs: &[Run], count: usize, end_ns: u64) -> Vec<u64> {
    let mut last = vec![0; count];
    let mut longest = vec![0; count];
    for run in runs {
        let at = run.entity.0 as usize;
        longest[at] = longest[at].max(run.from_ns - last[at]);
        last[at] = run.to_ns;
    }
    (0..count).map(|at| longest[at].max(end_ns - last[at])).collect()
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(100u32..4000, 2..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn nobody_starves(weights in weights(), hz in prop::sample::select(vec![100u64, 250, 1000])) {
        let tunables = Tunables::linux(2, hz);
        let load: u64 = weights.iter().map(|&weight| weight as u64).sum();
        let bound = |slice_ns: u64, weight: u32| {
            // Behind by two slices (one's own and another's) at its share, and everybody's turn once.
            let turn_ns = slice_ns + tunables.tick_ns();
            2 * turn_ns * load / weight as u64 + weights.len() as u64 * turn_ns
        };
        let end_ns = 3 * S;
        let gaps = longest_gaps_ns(
            &spinners(eevdf_machine(1, &tunables), &weights, end_ns).runs, weights.len(), end_ns);
        for (&gap_ns, &weight) in gaps.iter().zip(&weights) {
            prop_assert!(gap_ns <= bound(tunables.base_slice_ns, weight), "{gaps:?}");
        }
        let gaps = longest_gaps_ns(
            &spinners(cfs_machine(1, &tunables), &weights, end_ns).runs, weights.len(), end_ns);
        for (&gap_ns, &weight) in gaps.iter().zip(&weights) {
            prop_assert!(gap_ns <= bound(tunables.latency_ns, weight), "{gaps:?}");
        }
    }

    /// In theory lag stays within the longest slice (or quantum). Ticks let an entity overshoot its slice, by up to a tick:
    /// so it gets ahead by a tick more; and who waits for others' deadlines falls behind by a tick of each of them, unless
    /// everything is in whole ticks and virtual time is not rounded.
    #[test]
    fn lag_of_eevdf_is_bounded(
        mut weights in weights(),
        mut starts in prop::collection::vec(0..200 * MS, 8),
        hz in prop::sample::select(vec![100u64, 250, 1000]),
        whole_ticks in any::<bool>(),
    ) {
        let mut tunables = Tunables::linux(4, hz);
        let tick_ns = tunables.tick_ns();
        if whole_ticks {
            // (A new entity has half a slice.)
            tunables.base_slice_ns = tunables.base_slice_ns.next_multiple_of(2 * tick_ns);
            weights.iter_mut().for_each(|weight| *weight = 512 << (*weight % 4));
            starts.iter_mut().for_each(|at_ns| *at_ns = at_ns.next_multiple_of(tick_ns));
        }
        let mut machine = eevdf_machine(1, &tunables);
        for (&of, &at_ns) in weights.iter().zip(&starts) {
            machine.spawn(at_ns, Work::Spin, &weight(of));
        }
        let ahead_ns = (tunables.base_slice_ns + tick_ns) as i64;
        let others = if whole_ticks { 0 } else { weights.len() as u64 - 1 };
        let behind_ns = ahead_ns + (others * tick_ns) as i64;
        machine.run_until(2 * S, |machine| {
            for (entity, lag_ns) in machine.sched.lags_ns(Cpu(0)) {
                assert!((-ahead_ns..=behind_ns).contains(&lag_ns), "lag of {entity:?} is {lag_ns}");
            }
        });
        prop_assert!(machine.runs.len() > 4);
    }
}
