//! Who is asked, and when it reports.

use crate::guest::rcu::{Ask, Context, Effects, Params, Rcu, Wakeup};

/// A grace period that has just begun on CPU 0, and whom it asks.
fn begun(cpus: usize, asks: Option<Ask>) -> (Rcu, Effects) {
    let (mut rcu, mut effects) = (Rcu::new(&Params { asks, ..Params::default() }, cpus), Effects::default());
    rcu.idle_enter(cpus - 1);
    rcu.ask_for(0, rcu.cookie(), &mut effects);
    rcu.kthread(0, 0, 0, Wakeup::Woken, &mut effects);
    (rcu, effects)
}

#[test]
fn at_the_start_all_are_asked_that_are_neither_idle_nor_the_kthread_s() {
    let (rcu, effects) = begun(4, Some(Ask::AtStart));
    assert_eq!(effects.ask, [1, 2]);
    assert_eq!(rcu.holdouts().collect::<Vec<_>>(), [0, 1, 2], "the idle one is found");
    assert!(begun(4, None).1.ask.is_empty());
}

#[test]
fn else_they_are_asked_at_the_first_scan_and_not_again() {
    let (mut rcu, mut effects) = begun(4, Some(Ask::AtFirstScan));
    assert!(effects.ask.is_empty());
    rcu.kthread(0, 0, 0, Wakeup::Woken, &mut effects);
    for jiffies in [2, 4, 6] {
        rcu.kthread(0, jiffies, 0, Wakeup::TimedOut, &mut effects);
        rcu.kthread(0, jiffies, 0, Wakeup::Woken, &mut effects);
        assert_eq!(effects.ask, [1, 2], "at jiffy {jiffies}");
    }
}

#[test]
fn in_user_mode_it_reports_at_once() {
    let (mut rcu, mut effects) = begun(3, Some(Ask::AtStart));
    rcu.asked_ipi(7, 1, Context::User, &mut effects);
    assert!(!rcu.is_holdout(1) && effects.resched.is_empty());
}

#[test]
fn in_the_kernel_it_reports_when_it_switches() {
    let (mut rcu, mut effects) = begun(3, Some(Ask::AtStart));
    assert_eq!(std::mem::take(&mut effects.report), [0], "the kthread itself has passed a preemption point");
    rcu.asked_ipi(7, 1, Context::Kernel, &mut effects);
    assert_eq!(effects.resched, [1]);
    rcu.report_asked(8, 1, &mut effects);
    assert!(rcu.is_holdout(1), "it may still read");
    rcu.context_switch(1, &mut effects);
    assert_eq!(effects.report, [1]);
    rcu.report_asked(9, 1, &mut effects);
    assert!(!rcu.is_holdout(1));
    // The next switch reports nothing.
    effects.report.clear();
    rcu.context_switch(1, &mut effects);
    assert!(effects.report.is_empty());
}

#[test]
fn one_that_answers_late_is_asked_for_nothing_more() {
    let (mut rcu, mut effects) = begun(3, Some(Ask::AtStart));
    rcu.asked_ipi(7, 1, Context::User, &mut effects);
    rcu.asked_ipi(8, 1, Context::Kernel, &mut effects);
    assert!(effects.resched.is_empty());
}
