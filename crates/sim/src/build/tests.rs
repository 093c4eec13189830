//! What each counterfactual changes, and what it leaves alone.

use reprieve_study::{Workload, overrides};

use super::*;

fn scenario(workload: &str) -> Scenario {
    let text = format!("name = 't'\ntitle = 't'\nworkload = {{ {workload} }}\n[conditions.c]");
    overrides::read(&text, None, &[]).unwrap()
}

fn without(cause: Cause) -> Condition {
    Condition { without: vec![cause], ..Condition::default() }
}

#[test]
fn leaving_out_context_switches_frees_the_host_s_alone() {
    let scenario = scenario("kind = 'memory'");
    let (real, free) = (Condition::default(), without(Cause::ContextSwitches));
    let host = |condition: &Condition| host_spec(&scenario, 2, condition);
    assert!(host(&real).switch_ns > 0 && host(&real).cold_cache_ns > 0);
    assert_eq!((host(&free).switch_ns, host(&free).cold_cache_ns), (0, 0));
    let guest = |condition: &Condition| guest_costs(&scenario, condition, 1000);
    assert_eq!(guest(&free), guest(&real), "a guest's own switches stay");
}

#[test]
fn leaving_out_lock_holder_preemption_spares_holders_alone() {
    let scenario = scenario("kind = 'memory'");
    let spares = |cause| host_spec(&scenario, 2, &without(cause)).spare_lock_holders;
    assert_eq!(Cause::ALL.map(spares), [false, true, false, false, false]);
}

#[test]
fn leaving_out_memory_pressure_frees_its_costs_and_lifts_the_limits() {
    let free = without(Cause::MemoryPressure);
    let clone = scenario("kind = 'clone', stop_below_mib = 100");
    let memory = scenario("kind = 'memory', backlog_limit_mib = 1");
    assert_eq!(*throttled_or_not(&clone, &Condition::default()), clone);
    let Workload::Clone(clones) = &throttled_or_not(&clone, &free).workload else { panic!() };
    let Workload::Memory(unlimited) = &throttled_or_not(&memory, &free).workload else { panic!() };
    assert_eq!((clones.stop_below_mib, unlimited.backlog_limit_mib), (0, 512));
    let real = guest_costs(&memory, &Condition::default(), 1000);
    let memory = real.memory.without_pressure();
    assert_eq!(guest_costs(&clone, &free, 1000), Costs { memory, ..real });
}

#[test]
fn a_guest_that_is_made_up_for_its_share_is_faster_in_all_that_it_computes() {
    let scenario = scenario("kind = 'memory'");
    let costs = |speed_permille| guest_costs(&scenario, &Condition::default(), speed_permille);
    let (slow, fast) = (costs(1000), costs(4000));
    assert_eq!((slow.spin_ns, fast.spin_ns), (4 * fast.spin_ns, 25_000));
    assert_eq!((slow.tick_ns, slow.switch_ns), (4 * fast.tick_ns, 4 * fast.switch_ns));
}
