//! Random operations, in any order that the contract allows.

use proptest::prelude::*;

use reprieve_study::units::{MILLISECOND_NS, SECOND_NS};

use crate::sched::cfs::Cfs;
use crate::sched::eevdf::Eevdf;
use crate::sched::fair::{Fair, Policy};
use crate::sched::{Boosting, Cpu, Entity, Orders, Quota, Scheduler, Spec, Tunables};

/// An operation; numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Op {
    Wake(u32, Option<u32>),
    Block(u32),
    Yield(u32),
    Tick(u32),
    Pick(u32),
    Boost(u32),
    EndBoost(u32),
    /// Calls `pick` where it is ordered.
    Obey,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<u32>(), any::<Option<u32>>()).prop_map(|(entity, from)| Op::Wake(entity, from)),
        3 => any::<u32>().prop_map(Op::Block),
        1 => any::<u32>().prop_map(Op::Yield),
        3 => any::<u32>().prop_map(Op::Tick),
        1 => any::<u32>().prop_map(Op::Pick),
        1 => any::<u32>().prop_map(Op::Boost),
        1 => any::<u32>().prop_map(Op::EndBoost),
        4 => Just(Op::Obey),
    ]
}

fn spec(cpus: u32) -> impl Strategy<Value = Spec> {
    let quota = (1u64..20, 1u64..30, 0u64..40).prop_map(|(quota, period, phase)| Quota {
        quota_ns: quota * MILLISECOND_NS,
        period_ns: period * MILLISECOND_NS,
        phase_ns: phase * MILLISECOND_NS,
        burst_ns: 0,
    });
    (1u32..300_000, prop::collection::vec((0..cpus).prop_map(Cpu), 0..4), prop::option::weighted(0.3, quota))
        .prop_map(|(weight, allowed, quota)| Spec { weight, allowed, quota, ..Spec::default() })
}

#[derive(Clone, Debug)]
struct Case {
    cpus: u32,
    domain_cpus: u32,
    specs: Vec<Spec>,
    ops: Vec<(u64, Op)>,
}

fn case() -> impl Strategy<Value = Case> {
    (1u32..9, 1u32..9).prop_flat_map(|(cpus, domain_cpus)| {
        let delta_ns = prop_oneof![100 => 0..3 * MILLISECOND_NS, 1 => 0..SECOND_NS];
        let ops = prop::collection::vec((delta_ns, op()), 1..300);
        let specs = prop::collection::vec(spec(cpus), 1..16);
        (Just(cpus), Just(domain_cpus), specs, ops).prop_map(|(cpus, domain_cpus, specs, ops)| Case {
            cpus,
            domain_cpus,
            specs,
            ops,
        })
    })
}

/// A dispatcher that knows what state each entity must be in.
struct Model<P: Policy> {
    sched: Fair<P>,
    now_ns: u64,
    orders: Orders,
    timers: Vec<(u32, u64)>,
    ticks: Vec<bool>,
    blocked: Vec<bool>,
    ran_ns: Vec<u64>,
    since_ns: Vec<u64>,
    idle_ns: u64,
}

impl<P: Policy> Model<P> {
    fn apply(&mut self, op: Op) {
        let cpus = self.since_ns.len() as u32;
        let (now_ns, cpu) = (self.now_ns, |number: u32| Cpu(number % cpus));
        match op {
            Op::Wake(entity, from) => {
                let entity = Entity(entity % self.blocked.len() as u32);
                self.sched.wake(now_ns, entity, from.map(cpu), &mut self.orders);
                self.blocked[entity.0 as usize] = false;
            }
            Op::Block(number) | Op::Yield(number) => {
                let cpu = cpu(number);
                self.write_down(cpu);
                let Some(entity) = self.sched.running(cpu) else { return };
                if matches!(op, Op::Block(_)) {
                    self.sched.block(now_ns, cpu, &mut self.orders);
                    self.blocked[entity.0 as usize] = true;
                } else {
                    self.sched.yield_now(now_ns, cpu, &mut self.orders);
                }
                self.pick(cpu);
            }
            Op::Tick(number) => self.sched.tick(now_ns, cpu(number), &mut self.orders),
            Op::Pick(number) => self.pick(cpu(number)),
            Op::Boost(entity) | Op::EndBoost(entity) => {
                let entity = Entity(entity % self.blocked.len() as u32);
                let orders = &mut self.orders;
                match op {
                    Op::Boost(_) => self.sched.boost(now_ns, entity, orders),
                    _ => self.sched.end_boost(now_ns, entity, orders),
                }
                self.sched.debt_ns(now_ns, entity);
            }
            Op::Obey => {
                while let Some(cpu) = self.orders.resched.pop() {
                    self.pick(cpu);
                }
            }
        }
    }

    fn pick(&mut self, cpu: Cpu) {
        self.write_down(cpu);
        let picked = self.sched.pick(self.now_ns, cpu, &mut self.orders);
        assert!(
            picked.is_some() || !self.sched.could_pull(cpu),
            "{cpu:?} idles though something waits for it"
        );
    }

    fn write_down(&mut self, cpu: Cpu) {
        let ran_ns = self.now_ns - std::mem::replace(&mut self.since_ns[cpu.0 as usize], self.now_ns);
        match self.sched.running(cpu) {
            Some(entity) => self.ran_ns[entity.0 as usize] += ran_ns,
            None => self.idle_ns += ran_ns,
        }
    }

    fn advance(&mut self, delta_ns: u64) {
        let end_ns = self.now_ns + delta_ns;
        while let Some(&first) =
            self.timers.iter().filter(|timer| timer.1 <= end_ns).min_by_key(|timer| timer.1)
        {
            self.timers.retain(|&timer| timer != first);
            self.now_ns = first.1;
            self.sched.timer(self.now_ns, first.0, &mut self.orders);
            self.check();
        }
        self.now_ns = end_ns;
    }

    fn check(&mut self) {
        for (number, at_ns) in self.orders.arm.drain(..) {
            assert!(at_ns > self.now_ns);
            self.timers.retain(|timer| timer.0 != number);
            self.timers.push((number, at_ns));
        }
        // Who only listens to `ticks` knows all that `needs_tick` says.
        self.orders.ticks.drain(..).for_each(|cpu| self.ticks[cpu.0 as usize] = true);
        for (cpu, ticks) in self.ticks.iter_mut().enumerate() {
            let needed = self.sched.needs_tick(Cpu(cpu as u32));
            assert!(*ticks || !needed, "nobody was told of ticks");
            *ticks = needed;
        }
        self.sched.check();
        let cpus = self.since_ns.len() as u32;
        let waiting: usize = (0..cpus).map(|cpu| self.sched.waiting(Cpu(cpu))).sum();
        let running: usize = (0..cpus).filter(|&cpu| self.sched.running(Cpu(cpu)).is_some()).count();
        let throttled = |&entity: &u32| self.sched.is_throttled(Entity(entity));
        let throttled = (0..self.blocked.len() as u32).filter(throttled).count();
        let blocked = self.blocked.iter().filter(|&&blocked| blocked).count();
        assert_eq!(
            waiting + running + throttled + blocked,
            self.blocked.len(),
            "every entity is in one state"
        );
        assert!(throttled == 0 || !self.timers.is_empty(), "nothing ends the throttling");
    }
}

fn run<P: Policy>(case: &Case, new: fn(&Tunables) -> P) {
    let cpus = case.cpus as usize;
    let tunables = Tunables { domain_cpus: case.domain_cpus, ..Tunables::linux(cpus, 1000) };
    let mut sched = Fair::new(cpus, &tunables, new(&tunables));
    for spec in &case.specs {
        sched.add(spec);
    }
    let entities = case.specs.len();
    let mut model = Model {
        sched,
        now_ns: 0,
        orders: Orders::default(),
        timers: Vec::new(),
        ticks: vec![false; cpus],
        blocked: vec![true; entities],
        ran_ns: vec![0; entities],
        since_ns: vec![0; cpus],
        idle_ns: 0,
    };
    for &(delta_ns, op) in &case.ops {
        model.advance(delta_ns);
        model.apply(op);
        model.check();
        for cpu in (0..case.cpus).map(Cpu) {
            if let Some(Entity(entity)) = model.sched.running(cpu) {
                let allowed = &case.specs[entity as usize].allowed;
                assert!(allowed.is_empty() || allowed.contains(&cpu), "pinning is violated");
            }
        }
    }
    (0..case.cpus).for_each(|cpu| model.write_down(Cpu(cpu)));
    let ran_ns: u64 = model.ran_ns.iter().sum();
    assert_eq!(ran_ns + model.idle_ns, case.cpus as u64 * model.now_ns);
    for cpu in 0..case.cpus {
        model.pick(Cpu(cpu)); // accounts
    }
    for (entity, &ran_ns) in model.ran_ns.iter().enumerate() {
        assert_eq!(model.sched.charged_ns(Entity(entity as u32)), ran_ns, "what is charged is what ran");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn invariants_hold(case in case()) {
        run(&case, Eevdf::new);
        run(&case, Cfs::new);
    }
}

#[test]
fn a_long_stall_is_survived() {
    fn test<P: Policy>(new: fn(&Tunables) -> P) {
        let tunables = Tunables::linux(1, 1000);
        let mut sched = Fair::new(1, &tunables, new(&tunables));
        let weights = std::iter::once(1).chain(std::iter::repeat_n(u32::MAX, 16));
        let mut orders = Orders::default();
        let mut now_ns = 0;
        for weight in weights {
            let entity = sched.add(&Spec { weight, ..Spec::default() });
            sched.wake(now_ns, entity, None, &mut orders);
            sched.pick(now_ns, Cpu(0), &mut orders);
        }
        // Three hours without a tick, while the one of least weight runs, then others.
        for _ in 0..20 {
            now_ns += 10_000 * SECOND_NS;
            sched.tick(now_ns, Cpu(0), &mut orders);
            sched.pick(now_ns, Cpu(0), &mut orders);
            sched.check();
        }
        assert!((1..17).all(|entity| sched.charged_ns(Entity(entity)) > 0));
    }
    test(Eevdf::new);
    test(Cfs::new);
}
