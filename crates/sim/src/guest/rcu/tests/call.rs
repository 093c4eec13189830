use crate::guest::rcu::{Callback, Effects, Kthread, Params, Rcu, Wakeup};

fn rcu(qhimark: u64) -> Rcu {
    Rcu::new(&Params { qhimark, ..Params::default() }, 2)
}

fn call(rcu: &mut Rcu, count: u64) -> Effects {
    let mut effects = Effects::default();
    (0..count).for_each(|id| rcu.call(0, Callback(id), &mut effects));
    effects
}

#[test]
fn up_to_the_mark_nothing_happens_at_once() {
    let mut rcu = rcu(100);
    assert!(call(&mut rcu, 100).is_empty());
    assert_eq!((rcu.backlog(0), rcu.backlog(1), rcu.backlog_total()), (100, 0, 100));
}

#[test]
fn beyond_the_mark_a_grace_period_is_asked_for() {
    let mut rcu = rcu(100);
    assert!(call(&mut rcu, 101).wake_kthread);
    assert!(rcu.start_wanted);
    assert_eq!(rcu.cpus[0].blimit, 10);
}

#[test]
fn beyond_the_mark_a_grace_period_in_progress_is_hurried_once() {
    let mut rcu = rcu(100);
    call(&mut rcu, 101);
    rcu.kthread(0, 0, 1, Wakeup::Woken, &mut Effects::default());
    let effects = call(&mut rcu, 1);
    assert!(effects.wake_kthread && rcu.look_wanted);
    assert_eq!((rcu.cpus[0].blimit, rcu.cpus[0].looked_at), (10_000, 102));
    assert!(call(&mut rcu, 100).is_empty(), "not again before as many more");
    assert!(call(&mut rcu, 1).is_empty(), "the look is still to come");
    // The scan that was asked for is made, though its time has not come.
    let step = rcu.kthread(0, 0, 1, Wakeup::Woken, &mut Effects::default());
    assert_eq!((step.next, rcu.scans), (Kthread::Work, 1));
    assert!(call(&mut rcu, 101).is_empty(), "a scan was made since");
    assert!(call(&mut rcu, 101).wake_kthread);
}

#[test]
fn overload_is_marked_at_the_leaf_and_forgotten() {
    let mut rcu = rcu(100);
    call(&mut rcu, 200);
    assert_eq!(rcu.tree.nodes[0].overloaded, 0);
    call(&mut rcu, 1);
    assert_eq!(rcu.tree.nodes[0].overloaded, 1, "from the call that finds 200");
    rcu.cpus[0].callbacks.accelerate(4);
    rcu.cpus[0].callbacks.advance(4);
    rcu.begin_batch(0, 0);
    while rcu.next_callback(0).is_some() {}
    rcu.end_batch(0, &mut Effects::default());
    call(&mut rcu, 1);
    assert_eq!(rcu.tree.nodes[0].overloaded, 0);
}

#[test]
fn a_call_from_idle_raises_the_softirq() {
    let mut rcu = rcu(100);
    rcu.idle_enter(0);
    assert_eq!(call(&mut rcu, 1).softirq, [0]);
}

#[test]
fn a_barrier_counts_in_the_backlog() {
    let mut rcu = rcu(100);
    assert!(!rcu.entrain(0, Callback(1)));
    call(&mut rcu, 1);
    assert!(rcu.entrain(0, Callback(1)));
    assert_eq!(rcu.backlog_total(), 2);
}
