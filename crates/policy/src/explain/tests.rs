//! Verdicts on made-up machines.

use super::*;
use crate::fingerprint::Off;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Off once in each period, for so long or up to 2 ms more or less, as under a quota that is checked at ticks, for ten seconds.
fn every(period_ms: u64, off_ms: u64) -> Vec<Off> {
    let of = |n: u64| {
        let back_ns = (n + 1) * period_ms * MS;
        let more_ns = (off_ms * MS / 2).min(2 * MS) * (n % 3) / 2;
        let shift_ns = (off_ms * MS / 4).min(MS);
        Off { since_ns: back_ns + shift_ns - off_ms * MS - more_ns, back_ns }
    };
    (0..10_000 / period_ms).map(of).collect()
}

/// Off for 3 to 9 ms, at irregular times, for a quarter of the time.
fn turns(seed: u64) -> Vec<Off> {
    let (mut at_ns, mut state, mut offs) = (0, seed, Vec::new());
    while at_ns < 10 * SECOND {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let since_ns = at_ns + 12 * MS + (state >> 33) % (12 * MS);
        at_ns = since_ns + 3 * MS + (state >> 40) % (6 * MS);
        offs.push(Off { since_ns, back_ns: at_ns });
    }
    offs
}

fn seen(offs: &[Vec<Off>]) -> Evidence {
    let vcpu = |(vcpu, offs): (usize, &Vec<Off>)| Vcpu { vcpu, offs: offs.clone(), ..Vcpu::default() };
    Evidence {
        span_ns: 10 * SECOND,
        vcpus: offs.iter().enumerate().map(vcpu).collect(),
        ..Evidence::default()
    }
}

fn first(seen: &Evidence) -> Finding {
    judge(seen).findings.first().cloned().expect("a finding")
}

#[test]
fn a_machine_without_damage_is_quiet() {
    let mut seen = seen(&[every(1000, 3), vec![]]);
    seen.grace_periods_ns = vec![12 * MS; 20];
    seen.kthread_wait_ns = Some(2 * MS);
    seen.memory_wait_ns = Some(100 * MS);
    assert!(judge(&seen).is_quiet(), "{:?}", judge(&seen));
}

#[test]
fn quotas_of_a_vcpu_and_of_a_vm_are_told_apart() {
    let one = first(&seen(&[every(100, 80), every(1000, 2)]));
    let Cause::Quota { quota, vcpus, is_of_vm } = one.cause else { panic!("{one:?}") };
    assert_eq!((quota.period_ns, quota.on_ns, vcpus, is_of_vm), (100 * MS, 20 * MS, vec![0], false));
    assert_eq!((one.confidence, one.lost_permille), (Confidence::Sure, 799));
    let all = first(&seen(&[every(100, 80), every(100, 60)]));
    assert!(matches!(all.cause, Cause::Quota { is_of_vm: true, .. }), "{all:?}");
    // One that waits for the vCPU with the quota has none.
    let waits = first(&seen(&[every(100, 80), every(100, 10)]));
    let Cause::Quota { vcpus, is_of_vm, .. } = waits.cause else { panic!("{waits:?}") };
    assert_eq!((vcpus, is_of_vm), (vec![0], false));
}

#[test]
fn what_goes_off_as_regularly_as_it_comes_back_may_be_a_task_of_the_host() {
    let off = |n: u64| Off { since_ns: (n * 100 + 70) * MS, back_ns: (n * 100 + 100) * MS };
    let found = first(&seen(&[(0..100).map(off).collect(), vec![]]));
    assert!(matches!(&found.cause, Cause::Quota { quota, .. } if quota.is_ambiguous), "{found:?}");
    assert_eq!(found.confidence, Confidence::Possible);
}

#[test]
fn an_idle_vcpu_does_not_use_its_quota_up() {
    let mut seen = seen(&[every(100, 50)]);
    seen.vcpus[0].idle = 0.5;
    let Cause::Quota { quota, .. } = first(&seen).cause else { panic!() };
    assert_eq!(quota.on_ns, 25 * MS);
}

#[test]
fn contention_is_of_several_vcpus_and_a_busy_neighbour_of_one() {
    let both = first(&seen(&[turns(1), turns(2)]));
    assert!(matches!(both.cause, Cause::Contention { turns: Some(_) }), "{both:?}");
    assert_eq!(both.confidence, Confidence::Likely);
    let one = first(&seen(&[every(1000, 3), turns(2)]));
    assert!(matches!(one.cause, Cause::BusyNeighbour { vcpu: 1, .. }), "{one:?}");
    let mut confirmed = seen(&[turns(1), turns(2)]);
    confirmed.steal_ns = Some(4 * SECOND);
    assert_eq!(first(&confirmed).confidence, Confidence::Sure);
}

#[test]
fn a_pause_stops_all_at_once_and_explains_nothing_else() {
    let pause = |since_ms: u64| vec![Off { since_ns: since_ms * MS, back_ns: 5_000 * MS }];
    let mut seen = seen(&[pause(3_000), pause(3_001)]);
    let verdict = judge(&seen);
    let [Finding { cause, .. }] = &verdict.findings[..] else { panic!("{verdict:?}") };
    assert_eq!(*cause, Cause::Pause { longest_ns: 1_999 * MS });
    seen.stepped_ns = 2 * SECOND as i64;
    let causes: Vec<Cause> = judge(&seen).findings.into_iter().map(|finding| finding.cause).collect();
    assert_eq!(causes[1], Cause::ClockStep { by_ns: 2 * SECOND as i64 });
}

#[test]
fn throttling_of_the_own_cgroup_is_no_host_s_quota() {
    let mut seen = seen(&[every(100, 80), every(100, 80)]);
    seen.throttled_ns = Some(8 * SECOND);
    seen.vcpus[0].kept_ns = 8 * SECOND;
    let verdict = judge(&seen);
    let [Finding { cause: Cause::OwnQuota { quota: Some(quota), .. }, confidence, .. }] =
        &verdict.findings[..]
    else {
        panic!("{verdict:?}")
    };
    assert_eq!((quota.period_ns, *confidence), (100 * MS, Confidence::Sure));
}

#[test]
fn the_guest_s_own_load_and_memory_are_named() {
    let mut seen = seen(&[vec![], vec![]]);
    seen.vcpus[1].kept_ns = 3 * SECOND;
    assert_eq!(first(&seen).cause, Cause::OwnCpu);
    seen.memory_wait_ns = Some(5 * SECOND);
    assert_eq!(first(&seen).cause, Cause::OwnMemory);
}

#[test]
fn long_grace_periods_have_a_starved_kthread_or_a_long_reader() {
    let mut seen = seen(&[vec![], vec![]]);
    seen.grace_periods_ns = vec![20 * MS, 300 * MS, 350 * MS];
    assert_eq!(first(&seen).cause, Cause::LongReader);
    seen.kthread_wait_ns = Some(SECOND);
    assert_eq!(first(&seen).cause, Cause::StarvedKthread);
    // Time off explains both already.
    seen.vcpus[0].offs = every(100, 80);
    assert_eq!(judge(&seen).findings.len(), 1);
    seen.kthread_wait_ns = None;
    assert_eq!(judge(&seen).findings.len(), 1);
}

fn causes(seen: &Evidence) -> Vec<Cause> {
    judge(seen).findings.into_iter().map(|finding| finding.cause).collect()
}

#[test]
fn a_starved_kthread_comes_before_an_overload_if_grace_periods_are_long_or_it_is_the_one_that_waits() {
    let overload = Evidence { cpu_wait_ns: Some(9 * SECOND), ..seen(&[vec![], vec![]]) };
    let waits = Evidence { kthread_wait_ns: Some(2 * SECOND), ..overload };
    let short = Evidence { grace_periods_ns: vec![30 * MS; 9], ..waits.clone() };
    assert_eq!(causes(&short), [Cause::OwnCpu]);
    let mostly = Evidence { kthread_wait_ns: Some(5 * SECOND), ..short.clone() };
    assert_eq!(causes(&mostly), [Cause::StarvedKthread, Cause::OwnCpu]);
    let long = Evidence { grace_periods_ns: vec![400 * MS; 9], ..waits };
    assert_eq!(causes(&long), [Cause::StarvedKthread, Cause::OwnCpu]);
    let by_host = Evidence { vcpus: seen(&[every(100, 80), vec![]]).vcpus, ..long };
    assert!(!causes(&by_host).contains(&Cause::StarvedKthread), "the host explains it");
}

#[test]
fn a_long_reader_comes_before_an_overload_only_if_it_delays_real_time_tasks() {
    let mut long = Evidence { grace_periods_ns: vec![400 * MS; 9], ..seen(&[vec![], vec![]]) };
    assert_eq!(causes(&long), [Cause::LongReader]);
    long.vcpus[1].kept_ns = 3 * SECOND;
    assert_eq!(causes(&long), [Cause::OwnCpu], "grace periods wait for tasks that wait");
    long.real_time = true;
    assert_eq!(causes(&long), [Cause::LongReader, Cause::OwnCpu]);
}

#[test]
fn a_step_of_the_clock_hides_nothing() {
    let stepped = Evidence { stepped_ns: SECOND as i64, ..seen(&[vec![], vec![]]) };
    let waits = Evidence { kthread_wait_ns: Some(2 * SECOND), ..stepped };
    assert_eq!(causes(&waits), [Cause::ClockStep { by_ns: SECOND as i64 }, Cause::StarvedKthread]);
}

#[test]
fn steal_alone_is_contention() {
    let stolen = |steal_ns| Evidence { steal_ns: Some(steal_ns), ..seen(&[vec![], vec![]]) };
    assert_eq!(causes(&stolen(3 * SECOND)), [Cause::Contention { turns: None }]);
    assert!(causes(&stolen(SECOND)).is_empty());
}

/// Off for 10 ms each, together with all others, for a tenth of the time, at irregular times: late timers of the hypervisor.
fn late_timers() -> Vec<Off> {
    let of = |off: Off| Off { since_ns: off.back_ns.saturating_sub(4 * MS), ..off };
    turns(9).into_iter().map(of).collect()
}

/// Both, in the order of time; what overlaps is one time off.
fn beside(a: &[Off], b: &[Off]) -> Vec<Off> {
    let mut all = [a, b].concat();
    all.sort_by_key(|off| off.since_ns);
    all.into_iter().fold(Vec::new(), |mut merged: Vec<Off>, off| {
        match merged.last_mut().filter(|last| last.back_ns >= off.since_ns) {
            Some(last) => last.back_ns = last.back_ns.max(off.back_ns),
            None => merged.push(off),
        }
        merged
    })
}

#[test]
fn late_timers_of_the_hypervisor_are_no_contention() {
    let late = late_timers();
    let both = seen(&[late.clone(), late.clone()]);
    assert!(both.permille(both.vcpus[0].off_ns()) >= 100 && both.shared_ns() == both.vcpus[0].off_ns());
    assert!(causes(&both).is_empty(), "{:?}", causes(&both));
    // One vCPU shares with nobody: who lets it wait cannot be told.
    assert_eq!(causes(&seen(std::slice::from_ref(&late))).len(), 1);
    let most = seen(&[turns(1), turns(1)]);
    assert!(
        matches!(causes(&most)[..], [Cause::Contention { .. }]),
        "a quarter of the time is too much for timers"
    );
}

#[test]
fn a_quota_and_a_neighbour_are_found_beside_late_timers() {
    let late = late_timers();
    let quota = first(&seen(&[beside(&every(100, 30), &late), late.clone()]));
    assert!(matches!(&quota.cause, Cause::Quota { vcpus, .. } if vcpus[..] == [0]), "{quota:?}");
    let neighbour = first(&seen(&[late.clone(), beside(&turns(2), &late)]));
    assert!(matches!(neighbour.cause, Cause::BusyNeighbour { vcpu: 1, .. }), "{neighbour:?}");
}

#[test]
fn one_grace_period_far_longer_than_the_host_s_times_off_is_a_reader_s() {
    let mut seen = seen(&[turns(1), turns(2)]);
    seen.grace_periods_ns = vec![20 * MS, 30 * MS, 80 * MS, 900 * MS];
    let found = causes(&seen);
    assert!(matches!(found[..], [Cause::Contention { .. }, Cause::LongReader]), "{found:?}");
    seen.grace_periods_ns = vec![20 * MS; 9];
    seen.grace_periods_ns.push(400 * MS);
    assert!(!causes(&seen).contains(&Cause::LongReader), "too short a part of the time");
}

#[test]
fn a_kthread_that_waits_far_longer_than_vcpus_is_starved_by_the_guest() {
    let mut seen = seen(&[turns(1), turns(2)]);
    seen.kthread_wait_ns = Some(3 * SECOND);
    assert_eq!(causes(&seen).len(), 1);
    seen.kthread_wait_ns = Some(8 * SECOND);
    assert_eq!(causes(&seen)[1], Cause::StarvedKthread);
}
