use crate::guest::rcu::{Context, Effects, Params, Rcu};

fn rcu(cpus: usize) -> (Rcu, Effects) {
    (Rcu::new(&Params { leaf: 2, fanout: 2, ..Params::default() }, cpus), Effects::default())
}

#[test]
fn busy_cpus_are_interrupted_and_report_when_they_switch() {
    let (mut rcu, mut effects) = rcu(5);
    rcu.idle_enter(3);
    rcu.start_expedited(1, 77, &mut effects);
    assert_eq!(effects.ipi, [0, 2, 4]);
    effects = Effects::default();
    for cpu in [0, 2, 4] {
        assert!(rcu.is_expedited_holdout(cpu));
        rcu.expedited_ipi(cpu, Context::User, &mut effects);
        assert_eq!(effects.resched.pop(), Some(cpu as u32));
        assert!(effects.wake.is_empty());
        rcu.context_switch(cpu, &mut effects);
    }
    assert_eq!(effects.wake, [77]);
}

#[test]
fn an_interrupt_that_finds_the_cpu_idle_reports_at_once() {
    let (mut rcu, mut effects) = rcu(2);
    rcu.start_expedited(0, 77, &mut effects);
    rcu.expedited_ipi(1, Context::Idle, &mut effects);
    assert_eq!((effects.wake.as_slice(), effects.resched.len()), ([77].as_slice(), 0));
    effects = Effects::default();
    rcu.expedited_ipi(1, Context::Kernel, &mut effects);
    assert!(effects.is_empty(), "nobody waits any more");
}

#[test]
fn alone_or_among_idle_cpus_it_is_over_at_once() {
    for cpus in [1, 7] {
        let (mut rcu, mut effects) = rcu(cpus);
        (1..cpus).for_each(|cpu| rcu.idle_enter(cpu));
        rcu.start_expedited(0, 77, &mut effects);
        assert_eq!((effects.wake.as_slice(), effects.ipi.len()), ([77].as_slice(), 0));
    }
}

#[test]
fn who_comes_during_one_waits_for_the_next() {
    let (mut rcu, mut effects) = rcu(2);
    rcu.start_expedited(0, 1, &mut effects);
    rcu.start_expedited(0, 2, &mut effects);
    rcu.start_expedited(0, 3, &mut effects);
    effects = Effects::default();
    rcu.expedited_ipi(1, Context::Kernel, &mut effects);
    rcu.context_switch(1, &mut effects);
    // CPU 1 reported last, so it is quiescent for the next one; CPU 0 is asked.
    assert_eq!((effects.wake.as_slice(), effects.ipi.as_slice()), ([1].as_slice(), [0].as_slice()));
    effects = Effects::default();
    rcu.expedited_ipi(0, Context::Kernel, &mut effects);
    rcu.context_switch(0, &mut effects);
    assert_eq!(effects.wake, [2, 3]);
}

#[test]
fn in_the_counterfactual_descheduled_cpus_are_not_waited_for() {
    let params = Params { descheduled_is_quiescent: true, ..Params::default() };
    let (mut rcu, mut effects) = (Rcu::new(&params, 3), Effects::default());
    rcu.set_descheduled(0, 2, true, &mut effects);
    rcu.start_expedited(0, 1, &mut effects);
    assert_eq!(effects.ipi, [1]);
    rcu.set_descheduled(0, 1, true, &mut effects);
    assert_eq!(effects.wake, [1]);
}
