use super::Scan;
use crate::guest::rcu::{Effects, Params, Rcu};

const FIRST: Scan = Scan { is_first: true, asks_as: None };
const LATER: Scan = Scan { is_first: false, asks_as: None };

/// A grace period that started at jiffy 0 and waits for all CPUs.
fn waiting(cpus: usize) -> (Rcu, Effects) {
    let mut rcu = Rcu::new(&Params { leaf: 2, fanout: 2, ..Params::default() }, cpus);
    let mut effects = Effects::default();
    rcu.start_wanted = true;
    rcu.kthread(0, 0, 0, crate::guest::rcu::Wakeup::Woken, &mut effects);
    (rcu, effects)
}

#[test]
fn the_first_scan_finds_who_is_idle_and_later_ones_who_was() {
    let (mut rcu, mut effects) = waiting(5);
    rcu.idle_enter(1);
    rcu.idle_enter(4);
    rcu.idle_exit(4);
    assert_eq!(rcu.scan(10, 1, FIRST, &mut effects), 3 + 5, "three leaves, five CPUs");
    assert_eq!(rcu.holdouts().collect::<Vec<_>>(), [0, 2, 3, 4], "idle before, busy now: no quiescent state");
    rcu.idle_enter(2);
    rcu.idle_exit(2);
    assert_eq!(rcu.scan(20, 2, LATER, &mut effects), 3 + 4);
    assert_eq!(rcu.holdouts().collect::<Vec<_>>(), [0, 3, 4]);
    assert!(effects.is_empty());
}

#[test]
fn an_old_grace_period_asks_for_help_and_then_harder() {
    let (mut rcu, mut effects) = waiting(1);
    rcu.scan(0, 1, FIRST, &mut effects);
    // 100 ms at HZ 250.
    for (jiffies, urgent, heavy) in
        [(25, false, false), (26, true, false), (50, true, false), (51, true, true)]
    {
        rcu.scan(0, jiffies, LATER, &mut effects);
        assert_eq!((rcu.cpus[0].urgent, rcu.cpus[0].heavy), (urgent, heavy), "{jiffies}");
    }
    assert!(effects.resched.is_empty());
}

#[test]
fn beyond_half_of_the_stall_time_holdouts_are_rescheduled_now_and_then() {
    let (mut rcu, mut effects) = waiting(1);
    rcu.scan(0, 1, FIRST, &mut effects);
    let mut times = Vec::new();
    for jiffies in 2_600..2_680 {
        rcu.scan(0, jiffies, LATER, &mut effects);
        if effects.resched.pop().is_some() {
            times.push(jiffies);
        }
    }
    // 10.5 s, then every 26 jiffies.
    assert_eq!(times, [2_626, 2_652, 2_678]);
}

#[test]
fn overload_asks_harder_at_once_one_scan_after_it_was_seen() {
    let (mut rcu, mut effects) = waiting(1);
    rcu.tree.nodes[0].overloaded = 1;
    rcu.scan(0, 1, FIRST, &mut effects);
    assert!(!rcu.overloaded);
    rcu.tree.nodes[0].overloaded = 0;
    rcu.scan(0, 2, LATER, &mut effects);
    assert!(rcu.overloaded && rcu.cpus[0].heavy);
    rcu.scan(0, 3, LATER, &mut effects);
    assert!(!rcu.overloaded);
}

#[test]
fn a_report_or_a_find_calms_the_cpu() {
    let (mut rcu, mut effects) = waiting(1);
    rcu.scan(0, 1, FIRST, &mut effects);
    rcu.scan(0, 60, LATER, &mut effects);
    rcu.idle_enter(0);
    rcu.scan(0, 61, LATER, &mut effects);
    assert_eq!((rcu.cpus[0].urgent, rcu.cpus[0].heavy), (false, false));
    assert_eq!(rcu.holdouts().count(), 0);
}
