//! A dispatcher for tests of Xen's schedulers: runs vCPUs as a scheduler orders, and writes down what they got and how
//! long their requests took.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use reprieve_study::units::MILLISECOND_NS;

use crate::random::Stream;
use crate::sched::{Cpu, Entity, Orders, Scheduler, Spec};

/// At one time; two vCPUs that preempt each other for ever would make more.
const MOST_DECISIONS: u32 = 10_000;

/// What a vCPU does.
#[derive(Clone, Debug)]
pub enum Work {
    /// Runs for ever.
    Spin,
    /// A request takes `service_ns`; the next one comes `gap_ns` after it is done, spread by up to `spread_ns` more.
    Requests { service_ns: u64, gap_ns: u64, spread_ns: u64 },
}

/// What happens; at the same time in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The request on that pCPU is done, if it was switched to for the nth time.
    Done(Cpu, u64),
    Wake(Entity),
    Timer(u32),
}

/// What is known of a vCPU.
#[derive(Clone, Debug)]
pub struct Got {
    work: Work,
    left_ns: u64,
    arrived_ns: u64,
    stream: Stream,
    /// Time on a pCPU.
    pub ran_ns: u64,
    /// From the arrival of each request until it was done.
    pub responses_ns: Vec<u64>,
    /// When each request arrived.
    pub arrivals_ns: Vec<u64>,
}

#[derive(Clone, Default)]
struct OnCpu {
    running: Option<Entity>,
    since_ns: u64,
    switches: u64,
}

/// A machine whose scheduler is under test.
pub struct Machine<S> {
    pub sched: S,
    pub now_ns: u64,
    pub vcpus: Vec<Got>,
    cpus: Vec<OnCpu>,
    armed: Vec<Option<u64>>,
    heap: BinaryHeap<Reverse<(u64, Happening)>>,
    orders: Orders,
}

impl<S: Scheduler> Machine<S> {
    pub fn new(cpus: usize, sched: S) -> Machine<S> {
        Machine {
            sched,
            now_ns: 0,
            vcpus: Vec::new(),
            cpus: vec![OnCpu::default(); cpus],
            armed: Vec::new(),
            heap: BinaryHeap::new(),
            orders: Orders::default(),
        }
    }

    /// A new vCPU, woken at that time.
    pub fn spawn(&mut self, at_ns: u64, work: Work, spec: &Spec) -> Entity {
        let entity = self.sched.add(spec);
        let left_ns = match work {
            Work::Spin => u64::MAX,
            Work::Requests { service_ns, .. } => service_ns,
        };
        self.vcpus.push(Got {
            work,
            left_ns,
            arrived_ns: at_ns,
            stream: Stream::new(1, "gap", entity.0.into()),
            ran_ns: 0,
            responses_ns: Vec::new(),
            arrivals_ns: Vec::new(),
        });
        self.heap.push(Reverse((at_ns, Happening::Wake(entity))));
        entity
    }

    /// Lets time pass. `look` is called after everything that happens.
    pub fn run_until(&mut self, end_ns: u64, mut look: impl FnMut(&Machine<S>)) {
        while let Some(&Reverse((at_ns, happening))) = self.heap.peek()
            && at_ns <= end_ns
        {
            self.heap.pop();
            assert!(at_ns >= self.now_ns);
            self.now_ns = at_ns;
            self.happen(happening);
            self.obey();
            look(self);
        }
        self.now_ns = end_ns;
        (0..self.cpus.len()).for_each(|cpu| self.charge(cpu));
    }

    fn happen(&mut self, happening: Happening) {
        let now_ns = self.now_ns;
        match happening {
            Happening::Wake(entity) => {
                self.vcpus[entity.0 as usize].arrived_ns = now_ns;
                self.sched.wake(now_ns, entity, None, &mut self.orders);
            }
            Happening::Timer(number) => {
                if self.armed[number as usize].take_if(|at_ns| *at_ns == now_ns).is_some() {
                    self.sched.timer(now_ns, number, &mut self.orders);
                }
            }
            Happening::Done(cpu, switches) if self.cpus[cpu.0 as usize].switches == switches => {
                self.done(cpu)
            }
            Happening::Done(..) => {}
        }
    }

    fn done(&mut self, cpu: Cpu) {
        self.charge(cpu.0 as usize);
        let entity = self.cpus[cpu.0 as usize].running.take().unwrap();
        let got = &mut self.vcpus[entity.0 as usize];
        assert_eq!(got.left_ns, 0);
        got.responses_ns.push(self.now_ns - got.arrived_ns);
        got.arrivals_ns.push(got.arrived_ns);
        if let Work::Requests { service_ns, gap_ns, spread_ns } = got.work {
            got.left_ns = service_ns;
            let next_ns = self.now_ns + gap_ns + got.stream.within(0, spread_ns);
            self.heap.push(Reverse((next_ns, Happening::Wake(entity))));
        }
        self.sched.block(self.now_ns, cpu, &mut self.orders);
        self.orders.resched.push(cpu);
    }

    fn obey(&mut self) {
        for decisions in 0.. {
            assert!(decisions < MOST_DECISIONS, "decisions without end at one time");
            let arm = std::mem::take(&mut self.orders.arm);
            // The last first, as the world does: a timer must not stand there twice.
            for (number, at_ns) in arm.into_iter().rev() {
                assert!(at_ns > self.now_ns);
                if self.armed.len() <= number as usize {
                    self.armed.resize(number as usize + 1, None);
                }
                self.armed[number as usize] = Some(at_ns);
                self.heap.push(Reverse((at_ns, Happening::Timer(number))));
            }
            let Some(cpu) = self.orders.resched.pop() else { return };
            self.switch(cpu);
        }
    }

    fn switch(&mut self, cpu: Cpu) {
        self.charge(cpu.0 as usize);
        let next = self.sched.pick(self.now_ns, cpu, &mut self.orders);
        assert_eq!(next, self.sched.running(cpu));
        let on_cpu = &mut self.cpus[cpu.0 as usize];
        if next == on_cpu.running {
            return;
        }
        on_cpu.running = next;
        on_cpu.switches += 1;
        if let Some(entity) = next {
            let left_ns = self.vcpus[entity.0 as usize].left_ns;
            let done = Happening::Done(cpu, on_cpu.switches);
            self.heap.push(Reverse((self.now_ns.saturating_add(left_ns), done)));
        }
        let places = self.cpus.iter().filter(|cpu| next.is_some() && cpu.running == next).count();
        assert!(places <= 1, "{next:?} runs on two pCPUs");
    }

    fn charge(&mut self, cpu: usize) {
        let ran_ns = self.now_ns - std::mem::replace(&mut self.cpus[cpu].since_ns, self.now_ns);
        if let Some(entity) = self.cpus[cpu].running {
            let got = &mut self.vcpus[entity.0 as usize];
            got.ran_ns += ran_ns;
            got.left_ns = got.left_ns.saturating_sub(ran_ns);
        }
    }
}

/// What a run's responses are, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub mean: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
    /// Responses of more than 1 ms.
    pub stalls: usize,
    pub count: usize,
}

impl Got {
    /// The summary of its responses; each percentile is a response that there was.
    pub fn summary(&self) -> Summary {
        let mut sorted = self.responses_ns.clone();
        sorted.sort_unstable();
        let at = |of_10_000: usize| sorted[(sorted.len() * of_10_000).div_ceil(10_000).max(1) - 1];
        Summary {
            mean: sorted.iter().sum::<u64>() / sorted.len() as u64,
            p50: at(5000),
            p90: at(9000),
            p99: at(9900),
            p999: at(9990),
            p9999: at(9999),
            max: *sorted.last().unwrap(),
            stalls: sorted.iter().filter(|ns| **ns > MILLISECOND_NS).count(),
            count: sorted.len(),
        }
    }
}
