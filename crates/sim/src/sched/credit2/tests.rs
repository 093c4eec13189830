//! Tests of credit2.

use proptest::prelude::*;

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as S};

use super::*;
use crate::sched::xen::machine::{Machine, Summary, Work};
use crate::sched::xen::{Event, Kind, Refusal};

const US: u64 = MS / 1_000;

fn on(cpus: &[u32]) -> Spec {
    Spec { allowed: cpus.iter().copied().map(Cpu).collect(), ..Spec::default() }
}

fn check(sched: &Credit2) {
    for queue in &sched.queues {
        let credits: Vec<i64> =
            queue.waiting.iter().map(|&entity| sched.vcpus[entity as usize].credit).collect();
        assert!(credits.is_sorted_by(|a, b| a >= b), "{credits:?}");
    }
    for (entity, vcpu) in sched.vcpus.iter().enumerate() {
        let entity = entity as u32;
        let waits =
            sched.queues.iter().map(|queue| queue.waiting.iter().filter(|&&other| other == entity).count());
        let runs = (0..sched.params.cpus).filter(|&cpu| sched.pcpus[cpu].current == Some(entity)).count();
        let expected = ((vcpu.state == State::Queued) as usize, (vcpu.state == State::Running) as usize);
        assert_eq!((waits.sum::<usize>(), runs), expected, "vCPU {entity} is {:?}", vcpu.state);
        assert!(vcpu.allowed.has(vcpu.cpu));
    }
}

/// A spinner and a vCPU that sleeps for `gap_us` and works for 200 us, both on pCPU 0 of two.
fn pair(ratelimit_us: u64, retry_refused: bool, gap_us: u64) -> (Summary, Vec<Event>) {
    let params = Params { ratelimit_ns: ratelimit_us * US, retry_refused, ..Params::xen(2) };
    let mut machine = Machine::new(2, Credit2::new(params));
    machine.sched.log.start();
    machine.spawn(0, Work::Spin, &on(&[0]));
    let work = Work::Requests { service_ns: 200 * US, gap_ns: gap_us * US, spread_ns: 0 };
    machine.spawn(MS, work, &on(&[0]));
    machine.run_until(10 * S, |machine| check(&machine.sched));
    (machine.vcpus[1].summary(), machine.sched.log.take())
}

#[test]
fn a_wake_shortly_before_the_rate_limit_ends_is_late_by_the_rest_of_the_credit() {
    // The spinner's timer was set to 10 ms. Who wakes 0.9 ms later waits 9.1 ms, and works.
    let (late, events) = pair(1_000, false, 900);
    assert_eq!((late.p50, late.max), (9_300 * US, 9_300 * US));
    let refused = |event: &&Event| event.kind == Kind::TickleRefused(Refusal::RateLimit);
    assert_eq!(events.iter().filter(refused).count() / 10, late.count / 10);
    // 50 us before the end it is in time, as far as the shortest timer lets it.
    assert_eq!(pair(1_000, false, 949).0.p50, 9_251 * US);
    assert_eq!(pair(1_000, false, 951).0.p50, 500 * US + 200 * US);
    assert_eq!(pair(1_000, false, 1_000).0.p50, 200 * US);
}

#[test]
fn the_late_wake_goes_with_the_rate_limit_or_with_its_fix() {
    assert_eq!(pair(500, false, 900).0.p50, 200 * US);
    assert_eq!(pair(0, false, 900).0.p50, 200 * US);
    let (fixed, _) = pair(1_000, true, 900);
    assert_eq!((fixed.p50, fixed.max), (300 * US, 300 * US), "it waits for the 0.1 ms that are left");
}

#[test]
fn credit_is_burnt_by_weight_to_the_last_nanosecond() {
    let mut vcpu = Vcpu::new(300, Mask::of(1, &[]), 0, 0);
    for now_ns in 1..=3_000 {
        vcpu.burn(now_ns, 700);
    }
    assert_eq!(params::CREDIT_NS - vcpu.credit, 3_000 * 700 / 300);
    assert_eq!(vcpu.time_ns(7_000, 700), 3_000);
}

#[test]
fn a_reset_lifts_all_until_the_next_one_has_credit_and_is_limited() {
    assert_eq!([0, -1, -10_000_000, -10_000_001, -25_000_000].map(runqueue::reset_times), [1, 1, 1, 2, 3]);
    let mut machine = Machine::new(1, Credit2::new(Params::xen(1)));
    let entities = [(); 3].map(|()| machine.spawn(0, Work::Spin, &Spec::default()));
    let idle = machine.sched.add(&Spec::default());
    machine.run_until(S, |machine| {
        check(&machine.sched);
        let most = params::CREDIT_NS + params::LEAST_NS;
        assert!(machine.sched.vcpus.iter().all(|vcpu| vcpu.credit <= most));
    });
    assert_eq!(machine.sched.vcpus[idle.0 as usize].credit, params::CREDIT_NS + params::LEAST_NS);
    let ran = entities.map(|entity| machine.vcpus[entity.0 as usize].ran_ns);
    assert_eq!(ran.iter().sum::<u64>(), S);
}

#[test]
fn weights_are_honoured_within_1_percent() {
    for weights in [&[1, 1][..], &[1, 2], &[1, 4], &[1, 2, 4], &[2, 3, 5], &[1, 8]] {
        let mut machine = Machine::new(1, Credit2::new(Params::xen(1)));
        for weight in weights {
            machine.spawn(0, Work::Spin, &Spec { weight: weight * 256, ..Spec::default() });
        }
        machine.run_until(100 * S, |_| {});
        let sum: u32 = weights.iter().sum();
        for (got, &weight) in machine.vcpus.iter().zip(weights) {
            let expected = 100 * S * u64::from(weight) / u64::from(sum);
            assert!(
                got.ran_ns.abs_diff(expected) * 100 < expected,
                "{weights:?}: {weight} ran {}",
                got.ran_ns
            );
        }
    }
}

#[test]
fn a_wake_takes_an_idle_pcpu_of_its_runqueue_only() {
    let params = Params { runqueue_cpus: 2, ..Params::xen(4) };
    let mut machine = Machine::new(4, Credit2::new(params));
    let entities = [&[0][..], &[0], &[0, 1], &[0, 1]].map(|cpus| machine.spawn(0, Work::Spin, &on(cpus)));
    machine.run_until(S, |machine| {
        check(&machine.sched);
        assert_eq!((machine.sched.running(Cpu(2)), machine.sched.running(Cpu(3))), (None, None));
        assert!(machine.now_ns == 0 || machine.sched.running(Cpu(1)).is_some());
    });
    let ran: u64 = entities.map(|entity| machine.vcpus[entity.0 as usize].ran_ns).iter().sum();
    assert_eq!(ran, 2 * S);
    // The next two go where fewer are.
    let free = [(); 2].map(|()| machine.sched.add(&Spec::default()));
    assert_eq!(free.map(|entity| machine.sched.vcpus[entity.0 as usize].queue), [1, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Invariants hold, and the pCPUs of a runqueue never idle while somebody waits whom they may run.
    #[test]
    fn no_pcpu_idles_in_vain(
        cpus in 1u32..6,
        retry_refused: bool,
        of in prop::collection::vec((1u32..2000, 50u64..3_000, 0u64..3_000, prop::collection::vec(0u32..6, 0..3)), 1..10),
    ) {
        let params = Params { runqueue_cpus: 3, retry_refused, ..Params::xen(cpus) };
        let mut machine = Machine::new(cpus as usize, Credit2::new(params));
        for (weight, service_us, gap_us, allowed) in of {
            let work = match gap_us {
                0..1000 => Work::Spin,
                _ => Work::Requests { service_ns: service_us * US, gap_ns: gap_us * US, spread_ns: 100 * US },
            };
            machine.spawn(gap_us * US, work, &Spec { weight, ..on(&allowed) });
        }
        machine.run_until(S, |machine| {
            let sched = &machine.sched;
            check(sched);
            for queue in &sched.queues {
                for cpu in queue.idle.iter() {
                    assert!(!queue.waiting.iter().any(|&entity| sched.vcpus[entity as usize].allowed.has(cpu)));
                }
            }
        });
    }
}
