//! Grace periods whose length can be told in advance. Ticks of all CPUs fall together, at multiples of 4 ms.

use reprieve_study::grace_period::GracePeriod;
use reprieve_study::units::MILLISECOND_NS as MS;

use super::guest::Guest;
use super::style::Style;
use crate::guest::rcu::{Context, Params};

fn guest(cpus: usize, style: Style) -> Guest {
    Guest::new(&Params::default(), cpus, Style { kthread_on: Some(0), ..style }, 7)
}

/// All CPUs switch all the time; the kthread runs on CPU 0.
fn busy() -> Style {
    Style { switches: 1, kthread_on: Some(0), ..Style::default() }
}

fn lengths_ns(guest: &mut Guest) -> Vec<u64> {
    guest.rcu.finished().map(|period| period.span.length_ns()).collect()
}

fn only(guest: &mut Guest) -> GracePeriod {
    let mut periods: Vec<_> = guest.rcu.finished().collect();
    assert_eq!(periods.len(), 1);
    periods.remove(0)
}

#[test]
fn idle_cpus_are_found_by_the_first_scan() {
    // The tick after the call asks for the grace period; the kthread's timer of one jiffy fires two ticks later.
    let mut guest = guest(4, Style::default());
    guest.call(0);
    (0..4).for_each(|cpu| guest.sleep(cpu));
    guest.run_until(20 * MS);
    let period = only(&mut guest);
    assert_eq!((period.span.start_ns, period.span.end_ns), (4 * MS, 12 * MS));
    assert_eq!(guest.rcu.scans, 1);
    guest.run_until(24 * MS);
    assert_eq!(guest.invoked(), 1);
}

#[test]
fn busy_cpus_report_at_their_second_tick() {
    // At the first tick a CPU learns of the grace period; then it switches; the second tick's softirq reports.
    for cpus in [2, 3, 16, 40] {
        let mut guest = guest(cpus, busy());
        guest.call(0);
        guest.run_until(40 * MS);
        let period = only(&mut guest);
        assert_eq!(period.span.start_ns, 4 * MS);
        assert!((8 * MS..=9 * MS).contains(&period.span.length_ns()), "{cpus}: {period:?}");
    }
}

#[test]
fn one_cpu_that_does_all_needs_one_tick() {
    // The CPU of the kthread learns of the grace period as it starts, and switches when the kthread sleeps.
    let mut guest = guest(1, busy());
    guest.call(0);
    guest.run_until(40 * MS);
    assert_eq!(only(&mut guest).span.length_ns(), 4 * MS);
}

#[test]
fn a_busy_cpu_in_user_mode_reports_at_its_second_tick() {
    let mut guest = guest(2, Style::default());
    guest.call(0);
    guest.vcpus[1].mode = Context::User;
    guest.switch(0);
    guest.vcpus[0].mode = Context::User;
    guest.run_until(40 * MS);
    let length_ns = only(&mut guest).span.length_ns();
    assert!((7 * MS..=9 * MS).contains(&length_ns), "{length_ns}");
}

#[test]
fn a_reader_holds_the_grace_period_up_until_it_switches() {
    let mut guest = guest(2, busy());
    guest.vcpus[1].is_reading = true;
    guest.call(0);
    guest.run_until(50 * MS);
    assert!(guest.rcu.gp_in_progress());
    assert_eq!(guest.rcu.holdouts().collect::<Vec<_>>(), [1]);
    assert!(guest.rcu.is_holdout(1) && !guest.rcu.is_holdout(0));
    assert_eq!(guest.rcu.open_since_ns(), Some(4 * MS));
    guest.vcpus[1].is_reading = false;
    guest.run_until(60 * MS);
    let period = only(&mut guest);
    assert!((52 * MS..54 * MS).contains(&period.span.end_ns), "{period:?}");
    assert!(period.cleared_ns[0] < period.cleared_ns[1]);
}

fn descheduled(is_quiescent: bool) -> Guest {
    let params = Params { descheduled_is_quiescent: is_quiescent, ..Params::default() };
    let mut guest = Guest::new(&params, 2, busy(), 7);
    guest.call(0);
    guest.run_until(5 * MS);
    guest.send_away(1, 400 * MS);
    guest
}

#[test]
fn a_descheduled_cpu_holds_the_grace_period_up() {
    let mut guest = descheduled(false);
    guest.run_until(404 * MS);
    assert_eq!(guest.rcu.holdouts().collect::<Vec<_>>(), [1]);
    guest.run_until(420 * MS);
    let period = only(&mut guest);
    assert!((405 * MS..=413 * MS).contains(&period.span.end_ns), "{period:?}");
}

#[test]
fn in_the_counterfactual_it_does_not() {
    let mut guest = descheduled(true);
    guest.run_until(20 * MS);
    let period = only(&mut guest);
    assert!(period.span.length_ns() <= 8 * MS, "{period:?}");
    assert_eq!(period.cleared_ns[1], Some(5 * MS));
    // The next one never waits for it.
    guest.call(0);
    guest.run_until(40 * MS);
    assert_eq!(only(&mut guest).cleared_ns[1], None);
}

#[test]
fn a_descheduled_cpu_that_was_idle_holds_nothing_up() {
    let mut guest = guest(2, busy());
    guest.sleep(1);
    guest.send_away(1, 400 * MS);
    guest.call(0);
    guest.run_until(20 * MS);
    assert!(only(&mut guest).span.length_ns() <= 12 * MS);
}

#[test]
fn grace_periods_longer_than_the_stall_time_are_counted() {
    let params = Params { stall_jiffies: Some(50), ..Params::default() };
    let mut guest = Guest::new(&params, 2, busy(), 7);
    guest.call(0);
    guest.run_until(5 * MS);
    guest.send_away(1, 190 * MS);
    guest.run_until(300 * MS);
    assert_eq!(guest.rcu.stall_warnings, 0);
    guest.call(0);
    guest.run_until(305 * MS);
    guest.send_away(1, 210 * MS);
    guest.run_until(600 * MS);
    assert_eq!(lengths_ns(&mut guest).len(), 2);
    assert_eq!(guest.rcu.stall_warnings, 1);
}
