//! A small deterministic world for tests: vCPUs that go off and come back, and tasks that read. Unlike the simulator it
//! models only what distinguishes the policies, in steps of 50 us.
//!
//! A task computes briefly, issues an I/O, and sleeps until it completes. The completion interrupts the vCPU that
//! issued the I/O, and waits while that vCPU is off. A sleeping task that was moved wakes up in its new place; a task
//! that was running when its vCPU went off cannot move before the vCPU is back. Beats are late by some noise, and
//! sometimes by more. Steal is booked in ticks, as in a KVM guest's `/proc/stat`, or not at all, as under emulation.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use reprieve_policy::beat::{Beat, StealReads};
use reprieve_policy::cpus::CpuSet;
use reprieve_policy::place::{Move, Placer, Target};
use reprieve_policy::signal::{Admission, Signal};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const STEP_NS: u64 = 50 * US;
/// How long the device takes for an I/O.
const IO_NS: u64 = 500 * US;
/// How long a task computes between two I/Os.
const COMPUTE_NS: u64 = 50 * US;
/// Time between two samples if there are no I/O events.
const SAMPLE_NS: u64 = 20 * MS;

/// Knuth's MMIX generator: the same numbers every time.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number from `low` to below `high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }
}

/// When each vCPU is off: stretches (from, to), ascending.
pub type Schedule = Vec<Vec<(u64, u64)>>;

/// vCPUs that are on and off in turn for these times, ns. Their cycles are evenly staggered, and each beginning is
/// shifted by up to `jitter_ns` either way.
pub fn in_turns(times_ns: &[(u64, u64)], end_ns: u64, jitter_ns: u64, seed: u64) -> Schedule {
    let mut random = Random(seed);
    let mut one = |vcpu: usize| {
        let (on_ns, off_ns) = times_ns[vcpu];
        let cycle_ns = on_ns + off_ns;
        let phase_ns = cycle_ns * vcpu as u64 / times_ns.len() as u64;
        let begins = (1..end_ns / cycle_ns).map(|i| i * cycle_ns + phase_ns);
        let mut jittered = |begin: u64| begin + random.within(0, 2 * jitter_ns + 1) - jitter_ns;
        begins.map(&mut jittered).map(|begin| (begin, begin + off_ns)).collect()
    };
    (0..times_ns.len()).map(&mut one).collect()
}

/// The stimulus used on real guests: each of two vCPUs is off for 25 of every 60 ms, in antiphase. Each beginning is
/// shifted by up to `jitter_ns` either way.
pub fn antiphase(end_ns: u64, jitter_ns: u64) -> Schedule {
    in_turns(&[(35 * MS, 25 * MS); 2], end_ns, jitter_ns, 7)
}

/// vCPUs that share pCPUs four to one, with slices of 11 ms.
pub fn round_robin(vcpus: u64, end_ns: u64) -> Schedule {
    let slice_ns = 11 * MS;
    let on =
        |vcpu: u64| (0..end_ns / (4 * slice_ns)).map(move |i| (i * 4 + vcpu % 4) * slice_ns + vcpu / 4 * MS);
    (0..vcpus)
        .map(|vcpu| {
            let begins: Vec<u64> = on(vcpu).collect();
            begins.windows(2).map(|pair| (pair[0] + slice_ns, pair[1])).collect()
        })
        .collect()
}

enum Doing {
    Computing { left_ns: u64 },
    Waiting { issued_on: usize, began_ns: u64, until_ns: u64 },
}

struct Task {
    on: usize,
    /// Where it moves once the vCPU it was running on is back.
    then_on: Option<usize>,
    doing: Doing,
    /// Time it waited for I/O up to its last wake-up, as delay accounting reports it.
    waited_ns: u64,
}

/// The result of a run.
#[derive(Default)]
pub struct Outcome {
    pub ios: u64,
    pub beats: u64,
    pub moves: Vec<(u64, Move)>,
    pub signals: Vec<Signal>,
}

/// A world: the schedule and everything else a run depends on.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub schedule: &'a Schedule,
    pub tasks: usize,
    /// The unit in which steal is booked, ns; `None` if it is not booked at all.
    pub steal_grain_ns: Option<u64>,
    /// Whether I/Os come as events; otherwise as samples every 20 ms.
    pub events: bool,
    pub period_ns: u64,
    /// Cost of a beat, ns.
    pub beat_cost_ns: u64,
}

impl<'a> World<'a> {
    pub fn new(schedule: &'a Schedule, tasks: usize) -> World<'a> {
        World { schedule, tasks, steal_grain_ns: Some(10 * MS), events: true, period_ns: MS, beat_cost_ns: 0 }
    }

    pub fn run(&self, placer: &mut Placer, end_ns: u64) -> Outcome {
        let vcpus = self.schedule.len();
        let mut state = State {
            world: *self,
            placer,
            tasks: (0..self.tasks)
                .map(|i| Task {
                    on: i % vcpus,
                    then_on: None,
                    doing: Doing::Computing { left_ns: COMPUTE_NS },
                    waited_ns: 0,
                })
                .collect(),
            outcome: Outcome::default(),
            running: vec![None; vcpus],
            off: vec![false; vcpus],
            busy_ns: vec![0; vcpus],
            steal_reads: StealReads::new(vcpus),
            now_ns: 0,
            completed: (0, 0),
        };
        state.run(end_ns);
        state.outcome
    }
}

/// Runs `tasks` tasks on this schedule until `end_ns` as `placer` decides, with I/O events and steal in ticks.
pub fn run(placer: &mut Placer, schedule: &Schedule, tasks: usize, end_ns: u64) -> Outcome {
    World::new(schedule, tasks).run(placer, end_ns)
}

struct State<'a, 'p> {
    world: World<'a>,
    placer: &'p mut Placer,
    tasks: Vec<Task>,
    outcome: Outcome,
    /// The task that each vCPU was running in the last step.
    running: Vec<Option<usize>>,
    off: Vec<bool>,
    /// For each vCPU, until when a beat keeps it busy.
    busy_ns: Vec<u64>,
    steal_reads: StealReads,
    now_ns: u64,
    /// Number of I/Os since the last sample, and their total time, ns.
    completed: (u64, u64),
}

/// The beats of one vCPU.
struct Beats {
    random: Random,
    due_ns: u64,
    noise_ns: u64,
    stolen_ns: u64,
    position: usize,
}

impl State<'_, '_> {
    fn run(&mut self, end_ns: u64) {
        let vcpus = self.world.schedule.len();
        let mut beats: Vec<Beats> = (0..vcpus as u64)
            .map(|vcpu| {
                let random = Random(vcpu + 1);
                let due_ns = self.world.period_ns;
                Beats { random, due_ns, noise_ns: 0, stolen_ns: 0, position: 0 }
            })
            .collect();
        for task in 0..self.world.tasks {
            let admission = Admission::new(CpuSet::first(vcpus), Some(task % vcpus));
            self.tell(Signal::Admit { task, admission, at_ns: 0 });
        }
        for now_ns in (0..end_ns).step_by(STEP_NS as usize) {
            self.now_ns = now_ns;
            for (vcpu, beats) in beats.iter_mut().enumerate() {
                self.switch(vcpu, beats);
                if !self.off[vcpu] {
                    self.beat(vcpu, beats);
                    self.interrupts(vcpu);
                    if self.busy_ns[vcpu] <= now_ns {
                        self.compute(vcpu);
                    }
                }
            }
            if !self.world.events && now_ns.is_multiple_of(SAMPLE_NS) {
                self.sample();
            }
        }
    }

    /// Returns whether the vCPU is off now, and updates what depends on it.
    fn switch(&mut self, vcpu: usize, beats: &mut Beats) {
        let schedule = &self.world.schedule[vcpu];
        let before = beats.position;
        while schedule.get(beats.position).is_some_and(|(_, to)| *to <= self.now_ns) {
            beats.stolen_ns += schedule[beats.position].1 - schedule[beats.position].0;
            beats.position += 1;
        }
        let next = schedule.get(beats.position).copied();
        if let Some((off_ns, back_ns)) = next.filter(|_| before != beats.position || self.now_ns == 0) {
            self.tell(Signal::NextOff { vcpu, off_ns, back_ns });
        }
        let was_off =
            std::mem::replace(&mut self.off[vcpu], next.is_some_and(|(from, _)| from <= self.now_ns));
        if was_off && !self.off[vcpu] {
            let there = self.tasks.iter_mut().filter(|task| task.on == vcpu);
            there.for_each(|task| task.on = task.then_on.take().unwrap_or(vcpu));
        }
    }

    fn beat(&mut self, vcpu: usize, beats: &mut Beats) {
        if beats.due_ns + beats.noise_ns > self.now_ns {
            return;
        }
        let (due_ns, period_ns) = (beats.due_ns, self.world.period_ns);
        let at_ns = self.now_ns + beats.random.within(0, STEP_NS);
        let beat = Beat { vcpu, due_ns, at_ns, period_ns, steal_ns: None, run_delay_ns: None };
        let stolen_ns = |grain_ns| beats.stolen_ns / grain_ns * grain_ns;
        let read = || self.world.steal_grain_ns.map(stolen_ns);
        let beat = self.steal_reads.fill(beat, at_ns, read);
        self.tell(Signal::Beat(beat));
        beats.due_ns = self.placer.next_beat_ns(vcpu).unwrap_or(at_ns + period_ns);
        self.outcome.beats += 1;
        self.busy_ns[vcpu] = self.now_ns + self.world.beat_cost_ns;
        // As on real guests, one beat in a hundred is late by half a millisecond, and one in a thousand by two.
        beats.noise_ns = match beats.random.within(0, 1_000) {
            0 => 2 * MS,
            1..=9 => 500 * US,
            _ => beats.random.within(0, 200 * US),
        };
    }

    /// Handles the completions that interrupt this vCPU.
    fn interrupts(&mut self, vcpu: usize) {
        let now_ns = self.now_ns;
        for task in 0..self.tasks.len() {
            let Doing::Waiting { issued_on, began_ns, until_ns } = self.tasks[task].doing else { continue };
            if issued_on != vcpu || until_ns > now_ns {
                continue;
            }
            self.outcome.ios += 1;
            self.tasks[task].doing = Doing::Computing { left_ns: COMPUTE_NS };
            let took_ns = now_ns - began_ns;
            self.tasks[task].waited_ns += took_ns;
            self.completed = (self.completed.0 + 1, self.completed.1 + took_ns);
            if self.world.events {
                self.tell(Signal::IoEnd { task, at_ns: now_ns, took_ns: Some(took_ns) });
            }
        }
    }

    /// Lets one task at a time compute.
    fn compute(&mut self, vcpu: usize) {
        let computes = |task: &Task| task.on == vcpu && matches!(task.doing, Doing::Computing { .. });
        self.running[vcpu] = self.tasks.iter().position(computes);
        let Some(task) = self.running[vcpu] else { return };
        let Doing::Computing { left_ns } = self.tasks[task].doing else { return };
        if left_ns > STEP_NS {
            self.tasks[task].doing = Doing::Computing { left_ns: left_ns - STEP_NS };
            return;
        }
        let (began_ns, until_ns) = (self.now_ns, self.now_ns + IO_NS);
        self.tasks[task].doing = Doing::Waiting { issued_on: vcpu, began_ns, until_ns };
        self.running[vcpu] = None;
        if self.world.events {
            self.tell(Signal::IoBegin { task, at_ns: began_ns });
        }
    }

    /// Samples delay accounting, in ticks, and the device's mean.
    fn sample(&mut self) {
        let at_ns = self.now_ns;
        for task in 0..self.tasks.len() {
            let outstanding_ns = self.tasks[task].waited_ns / (10 * MS) * (10 * MS);
            self.tell(Signal::IoSampled { task, at_ns, outstanding_ns });
            let on = self.tasks[task].on;
            self.tell(Signal::Seen { task, on, at_ns });
        }
        let (count, took_ns) = std::mem::take(&mut self.completed);
        let mean_ns = took_ns.checked_div(count);
        mean_ns.into_iter().for_each(|took_ns| self.tell(Signal::Completion { at_ns, took_ns }));
    }

    fn tell(&mut self, signal: Signal) {
        self.outcome.signals.push(signal);
        for made in self.placer.take(&signal) {
            self.outcome.moves.push((signal.at_ns(), *made));
            let Target::Vcpu(vcpu) = made.to else { continue };
            let task = &mut self.tasks[made.task];
            match self.off[task.on] && self.running[task.on] == Some(made.task) {
                true => task.then_on = Some(vcpu),
                false => task.on = vcpu,
            }
        }
    }
}
