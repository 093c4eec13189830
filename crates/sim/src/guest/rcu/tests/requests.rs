use crate::guest::rcu::sequence::{ended_between, has_started, snapshot, started_between};
use crate::guest::rcu::{Callback, Effects, Kthread, Params, Rcu, Wakeup};

fn rcu(cpus: usize) -> Rcu {
    Rcu::new(&Params { leaf: 2, fanout: 2, ..Params::default() }, cpus)
}

fn start(rcu: &mut Rcu) {
    let step = rcu.kthread(0, 0, 0, Wakeup::Woken, &mut Effects::default());
    assert!(step.next == Kthread::Work && rcu.gp_in_progress());
}

#[test]
fn a_snapshot_is_a_full_grace_period_away() {
    assert_eq!(snapshot(0), 4);
    // One in progress may have begun too early: the one after it counts.
    assert_eq!(snapshot(1), 8);
    assert_eq!(snapshot(4), 8);
    assert_eq!(snapshot(u64::MAX - 3), 0);
}

#[test]
fn starts_and_ends_are_told_apart() {
    assert!(started_between(0, 1) && !ended_between(0, 1));
    assert!(!started_between(1, 4) && ended_between(1, 4));
    assert!(started_between(1, 5) && ended_between(1, 5));
    assert!(!started_between(5, 5) && !ended_between(5, 5));
    assert!(started_between(u64::MAX - 3, u64::MAX - 2) && ended_between(u64::MAX - 2, 0));
    assert!(!has_started(0, 4) && has_started(1, 4) && !has_started(4, 8) && has_started(5, 8));
}

#[test]
fn the_first_request_starts_and_further_ones_are_known() {
    let mut rcu = rcu(7);
    assert!(rcu.request(0, rcu.cpus[0].leaf, 4));
    assert!(rcu.start_wanted);
    assert!(!rcu.request(0, rcu.cpus[0].leaf, 4));
    assert!(!rcu.request(6, rcu.cpus[6].leaf, 4), "known at the root");
    let leaf = rcu.cpus[6].leaf as usize;
    assert_eq!(rcu.tree.nodes[leaf].gp_seq_needed, 4);
}

#[test]
fn a_request_during_a_grace_period_waits_for_its_end() {
    let mut rcu = rcu(7);
    rcu.request(0, rcu.cpus[0].leaf, 4);
    start(&mut rcu);
    let leaf = rcu.cpus[6].leaf;
    assert!(!rcu.request(6, leaf, 4), "that one has started");
    assert!(!rcu.request(6, leaf, 8), "nobody to wake");
    assert_eq!(rcu.tree.nodes[leaf as usize].gp_seq_needed, 8);
    assert_eq!(rcu.tree.nodes[0].gp_seq_needed, 4, "it stays at the leaf");
}

#[test]
fn a_request_tells_the_cpu_of_a_further_one() {
    let mut rcu = rcu(7);
    rcu.tree.nodes[0].gp_seq_needed = 12;
    assert!(!rcu.request(3, rcu.cpus[3].leaf, 4));
    assert_eq!(rcu.cpus[3].gp_seq_needed, 12);
}

#[test]
fn a_cpu_learns_of_a_start_and_of_an_end() {
    let (mut rcu, mut effects) = (rcu(1), Effects::default());
    rcu.call(0, Callback(1), &mut effects);
    rcu.core(0, 0, &mut effects);
    assert!(effects.wake_kthread);
    start(&mut rcu);
    let cpu = &rcu.cpus[0];
    assert!(cpu.gp_seq == 1 && cpu.no_qs && cpu.core_needs_qs, "the kthread's CPU learns at once");
    rcu.context_switch(0, &mut effects);
    assert!(rcu.core(1, 0, &mut effects).reported);
    assert_eq!(rcu.kthread(2, 0, 0, Wakeup::Woken, &mut effects).next, Kthread::Work);
    let cpu = &rcu.cpus[0];
    assert!(cpu.gp_seq == 4 && !cpu.core_needs_qs && cpu.callbacks.ready() == 1);
}

#[test]
fn a_cpu_that_missed_an_end_and_a_start_handles_both() {
    let (mut rcu, mut effects) = (rcu(2), Effects::default());
    rcu.call(1, Callback(1), &mut effects);
    rcu.core(0, 1, &mut effects);
    start(&mut rcu);
    rcu.request(0, rcu.cpus[0].leaf, 8);
    rcu.clear_waiting(5, 0, 3, &mut effects);
    assert_eq!(rcu.kthread(5, 0, 0, Wakeup::Woken, &mut effects).next, Kthread::Work);
    start(&mut rcu);
    assert_eq!(rcu.cpus[1].gp_seq, 0);
    let work = rcu.core(6, 1, &mut effects);
    assert!(work.noted && !work.reported && work.callbacks_ready);
    assert!(rcu.cpus[1].gp_seq == 5 && rcu.cpus[1].no_qs);
}
