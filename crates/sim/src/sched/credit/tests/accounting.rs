//! Credits to the last one: burning, sharing, thresholds, caps.

use proptest::prelude::*;

use super::*;
use crate::sched::credit::interrupt::{ACCOUNTING_WORK_NS, TICK_WORK_NS, TIMER_SLOP_NS};
use crate::sched::credit::vcpu::State;

/// Active vCPUs of that credit and weight each, alone in their domains, none of them runnable.
fn accounted(cpus: u32, fixes: Fixes, of: &[(i64, u32)]) -> (Bench, Vec<Entity>) {
    let mut bench = Bench::new(Params { fixes, ..Params::xen(Version::V4_17, cpus) });
    let mut add = |&(credit, weight): &(i64, u32)| {
        let entity = bench.sched.add(&Spec { weight, ..Spec::default() });
        bench.vcpu(entity).credit = credit;
        bench.activate(entity);
        entity
    };
    let entities = of.iter().map(&mut add).collect();
    (bench, entities)
}

fn credits(bench: &mut Bench, entities: &[Entity]) -> Vec<i64> {
    entities.iter().map(|&entity| bench.credit(entity)).collect()
}

#[test]
fn ten_credits_a_millisecond_are_burnt_by_who_runs_and_by_nobody_else() {
    let mut bench = Bench::xen(1);
    let (runs, waits) = (bench.woken(&[0]), bench.woken(&[0]));
    bench.pass(30 * MS);
    bench.tick(0);
    assert_eq!((bench.credit(runs), bench.credit(waits)), (-300, 0));
}

#[test]
fn a_credit_is_rounded_to_the_nearest_and_the_rest_is_kept() {
    let mut bench = Bench::xen(1);
    let entity = bench.add(&[0]);
    let mut burst = |ns| {
        bench.wake(entity);
        bench.pass(ns);
        bench.block(0);
        bench.pass(17 * US);
        bench.credit(entity)
    };
    assert_eq!([burst(49_999), burst(1), burst(99_999), burst(1)], [0, -1, -1, -2]);
    // 150 us have been charged as 2 credits: 50 us are paid for.
    assert_eq!([burst(50 * US), burst(49_999), burst(1)], [-2, -2, -3]);
    assert_eq!((0..10_000).map(|_| burst(30 * US)).last(), Some(-3003), "250 us and 300 ms");
}

#[test]
fn the_pool_s_credit_is_shared_by_weight_and_rounded_up() {
    // On one pCPU 300 are shared: 300 x 1/7, x 2/7 and x 4/7.
    let (mut bench, entities) = accounted(1, Fixes::default(), &[(0, 256), (0, 512), (0, 1024)]);
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [43, 86, 172]);
    // Only ratios of weights count.
    let (mut bench, entities) = accounted(1, Fixes::default(), &[(0, 1), (0, 2), (0, 4)]);
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [43, 86, 172]);
}

#[test]
fn the_share_is_the_pool_s_wherever_the_vcpus_are_pinned() {
    let mut bench = Bench::xen(4);
    let entities = [bench.add(&[0]), bench.add(&[0])];
    entities.iter().for_each(|&entity| bench.activate(entity));
    bench.account();
    // 1200 between two; each is cut at what it could run in a slice.
    assert_eq!(credits(&mut bench, &entities), [300, 300]);
}

#[test]
fn what_a_domain_cannot_use_goes_to_those_after_it() {
    // 900 for three: the heavy one could have 900 x 8/10, is cut at 300, and leaves 420 to the two others, by weight.
    let (mut bench, entities) = accounted(3, Fixes::default(), &[(-300, 1), (-300, 1), (-300, 8)]);
    // Who came last stands first: the heavy one.
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [0, 0, 0]);
    // In a smaller pool the light ones are not cut: 600 x 8/10 = 480 are 180 too many, for the others' weight of 2 of 10.
    let (mut bench, entities) = accounted(2, Fixes::default(), &[(-300, 1), (-300, 1), (-300, 8)]);
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [-150, -150, 0]);
}

#[test]
fn a_pool_in_debt_hands_out_more() {
    let (mut bench, entities) = accounted(1, Fixes::default(), &[(-250, 1), (-250, 1)]);
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [-100, -100]);
    assert_eq!(bench.sched.balance, -200);
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [150, 150], "300 and the debt of 200 are shared");
    assert_eq!(bench.sched.balance, 300);
}

#[test]
fn priorities_and_lists_change_exactly_at_their_bounds() {
    let cases = [(-150, 0), (-151, -1), (-450, -300), (-451, -300), (150, 300), (151, 150), (152, 151)];
    for (before, after) in cases {
        let (mut bench, entities) = accounted(1, Fixes::default(), &[(before, 1), (0, 1)]);
        bench.account();
        assert_eq!(bench.credit(entities[0]), after, "from {before} with 150 more");
        let over = if after < 0 { Priority::Over } else { Priority::Under };
        assert_eq!(bench.priority(entities[0]), over);
        assert_eq!(bench.vcpu(entities[0]).active, before <= 150);
        assert_eq!(bench.sched.active.len(), 1 + (before <= 150) as usize);
    }
}

#[test]
fn with_bug_2_fixed_credit_is_limited_and_earning_goes_on() {
    let fixes = Fixes { inactive_debt: true, ..Fixes::default() };
    let (mut bench, entities) = accounted(1, fixes, &[(151, 1), (0, 1)]);
    bench.account();
    assert_eq!(bench.credit(entities[0]), 300);
    assert!(bench.vcpu(entities[0]).active);
}

#[test]
fn only_active_vcpus_are_accounted() {
    let mut bench = Bench::xen(1);
    let entity = bench.woken(&[0]);
    bench.pass(5 * MS);
    bench.block(0);
    bench.pass(25 * MS);
    bench.account();
    assert_eq!((bench.credit(entity), bench.priority(entity)), (-50, Priority::Boost));
    // A tick that finds it running is the only way in.
    bench.wake(entity);
    bench.pass(MS);
    bench.tick(0);
    assert_eq!(bench.kinds(entity).last(), Some(&Kind::JoinedActive { credit: -60 }));
    bench.account();
    assert_eq!(bench.credit(entity), 240);
}

#[test]
fn a_capped_domain_earns_its_cap_and_is_parked_when_it_owes_as_much() {
    let mut bench = Bench::xen(2);
    let spec = Spec { domain: DomainSpec { number: Some(7), cap_percent: 20 }, ..on(&[0]) };
    let entities = [bench.sched.add(&spec), bench.sched.add(&Spec { allowed: vec![Cpu(1)], ..spec })];
    for entity in entities {
        bench.wake(entity);
        bench.activate(entity);
    }
    // The cap is 60 credits a slice, 30 for each of the two; who owes more than 30 after it got them is parked.
    bench.vcpu(entities[0]).credit = -60;
    bench.vcpu(entities[1]).credit = -61;
    bench.account();
    assert_eq!((bench.credit(entities[0]), bench.credit(entities[1])), (-30, -31));
    assert_eq!((bench.running(0), bench.running(1)), (Some(entities[0]), None));
    assert!(bench.sched.is_parked(entities[1]) && !bench.sched.is_parked(entities[0]));
    // It runs again when it is out of debt; to be unparked gives no BOOST. It is in debt by 1, then it is not.
    bench.account();
    assert!(bench.sched.is_parked(entities[1]));
    bench.account();
    assert_eq!((bench.credit(entities[1]), bench.priority(entities[1])), (29, Priority::Under));
    assert_eq!(bench.running(1), Some(entities[1]));
}

#[test]
fn a_vcpu_is_parked_whatever_it_does() {
    for state in [State::Queued, State::Blocked] {
        let mut bench = Bench::xen(1);
        let other = bench.woken(&[0]);
        let entity =
            bench.sched.add(&Spec { domain: DomainSpec { number: None, cap_percent: 10 }, ..on(&[0]) });
        if state == State::Queued {
            bench.wake(entity);
        }
        bench.activate(entity);
        bench.vcpu(entity).credit = -200;
        bench.account();
        assert_eq!(bench.waiting(0), []);
        bench.wake(entity);
        assert!(bench.sched.is_parked(entity), "a wake while it is parked waits for the cap");
        bench.vcpu(entity).credit = 0;
        bench.account();
        assert_eq!(bench.vcpu(entity).state, State::Queued);
        assert_eq!((bench.running(0), bench.priority(entity)), (Some(other), Priority::Under));
    }
}

#[test]
fn the_pool_s_credit_is_that_of_its_pcpus() {
    let params = Params { pool: vec![Cpu(1), Cpu(2)], ..Params::xen(Version::V4_17, 8) };
    let mut bench = Bench::new(params);
    let entities = [bench.add(&[]), bench.add(&[]), bench.add(&[5]), bench.add(&[1, 5])];
    entities.iter().for_each(|&entity| bench.activate(entity));
    bench.account();
    assert_eq!(credits(&mut bench, &entities), [150; 4]);
    entities.iter().for_each(|&entity| bench.wake(entity));
    assert!([0, 3, 4, 5, 6, 7].iter().all(|&cpu| bench.running(cpu).is_none()));
    assert!(bench.running(1).is_some() && bench.running(2).is_some());
    assert_eq!(bench.vcpu(entities[3]).cpu, 1);
}

#[test]
fn ticks_and_accountings_come_at_their_phases_and_then_regularly() {
    let (accounting_phase_ns, tick_phases_ns) = (7 * MS, vec![MS, 4 * MS]);
    let params = Params { accounting_phase_ns, tick_phases_ns, ..Params::xen(Version::V4_17, 2) };
    let mut bench = Bench::new(params);
    bench.pass(100);
    bench.woken(&[0]);
    assert_eq!(bench.orders.arm[..3], [(0, 7 * MS + 100), (1, MS + 100), (2, 4 * MS + 100)]);
    bench.orders.arm.clear();
    let (tick_ns, accounting_ns) = (10 * MS + TICK_WORK_NS, 30 * MS + ACCOUNTING_WORK_NS);
    for (number, phase_ns, again_ns) in [(1, MS, tick_ns), (2, 4 * MS, tick_ns), (0, 7 * MS, accounting_ns)] {
        bench.now_ns = 100 + phase_ns;
        bench.timer(number);
        assert_eq!(bench.orders.arm.last(), Some(&(number, 100 + phase_ns + again_ns)));
    }
}

#[test]
fn an_accounting_soon_after_a_tick_is_put_off() {
    let mut bench = Bench::new(Params::xen(Version::V4_17, 1));
    bench.pass(100);
    bench.woken(&[0]);
    bench.pass(MS);
    bench.tick(0);
    let put_off_ns = bench.now_ns + TIMER_SLOP_NS;
    bench.pass(US);
    bench.account();
    assert_eq!(bench.orders.arm.last(), Some(&(0, put_off_ns)));
    assert_eq!((bench.sched.accounting_ns, bench.sched.epoch), (put_off_ns, 0));
    bench.now_ns = put_off_ns;
    bench.account();
    assert_eq!(bench.sched.epoch, 1);
}

proptest! {
    /// An accounting hands out no more than the pool's credit and its debt, but for rounding; and all of it, if no domain
    /// is cut at what it can use.
    #[test]
    fn credit_is_conserved(
        cpus in 1u32..9,
        of in prop::collection::vec((-300i64..=300, 1u32..2000, 0u32..4, 0u32..3), 1..12),
    ) {
        let mut bench = Bench::new(Params {
            fixes: Fixes { inactive_debt: true, ..Fixes::default() },
            ..Params::xen(Version::V4_17, cpus)
        });
        let mut earned = 0;
        for (credit, weight, domain, cap) in &of {
            let cap_percent = cap * 40;
            let spec = Spec { weight: *weight, domain: DomainSpec { number: Some(*domain), cap_percent }, ..Spec::default() };
            let entity = bench.sched.add(&spec);
            bench.vcpu(entity).credit = *credit;
            bench.activate(entity);
        }
        for _ in 0..4 {
            let before: Vec<i64> = bench.sched.vcpus.iter().map(|vcpu| vcpu.credit).collect();
            let pot = 300 * i64::from(cpus) + (-bench.sched.balance).max(0);
            bench.account();
            let vcpus = &bench.sched.vcpus;
            let clamped = vcpus.iter().any(|vcpu| vcpu.credit.abs() == 300);
            let gains: Vec<i64> = vcpus.iter().zip(&before).map(|(vcpu, before)| vcpu.credit - before).collect();
            earned += gains.iter().sum::<i64>();
            // At most one for each division that is rounded up: two a domain, one a vCPU.
            let rounding = (of.len() + 2 * bench.sched.domains.len()) as i64;
            prop_assert!(clamped || gains.iter().sum::<i64>() <= pot + rounding);
            let uncapped = bench.sched.domains.iter().all(|domain| domain.cap_percent == 0);
            let room = gains.iter().all(|&gain| gain < 300);
            prop_assert!(clamped || !uncapped || !room || gains.iter().sum::<i64>() >= pot);
            prop_assert_eq!(bench.sched.balance, vcpus.iter().map(|vcpu| vcpu.credit).sum::<i64>());
            prop_assert!(vcpus.iter().all(|vcpu| (-300..=300).contains(&vcpu.credit)));
        }
        prop_assert!(earned >= -300 * of.len() as i64);
    }
}
