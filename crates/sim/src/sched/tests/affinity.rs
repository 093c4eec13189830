//! Changes of affinity, and favour.

use reprieve_study::units::MILLISECOND_NS as MS;

use crate::sched::cfs::{Cfs, cfs_with};
use crate::sched::fair::Fair;
use crate::sched::{Cpu, Entity, Orders, Pausing, Placement, Scheduler, Spec, Tunables};

/// Two CPUs with one entity each that runs, and one that waits on CPU 0.
fn crowded() -> (Fair<Cfs>, [Entity; 3], Orders) {
    let mut scheduler = cfs_with(2, &Tunables::linux(2, 250));
    let mut orders = Orders::default();
    let one = |cpu| Spec { allowed: vec![Cpu(cpu)], ..Spec::default() };
    let all = [scheduler.add(&one(0)), scheduler.add(&one(1)), scheduler.add(&one(0))];
    for (cpu, entity) in [(0, all[0]), (1, all[1])] {
        scheduler.wake(0, entity, None, &mut orders);
        assert_eq!(scheduler.pick(0, Cpu(cpu), &mut orders), Some(entity));
    }
    // A new one is placed behind those that are there, but its debit is less the more there are.
    scheduler.wake(0, all[2], None, &mut orders);
    assert_eq!(scheduler.pick(0, Cpu(0), &mut orders), Some(all[2]));
    orders.resched.clear();
    (scheduler, [all[2], all[1], all[0]], orders)
}

#[test]
fn one_that_waits_moves_at_once() {
    let (mut scheduler, [_, _, waits], mut orders) = crowded();
    assert_eq!((scheduler.place(waits), scheduler.waiting(Cpu(1))), (Some(Cpu(0)), 0));
    scheduler.set_allowed(MS, waits, &[Cpu(1)], &mut orders);
    assert_eq!((scheduler.place(waits), scheduler.waiting(Cpu(0))), (Some(Cpu(1)), 0));
    assert_eq!(scheduler.waiting(Cpu(1)), 1);
}

#[test]
fn one_that_runs_moves_when_its_cpu_schedules() {
    let (mut scheduler, [runs, _, waits], mut orders) = crowded();
    scheduler.set_allowed(MS, runs, &[Cpu(1)], &mut orders);
    assert_eq!(scheduler.place(runs), Some(Cpu(0)), "not before");
    assert_eq!(orders.resched, [Cpu(0)], "that CPU is told");
    assert_eq!(scheduler.pick(2 * MS, Cpu(0), &mut orders), Some(waits));
    assert_eq!(scheduler.place(runs), Some(Cpu(1)));
}

#[test]
fn one_that_is_blocked_wakes_where_it_may() {
    let (mut scheduler, [runs, ..], mut orders) = crowded();
    scheduler.block(MS, Cpu(0), &mut orders);
    assert_eq!(scheduler.place(runs), None);
    scheduler.set_allowed(MS, runs, &[Cpu(1)], &mut orders);
    scheduler.wake(2 * MS, runs, Some(Cpu(0)), &mut orders);
    assert_eq!(scheduler.place(runs), Some(Cpu(1)));
}

#[test]
fn what_is_allowed_again_before_its_cpu_schedules_stays() {
    let (mut scheduler, [runs, ..], mut orders) = crowded();
    scheduler.set_allowed(MS, runs, &[Cpu(1)], &mut orders);
    scheduler.set_allowed(MS, runs, &[], &mut orders);
    scheduler.pick(MS, Cpu(0), &mut orders);
    assert_eq!(scheduler.place(runs), Some(Cpu(0)));
}

#[test]
fn favour_gives_the_next_turn_only_to_one_that_is_near_its_share() {
    let turn = |at_ns, favoured| {
        let (mut scheduler, [_, _, waits], mut orders) = crowded();
        if favoured {
            scheduler.favour(at_ns, waits, &mut orders);
            assert_eq!(orders.resched, [Cpu(0)], "that CPU is told");
        }
        scheduler.pick(at_ns, Cpu(0), &mut orders) == Some(waits)
    };
    // By its debit it has had 6 ms more than the one that runs, and may be 2 ms ahead of it.
    assert!(!turn(5 * MS, false));
    assert!(turn(5 * MS, true));
    assert!(!turn(2 * MS, true));
    assert!(turn(7 * MS, false));
}
