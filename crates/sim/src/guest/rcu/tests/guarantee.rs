//! RCU's promises, on random schedules. [`Guest`] checks them as it runs.

use proptest::prelude::*;

use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};

use super::guest::Guest;
use super::style::Style;
use crate::guest::rcu::state::Rcu;
use crate::guest::rcu::{Ask, Params};

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 2..10_u64, 10..100_u64]
}

prop_compose! {
    fn styles()(
        (calls, burst, switches, voluntary, crossings) in (rate(), 1..30_u64, 2..200_u64, rate(), rate()),
        asks in rate(),
        (idling, readers, deschedules, away_ns) in (rate(), rate(), rate(), 1..60_000_000_u64),
        (kthread_delay_ns, expedited, barriers, skew_ns) in (0..2_000_000_u64, rate(), rate(), 0..1_000_000_u64),
    ) -> Style {
        Style {
            calls, burst, switches, voluntary, crossings, idling, readers, deschedules, away_ns, kthread_delay_ns,
            kthread_on: None, expedited, asks, barriers, skew_ns,
        }
    }
}

prop_compose! {
    fn some_params()(
        hz in prop::sample::select(vec![100, 250, 300, 1000_u64]),
        (leaf, fanout) in (2..5_usize, 2..4_usize),
        (blimit, qhimark) in (1..12_u64, 1..300_u64),
        jiffies_to_sched_qs in prop::option::of(1..4_u64),
        jiffies_till_first_fqs in prop::option::of(0..4_u64),
        asks in prop::option::of(prop::sample::select(vec![Ask::AtStart, Ask::AtFirstScan])),
        offloads in any::<bool>(),
    ) -> Params {
        Params { hz, leaf, fanout, blimit, qhimark, qlowmark: qhimark / 10, jiffies_to_sched_qs,
            jiffies_till_first_fqs, asks, offloads, stall_jiffies: Some(40), ..Params::default() }
    }
}

/// Makes the numbers wrap soon.
pub(super) fn start_near_the_end(rcu: &mut Rcu) {
    let seq = 0_u64.wrapping_sub(3 << 2);
    rcu.gp_seq = seq;
    rcu.tree.nodes.iter_mut().for_each(|node| (node.gp_seq, node.gp_seq_needed) = (seq, seq));
    rcu.cpus.iter_mut().for_each(|cpu| (cpu.gp_seq, cpu.gp_seq_needed) = (seq, seq));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn promises_are_kept(
        seed in any::<u64>(), cpus in 1..14_usize, wraps in any::<bool>(), params in some_params(), style in styles(),
    ) {
        let mut guest = Guest::new(&params, cpus, style, seed);
        if wraps {
            start_near_the_end(&mut guest.rcu);
        }
        guest.run_until(300 * MILLISECOND_NS);
        guest.settle(20 * SECOND_NS);
        let periods: Vec<_> = guest.rcu.finished().collect();
        prop_assert!(periods.windows(2).all(|pair| pair[0].span.end_ns <= pair[1].span.start_ns));
        prop_assert!(periods.windows(2).all(|pair| (pair[0].sequence + 1) << 2 == pair[1].sequence << 2));
        for period in &periods {
            for cleared_ns in &period.cleared_ns {
                let at_ns = cleared_ns.expect("it waits for every CPU");
                prop_assert!(period.span.start_ns <= at_ns && at_ns <= period.span.end_ns);
            }
        }
    }

    #[test]
    fn the_counterfactual_loses_no_callback(
        seed in any::<u64>(), cpus in 2..14_usize, params in some_params(), style in styles(),
    ) {
        let params = Params { descheduled_is_quiescent: true, ..params };
        let mut guest = Guest::new(&params, cpus, style, seed);
        guest.run_until(300 * MILLISECOND_NS);
        guest.settle(20 * SECOND_NS);
    }
}
