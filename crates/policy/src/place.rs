//! Decides which I/O task goes to which vCPU, and when.
//!
//! A vCPU that is off neither issues nor completes I/O. So a task leaves its vCPU before the end of the slice, early
//! enough for its I/O in flight to drain (`lead`). And a vCPU that comes back pulls tasks from vCPUs on which little or
//! no time remains, which needs little prediction. The recipient is chosen by what remains of its slice and by the I/O
//! it already has; the task with the heaviest I/O chooses first (`choose`).
//!
//! How early a task leaves depends on the expected loss either way. A task that is *caught* on a vCPU going off loses
//! the time off; a task that leaves pays for a move if another vCPU is on, and waits if none is. The odds come from the
//! share of past slices that ended at this length. So a task leaves a regular vCPU at the last moment, an irregular one
//! as soon as another is safer, and if none is on, it waits on one that is off (*parks*) once being caught becomes
//! likely.
//!
//! Invariants, each with a property test:
//! - a task is placed only on vCPUs of its user's mask;
//! - [`Policy::Combined`] never gathers all I/O tasks on one vCPU while another with time left could take one of them;
//! - moves are limited, and a task does not return to a vCPU in the slice in which it left it until the end it fled
//!   from has failed to come;
//! - nothing is allocated after construction.
//!
//! Cost of a signal: proportional to the number of tasks, plus the number of vCPUs for each task that may move.
//!
//! Source: the migrater of Jia et al., USENIX ATC 2018. Leaving ahead, pulling at the first beat, and the finding that
//! reacting to a late beat is worse than doing nothing come from this project's measurements on real guests.

mod choose;
mod decide;
mod lead;
mod left;
mod limit;
mod settings;
mod task;

pub use lead::Lead;
pub use settings::{Move, Policy, Settings, Target, Why};

use crate::beat::{Beat, LEAP_NS, News, Vcpu, Verdict};
use crate::cpus::{CpuSet, MAX_CPUS};
use crate::signal::{Admission, Signal};
use choose::Load;
use left::Left;
use task::Task;

/// Beats are skipped while slices end in fewer than this many of 100 cases.
const RISK_PERCENT: u64 = 5;

/// Places I/O tasks on vCPUs. All its storage is allocated by [`Placer::new`].
#[derive(Debug)]
pub struct Placer {
    settings: Settings,
    vcpus: Vec<Vcpu>,
    /// For the oracle policies: when each vCPU goes off next, and when it comes back.
    next_off: Vec<Option<(u64, u64)>>,
    tasks: Vec<Option<Task>>,
    left: Left,
    /// The I/O of each vCPU and the number of I/O tasks, as last summed up.
    loads: Vec<Load>,
    io_tasks: usize,
    /// vCPUs that are off too little to matter: the ends of their slices are ignored.
    calm: Vec<bool>,
    /// All tasks have lower numbers than this; unused slots above are not visited.
    top: usize,
    lead: Lead,
    moves: Vec<Move>,
    /// Tasks to decide on, the heaviest I/O first.
    queue: Vec<usize>,
    /// Number of signals taken in; shows whether a task has already moved at this one.
    taken: u64,
    now_ns: u64,
    looked_ns: Option<u64>,
    /// Signals from before this time are too old to act on, ns.
    catch_up_ns: u64,
    /// Some vCPU is off for a share that matters.
    acting: bool,
    halted: bool,
}

impl Placer {
    /// A placer that knows nothing yet.
    pub fn new(settings: Settings) -> Placer {
        let vcpus = settings.vcpus.min(MAX_CPUS);
        Placer {
            settings: Settings { vcpus, ..settings },
            vcpus: vec![Vcpu::default(); vcpus],
            next_off: vec![None; vcpus],
            tasks: vec![None; settings.tasks],
            left: Left::new(settings.tasks, vcpus),
            loads: vec![Load::default(); vcpus],
            io_tasks: 0,
            calm: vec![true; vcpus],
            top: 0,
            lead: Lead::default(),
            moves: Vec::with_capacity(settings.tasks),
            queue: Vec::with_capacity(settings.tasks),
            taken: 0,
            now_ns: 0,
            looked_ns: None,
            catch_up_ns: 0,
            acting: false,
            halted: false,
        }
    }

    /// Takes in a signal and decides. Carry out the moves now, in this order; there is at most one per task. Hand in
    /// signals in the order of their times. vCPU and task numbers beyond the settings are ignored.
    pub fn take(&mut self, signal: &Signal) -> &[Move] {
        self.moves.clear();
        self.taken += 1;
        match *signal {
            Signal::NextOff { .. } | Signal::CatchUp { .. } => {}
            _ => self.follow(signal.at_ns()),
        }
        match *signal {
            Signal::Beat(beat) => self.beat(&beat),
            Signal::Tick { .. } => self.look(),
            Signal::Admit { task, admission, .. } => self.admit(task, &admission),
            Signal::Dismiss { task, .. } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    *task = None;
                }
            }
            Signal::Halt { .. } => self.halt(),
            Signal::Resume { .. } => self.halted = false,
            Signal::CatchUp { until_ns } => self.catch_up_ns = until_ns,
            Signal::Completion { took_ns, .. } => self.lead.learn_mean(took_ns),
            Signal::NextOff { vcpu, off_ns, back_ns } => {
                if let Some(next) = self.next_off.get_mut(vcpu) {
                    *next = Some((off_ns, back_ns));
                }
            }
            _ => self.about_task(signal),
        }
        &self.moves
    }

    /// Lets time pass. A signal slightly out of order does not change the time. One that is far older shows that the
    /// clock was wrong, since no signal waits that long.
    fn follow(&mut self, at_ns: u64) {
        if at_ns.saturating_add(LEAP_NS) < self.now_ns {
            self.set_back(at_ns);
        }
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// The clock was ahead. Everything that stores a time starts anew, or it would wait for that time.
    fn set_back(&mut self, at_ns: u64) {
        (self.now_ns, self.looked_ns, self.catch_up_ns) = (at_ns, None, 0);
        self.tasks[..self.top].iter_mut().flatten().for_each(|task| task.rebase(at_ns));
        self.left.forget_all();
    }

    fn admit(&mut self, task: usize, admission: &Admission) {
        let now_ns = self.now_ns;
        if let Some(slot) = self.tasks.get_mut(task) {
            *slot = Some(Task::new(&self.settings, admission, now_ns));
            self.left.forget(task);
            self.top = self.top.max(task + 1);
        }
    }

    /// Takes in a signal about a single task.
    fn about_task(&mut self, signal: &Signal) {
        let (Signal::Mask { task, .. }
        | Signal::Seen { task, .. }
        | Signal::IoBegin { task, .. }
        | Signal::IoEnd { task, .. }
        | Signal::IoSampled { task, .. }) = *signal
        else {
            return;
        };
        let Some(Some(known)) = self.tasks.get_mut(task) else { return };
        match *signal {
            Signal::Mask { mask, .. } => {
                known.remask(mask);
                self.left.forget(task);
            }
            Signal::Seen { on, .. } if !known.placed => known.on = Some(on),
            Signal::IoBegin { at_ns, .. } => {
                known.has_events = true;
                known.io.begin(at_ns);
                known.issued = known.on.and_then(|on| Some((on, self.vcpus.get(on)?.slice())));
            }
            Signal::IoEnd { at_ns, took_ns, .. } => {
                known.io.end(at_ns);
                let issued = known.issued;
                took_ns.into_iter().for_each(|took_ns| self.learn_completion(issued, at_ns, took_ns));
            }
            Signal::IoSampled { at_ns, outstanding_ns, .. } => known.io.sampled(at_ns, outstanding_ns),
            _ => {}
        }
    }

    /// Learns how long an I/O took, unless the vCPU it was issued on was off meanwhile: then it took longer than the
    /// device needed.
    fn learn_completion(&mut self, issued: Option<(usize, u64)>, at_ns: u64, took_ns: u64) {
        let same_slice = |(on, slice): (usize, u64)| {
            self.vcpus.get(on).is_some_and(|vcpu| vcpu.is_on(at_ns) && vcpu.slice() == slice)
        };
        if issued.is_none_or(same_slice) {
            self.lead.learn(took_ns);
        }
    }

    fn beat(&mut self, beat: &Beat) {
        let Some(vcpu) = self.vcpus.get_mut(beat.vcpu) else { return };
        let news = vcpu.beat(beat);
        if news == News::ClockFault && beat.at_ns < self.now_ns {
            self.set_back(beat.at_ns);
        }
        self.look();
        // If the guest delayed the beat, the vCPU was on all the time and has no fresh slice.
        if let News::Back(gap) = news
            && gap.verdict != Verdict::Guest
        {
            self.back(beat.vcpu);
        }
        self.skip_idle_beats(beat.vcpu);
    }

    /// Skips beats that would show nothing: those before the vCPU is likely to go off, less the lead.
    fn skip_idle_beats(&mut self, vcpu: usize) {
        if !self.acting || self.calm[vcpu] {
            return;
        }
        let safe_ns = match self.settings.policy.is_oracle() {
            true => self.remaining_ns(vcpu),
            false => self.vcpus[vcpu].remaining_at(RISK_PERCENT, self.now_ns),
        };
        let quiet_ns = safe_ns.unwrap_or(0).saturating_sub(self.lead_ns(vcpu));
        self.vcpus[vcpu].skip_beats(self.now_ns, quiet_ns);
    }

    /// When this vCPU's next beat is due, ns: one period after the last one taken in, or later if beats are skipped.
    /// `None` for a number beyond the settings.
    pub fn next_beat_ns(&self, vcpu: usize) -> Option<u64> {
        self.vcpus.get(vcpu).map(Vcpu::next_ns)
    }

    /// How long before the end of its slice tasks leave this vCPU, ns.
    pub fn lead_ns(&self, vcpu: usize) -> u64 {
        self.vcpus.get(vcpu).map_or(0, |vcpu| {
            let (slices, late_ns) = (vcpu.slices(), vcpu.lateness().ordinary_ns());
            self.lead.lead_ns(vcpu.period_ns(), late_ns, slices.on_median_ns())
        })
    }

    /// The state of a vCPU; `None` for a number beyond the settings.
    pub fn vcpu(&self, vcpu: usize) -> Option<&Vcpu> {
        self.vcpus.get(vcpu)
    }

    /// How predictable this vCPU's slices are: the share of past slices close to the median, in thousandths. Only for
    /// display; no decision uses it.
    pub fn regular_permille(&self, vcpu: usize) -> u32 {
        self.vcpus.get(vcpu).map_or(0, |vcpu| vcpu.slices().alike_permille())
    }

    /// Whether I/O tasks are on this vCPU while vCPUs are being descheduled.
    pub fn is_endangered(&self, vcpu: usize) -> bool {
        self.is_acting() && self.loads.get(vcpu).is_some_and(|load| load.tasks > 0)
    }

    /// Whether something is wrong: some vCPU is off for a share of time that matters.
    pub fn is_wrong(&self) -> bool {
        self.acting
    }

    /// Whether tasks are being moved: something is wrong, and the placer is not halted.
    pub fn is_acting(&self) -> bool {
        self.acting && !self.halted
    }

    /// Whether the task is currently an I/O task.
    pub fn is_io(&self, task: usize) -> bool {
        self.task(task).is_some_and(|task| task.io.is_io())
    }

    /// The vCPU that the placer put the task on; `None` if the task has its user's mask.
    pub fn placed_on(&self, task: usize) -> Option<usize> {
        self.task(task).filter(|task| task.placed).and_then(|task| task.on)
    }

    /// The mask that the task's user gave it.
    pub fn mask(&self, task: usize) -> Option<CpuSet> {
        self.task(task).map(|task| task.mask)
    }

    /// Current number of I/O tasks.
    pub fn io_tasks(&self) -> usize {
        self.tasks[..self.top].iter().flatten().filter(|task| task.io.is_io()).count()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn task(&self, task: usize) -> Option<&Task> {
        self.tasks.get(task)?.as_ref()
    }
}

#[cfg(test)]
mod tests;
