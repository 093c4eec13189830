use super::*;

const MS: u64 = 1_000_000;

fn beat(due_ns: u64, at_ns: u64, steal_ns: Option<u64>, run_delay_ns: Option<u64>) -> Beat {
    Beat { vcpu: 0, due_ns, at_ns, period_ns: MS, steal_ns, run_delay_ns }
}

/// Runs a vCPU that is on for 35 ms and off for 25 ms, from time 0, and returns the news of the beat after each gap.
fn rounds(
    vcpu: &mut Vcpu,
    rounds: u64,
    steal: impl Fn(u64) -> Option<u64>,
    delay: impl Fn(u64) -> Option<u64>,
) -> Vec<News> {
    let mut news = Vec::new();
    for round in 0..rounds {
        for ms in 0..35 {
            let at_ns = (round * 60 + ms) * MS;
            let late_ns = if ms == 0 && round > 0 { 24 * MS } else { 0 };
            let seen = vcpu.beat(&beat(at_ns - late_ns, at_ns, steal(round), delay(round)));
            if ms == 0 && round > 0 {
                news.push(seen);
            }
        }
    }
    news
}

fn verdicts_of(news: &[News]) -> Vec<Verdict> {
    news.iter()
        .map(|news| if let News::Back(gap) = news { gap.verdict } else { panic!("{news:?}") })
        .collect()
}

#[test]
fn steal_says_that_it_was_the_host() {
    let mut vcpu = Vcpu::default();
    let news = rounds(&mut vcpu, 10, |round| Some(round * 20 * MS), |round| Some(round * 25 * MS));
    assert_eq!(verdicts_of(&news), [Verdict::Host; 9], "though the run delay would explain it, too");
    assert_eq!(vcpu.verdicts(), Verdicts { host: 9, ..Verdicts::default() });
    let (on, off) = (vcpu.slices().on_median_ns().unwrap(), vcpu.slices().off_median_ns().unwrap());
    assert!((34 * MS..36 * MS).contains(&on) && (24 * MS..26 * MS).contains(&off), "{on} {off}");
}

#[test]
fn the_run_delay_says_that_it_was_the_guest() {
    let mut vcpu = Vcpu::default();
    let news = rounds(&mut vcpu, 10, |_| Some(7), |round| Some(round * 25 * MS));
    assert_eq!(verdicts_of(&news), [Verdict::Guest; 9]);
    assert_eq!((vcpu.slices().on_median_ns(), vcpu.off_permille(600 * MS)), (None, 0));
}

#[test]
fn without_steal_or_run_delay_it_is_unknown_and_counts_only_where_steal_is_never_booked() {
    let mut emulated = Vcpu::default();
    rounds(&mut emulated, 10, |_| Some(0), |_| Some(0));
    assert_eq!(emulated.verdicts().unknown, 9);
    assert!(emulated.slices().on_median_ns().is_some());
    let mut booked = Vcpu::default();
    // This host books steal: 30 ms in the first gap and nothing since.
    rounds(&mut booked, 10, |round| Some(if round > 0 { 30 * MS } else { 0 }), |_| Some(0));
    assert_eq!((booked.verdicts().host, booked.verdicts().unknown), (1, 8));
    assert_eq!(booked.slices().on_median_ns(), None);
}

#[test]
fn steal_that_is_booked_some_beats_late_still_counts() {
    let mut vcpu = Vcpu::default();
    let mut steal_ns = 0;
    for round in 0..10u64 {
        for ms in 0..35 {
            let at_ns = (round * 60 + ms) * MS;
            let late_ns = if ms == 0 && round > 0 { 24 * MS } else { 0 };
            if ms == 5 && round > 0 {
                steal_ns += 24 * MS;
            }
            vcpu.beat(&beat(at_ns - late_ns, at_ns, Some(steal_ns), Some(0)));
        }
    }
    assert_eq!((vcpu.verdicts().host, vcpu.verdicts().unknown), (9, 0));
}

/// Runs a vCPU that is on for `on_ms` and off for `off_ms`, forty times. Steal comes in ticks of 10 ms and is read at
/// late beats and at one in `every` others. Returns the end, ms.
fn in_ticks(vcpu: &mut Vcpu, on_ms: u64, off_ms: u64, every: u64, host: bool) -> u64 {
    let (mut now_ms, mut stolen_ms) = (0, 0);
    for _ in 0..40 {
        for i in 0..on_ms {
            let late_ms = if i == 0 && now_ms > 0 { off_ms } else { 0 };
            let reads = late_ms > 1 || now_ms % every == 0;
            let steal_ns = reads.then_some(stolen_ms / 10 * 10 * MS);
            let at_ns = now_ms * MS;
            vcpu.beat(&beat(at_ns - late_ms * MS, at_ns, steal_ns, None));
            now_ms += 1;
        }
        now_ms += off_ms;
        stolen_ms += if host { off_ms } else { 0 };
    }
    now_ms
}

#[test]
fn gaps_too_short_to_show_in_ticks_of_steal_count() {
    for (on_ms, off_ms) in [(3, 3), (8, 4), (30, 5), (9, 12)] {
        let mut vcpu = Vcpu::default();
        let end_ms = in_ticks(&mut vcpu, on_ms, off_ms, 16, true);
        // All gaps count except the last few, which have no final verdict yet.
        let (share, least) = (vcpu.off_permille(end_ms * MS), 36 * off_ms);
        assert!(share >= least.min(900 * off_ms / (on_ms + off_ms)), "{on_ms} {off_ms}: {share} {least}");
        let (on_ns, off_ns) = (vcpu.slices().on_median_ns(), vcpu.slices().off_median_ns());
        // Beats of 1 ms show each end to within half a millisecond.
        assert!(on_ns.is_some_and(|on_ns| on_ns.abs_diff(on_ms * MS) <= MS), "{on_ms} {off_ms}: {on_ns:?}");
        assert!(
            off_ns.is_some_and(|off_ns| off_ns.abs_diff(off_ms * MS) <= MS),
            "{on_ms} {off_ms}: {off_ns:?}"
        );
        assert!(vcpu.verdicts().host > 0, "{on_ms} {off_ms}: {:?}", vcpu.verdicts());
    }
}

#[test]
fn long_gaps_without_ticks_of_steal_are_not_the_host_s_once_steal_is_known_to_grow() {
    let mut vcpu = Vcpu::default();
    let mut since_ms = in_ticks(&mut vcpu, 35, 25, 16, true) - 25;
    let (host, slices) = (vcpu.verdicts().host, vcpu.slices().on_median_ns());
    let stolen_ns = vcpu.steal.last_ns();
    for _ in 0..20 {
        since_ms += 25;
        for i in 0..35u64 {
            let late_ms = if i == 0 { 25 } else { 0 };
            vcpu.beat(&beat((since_ms - late_ms) * MS, since_ms * MS, stolen_ns, None));
            since_ms += 1;
        }
    }
    assert_eq!(vcpu.slices().on_median_ns(), slices);
    assert!(vcpu.verdicts().host <= host + 1 && vcpu.verdicts().unknown >= 19, "{:?}", vcpu.verdicts());
    assert_eq!(vcpu.off_permille(since_ms * MS), 0);
}

#[test]
fn lateness_that_steal_explains_is_always_a_gap_and_never_ordinary() {
    let mut vcpu = Vcpu::default();
    let (mut now_ns, mut stolen_ns) = (0, 0);
    for i in 0..3_000u64 {
        let late_ns = if i % 4 == 3 { 2 * MS } else { 300_000 };
        now_ns += MS + late_ns;
        stolen_ns += if i % 4 == 3 { late_ns } else { 0 };
        vcpu.beat(&beat(now_ns - late_ns, now_ns, Some(stolen_ns), None));
    }
    assert_eq!(
        vcpu.lateness().threshold_ns(MS),
        12 * 300_000,
        "only lateness not caused by the host is ordinary"
    );
    assert_eq!(vcpu.verdicts().host, 750, "even below the threshold");
}

#[test]
fn a_clock_that_jumps_is_counted_and_forgotten() {
    let mut vcpu = Vcpu::default();
    rounds(&mut vcpu, 10, |_| None, |_| None);
    let on_ns = vcpu.slices().on_median_ns();
    assert_eq!(vcpu.beat(&beat(5, 5, None, None)), News::ClockFault, "backwards");
    let hour_ns = 3_600_000 * MS;
    assert_eq!(vcpu.beat(&beat(6, hour_ns, None, None)), News::ClockFault, "an hour late");
    assert_eq!((vcpu.verdicts().clock_faults, vcpu.slices().on_median_ns()), (2, on_ns));
    assert_eq!(vcpu.remaining_at(50, hour_ns), None, "nobody knows when this slice began");
    assert!(vcpu.is_on(hour_ns) && !vcpu.is_on(hour_ns + 3 * MS));
}

#[test]
fn times_at_the_end_of_the_range_do_not_overflow() {
    let mut vcpu = Vcpu::default();
    vcpu.beat(&beat(u64::MAX, u64::MAX, Some(u64::MAX), Some(u64::MAX)));
    vcpu.beat(&beat(0, u64::MAX, Some(0), Some(0)));
    assert!(vcpu.is_on(u64::MAX));
}

#[test]
fn costly_beats_are_skipped_for_at_most_the_usual_time_off_and_cheap_ones_never() {
    let now_ns = 600 * MS;
    let next_after = |period_ns: u64, quiet_ns: u64| {
        let mut vcpu = Vcpu::default();
        rounds(&mut vcpu, 10, |_| None, |_| None);
        vcpu.beat(&Beat { period_ns, ..beat(now_ns, now_ns, None, None) });
        assert_eq!(vcpu.next_ns(), now_ns + period_ns);
        vcpu.skip_beats(now_ns, quiet_ns);
        vcpu.next_ns() - now_ns
    };
    assert_eq!(next_after(4 * MS, 20 * MS), 20 * MS);
    let longest_ns = next_after(4 * MS, 90 * MS);
    assert!((24 * MS..26 * MS).contains(&longest_ns), "{longest_ns}");
    assert_eq!(next_after(4 * MS, 7 * MS), 4 * MS, "too few to be worth skipping");
    assert_eq!(next_after(MS, 20 * MS), MS);
    let mut unknown = Vcpu::default();
    unknown.beat(&Beat { period_ns: 4 * MS, ..beat(MS, MS, None, None) });
    unknown.skip_beats(MS, 20 * MS);
    assert_eq!(unknown.next_ns(), 5 * MS, "its gaps are unknown");
}

#[test]
fn a_vcpu_whose_beats_are_skipped_is_on_until_the_next_one_is_late() {
    let mut vcpu = Vcpu::default();
    rounds(&mut vcpu, 10, |_| None, |_| None);
    vcpu.beat(&Beat { period_ns: 4 * MS, ..beat(600 * MS, 600 * MS, None, None) });
    vcpu.skip_beats(600 * MS, 20 * MS);
    assert!(vcpu.is_on(619 * MS) && !vcpu.is_on(630 * MS));
}
