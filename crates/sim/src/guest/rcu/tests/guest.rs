//! A small guest in steps of fixed length, which watches over RCU's promises: a callback is invoked only after every
//! CPU passed a quiescent state since it was queued, once, and in order on its CPU.

use reprieve_study::units::SECOND_NS;

mod kthread;

use super::style::{Random, Style};
use crate::bits::bits;
use crate::guest::rcu::{Callback, Context, Cookie, Effects, Params, Rcu, Wakeup};

impl Rcu {
    /// The CPUs for which the grace period waits, from the lowest.
    pub fn holdouts(&self) -> impl Iterator<Item = usize> + '_ {
        let leaves = self.tree.leaves().map(|leaf| &self.tree.nodes[leaf]);
        leaves.flat_map(|leaf| bits(leaf.waiting).map(|bit| leaf.first_cpu + bit as usize))
    }

    /// Whether the expedited grace period waits for that CPU.
    pub fn is_expedited_holdout(&self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        self.tree.nodes[cpu.leaf as usize].expedited & cpu.bit != 0
    }
}

pub struct Vcpu {
    pub mode: Context,
    /// In a stretch of kernel code that cannot switch.
    pub is_reading: bool,
    pub away_until_ns: u64,
    softirq: bool,
    need_resched: bool,
    is_interrupted: bool,
    is_asked: bool,
    next_tick_ns: u64,
    /// Number of the event at which it last was quiescent.
    quiescent_at: u64,
    last_invoked: Option<u64>,
}

/// Something that waits for a grace period: queued, and done.
struct Promise {
    made_at: u64,
    /// It joined others, and has no grace period of its own.
    is_entrained: bool,
    is_kept: bool,
}

struct Gp {
    is_asleep: bool,
    cpu: usize,
    timer_at: Option<u64>,
    ready_at_ns: u64,
    why: Wakeup,
}

pub struct Guest {
    pub rcu: Rcu,
    pub vcpus: Vec<Vcpu>,
    pub now_ns: u64,
    pub style: Style,
    pub random: Random,
    /// Off in the counterfactual, where RCU breaks its promise on purpose.
    pub is_strict: bool,
    is_offloaded: bool,
    pub step_ns: u64,
    tick_ns: u64,
    gp: Gp,
    effects: Effects,
    promises: Vec<Promise>,
    expedited: Vec<Promise>,
    /// Moments whose grace period is asked for and polled.
    polled: Vec<(Cookie, Promise)>,
    /// CPUs whose callbacks some other one is to invoke.
    offloaded: Vec<usize>,
    events: u64,
}

impl Guest {
    /// All CPUs run kernel code that can switch.
    pub fn new(params: &Params, cpus: usize, style: Style, seed: u64) -> Guest {
        let tick_ns = SECOND_NS / params.hz;
        let vcpu = |cpu: usize| Vcpu {
            mode: Context::Kernel,
            is_reading: false,
            away_until_ns: 0,
            softirq: false,
            need_resched: false,
            is_interrupted: false,
            is_asked: false,
            next_tick_ns: tick_ns + cpu as u64 * style.skew_ns,
            quiescent_at: 0,
            last_invoked: None,
        };
        Guest {
            rcu: Rcu::new(params, cpus),
            vcpus: (0..cpus).map(vcpu).collect(),
            now_ns: 0,
            random: Random(seed),
            is_strict: !params.descheduled_is_quiescent,
            is_offloaded: params.offloads,
            step_ns: 100_000,
            tick_ns,
            gp: Gp { is_asleep: true, cpu: 0, timer_at: None, ready_at_ns: 0, why: Wakeup::Woken },
            effects: Effects::default(),
            promises: Vec::new(),
            expedited: Vec::new(),
            polled: Vec::new(),
            offloaded: Vec::new(),
            events: 0,
            style,
        }
    }

    pub fn run_until(&mut self, end_ns: u64) {
        while self.now_ns < end_ns {
            self.step();
        }
    }

    /// Nothing new; whoever waits gets a chance to be served.
    pub fn settle(&mut self, within_ns: u64) {
        self.style = Style { switches: 20, idling: 40, readers: 3, ..Style::default() };
        let end_ns = self.now_ns + within_ns;
        let is_done = |guest: &Guest| {
            let waits = guest.expedited.iter().any(|promise| !promise.is_kept);
            guest.rcu.backlog_total() == 0 && !waits && guest.polled.is_empty()
        };
        while !is_done(self) {
            assert!(self.now_ns < end_ns, "{} callbacks left", self.rcu.backlog_total());
            self.step();
        }
        assert!(self.promises.iter().all(|promise| promise.is_kept));
    }

    pub fn invoked(&self) -> usize {
        self.promises.iter().filter(|promise| promise.is_kept).count()
    }

    fn jiffies(&self) -> u64 {
        self.now_ns / self.tick_ns
    }

    pub fn step(&mut self) {
        self.now_ns += self.step_ns;
        let here: Vec<usize> = (0..self.vcpus.len()).filter(|&cpu| self.is_here(cpu)).collect();
        self.poll();
        here.iter().for_each(|&cpu| self.interrupts(cpu));
        for &cpu in &here {
            self.schedule(cpu);
            if let Some(of) = self.offloaded.pop() {
                self.invoke(of, cpu);
            }
            self.act(cpu);
        }
    }

    /// Whether the host runs the vCPU.
    fn is_here(&mut self, cpu: usize) -> bool {
        let until_ns = &mut self.vcpus[cpu].away_until_ns;
        if *until_ns > self.now_ns {
            return false;
        }
        if *until_ns > 0 {
            *until_ns = 0;
            self.rcu.set_descheduled(self.now_ns, cpu, false, &mut self.effects);
        } else if self.random.one_in(self.style.deschedules) {
            let away_ns = 1 + self.random.below(self.style.away_ns);
            self.send_away(cpu, away_ns);
            return false;
        }
        true
    }

    pub fn send_away(&mut self, cpu: usize, away_ns: u64) {
        self.vcpus[cpu].away_until_ns = self.now_ns + away_ns;
        self.rcu.set_descheduled(self.now_ns, cpu, true, &mut self.effects);
        self.apply(cpu);
    }

    fn interrupts(&mut self, cpu: usize) {
        let is_idle = self.vcpus[cpu].mode == Context::Idle;
        let timer_is_due = self.gp.cpu == cpu && self.gp.timer_at.is_some_and(|at| at <= self.jiffies());
        // Idle CPUs without callbacks stop their tick up to the next timer.
        let is_stopped = is_idle && self.rcu.backlog(cpu) == 0 && !timer_is_due;
        let ticks = self.vcpus[cpu].next_tick_ns <= self.now_ns && !is_stopped;
        let is_interrupted = std::mem::take(&mut self.vcpus[cpu].is_interrupted);
        let is_asked = std::mem::take(&mut self.vcpus[cpu].is_asked);
        if !(ticks || timer_is_due || is_interrupted || is_asked || self.vcpus[cpu].softirq) {
            return;
        }
        if is_idle {
            self.rcu.idle_exit(cpu);
        }
        let mode = self.vcpus[cpu].mode;
        if is_interrupted {
            self.rcu.expedited_ipi(cpu, mode, &mut self.effects);
            self.apply(cpu);
        }
        if is_asked {
            self.rcu.asked_ipi(self.now_ns, cpu, mode, &mut self.effects);
            self.apply(cpu);
        }
        if ticks {
            let vcpu = &mut self.vcpus[cpu];
            vcpu.next_tick_ns +=
                (self.now_ns - vcpu.next_tick_ns) / self.tick_ns * self.tick_ns + self.tick_ns;
            self.rcu.tick(cpu, mode, &mut self.effects);
            self.apply(cpu);
        }
        if timer_is_due {
            self.wake_kthread(Some(cpu), Wakeup::TimedOut);
        }
        self.softirqs(cpu);
        if is_idle {
            self.rcu.idle_enter(cpu);
        }
    }

    fn softirqs(&mut self, cpu: usize) {
        for _ in 0..10 {
            if !std::mem::take(&mut self.vcpus[cpu].softirq) {
                return;
            }
            if self.rcu.core(self.now_ns, cpu, &mut self.effects).callbacks_ready {
                self.invoke(cpu, cpu);
            }
            self.apply(cpu);
        }
    }

    /// Invokes ready callbacks of a CPU on that or another one.
    fn invoke(&mut self, cpu: usize, on: usize) {
        let Some(batch) = self.rcu.begin_batch(self.now_ns, cpu) else { return };
        let mut count = 0;
        while !batch.is_over(count, self.now_ns, self.vcpus[cpu].mode != Context::Idle) {
            let Some(Callback(id)) = self.rcu.next_callback(cpu) else {
                break;
            };
            count += 1;
            assert!(self.vcpus[cpu].last_invoked.replace(id).is_none_or(|last| last < id), "out of order");
            self.check(&self.promises[id as usize], on);
            self.promises[id as usize].is_kept = true;
            if self.style.calls > 0 && self.random.one_in(10) {
                self.call(on);
            }
        }
        assert_eq!(self.rcu.end_batch(cpu, &mut self.effects), count);
        if self.is_offloaded && self.rcu.backlog(cpu) > 0 {
            self.offloaded.push(cpu);
        }
    }

    /// Every CPU is quiescent, or was since the promise was made.
    fn check(&self, promise: &Promise, on: usize) {
        assert!(!promise.is_kept, "done twice");
        if promise.is_entrained || !self.is_strict {
            return;
        }
        for (cpu, vcpu) in self.vcpus.iter().enumerate() {
            let is_quiescent = vcpu.mode != Context::Kernel || vcpu.quiescent_at > promise.made_at;
            assert!(is_quiescent, "CPU {cpu} may still read, at {} ns, on CPU {on}", self.now_ns);
        }
    }

    fn promise(&mut self, is_entrained: bool) -> Promise {
        self.events += 1;
        Promise { made_at: self.events, is_entrained, is_kept: false }
    }

    pub fn call(&mut self, cpu: usize) {
        let promise = self.promise(false);
        let id = self.promises.len() as u64;
        self.promises.push(promise);
        self.rcu.call(cpu, Callback(id), &mut self.effects);
        self.apply(cpu);
    }

    /// Asks for a grace period from now on.
    fn ask(&mut self, cpu: usize) {
        let (cookie, promise) = (self.rcu.cookie(), self.promise(false));
        assert!(!self.rcu.has_passed(cookie));
        self.polled.push((cookie, promise));
        self.rcu.ask_for(cpu, cookie, &mut self.effects);
        self.apply(cpu);
    }

    /// Forgets the moments after which a grace period has passed.
    fn poll(&mut self) {
        let (passed, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.polled)
            .into_iter()
            .partition(|(cookie, _)| self.rcu.has_passed(*cookie));
        passed.iter().for_each(|(_, promise)| self.check(promise, 0));
        self.polled = waiting;
    }

    fn entrain(&mut self, cpu: usize) {
        if self.rcu.entrain(cpu, Callback(self.promises.len() as u64)) {
            let promise = self.promise(true);
            self.promises.push(promise);
        }
    }

    pub fn expedite(&mut self, cpu: usize) {
        let promise = self.promise(false);
        let token = self.expedited.len() as u64;
        self.expedited.push(promise);
        // The caller is in no reader.
        self.quiescent(cpu);
        self.rcu.start_expedited(cpu, token, &mut self.effects);
        self.apply(cpu);
        self.switch(cpu);
    }

    fn quiescent(&mut self, cpu: usize) {
        self.events += 1;
        self.vcpus[cpu].quiescent_at = self.events;
    }

    pub fn switch(&mut self, cpu: usize) {
        self.quiescent(cpu);
        self.vcpus[cpu].need_resched = false;
        self.rcu.context_switch(cpu, &mut self.effects);
        self.apply(cpu);
    }

    /// Does what RCU wants, as that CPU.
    fn apply(&mut self, cpu: usize) {
        let effects = std::mem::take(&mut self.effects);
        for &on in &effects.softirq {
            assert_eq!(on as usize, cpu, "only the CPU itself raises its softirq");
            self.vcpus[cpu].softirq = true;
        }
        effects.resched.iter().for_each(|&on| self.vcpus[on as usize].need_resched = true);
        effects.ipi.iter().for_each(|&on| self.vcpus[on as usize].is_interrupted = true);
        effects.ask.iter().for_each(|&on| self.vcpus[on as usize].is_asked = true);
        effects
            .report
            .iter()
            .for_each(|&on| self.rcu.report_asked(self.now_ns, on as usize, &mut self.effects));
        effects.invoke.iter().for_each(|&of| self.offloaded.push(of as usize));
        for &token in &effects.wake {
            self.check(&self.expedited[token as usize], cpu);
            self.expedited[token as usize].is_kept = true;
        }
        if effects.wake_kthread || std::mem::take(&mut self.effects.wake_kthread) {
            self.wake_kthread(None, Wakeup::Woken);
        }
    }

    /// What the CPU does by itself.
    fn act(&mut self, cpu: usize) {
        match self.vcpus[cpu].mode {
            Context::Idle => {
                if self.random.one_in(self.style.idling) {
                    self.wake(cpu);
                }
            }
            Context::User => {
                if self.random.one_in(self.style.crossings) {
                    self.quiescent(cpu);
                    self.vcpus[cpu].mode = Context::Kernel;
                }
            }
            Context::Kernel => self.act_in_kernel(cpu),
        }
    }

    fn act_in_kernel(&mut self, cpu: usize) {
        if self.random.one_in(self.style.calls) {
            (0..self.style.burst.max(1)).for_each(|_| self.call(cpu));
        }
        if self.random.one_in(self.style.asks) {
            self.ask(cpu);
        }
        if self.random.one_in(self.style.barriers) {
            self.entrain(cpu);
        }
        if self.random.one_in(self.style.readers) {
            self.vcpus[cpu].is_reading ^= true;
        }
        if self.vcpus[cpu].is_reading {
            return;
        }
        if self.random.one_in(self.style.expedited) {
            self.expedite(cpu);
        }
        if self.random.one_in(self.style.voluntary) {
            self.quiescent(cpu);
            self.rcu.voluntary(cpu, &mut self.effects);
            self.apply(cpu);
        }
        if self.random.one_in(self.style.switches) {
            self.switch(cpu);
        }
        if self.random.one_in(self.style.crossings) {
            self.vcpus[cpu].mode = Context::User;
        } else if self.random.one_in(self.style.idling) {
            self.sleep(cpu);
        }
    }

    /// The CPU goes idle.
    pub fn sleep(&mut self, cpu: usize) {
        self.switch(cpu);
        self.vcpus[cpu].mode = Context::Idle;
        self.rcu.idle_enter(cpu);
    }

    fn wake(&mut self, cpu: usize) {
        self.rcu.idle_exit(cpu);
        self.vcpus[cpu].mode = Context::Kernel;
        self.switch(cpu);
    }
}
