use crate::guest::rcu::{Callback, Context, Effects, Params, Rcu, Wakeup};

/// Two CPUs, a grace period for a callback of CPU 0 in progress, of which CPU 1 does not know.
fn started() -> Rcu {
    let mut rcu = Rcu::new(&Params::default(), 2);
    let mut effects = Effects::default();
    rcu.call(0, Callback(0), &mut effects);
    assert_eq!(tick(&mut rcu, 0, Context::Kernel).softirq, [0]);
    rcu.core(0, 0, &mut effects);
    rcu.kthread(0, 0, 0, Wakeup::Woken, &mut effects);
    rcu
}

fn tick(rcu: &mut Rcu, cpu: usize, context: Context) -> Effects {
    let mut effects = Effects::default();
    rcu.tick(cpu, context, &mut effects);
    effects
}

#[test]
fn nothing_to_do_is_no_softirq() {
    let mut rcu = Rcu::new(&Params::default(), 2);
    assert!(tick(&mut rcu, 0, Context::User).is_empty());
}

#[test]
fn a_tick_tells_of_a_new_grace_period_and_a_later_one_reports() {
    let mut rcu = started();
    assert_eq!(tick(&mut rcu, 1, Context::Kernel).softirq, [1]);
    assert!(rcu.core(0, 1, &mut Effects::default()).noted);
    assert!(tick(&mut rcu, 1, Context::Kernel).is_empty(), "no quiescent state yet");
    assert_eq!(tick(&mut rcu, 1, Context::User).softirq, [1]);
    assert!(rcu.core(9, 1, &mut Effects::default()).reported);
    assert!(tick(&mut rcu, 1, Context::User).is_empty(), "reported");
    assert_eq!(rcu.holdouts().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_quiescent_state_before_the_cpu_learns_of_the_grace_period_does_not_count() {
    let mut rcu = started();
    let mut effects = Effects::default();
    rcu.context_switch(1, &mut effects);
    assert_eq!(tick(&mut rcu, 1, Context::User).softirq, [1]);
    assert!(!rcu.core(0, 1, &mut effects).reported);
    rcu.context_switch(1, &mut effects);
    assert_eq!(tick(&mut rcu, 1, Context::Kernel).softirq, [1]);
    assert!(rcu.core(0, 1, &mut effects).reported);
}

#[test]
fn the_last_report_wakes_the_kthread() {
    let mut rcu = started();
    let mut effects = Effects::default();
    for cpu in [1, 0] {
        rcu.core(0, cpu, &mut effects);
        rcu.context_switch(cpu, &mut effects);
        assert!(!effects.wake_kthread);
        rcu.core(0, cpu, &mut effects);
    }
    assert!(effects.wake_kthread);
}

#[test]
fn ready_callbacks_are_pending_work() {
    let mut rcu = Rcu::new(&Params::default(), 1);
    rcu.call(0, Callback(0), &mut Effects::default());
    rcu.cpus[0].callbacks.accelerate(4);
    assert!(tick(&mut rcu, 0, Context::Kernel).is_empty());
    rcu.cpus[0].callbacks.advance(4);
    assert_eq!(tick(&mut rcu, 0, Context::Kernel).softirq, [0]);
}

#[test]
fn an_urgent_request_reschedules_kernel_code_only() {
    for (context, resched) in [(Context::Kernel, vec![1]), (Context::User, vec![]), (Context::Idle, vec![])] {
        let mut rcu = started();
        rcu.cpus[1].urgent = true;
        assert_eq!(tick(&mut rcu, 1, context).resched, resched);
        assert!(!rcu.cpus[1].urgent);
    }
}

#[test]
fn a_voluntary_point_counts_only_when_a_scan_asked() {
    let mut rcu = started();
    let mut effects = Effects::default();
    rcu.core(0, 1, &mut effects);
    rcu.voluntary(1, &mut effects);
    assert!(rcu.cpus[1].no_qs);
    (rcu.cpus[1].urgent, rcu.cpus[1].heavy) = (true, true);
    let before = rcu.cpus[1].idle_steps;
    rcu.voluntary(1, &mut effects);
    let cpu = &rcu.cpus[1];
    assert_eq!((cpu.no_qs, cpu.urgent, cpu.heavy, cpu.idle_steps), (false, false, false, before + 2));
}

#[test]
fn a_switch_answers_a_heavy_request() {
    let mut rcu = started();
    rcu.cpus[1].heavy = true;
    rcu.context_switch(1, &mut Effects::default());
    assert_eq!(rcu.cpus[1].idle_steps, 1, "heavy alone is not looked at");
    rcu.cpus[1].urgent = true;
    rcu.context_switch(1, &mut Effects::default());
    assert_eq!(rcu.cpus[1].idle_steps, 3);
}
