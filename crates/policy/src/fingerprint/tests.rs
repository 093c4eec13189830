//! Rhythms of made-up hosts.

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A reproducible number below `below`.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below.max(1)
}

/// Ten seconds under a quota, as CFS enforces it: run time is looked at each tick of 4 ms, what was overrun is owed, and the
/// vCPU comes back up to 0.2 ms late.
fn under_quota(quota_ns: u64, period_ns: u64, seed: u64) -> Vec<Off> {
    let (mut state, mut offs, mut left_ns) = (seed, Vec::new(), 0);
    let (mut at_ns, mut since_ns) = (draw(&mut state, period_ns), None);
    let phase_ns = draw(&mut state, 4 * MS);
    while at_ns < 10 * SECOND {
        left_ns = (left_ns + quota_ns as i64).min(quota_ns as i64);
        if left_ns > 0 {
            let back_ns = at_ns + draw(&mut state, MS / 5);
            offs.extend(since_ns.take().map(|since_ns| Off { since_ns, back_ns }));
            // At the first tick at which the quota is used up, or at once if that is nearer than a tick.
            let ends_ns = back_ns + left_ns as u64;
            let tick_ns = (ends_ns - phase_ns).div_ceil(4 * MS) * 4 * MS + phase_ns;
            let off_ns = tick_ns.min(at_ns + period_ns);
            left_ns -= (off_ns - back_ns) as i64;
            if left_ns <= 0 {
                since_ns = Some(off_ns);
            }
        }
        at_ns += period_ns;
    }
    offs.retain(|off| off.length_ns() > 0);
    offs
}

#[test]
fn quotas_are_found_with_their_period() {
    for (quota_ms, period_ms) in [(20, 100), (50, 100), (80, 100), (10, 50), (5, 20), (200, 400)] {
        for seed in 1..20 {
            let found = rhythm(&under_quota(quota_ms * MS, period_ms * MS, seed));
            let Rhythm::Quota(quota) = found else { panic!("{quota_ms} of {period_ms}: {found:?}") };
            let off_by = |is: u64, should_ms: u64| (is as f64 / (should_ms * MS) as f64 - 1.0).abs();
            assert!(off_by(quota.period_ns, period_ms) < 0.005, "{quota_ms} of {period_ms}: {quota:?}");
            assert!(off_by(quota.on_ns, quota_ms) < 0.1, "{quota_ms} of {period_ms}: {quota:?}");
        }
    }
}

#[test]
fn a_clock_that_drifts_hides_no_quota() {
    for seed in 1..20 {
        let mut offs = under_quota(80 * MS, 200 * MS, seed);
        let middle_ns = offs[offs.len() / 2].back_ns;
        // By 3 ms in a second, as seen in a guest.
        let drifted = |at_ns: u64| at_ns + (at_ns.saturating_sub(middle_ns) * 3 / 1000).min(3 * MS);
        offs.iter_mut()
            .for_each(|off| *off = Off { since_ns: drifted(off.since_ns), back_ns: drifted(off.back_ns) });
        assert!(matches!(rhythm(&offs), Rhythm::Quota(_)), "{seed}: {:?}", rhythm(&offs));
    }
}

#[test]
fn short_absences_hide_no_quota() {
    let mut state = 3;
    let mut offs = under_quota(50 * MS, 100 * MS, 1);
    let inside: Vec<Off> = offs
        .windows(2)
        .flat_map(|pair| {
            let at_ns = pair[0].back_ns + 5 * MS + draw(&mut state, 20 * MS);
            (pair[1].since_ns > at_ns + 3 * MS).then_some(Off { since_ns: at_ns, back_ns: at_ns + 3 * MS })
        })
        .collect();
    assert!(inside.len() > 50);
    offs.extend(inside);
    offs.sort_by_key(|off| off.since_ns);
    let Rhythm::Quota(quota) = rhythm(&offs) else { panic!() };
    assert!(
        quota.period_ns.abs_diff(100 * MS) < MS / 2 && quota.on_ns.abs_diff(50 * MS) < 5 * MS,
        "{quota:?}"
    );
}

/// Turns of slices with so many others; now and then a thread of the host shifts them.
fn turns_with(others: u64, slice_ns: u64, seed: u64) -> Vec<Off> {
    let (mut state, mut offs, mut at_ns) = (seed, Vec::new(), 0);
    while at_ns < 10 * SECOND {
        let since_ns = at_ns + slice_ns;
        let shift_ns = if draw(&mut state, 30) == 0 { MS + draw(&mut state, 3) * MS } else { 0 };
        let back_ns = since_ns + others * slice_ns + shift_ns;
        offs.push(Off { since_ns, back_ns });
        at_ns = back_ns;
    }
    offs
}

#[test]
fn turns_are_no_quota_and_count_the_others() {
    for (others, slice_ms) in [(1, 3), (1, 4), (2, 4), (3, 24), (1, 12)] {
        for seed in 1..20 {
            let found = rhythm(&turns_with(others, slice_ms * MS, seed));
            let Rhythm::Turns(turns) = found else { panic!("{others} of {slice_ms} ms: {found:?}") };
            assert_eq!((turns.competitors, turns.on_ns), (others, slice_ms * MS));
        }
    }
}

#[test]
fn rare_absences_that_end_at_a_host_s_ticks_are_no_quota() {
    for seed in 1..20 {
        let (mut state, mut tick, mut offs) = (seed, 0, Vec::new());
        while tick * 10 < 10_000 {
            tick += 4 + draw(&mut state, 8);
            let back_ns = tick * 10 * MS + draw(&mut state, MS / 10);
            offs.push(Off { since_ns: back_ns - 3 * MS - draw(&mut state, 2 * MS), back_ns });
        }
        assert!(!matches!(rhythm(&offs), Rhythm::Quota(_)), "{seed}: {:?}", rhythm(&offs));
    }
}

#[test]
fn few_absences_are_no_rhythm() {
    let few = under_quota(20 * MS, 100 * MS, 1)[..FEWEST - 1].to_vec();
    assert_eq!(rhythm(&few), Rhythm::Unknown);
    assert_eq!(rhythm(&[]), Rhythm::Unknown);
}

#[test]
fn random_absences_are_no_quota() {
    for seed in 1..100 {
        let (mut state, mut at_ns, mut offs) = (seed, 0, Vec::new());
        while at_ns < 10 * SECOND {
            let since_ns = at_ns + MS + draw(&mut state, 200 * MS);
            at_ns = since_ns + MS + draw(&mut state, 30 * MS);
            offs.push(Off { since_ns, back_ns: at_ns });
        }
        assert!(!matches!(rhythm(&offs), Rhythm::Quota(_)), "{seed}");
    }
}

#[test]
fn what_all_came_back_from_at_the_same_moment_is_shared() {
    let off = |since_ns: u64, back_ns: u64| Off { since_ns: since_ns * MS / 10, back_ns: back_ns * MS / 10 };
    let (a, b, c) =
        ([off(0, 100), off(200, 300), off(400, 500)], [off(50, 105), off(250, 306)], [off(0, 95)]);
    assert_eq!(alone(&[&a, &b]), [&a[1..], &b[1..]]);
    assert_eq!(alone(&[&a, &b, &c])[0], a[1..], "0.5 ms apart is the same moment, and 0.6 ms is not");
    assert_eq!(alone(&[&a, &b, &[]])[0], a, "one that was never off shares nothing");
    assert_eq!(alone(&[&a]), [a], "a single vCPU shares nothing");
}

#[test]
fn what_lies_in_both_is_the_time_that_both_were_off() {
    let off = |since_ns, back_ns| Off { since_ns, back_ns };
    assert_eq!(both_off(&[off(0, 10), off(20, 30)], &[off(5, 25)]), [off(5, 10), off(20, 25)]);
    assert_eq!(both_off(&[off(0, 10)], &[]), []);
}
