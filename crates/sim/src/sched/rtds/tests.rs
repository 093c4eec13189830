//! Tests of the real-time scheduler.

use proptest::prelude::*;

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as S};

use super::*;
use crate::sched::Quota;
use crate::sched::xen::machine::{Machine, Work};

fn server(budget_ms: u64, period_ms: u64, cpus: &[u32]) -> Spec {
    let quota = Quota { quota_ns: budget_ms * MS, period_ns: period_ms * MS, phase_ns: 0, burst_ns: 0 };
    let allowed = cpus.iter().copied().map(Cpu).collect();
    Spec { quota: Some(quota), allowed, ..Spec::default() }
}

fn check(sched: &Rtds) {
    let deadlines = sched.waiting.iter().map(|&entity| sched.servers[entity as usize].deadline_ns);
    assert!(deadlines.is_sorted());
    for (entity, server) in sched.servers.iter().enumerate() {
        let entity = entity as u32;
        let waits = sched.waiting.iter().filter(|&&other| other == entity).count();
        let runs = (0..sched.params.cpus).filter(|&cpu| sched.pcpus[cpu].current == Some(entity)).count();
        let expected = ((server.state == State::Queued) as usize, (server.state == State::Running) as usize);
        assert_eq!((waits, runs), expected, "vCPU {entity} is {:?}", server.state);
        assert!(server.allowed.has(server.cpu) && server.left_ns <= server.budget_ns);
        assert!(server.state != State::Queued || server.left_ns > 0);
    }
}

fn machine(cpus: u32) -> Machine<Rtds> {
    Machine::new(cpus as usize, Rtds::new(Params::xen(cpus)))
}

#[test]
fn a_vcpu_gets_its_budget_in_every_period_and_no_more() {
    let mut machine = machine(1);
    machine.spawn(0, Work::Spin, &Spec::default());
    for period in 1..=100 {
        machine.run_until(period * 10 * MS - 1, |machine| check(&machine.sched));
        assert_eq!(machine.vcpus[0].ran_ns, period * 4 * MS, "the pCPU idles for the rest");
        assert!(machine.sched.servers[0].state == State::Depleted);
    }
}

#[test]
fn vcpus_that_fit_meet_all_their_deadlines() {
    let mut machine = machine(1);
    // 50 + 20 + 30 % of one pCPU.
    for (budget_ms, period_ms) in [(10, 20), (1, 5), (3, 10)] {
        machine.spawn(0, Work::Spin, &server(budget_ms, period_ms, &[]));
    }
    for periods in 1..=50 {
        machine.run_until(periods * 20 * MS, |machine| check(&machine.sched));
        let ran = machine.vcpus.iter().map(|got| got.ran_ns / MS).collect::<Vec<_>>();
        assert_eq!(ran, [periods * 10, periods * 4, periods * 6]);
    }
}

#[test]
fn an_earlier_deadline_preempts_and_an_equal_one_does_not() {
    for (period_ms, preempts) in [(5, true), (20, false), (40, false)] {
        let mut machine = machine(1);
        let long = machine.spawn(0, Work::Spin, &server(10, 20, &[]));
        let other = machine.spawn(MS, Work::Spin, &server(2, period_ms, &[]));
        machine.run_until(MS, |machine| check(&machine.sched));
        assert_eq!(machine.sched.running(Cpu(0)), Some(if preempts { other } else { long }));
    }
}

#[test]
fn nobody_is_disturbed_for_an_equal_deadline_neither_by_a_wake_nor_by_a_decision() {
    let mut sched = Rtds::new(Params::xen(1));
    sched.log.start();
    let mut orders = Orders::default();
    let [runs, other] = [(); 2].map(|()| sched.add(&server(10, 20, &[])));
    sched.wake(0, runs, None, &mut orders);
    assert_eq!(sched.pick(0, Cpu(0), &mut orders), Some(runs));
    orders.resched.clear();
    sched.wake(MS, other, None, &mut orders);
    assert_eq!(orders.resched, []);
    assert_eq!(sched.log.take().last().unwrap().kind, Kind::TickleRefused(Refusal::LaterDeadline));
    // One that is taken for another reason leaves the pCPU to who has it.
    sched.pcpus.make_due(0);
    assert_eq!(sched.pick(2 * MS, Cpu(0), &mut orders), Some(runs));
}

#[test]
fn a_blocked_vcpu_keeps_its_budget_until_the_period_ends() {
    let mut machine = machine(1);
    // It runs 1 ms, sleeps 5 ms, and so on: 1 ms at 0 and at 6 ms, then the next period's.
    machine.spawn(0, Work::Requests { service_ns: MS, gap_ns: 5 * MS, spread_ns: 0 }, &server(2, 10, &[]));
    machine.run_until(S, |machine| check(&machine.sched));
    let summary = machine.vcpus[0].summary();
    assert_eq!((summary.p50, summary.max), (MS, MS), "2 ms in 10 ms are enough");
    // What is not used is lost: after 95 ms of sleep the budget is 2 ms and no more.
    let mut machine = self::machine(1);
    machine.spawn(
        95 * MS,
        Work::Requests { service_ns: 5 * MS, gap_ns: 95 * MS, spread_ns: 0 },
        &server(2, 10, &[]),
    );
    machine.run_until(130 * MS, |machine| check(&machine.sched));
    // 2 ms at 95 ms, 2 ms at 100 ms, 1 ms at 110 ms.
    assert_eq!(machine.vcpus[0].responses_ns, [16 * MS]);
}

#[test]
fn the_queue_is_one_for_all_pcpus() {
    let mut machine = machine(2);
    for _ in 0..4 {
        machine.spawn(0, Work::Spin, &Spec::default());
    }
    // A fifth would be too much for 2 pCPUs at 40 % each only if it could not use what is left of both.
    machine.spawn(0, Work::Spin, &server(4, 20, &[]));
    machine.run_until(S, |machine| check(&machine.sched));
    let ran = machine.vcpus.iter().map(|got| got.ran_ns / MS).collect::<Vec<_>>();
    assert_eq!(ran, [400, 400, 400, 400, 200]);
}

#[test]
fn to_yield_is_to_give_up_the_budget() {
    let mut machine = machine(1);
    let entity = machine.spawn(0, Work::Spin, &Spec::default());
    machine.run_until(MS, |_| {});
    let mut orders = Orders::default();
    machine.sched.yield_now(MS, Cpu(0), &mut orders);
    assert_eq!(machine.sched.pick(MS, Cpu(0), &mut orders), None);
    assert!(machine.sched.servers[entity.0 as usize].state == State::Depleted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Invariants hold, and nobody gets more than its budget. If nobody is pinned, no pCPU idles while somebody with budget
    /// waits.
    #[test]
    fn budgets_are_kept(
        cpus in 1u32..5,
        of in prop::collection::vec((1u64..10, 1u64..20, 0u64..3, prop::collection::vec(0u32..5, 0..3)), 1..8),
    ) {
        let mut machine = machine(cpus);
        let pinned = of.iter().any(|(_, _, _, allowed)| !allowed.is_empty());
        for (budget_ms, period_ms, kind, allowed) in &of {
            let work = match kind {
                0 => Work::Spin,
                _ => Work::Requests { service_ns: kind * MS, gap_ns: MS, spread_ns: MS },
            };
            machine.spawn(0, work, &server(*budget_ms, *period_ms, allowed));
        }
        machine.run_until(S, |machine| {
            let sched = &machine.sched;
            check(sched);
            let idle = (0..cpus).any(|cpu| sched.running(Cpu(cpu)).is_none());
            assert!(!idle || pinned || sched.waiting.is_empty());
        });
        for (got, (budget_ms, period_ms, ..)) in machine.vcpus.iter().zip(of) {
            prop_assert!(got.ran_ns <= (1000u64.div_ceil(period_ms) + 1) * budget_ms.min(period_ms) * MS);
        }
    }
}
