//! What a pick and a wake cost. Run with `cargo test --release -- --ignored --nocapture cost`.

use std::hint::black_box;
use std::time::Instant;

use crate::sched::cfs::cfs_with;
use crate::sched::eevdf::eevdf_with;
use crate::sched::{Cpu, Entity, Orders, Scheduler, Spec, Tunables};

const ROUNDS: u32 = 2_000_000;

/// Each round blocks what runs on a CPU, picks, wakes what blocked, and picks where that is ordered.
fn block_wake(sched: &mut dyn Scheduler, cpus: u32, entities: u32) -> (f64, u64) {
    let mut orders = Orders::default();
    for entity in 0..entities {
        sched.wake(0, Entity(entity), None, &mut orders);
    }
    for cpu in 0..cpus {
        sched.pick(0, Cpu(cpu), &mut orders);
    }
    let (mut now_ns, mut calls) = (0, 0);
    let begin = Instant::now();
    for round in 0..ROUNDS {
        now_ns += 50_000;
        let cpu = Cpu(round.wrapping_mul(7) % cpus);
        let ran = sched.running(cpu);
        sched.block(now_ns, cpu, &mut orders);
        black_box(sched.pick(now_ns, cpu, &mut orders));
        calls += 2;
        now_ns += 1000;
        if let Some(entity) = ran {
            sched.wake(now_ns, entity, Some(cpu), &mut orders);
            calls += 1;
        }
        while let Some(cpu) = orders.resched.pop() {
            black_box(sched.pick(now_ns, cpu, &mut orders));
            calls += 1;
        }
        orders.arm.clear();
        orders.ticks.clear();
    }
    (begin.elapsed().as_nanos() as f64 / calls as f64, calls)
}

/// Each round ticks a CPU, and picks where that is ordered.
fn tick(sched: &mut dyn Scheduler, cpus: u32, entities: u32) -> f64 {
    let mut orders = Orders::default();
    for entity in 0..entities {
        sched.wake(0, Entity(entity), None, &mut orders);
    }
    for cpu in 0..cpus {
        sched.pick(0, Cpu(cpu), &mut orders);
    }
    let begin = Instant::now();
    for round in 0..ROUNDS {
        let now_ns = (1 + round as u64 / cpus as u64) * sched.tick_ns();
        sched.tick(now_ns, Cpu(round % cpus), &mut orders);
        while let Some(cpu) = orders.resched.pop() {
            black_box(sched.pick(now_ns, cpu, &mut orders));
        }
        orders.arm.clear();
        orders.ticks.clear();
    }
    begin.elapsed().as_nanos() as f64 / ROUNDS as f64
}

#[test]
#[ignore = "a measurement"]
fn cost() {
    for (cpus, entities, is_pinned) in [(2, 4, true), (2, 4, false), (1000, 2000, true), (1000, 2000, false)]
    {
        type New = fn(usize, &Tunables) -> Box<dyn Scheduler>;
        let kinds: [(&str, New); 2] = [
            ("eevdf", |cpus, with| Box::new(eevdf_with(cpus, with))),
            ("cfs", |cpus, with| Box::new(cfs_with(cpus, with))),
        ];
        for (name, new) in kinds {
            let made = || {
                let mut sched = new(cpus as usize, &Tunables::linux(cpus as usize, 1000));
                for entity in 0..entities {
                    let allowed = if is_pinned { vec![Cpu(entity % cpus)] } else { Vec::new() };
                    sched.add(&Spec { allowed, ..Spec::default() });
                }
                sched
            };
            let (call_ns, calls) = block_wake(&mut *made(), cpus, entities);
            let tick_ns = tick(&mut *made(), cpus, entities);
            println!(
                "{name:5} {cpus:4} CPUs x {entities:4} entities, pinned {is_pinned:5}: {call_ns:5.1} ns a call \
                 of block, pick, wake ({:.2} calls a round), {tick_ns:5.1} ns a tick with its pick",
                calls as f64 / ROUNDS as f64
            );
        }
    }
}
