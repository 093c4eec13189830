//! vMigrater: a beat thread pinned to each vCPU, and the placer of `policy` that all of them feed. The same code decides in a
//! live guest; here its signals are simulated beats and block events, and its moves are changes of affinity.
//!
//! It has the same information and the same rights as the daemon: settings and costs are those of [`Settings`] and [`Pace`],
//! working sets are not known, and steal has the grain of `/proc/stat` and is read when [`StealReads`] says so. Run delays are
//! not read, since hardly anything in the guest keeps a beat thread waiting.
//!
//! It costs CPU time: each beat (with its interrupt, wake-up and switches) and each move costs the beat threads, and the
//! tracepoint costs the task that submits or completes a request. In a live guest beat threads are of the real-time class;
//! here they have the greatest weight that the guest's scheduler knows, so they preempt any task that has had its share.

use std::cell::RefCell;
use std::rc::Rc;

use reprieve_policy::beat::{Beat, Pace, StealReads, grain_ns};
use reprieve_policy::cpus::CpuSet;
use reprieve_policy::place::{Move, Placer, Settings, Target};
use reprieve_policy::signal::{Admission, Signal};
use reprieve_study::scenario::io::IoSystems;

use crate::guest::Guest;
use crate::guest::block::BlockEvent;
use crate::guest::env::Env;
use crate::guest::ids::TaskId;
use crate::guest::task::{Op, Program};

/// Weight of nice -20, the greatest of Linux's (`sched_prio_to_weight`).
const WEIGHT: u32 = 88_761;
/// Time between two looks at the CPU time spent.
const READING_NS: u64 = 250_000_000;

/// What the beat threads share.
struct Daemon {
    placer: Placer,
    pace: Pace,
    /// When the pace was last chosen, and the CPU time spent by then.
    looked_ns: u64,
    looked_spent_ns: u64,
    spent_ns: u64,
    tasks: Vec<TaskId>,
    /// The mask that the tasks' users have set: all vCPUs, a bit for each.
    home: u64,
    events: Vec<BlockEvent>,
    moves: Vec<Move>,
    steal_grain_ns: u64,
    steal_reads: StealReads,
}

impl Daemon {
    fn take(&mut self, signal: &Signal) {
        self.moves.extend_from_slice(self.placer.take(signal));
    }

    /// Takes in the block layer's events since the last beat.
    fn hear(&mut self, env: &mut Env<'_>) {
        let mut events = std::mem::take(&mut self.events);
        env.take_block_events(&mut events);
        for event in events.drain(..) {
            let Some(task) = self.tasks.iter().position(|task| *task == event.task) else { continue };
            let at_ns = event.at_ns;
            if event.begins {
                self.take(&Signal::Seen { task, on: event.vcpu, at_ns });
                self.take(&Signal::IoBegin { task, at_ns });
            } else {
                self.take(&Signal::IoEnd { task, at_ns, took_ns: event.took_ns });
            }
        }
        self.events = events;
    }

    /// The beat with its vCPU's steal as the guest can read it, if a reading is due.
    fn with_steal(&mut self, beat: Beat, env: &Env<'_>) -> Beat {
        let grain_ns = self.steal_grain_ns;
        self.steal_reads.fill(beat, env.now_ns, || Some(env.steal_ns / grain_ns * grain_ns))
    }

    fn act(&mut self, env: &mut Env<'_>) {
        let move_ns = self.placer.settings().move_cost_ns;
        for Move { task, to, .. } in self.moves.drain(..) {
            let mask = match to {
                Target::Vcpu(vcpu) => 1 << vcpu,
                Target::Home => self.home,
            };
            env.spend(move_ns);
            self.spent_ns += move_ns;
            env.set_mask(self.tasks[task], mask);
        }
    }

    /// The period of beats from now on.
    fn period_ns(&mut self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns - self.looked_ns;
        if elapsed_ns >= READING_NS {
            let spent_permille = (self.spent_ns - self.looked_spent_ns) * 1_000 / elapsed_ns;
            let busy = self.placer.is_wrong() && self.placer.io_tasks() > 0;
            self.pace.next(busy, spent_permille);
            (self.looked_ns, self.looked_spent_ns) = (now_ns, self.spent_ns);
        }
        self.pace.period_ns()
    }
}

/// A beat thread.
struct BeatThread {
    daemon: Rc<RefCell<Daemon>>,
    beat_ns: u64,
    /// CPU time of a beat outside of the thread: interrupt, wake-up, and switches to it and back.
    around_ns: u64,
    /// When the next beat is due, and the period in force when that was set; none before the first.
    due: Option<(u64, u64)>,
}

/// Adds the beat threads.
pub(super) fn add(guest: &mut Guest, vcpus: usize, threads: usize, systems: &IoSystems) {
    let mut placer = Placer::new(Settings::new(vcpus, threads));
    for task in 0..threads {
        let admission = Admission::new(CpuSet::first(vcpus), None);
        placer.take(&Signal::Admit { task, admission, at_ns: 0 });
    }
    let (fastest_ns, slowest_ns) = (systems.beat_us * 1_000, systems.calm_beat_us * 1_000);
    let daemon = Rc::new(RefCell::new(Daemon {
        placer,
        pace: Pace::new(vcpus, fastest_ns, slowest_ns),
        looked_ns: 0,
        looked_spent_ns: 0,
        spent_ns: 0,
        tasks: guest.io().map(|io| io.tasks.clone()).unwrap_or_default(),
        home: u64::MAX >> (64 - vcpus),
        events: Vec::new(),
        moves: Vec::new(),
        steal_grain_ns: systems.steal_grain_us * 1_000,
        steal_reads: StealReads::new(vcpus),
    }));
    for v in 0..vcpus {
        let thread = BeatThread {
            daemon: daemon.clone(),
            beat_ns: systems.beat_ns,
            around_ns: guest.around_a_beat_ns(),
            due: None,
        };
        let task = guest.add_weighted(Box::new(thread), &[v], WEIGHT);
        if let Some(io) = guest.io_mut() {
            io.beats.push(task);
        }
    }
}

impl Program for BeatThread {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        let now_ns = env.now_ns;
        let mut daemon = self.daemon.borrow_mut();
        if let Some((due_ns, period_ns)) = self.due {
            env.spend(self.beat_ns);
            env.count_beat();
            daemon.spent_ns += self.beat_ns + self.around_ns;
            daemon.hear(env);
            let beat =
                Beat { vcpu: env.vcpu, due_ns, at_ns: now_ns, period_ns, steal_ns: None, run_delay_ns: None };
            if beat.lateness_ns() > grain_ns(period_ns) {
                daemon.pace.hurry();
            }
            let beat = daemon.with_steal(beat, env);
            daemon.take(&Signal::Beat(beat));
            daemon.act(env);
        }
        let period_ns = daemon.period_ns(now_ns);
        let next_ns = daemon.placer.next_beat_ns(env.vcpu).unwrap_or(0);
        // Threads of a live guest do not start in step, so each one's beats have a phase of their own.
        let sleep_ns = match self.due {
            None => env.random.within(1, period_ns),
            Some(_) => next_ns.saturating_sub(now_ns).max(period_ns),
        };
        self.due = Some((now_ns + sleep_ns, period_ns));
        Op::Sleep { ns: sleep_ns }
    }
}
