//! Random operations, in any order that the contract allows.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Wake(u32, Option<u32>),
    Block(u32),
    Yield(u32),
    Timer(u32),
    Pick(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<u32>(), prop::option::of(0u32..8)).prop_map(|(entity, from)| Op::Wake(entity, from)),
        3 => any::<u32>().prop_map(Op::Block),
        1 => any::<u32>().prop_map(Op::Yield),
        4 => any::<u32>().prop_map(Op::Timer),
        1 => any::<u32>().prop_map(Op::Pick),
    ]
}

fn spec() -> impl Strategy<Value = Spec> {
    let cpus = prop::collection::vec((0u32..8).prop_map(Cpu), 0..4);
    (1u32..4000, cpus, prop::option::of(0u32..3), 0u32..3).prop_map(|(weight, allowed, domain, cap)| Spec {
        weight,
        allowed,
        domain: DomainSpec { number: domain, cap_percent: cap * 30 },
        ..Spec::default()
    })
}

fn params() -> impl Strategy<Value = Params> {
    let version = prop::sample::select(vec![Version::V4_5, Version::V4_7, Version::V4_17]);
    (1u32..9, version, any::<[bool; 2]>(), 1u64..40, 0u64..3, prop::collection::vec(0u32..8, 0..3)).prop_map(
        |(cpus, version, [inactive_debt, boost_erased], slice_ms, limit, pool)| Params {
            pool: pool.into_iter().filter(|&cpu| cpu < cpus).map(Cpu).collect(),
            slice_ns: slice_ms * MS,
            ratelimit_ns: limit * 500 * US,
            fixes: Fixes::of(version) | Fixes { inactive_debt, boost_erased, ..Fixes::default() },
            race_window_ns: limit * 10 * MS,
            ..Params::xen(version, cpus)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Invariants hold after every call, and no pCPU idles though somebody waits whom it may run.
    #[test]
    fn invariants_hold(
        params in params(),
        specs in prop::collection::vec(spec(), 1..12),
        ops in prop::collection::vec((0u64..4 * MS, op()), 1..200),
    ) {
        let cpus = params.cpus;
        let mut bench = Bench::new(params);
        for spec in &specs {
            bench.sched.add(spec);
        }
        for (delta_ns, op) in ops {
            bench.pass(delta_ns);
            let now_ns = bench.now_ns;
            match op {
                Op::Wake(entity, from) => {
                    let entity = Entity(entity % specs.len() as u32);
                    bench.sched.wake(now_ns, entity, from.map(Cpu), &mut bench.orders);
                }
                Op::Block(cpu) => {
                    bench.sched.block(now_ns, Cpu(cpu % cpus), &mut bench.orders);
                    bench.orders.resched.push(Cpu(cpu % cpus));
                }
                Op::Yield(cpu) => {
                    bench.sched.yield_now(now_ns, Cpu(cpu % cpus), &mut bench.orders);
                    bench.orders.resched.push(Cpu(cpu % cpus));
                }
                Op::Timer(number) => {
                    let number = number % (1 + 2 * cpus);
                    let armed = bench.orders.arm.iter().rfind(|armed| armed.0 == number).copied();
                    if let Some((_, at_ns)) = armed.filter(|armed| armed.1 >= now_ns) {
                        bench.now_ns = at_ns.min(bench.sched.accounting_ns);
                        bench.sched.timer(bench.now_ns, if at_ns == bench.now_ns { number } else { 0 }, &mut bench.orders);
                    }
                }
                Op::Pick(cpu) => bench.orders.resched.push(Cpu(cpu % cpus)),
            }
            // The accounting is never late.
            while bench.sched.started && bench.sched.accounting_ns <= bench.now_ns {
                bench.now_ns = bench.now_ns.max(bench.sched.accounting_ns);
                bench.sched.timer(bench.now_ns, 0, &mut bench.orders);
            }
            bench.obey();
            let idle = |cpu: u32| bench.sched.pool.has(cpu) && bench.running(cpu).is_none();
            for cpu in (0..cpus).filter(|&cpu| idle(cpu)) {
                let racing = |entity: &Entity| bench.sched.racing.contains(&entity.0);
                let waiting = (0..cpus).flat_map(|peer| bench.waiting(peer));
                let missed = waiting.filter(|entity| !racing(entity)).find(|entity| {
                    bench.sched.vcpus[entity.0 as usize].cpu == cpu
                });
                prop_assert_eq!(missed, None, "it waits in the queue of an idle pCPU");
            }
        }
    }
}
