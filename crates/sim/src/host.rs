//! A host: pCPUs, and the threads that its scheduler runs on them. A vCPU is a thread like any other.

use crate::queue::{Class, Queue, Timer};
use crate::random::Stream;
use crate::sched::{Cpu, Entity, Orders, Scheduler, Spec};

/// What a thread runs.
#[derive(Debug)]
pub enum Body {
    /// A vCPU of a guest.
    Vcpu {
        /// The guest.
        guest: usize,
        /// The vCPU of that guest.
        vcpu: usize,
    },
    /// Always has work.
    Busy,
    /// A thread of the host itself, which sleeps and computes in turn.
    Noise {
        /// Mean time between two bursts.
        sleep_ns: u64,
        /// Mean length of a burst.
        burst_ns: u64,
        /// Draws both lengths.
        stream: Stream,
    },
    /// Serves the timers of a guest's vCPUs, as QEMU's main thread does where the kernel does not.
    Emulator(Emulator),
    /// Looks at a guest from time to time, and boosts its vCPUs.
    Booster,
    /// A neighbour that is busy for a while on command ([`crate::world::World::spike`]).
    Spike {
        /// The end of the present spike.
        until_ns: u64,
    },
}

impl Body {
    /// Whether what it runs displaces what others have in the pCPU's caches. A look of a few microseconds does not: its
    /// cost includes what it displaces.
    pub fn cools_caches(&self) -> bool {
        !matches!(self, Body::Booster)
    }
}

/// QEMU's main thread. It serves all expired timers under one lock, which a vCPU needs to take its interrupt. So the
/// vCPUs wait until the thread is done, and then take their interrupts one by one.
#[derive(Debug)]
pub struct Emulator {
    /// The guest whose timers it serves.
    pub guest: usize,
    /// CPU time for each timer.
    pub serve_ns: u64,
    /// vCPUs whose timer has expired.
    pub due: Vec<usize>,
    /// vCPUs whose timer is served and which have not taken the interrupt yet.
    pub served: Vec<usize>,
    /// Draws which vCPU gets the lock next.
    pub stream: Stream,
}

impl Emulator {
    /// An emulator with nothing to do.
    pub fn new(guest: usize, serve_ns: u64, stream: Stream) -> Emulator {
        Emulator { guest, serve_ns, due: Vec::new(), served: Vec::new(), stream }
    }

    /// Draws the vCPU that takes its interrupt next.
    pub fn take_served(&mut self) -> Option<usize> {
        let last = self.served.len().checked_sub(1)?;
        Some(self.served.swap_remove(self.stream.within(0, last as u64) as usize))
    }
}

/// A thread of the host.
#[derive(Debug)]
pub struct Thread {
    /// What it runs.
    pub body: Body,
    /// Expires at the end of a sleep, burst, spike or pause.
    pub timer: Timer,
    /// CPU time left of a burst.
    pub left_ns: u64,
    /// When it entered its present state.
    pub since_ns: u64,
    /// What it does.
    pub state: State,
    /// The pCPU that it runs on, or ran on last.
    pub pcpu: usize,
    /// Time on a pCPU.
    pub run_ns: u64,
    /// Time runnable without a pCPU.
    pub delay_ns: u64,
    /// Whether it lost its pCPU while it still had work.
    pub preempted: bool,
    /// A stimulus keeps it from running until then.
    pub paused_until_ns: Option<u64>,
    /// It stays blocked until then.
    pub begins_ns: u64,
    /// Set if the host cuts its slices.
    pub micro_slice: Option<MicroSlice>,
}

/// Slices of `run_ns`, one begun every `every_ns`. The scheduler decides again at the end of each, and when the next
/// one is due.
#[derive(Clone, Copy, Debug)]
pub struct MicroSlice {
    /// Expires at the end of a micro-slice, and when the next one is due.
    pub timer: Timer,
    /// Length of a micro-slice.
    pub run_ns: u64,
    /// Time from the start of one to the start of the next.
    pub every_ns: u64,
}

/// A thread's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has nothing to do.
    Blocked,
    /// Waits for a pCPU.
    Runnable,
    /// It has a pCPU.
    Running,
}

impl Thread {
    /// Changes state and accounts the time in the old one. Returns when the old state began.
    pub fn become_state(&mut self, now_ns: u64, state: State) -> u64 {
        let elapsed_ns = now_ns - self.since_ns;
        match self.state {
            State::Running => self.run_ns += elapsed_ns,
            State::Runnable => self.delay_ns += elapsed_ns,
            State::Blocked => {}
        }
        self.state = state;
        std::mem::replace(&mut self.since_ns, now_ns)
    }

    /// Run time and delay up to now.
    pub fn times_at(&self, now_ns: u64) -> (u64, u64) {
        let elapsed_ns = now_ns - self.since_ns;
        match self.state {
            State::Running => (self.run_ns + elapsed_ns, self.delay_ns),
            State::Runnable => (self.run_ns, self.delay_ns + elapsed_ns),
            State::Blocked => (self.run_ns, self.delay_ns),
        }
    }
}

/// A physical CPU.
#[derive(Debug)]
pub struct Pcpu {
    /// Its scheduler tick.
    pub tick: Timer,
    /// Whether the tick runs.
    pub ticking: bool,
    /// What runs on it.
    pub running: Option<Entity>,
    /// What ran on it last.
    pub last: Option<Entity>,
    /// Counterfactual: a switch waits until the vCPU that runs here releases its spinlock.
    pub switch_after_unlock: bool,
    /// Time that a thread ran here.
    pub busy_ns: u64,
}

/// The parameters of a host.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Physical CPUs.
    pub pcpus: usize,
    /// CPU time of a switch between threads.
    pub switch_ns: u64,
    /// CPU time that a vCPU loses to cold caches, if others have run on its pCPU since it did.
    pub cold_cache_ns: u64,
    /// Counterfactual: no switch while a vCPU holds a spinlock of its guest.
    pub spare_lock_holders: bool,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// What it is made of.
    pub spec: HostSpec,
    /// The scheduler of its threads.
    pub scheduler: Box<dyn Scheduler>,
    /// What the scheduler wants done.
    pub orders: Orders,
    /// Physical CPUs.
    pub pcpus: Vec<Pcpu>,
    /// Threads by entity.
    pub threads: Vec<Thread>,
    /// The scheduler's own timers by number.
    pub timers: Vec<Timer>,
}

impl Host {
    /// A host without threads.
    pub fn new(spec: HostSpec, scheduler: Box<dyn Scheduler>, queue: &mut Queue) -> Host {
        let pcpu = |_| Pcpu {
            tick: queue.add(Class::HostClock),
            ticking: false,
            running: None,
            last: None,
            switch_after_unlock: false,
            busy_ns: 0,
        };
        let pcpus = (0..spec.pcpus).map(pcpu).collect();
        let (threads, timers) = (Vec::new(), Vec::new());
        Host { spec, scheduler, orders: Orders::default(), pcpus, threads, timers }
    }

    /// Adds a thread, blocked.
    pub fn add_thread(&mut self, body: Body, spec: &Spec, queue: &mut Queue) -> Entity {
        let entity = self.scheduler.add(spec);
        debug_assert_eq!(entity.0 as usize, self.threads.len());
        let class = if matches!(body, Body::Vcpu { .. }) { Class::Stimulus } else { Class::Work };
        self.threads.push(Thread {
            body,
            timer: queue.add(class),
            left_ns: 0,
            since_ns: 0,
            state: State::Blocked,
            pcpu: 0,
            run_ns: 0,
            delay_ns: 0,
            preempted: false,
            paused_until_ns: None,
            begins_ns: 0,
            micro_slice: None,
        });
        entity
    }

    /// A blocked thread becomes runnable.
    pub fn wake(&mut self, now_ns: u64, entity: Entity, from: Option<Cpu>) {
        let thread = &mut self.threads[entity.0 as usize];
        debug_assert_eq!(thread.state, State::Blocked);
        thread.become_state(now_ns, State::Runnable);
        self.scheduler.wake(now_ns, entity, from, &mut self.orders);
    }

    /// The thread that runs on this pCPU blocks.
    pub fn block_running(&mut self, now_ns: u64, pcpu: usize) {
        self.end_running(now_ns, pcpu);
        self.scheduler.block(now_ns, Cpu(pcpu as u32), &mut self.orders);
        self.orders.resched.push(Cpu(pcpu as u32));
    }

    /// The vCPU that runs on this pCPU pauses ([`crate::sched::Pausing::pause`]).
    pub fn pause_running(&mut self, now_ns: u64, pcpu: usize, keeps_ns: u64) {
        self.end_running(now_ns, pcpu);
        match self.scheduler.pausing() {
            Some(scheduler) => scheduler.pause(now_ns, Cpu(pcpu as u32), keeps_ns, &mut self.orders),
            None => self.scheduler.block(now_ns, Cpu(pcpu as u32), &mut self.orders),
        }
        self.orders.resched.push(Cpu(pcpu as u32));
    }

    /// Whether the thread is owed CPU time; always, under a scheduler that does not say.
    pub fn is_owed(&mut self, now_ns: u64, entity: Entity) -> bool {
        self.scheduler.pausing().is_none_or(|scheduler| scheduler.lag_ns(now_ns, entity) >= 0)
    }

    /// A waiting thread that is owed CPU time runs next, if the scheduler can arrange that.
    pub fn favour_if_owed(&mut self, now_ns: u64, entity: Entity) {
        if let Some(scheduler) = self.scheduler.pausing()
            && scheduler.lag_ns(now_ns, entity) >= 0
        {
            scheduler.favour(now_ns, entity, &mut self.orders);
        }
    }

    fn end_running(&mut self, now_ns: u64, pcpu: usize) {
        let entity = self.pcpus[pcpu].running.take().expect("a thread that blocks runs");
        let thread = &mut self.threads[entity.0 as usize];
        let since_ns = thread.become_state(now_ns, State::Blocked);
        self.pcpus[pcpu].busy_ns += now_ns - since_ns;
        if thread.body.cools_caches() {
            self.pcpus[pcpu].last = Some(entity);
        }
    }

    /// Checks that the run time of all threads equals the busy time of all pCPUs.
    ///
    /// # Errors
    /// The sums that differ.
    pub fn check(&self, now_ns: u64) -> Result<(), String> {
        let running_ns =
            |pcpu: &Pcpu| pcpu.running.map_or(0, |entity| now_ns - self.threads[entity.0 as usize].since_ns);
        let given_ns: u64 = self.pcpus.iter().map(|pcpu| pcpu.busy_ns + running_ns(pcpu)).sum();
        let got_ns: u64 = self.threads.iter().map(|thread| thread.times_at(now_ns).0).sum();
        let most_ns = now_ns * self.pcpus.len() as u64;
        if given_ns != got_ns || given_ns > most_ns {
            return Err(format!("pCPUs gave {given_ns} ns of {most_ns} ns, threads got {got_ns} ns"));
        }
        Ok(())
    }

    /// Starts or stops the tick of a pCPU as the scheduler needs it. The ticks of all pCPUs share one grid.
    pub fn keep_tick(&mut self, now_ns: u64, pcpu: usize, queue: &mut Queue) {
        let wanted = self.scheduler.needs_tick(Cpu(pcpu as u32));
        let state = &mut self.pcpus[pcpu];
        if wanted && !state.ticking {
            let tick_ns = self.scheduler.tick_ns();
            queue.arm(state.tick, (now_ns / tick_ns + 1) * tick_ns);
        } else if !wanted && state.ticking {
            queue.disarm(state.tick);
        }
        state.ticking = wanted;
    }
}
