use super::*;

pub(super) const MS: u64 = 1_000_000;
const STEP_NS: u64 = 100_000;

fn before_tick() -> Settings {
    Settings { before_tick: true, ..Settings::default() }
}

/// A VM of two vCPUs with a grace period that waits for vCPU 1 alone.
fn held_up(run_ns: u64) -> [Vcpu; 2] {
    [Vcpu::default(), Vcpu { is_holdout: true, run_ns, ..Vcpu::default() }]
}

/// A look at a guest whose grace period is open since 0, and whose ticks are not known.
fn look<'a>(at_ns: u64, vcpus: &'a [Vcpu]) -> Look<'a> {
    Look { at_ns, open_since_ns: Some(0), tick_ns: None, vcpus }
}

/// Visits of vCPU 1 as (begin, end), if each lasts for its whole length and none ends the grace period.
fn visits(settings: Settings, until_ns: u64, debt_of: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
    let mut booster = Booster::new(settings, 2, 0);
    let (mut visits, mut began, mut run_ns) = (Vec::new(), None, 0);
    for at_ns in (0..until_ns).step_by(STEP_NS as usize) {
        let mut vcpus = held_up(run_ns);
        vcpus[1].debt_ns = debt_of(run_ns);
        match booster.look(&look(at_ns, &vcpus), |_| began.is_none()) {
            [] => {}
            [Order::Begin(1)] => began = Some(at_ns),
            [Order::End(1)] => visits.push((began.take().expect("it began"), at_ns)),
            other => panic!("{other:?}"),
        }
        run_ns += if began.is_some() { STEP_NS } else { 0 };
    }
    visits
}

#[test]
fn a_holdout_that_is_off_is_visited_from_the_threshold_on_for_the_cap() {
    let visits = visits(Settings::default(), 20 * MS, |_| 0);
    assert_eq!(visits[0], (5 * MS, 5_500_000));
    assert_eq!(visits[1], (7 * MS, 7_500_000), "the cool-down lies between");
}

#[test]
fn only_who_holds_the_grace_period_up_and_is_off_is_visited() {
    let idle = Vcpu::default();
    let cases = [
        (Vcpu { is_holdout: true, ..idle }, true, true),
        (Vcpu { has_kthread: true, ..idle }, true, true),
        (Vcpu { may_hold_lock: true, ..idle }, true, true),
        (Vcpu { is_holdout: true, ..idle }, false, false),
        (idle, true, false),
    ];
    for (vcpu, is_off, is_visited) in cases {
        let orders = |open_since_ns| {
            let mut booster = Booster::new(Settings::default(), 1, 0);
            let look = Look { at_ns: 6 * MS, open_since_ns, tick_ns: None, vcpus: &[vcpu] };
            booster.look(&look, |_| is_off).to_vec()
        };
        let expected = if is_visited { vec![Order::Begin(0)] } else { Vec::new() };
        assert_eq!(orders(Some(0)), expected, "{vcpu:?}");
        assert_eq!(orders(Some(2 * MS)), [], "too young");
        assert_eq!(orders(None), [], "none is open");
    }
}

#[test]
fn a_visit_ends_as_soon_as_the_vcpu_has_reported() {
    let mut booster = Booster::new(Settings::default(), 2, 0);
    let mut vcpus = held_up(0);
    assert_eq!(booster.look(&look(5 * MS, &vcpus), |_| true), [Order::Begin(1)]);
    assert_eq!(booster.boosted().collect::<Vec<_>>(), [1]);
    vcpus[1] = Vcpu { run_ns: 50_000, ..Vcpu::default() };
    assert_eq!(booster.look(&look(5 * MS + 50_000, &vcpus), |_| true), [Order::End(1)]);
    assert_eq!(booster.boosted().count(), 0);
}

#[test]
fn visits_to_a_grace_period_that_never_ends_become_rare() {
    let visits = visits(Settings::default(), 10_000 * MS, |_| 0);
    let pauses: Vec<u64> = visits.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
    assert!(pauses[..3].iter().all(|&pause_ns| pause_ns == 1_500_000), "{pauses:?}");
    assert!(pauses.windows(2).skip(3).all(|pair| pair[1] == (2 * pair[0]).min(1000 * MS)), "{pauses:?}");
    assert!(visits.len() < 30, "{}", visits.len());
}

#[test]
fn who_owes_much_is_not_visited() {
    let settings = Settings { debt_ns: 900_000, ..Settings::default() };
    let visits = visits(settings, 1_000 * MS, |run_ns| run_ns);
    assert_eq!(visits.len(), 2, "1 ms is owed after two visits: {visits:?}");
}

#[test]
fn visits_take_no_more_than_their_share_of_any_second() {
    let settings = Settings { cool_down_ns: 0, share_permille: 50, ..Settings::default() };
    let mut booster = Booster::new(settings, 2, 0);
    let (mut run_ns, mut is_boosted, mut taken) = (0, false, Vec::new());
    for step in 0..50_000_u64 {
        let at_ns = step * STEP_NS;
        // Another grace period at every 20 ms, so that patience never ends.
        let open_since_ns = Some(at_ns / (20 * MS) * 20 * MS);
        let look = Look { at_ns, open_since_ns, tick_ns: None, vcpus: &held_up(run_ns) };
        match booster.look(&look, |_| !is_boosted) {
            [] => {}
            [order] => is_boosted = *order == Order::Begin(1),
            other => panic!("{other:?}"),
        }
        run_ns += if is_boosted { STEP_NS } else { 0 };
        taken.push(run_ns);
    }
    let in_second = |end: usize| taken[end] - taken[end - 10_000];
    let most = (10_000..taken.len()).map(in_second).max().unwrap();
    // The allowance saved up before, the allowance added during the second, and the visit under way at its start.
    assert!(most <= 2 * 50 * MS + settings.cap_ns, "{most}");
    let later = in_second(taken.len() - 1);
    assert!((45 * MS..=51 * MS).contains(&later), "5 % of the last second, not {later}");
}

#[test]
fn what_one_grace_period_has_taught_does_not_hold_for_the_next() {
    let mut booster = Booster::new(Settings::default(), 2, 0);
    let (mut is_boosted, mut ended_ns) = (false, 0);
    for at_ns in (0..5_000 * MS).step_by(STEP_NS as usize) {
        for order in booster.look(&look(at_ns, &held_up(0)), |_| !is_boosted).to_vec() {
            is_boosted = order == Order::Begin(1);
            ended_ns = at_ns;
        }
    }
    assert!(!is_boosted && ended_ns + 20 * MS < 5_000 * MS, "it waits for long: {ended_ns}");
    let open_since_ns = Some(4_990 * MS);
    let look = Look { at_ns: 5_000 * MS, open_since_ns, tick_ns: None, vcpus: &held_up(0) };
    assert_eq!(booster.look(&look, |_| true), [Order::Begin(1)]);
}

#[test]
fn looks_are_rare_until_a_visit_may_be_due_and_never_miss_its_end() {
    let mut booster = Booster::new(Settings::default(), 2, 0);
    let vcpus = held_up(0);
    booster.look(&look(MS, &vcpus), |_| true);
    assert_eq!(booster.next_look_ns(MS, STEP_NS), MS + CALM * STEP_NS, "the grace period is young");
    booster.look(&look(7 * MS, &vcpus), |_| false);
    assert_eq!(booster.next_look_ns(7 * MS, STEP_NS), 7 * MS + STEP_NS, "it runs still");
    booster.look(&look(8 * MS, &vcpus), |_| true);
    assert_eq!(booster.next_look_ns(8 * MS, STEP_NS), 8 * MS + STEP_NS);
    assert_eq!(booster.next_look_ns(8 * MS, 370_000), 8_370_000);
    assert_eq!(booster.next_look_ns(8_370_000, 370_000), 8_500_000, "the cap");
    assert_eq!(booster.next_look_ns(9 * MS, 370_000), 9 * MS + 1, "it is over");
}

#[test]
fn a_holdout_s_visit_begins_before_a_tick() {
    let mut booster = Booster::new(before_tick(), 2, 0);
    let vcpus = held_up(0);
    let at = |at_ns| Look { at_ns, open_since_ns: Some(0), tick_ns: Some(9 * MS), vcpus: &vcpus };
    assert_eq!(booster.look(&at(6 * MS), |_| unreachable!("nobody asks before it is time")), []);
    assert_eq!(booster.next_look_ns(6 * MS, MS), 8_750_000, "half a visit before the tick");
    assert_eq!(booster.look(&at(8_900_000), |_| true), [], "too late: it would hardly have begun");
    assert_eq!(booster.next_look_ns(8_900_000, MS), 9 * MS, "then the next tick is known");
    assert_eq!(booster.look(&at(8_750_000), |_| true), [Order::Begin(1)]);
    let mut careless = Booster::new(Settings::default(), 2, 0);
    assert_eq!(careless.look(&at(6 * MS), |_| true), [Order::Begin(1)]);
}

#[test]
fn who_needs_no_tick_is_visited_at_once() {
    for urgent in [
        Vcpu { has_kthread: true, is_holdout: true, ..Vcpu::default() },
        Vcpu { may_hold_lock: true, ..Vcpu::default() },
    ] {
        let mut booster = Booster::new(before_tick(), 1, 0);
        let look = Look { at_ns: 6 * MS, open_since_ns: Some(0), tick_ns: Some(9 * MS), vcpus: &[urgent] };
        assert_eq!(booster.look(&look, |_| true), [Order::Begin(0)]);
    }
    let holds_up_and_lock = Vcpu { is_holdout: true, may_hold_lock: true, ..Vcpu::default() };
    let mut booster = Booster::new(before_tick(), 1, 0);
    let look =
        Look { at_ns: 6 * MS, open_since_ns: Some(0), tick_ns: Some(9 * MS), vcpus: &[holds_up_and_lock] };
    assert_eq!(booster.look(&look, |_| true), [], "its report needs ticks, whatever it holds");
}
