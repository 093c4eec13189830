//! A fair scheduler alone: a small dispatcher that runs entities on CPUs as the scheduler orders, and writes down what ran when.
//! Nothing costs time. For tests, and to compare schedulers with the real ones (`crates/vm/examples/schedulers`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sched::fair::{Fair, Policy};
use crate::sched::{Cpu, Entity, Orders, Scheduler, Spec};

/// What an entity does with its CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Runs for ever.
    Spin,
    /// Runs for that long, sleeps for that long, and so on.
    Bursts {
        /// CPU time of a burst.
        run_ns: u64,
        /// From its end to when it wakes again.
        sleep_ns: u64,
    },
    /// The same, but each sleep is drawn anew ([`spread`]), so that entities do not keep step with each other.
    Spread {
        /// CPU time of a burst.
        run_ns: u64,
        /// Mean of the sleeps.
        sleep_ns: u64,
        /// What the next draw is made from.
        state: u64,
    },
    /// Yields each time it has run for that long.
    Yields {
        /// CPU time between two.
        run_ns: u64,
    },
}

/// Uniform from half of the mean to three halves of it; the next of a sequence that is the same for the same state. SplitMix64
/// (Steele, Lea, Flood 2014), so that a program elsewhere can draw alike.
pub fn spread(mean_ns: u64, state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    mean_ns / 2 + mixed % (mean_ns + 1)
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Timer(u32),
    Wake(Entity),
    Tick(Cpu),
    /// The work of what runs there is done, if it was switched to for the nth time.
    Done(Cpu, u64),
}

/// Something ran on a CPU from then to then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where.
    pub cpu: Cpu,
    /// What.
    pub entity: Entity,
    /// When it began.
    pub from_ns: u64,
    /// When something else did, or nothing.
    pub to_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct OnCpu {
    running: Option<Entity>,
    since_ns: u64,
    switches: u64,
    ticking: bool,
}

/// A machine of which there is no more than its CPUs and their scheduler.
#[derive(Debug)]
pub struct Machine<P: Policy> {
    /// The scheduler.
    pub sched: Fair<P>,
    /// Time.
    pub now_ns: u64,
    /// What ran, in the order of ends.
    pub runs: Vec<Run>,
    /// The scheduler's ticks so far.
    pub ticks: u64,
    /// When each entity was woken, in the order of time.
    pub wakes: Vec<(u64, Entity)>,
    /// Timers that the scheduler armed.
    pub armed: Vec<(u32, u64)>,
    /// By how much ticks are late at most, and what the next draw is made from.
    late_ticks: (u64, u64),
    work: Vec<(Work, u64)>,
    cpus: Vec<OnCpu>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
}

impl<P: Policy> Machine<P> {
    /// Without any entities, at time 0.
    pub fn new(cpus: usize, sched: Fair<P>) -> Machine<P> {
        Machine {
            sched,
            now_ns: 0,
            runs: Vec::new(),
            ticks: 0,
            wakes: Vec::new(),
            armed: Vec::new(),
            late_ticks: (0, 0),
            work: Vec::new(),
            cpus: vec![OnCpu::default(); cpus],
            events: BinaryHeap::new(),
        }
    }

    /// The same with ticks that are late as interrupts are, each by a random time up to `most_ns`.
    pub fn with_late_ticks(self, most_ns: u64) -> Machine<P> {
        Machine { late_ticks: (most_ns, 0), ..self }
    }

    /// A new entity, woken at that time.
    pub fn spawn(&mut self, at_ns: u64, work: Work, spec: &Spec) -> Entity {
        let entity = self.sched.add(spec);
        let left_ns = match work {
            Work::Spin => u64::MAX,
            Work::Bursts { run_ns, .. } | Work::Spread { run_ns, .. } | Work::Yields { run_ns } => run_ns,
        };
        self.work.push((work, left_ns));
        self.events.push(Reverse((at_ns, Event::Wake(entity))));
        entity
    }

    /// Lets time pass. `look` is called after everything that happens.
    pub fn run_until(&mut self, end_ns: u64, mut look: impl FnMut(&Machine<P>)) {
        while let Some(&Reverse((at_ns, event))) = self.events.peek()
            && at_ns <= end_ns
        {
            self.events.pop();
            self.now_ns = at_ns;
            self.handle(event);
            #[cfg(test)]
            self.sched.check();
            look(self);
        }
        self.now_ns = end_ns;
        (0..self.cpus.len()).for_each(|cpu| self.write_down(cpu));
    }

    fn handle(&mut self, event: Event) {
        let mut orders = Orders::default();
        match event {
            Event::Timer(number) => {
                if self.armed.iter().rfind(|armed| armed.0 == number) == Some(&(number, self.now_ns)) {
                    self.sched.timer(self.now_ns, number, &mut orders);
                }
            }
            Event::Wake(entity) => {
                self.wakes.push((self.now_ns, entity));
                self.sched.wake(self.now_ns, entity, None, &mut orders);
            }
            Event::Tick(cpu) => {
                self.cpus[cpu.0 as usize].ticking = false;
                if self.sched.needs_tick(cpu) {
                    self.ticks += 1;
                    self.sched.tick(self.now_ns, cpu, &mut orders);
                    self.start_tick(cpu);
                }
            }
            Event::Done(cpu, switches) if self.cpus[cpu.0 as usize].switches == switches => {
                self.done(cpu, &mut orders);
            }
            Event::Done(..) => {}
        }
        self.obey(orders);
    }

    fn done(&mut self, cpu: Cpu, orders: &mut Orders) {
        self.write_down(cpu.0 as usize);
        let entity = self.cpus[cpu.0 as usize].running.expect("who is done runs");
        let (work, left_ns) = &mut self.work[entity.0 as usize];
        debug_assert_eq!(*left_ns, 0);
        let (run_ns, slept_ns) = match work {
            Work::Spin => unreachable!("it never is"),
            Work::Bursts { run_ns, sleep_ns } => (*run_ns, Some(*sleep_ns)),
            Work::Spread { run_ns, sleep_ns, state } => (*run_ns, Some(spread(*sleep_ns, state))),
            Work::Yields { run_ns } => (*run_ns, None),
        };
        *left_ns = run_ns;
        if let Some(slept_ns) = slept_ns {
            self.events.push(Reverse((self.now_ns + slept_ns, Event::Wake(entity))));
            self.sched.block(self.now_ns, cpu, orders);
        } else {
            self.sched.yield_now(self.now_ns, cpu, orders);
        }
        orders.resched.push(cpu);
    }

    fn obey(&mut self, mut orders: Orders) {
        loop {
            self.armed.extend(&orders.arm);
            for (number, at_ns) in orders.arm.drain(..) {
                debug_assert!(at_ns > self.now_ns);
                self.events.push(Reverse((at_ns, Event::Timer(number))));
            }
            orders.ticks.drain(..).for_each(|cpu| self.start_tick(cpu));
            if orders.resched.is_empty() {
                return;
            }
            let cpu = orders.resched.remove(0);
            self.switch(cpu, &mut orders);
        }
    }

    fn switch(&mut self, cpu: Cpu, orders: &mut Orders) {
        let at = cpu.0 as usize;
        self.write_down(at);
        let next = self.sched.pick(self.now_ns, cpu, orders);
        debug_assert_eq!(next, self.sched.running(cpu));
        let on_cpu = &mut self.cpus[at];
        on_cpu.running = next;
        on_cpu.switches += 1;
        if let Some(entity) = next {
            let left_ns = self.work[entity.0 as usize].1;
            let done = Event::Done(cpu, on_cpu.switches);
            self.events.push(Reverse((self.now_ns.saturating_add(left_ns), done)));
        }
        #[cfg(test)]
        assert!(next.is_some() || !self.sched.could_pull(cpu), "{cpu:?} idles though something waits for it");
        let places = self.cpus.iter().filter(|cpu| next.is_some() && cpu.running == next).count();
        debug_assert!(places <= 1, "{next:?} runs on two CPUs");
    }

    fn start_tick(&mut self, cpu: Cpu) {
        let tick_ns = self.sched.tick_ns();
        let on_cpu = &mut self.cpus[cpu.0 as usize];
        if !on_cpu.ticking {
            on_cpu.ticking = true;
            let (most_ns, state) = &mut self.late_ticks;
            let late_ns = if *most_ns == 0 { 0 } else { spread(*most_ns, state) - *most_ns / 2 };
            let next_ns = (self.now_ns / tick_ns + 1) * tick_ns + late_ns;
            self.events.push(Reverse((next_ns, Event::Tick(cpu))));
        }
    }

    /// Writes down what ran on a CPU until now; joins it to the run before if nothing else ran between.
    fn write_down(&mut self, cpu: usize) {
        let (on_cpu, now_ns) = (&mut self.cpus[cpu], self.now_ns);
        let from_ns = std::mem::replace(&mut on_cpu.since_ns, now_ns);
        let Some(entity) = on_cpu.running.filter(|_| from_ns < now_ns) else { return };
        let left_ns = &mut self.work[entity.0 as usize].1;
        *left_ns = left_ns.saturating_sub(now_ns - from_ns);
        let cpu = Cpu(cpu as u32);
        match self.runs.iter_mut().rfind(|run| run.cpu == cpu) {
            Some(last) if last.entity == entity && last.to_ns == from_ns => last.to_ns = now_ns,
            _ => self.runs.push(Run { cpu, entity, from_ns, to_ns: now_ns }),
        }
    }

    /// Run time of an entity in that stretch of time.
    pub fn ran_ns(&self, entity: Entity, from_ns: u64, to_ns: u64) -> u64 {
        let within = |run: &Run| run.to_ns.min(to_ns).saturating_sub(run.from_ns.max(from_ns));
        self.runs.iter().filter(|run| run.entity == entity).map(within).sum()
    }
}
