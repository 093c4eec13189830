//! Threads that compute, sleep and wake one another in a set order, as those that rt-app runs. Their latency is how late they run after
//! a sleep or a timer.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use reprieve_study::Span;
use reprieve_study::scenario::{TaskStep, TaskThreads, Tasks};

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::{Mode, TaskId};
use crate::guest::task::{Op, Program};
use crate::workload::{Pace, wakeup};

/// A step, ready to be done.
#[derive(Clone, Debug)]
enum Step {
    Run { ns: u64 },
    Sleep { ns: u64 },
    Timer { timer: usize, period_ns: u64, absolute: bool },
    Suspend,
    Resume(Range<usize>),
    Yield,
}

/// What the threads of a task do.
struct Plan {
    phases: Vec<(u32, Vec<Step>)>,
    loops: u32,
    delay_ns: u64,
    timers: usize,
    going_to_sleep_ns: u64,
}

/// A thread, as all see it.
#[derive(Clone, Copy, Default)]
struct ThreadState {
    /// None until all threads are made.
    task: Option<TaskId>,
    is_suspended: bool,
}

struct Thread {
    plan: Rc<Plan>,
    /// All threads of the workload.
    all: Rc<[Cell<ThreadState>]>,
    /// Which of them it is.
    number: usize,
    state: State,
    /// When it should run.
    due_ns: Option<u64>,
    /// For each timer, when its last period ended.
    timers: Vec<Option<u64>>,
}

/// Where it stands.
#[derive(Clone, Copy)]
enum State {
    New,
    Delayed,
    /// The step that comes next.
    At {
        began_ns: u64,
        pass: u32,
        phase: usize,
        turn: u32,
        step: usize,
    },
}

/// Adds all threads.
pub(super) fn add(guest: &mut Guest, pace: Pace, asked: &Tasks) {
    let first = |name: &str| -> usize {
        let before = asked.tasks.iter().take_while(|(other, _)| *other != name);
        before.map(|(_, task)| task.threads as usize).sum()
    };
    let threads = |name: &str| first(name)..first(name) + asked.tasks[name].threads as usize;
    let number: u32 = asked.tasks.values().map(|task| task.threads).sum();
    let all: Rc<[Cell<ThreadState>]> = (0..number).map(|_| Cell::default()).collect();
    for (name, task) in &asked.tasks {
        let plan = Rc::new(plan(pace, task, &threads));
        let vcpus: Vec<usize> = task.vcpus.iter().map(|vcpu| *vcpu as usize).collect();
        for number in threads(name) {
            let (state, timers) = (State::New, vec![None; plan.timers]);
            let thread = Thread { plan: plan.clone(), all: all.clone(), number, state, due_ns: None, timers };
            let task = guest.add_weighted(Box::new(thread), &vcpus, task.weight);
            all[number].set(ThreadState { task: Some(task), is_suspended: false });
        }
    }
}

fn plan(pace: Pace, task: &TaskThreads, threads: &impl Fn(&str) -> Range<usize>) -> Plan {
    let mut names: Vec<&str> = Vec::new();
    let mut step = |step| match step {
        &TaskStep::Run { us } => Step::Run { ns: pace.stated_us(us) },
        &TaskStep::Sleep { us } => Step::Sleep { ns: us * 1000 },
        TaskStep::Timer { name, period_us, absolute } => {
            let known = names.iter().position(|known| *known == name);
            let timer = known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            Step::Timer { timer, period_ns: period_us * 1000, absolute: *absolute }
        }
        TaskStep::Suspend {} => Step::Suspend,
        TaskStep::Resume { task } => Step::Resume(threads(task)),
        TaskStep::Yield {} => Step::Yield,
    };
    let phases = task.phases.iter().map(|phase| (phase.loops, phase.steps.iter().map(&mut step).collect()));
    let phases = phases.collect();
    let going_to_sleep_ns = pace.us(wakeup::SLEEP_US);
    Plan { phases, loops: task.loops, delay_ns: task.delay_us * 1000, timers: names.len(), going_to_sleep_ns }
}

impl Program for Thread {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        if let Some(due_ns) = self.due_ns.take() {
            env.counters.latencies.add(Span::new(due_ns, env.now_ns), 0);
        }
        if let (State::New, ns @ 1..) = (self.state, self.plan.delay_ns) {
            self.state = State::Delayed;
            return Op::Sleep { ns };
        }
        match self.step(env) {
            None => Op::Exit,
            Some(Step::Run { ns }) => Op::Run { ns, mode: Mode::User },
            Some(Step::Sleep { ns }) => self.sleep(env, env.now_ns + ns),
            Some(Step::Timer { timer, period_ns, absolute }) => {
                self.wait_for(env, timer, period_ns, absolute)
            }
            Some(Step::Suspend) => {
                env.spend(self.plan.going_to_sleep_ns);
                self.all[self.number].update(|this| ThreadState { is_suspended: true, ..this });
                Op::Wait
            }
            Some(Step::Resume(threads)) => self.resume(env, threads),
            Some(Step::Yield) => Op::Schedule,
        }
    }
}

impl Thread {
    /// The step that comes next, and goes on behind it; `None` after the last pass.
    fn step(&mut self, env: &mut Env<'_>) -> Option<Step> {
        let State::At { began_ns, pass, phase, turn, step } = self.state else {
            self.state = State::At { began_ns: env.now_ns, pass: 0, phase: 0, turn: 0, step: 0 };
            return self.step(env);
        };
        let plan = self.plan.clone();
        let Some((turns, steps)) = plan.phases.get(phase) else {
            env.counters.operations += 1;
            let pass = pass.saturating_add(1);
            self.state = State::At { began_ns, pass, phase: 0, turn: 0, step: 0 };
            return if pass == plan.loops { None } else { self.step(env) };
        };
        let (phase, turn, next) = match (step + 1 < steps.len(), turn + 1 < *turns) {
            (true, _) => (phase, turn, step + 1),
            (false, true) => (phase, turn + 1, 0),
            (false, false) => (phase + 1, 0, 0),
        };
        self.state = State::At { began_ns, pass, phase, turn, step: next };
        Some(steps[step].clone())
    }

    /// Sleeps until then, by a high-resolution timer, which is set before the time to go to sleep is spent.
    fn sleep(&mut self, env: &mut Env<'_>, due_ns: u64) -> Op {
        self.due_ns = Some(due_ns);
        env.spend(self.plan.going_to_sleep_ns);
        Op::Sleep { ns: due_ns - env.now_ns }
    }

    /// Sleeps until a period after the last use of a timer; if that is over, goes on at once.
    fn wait_for(&mut self, env: &mut Env<'_>, timer: usize, period_ns: u64, absolute: bool) -> Op {
        let State::At { began_ns, .. } = self.state else {
            unreachable!("a thread that has a step has begun")
        };
        let due_ns = self.timers[timer].unwrap_or(began_ns) + period_ns;
        let is_over = due_ns <= env.now_ns;
        self.timers[timer] = Some(if is_over && !absolute { env.now_ns } else { due_ns });
        match is_over {
            true => Op::Run { ns: self.plan.going_to_sleep_ns, mode: Mode::Kernel },
            false => self.sleep(env, due_ns),
        }
    }

    /// Wakes those of these threads that are suspended.
    fn resume(&mut self, env: &mut Env<'_>, threads: Range<usize>) -> Op {
        let mut ns = env.costs.wake_ns;
        for other in &self.all[threads] {
            let ThreadState { task, is_suspended } = other.get();
            if let (Some(task), true) = (task, is_suspended) {
                other.set(ThreadState { task: Some(task), is_suspended: false });
                // The wake-up itself is charged there.
                env.wake(task);
                ns = 1;
            }
        }
        Op::Run { ns, mode: Mode::Kernel }
    }
}
