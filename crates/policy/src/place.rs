//! Which I/O task goes to which vCPU, and when.
//!
//! A vCPU that is off issues no I/O, and completes none. So a task leaves its vCPU ahead of the end of its slice, early
//! enough for the I/O in flight to drain (`lead`); and a vCPU that comes back pulls tasks from where little or nothing
//! remains, which needs little prediction. Recipients are chosen by what remains of their slice and the I/O they have
//! already; the heaviest I/O chooses first (`choose`).
//!
//! How early a task leaves follows from what is lost either way, and not from how far ends are trusted: to be caught on a
//! vCPU as it goes off costs its time off; to leave costs a move if another vCPU is on, and the wait if none is. Each is
//! weighed with the share of the known slices that end just then. So a task leaves a regular vCPU at the last moment, an
//! irregular one as soon as another is safer, and waits on one that is off (*parks*) when being caught gets likely.
//!
//! Invariants, each with a property test: a task is only ever put on a vCPU of its user's mask; never do all I/O tasks end up
//! on one vCPU by [`Policy::Combined`] while another that a moved one might use has time; moves are limited, and a task does not
//! return to a vCPU within the slice in which it left it while that may yet end as was feared; after construction nothing is
//! allocated. A signal costs at most time that goes with the tasks, and for each task that may move with the vCPUs.
//!
//! Source: the migrater of Jia et al., USENIX ATC 2018; leaving ahead, pull by the first beat, and that reacting to a late
//! beat is worse than nothing: the project's measurements on real guests.

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

/// Beats are left out as long as slices end in fewer than so many cases of 100.
const RISK_PERCENT: u64 = 5;

/// Places I/O tasks on vCPUs. All its storage is allocated by [`Placer::new`].
#[derive(Debug)]
pub struct Placer {
    settings: Settings,
    vcpus: Vec<Vcpu>,
    /// For the oracle: when each vCPU goes off next, and is back.
    next_off: Vec<Option<(u64, u64)>>,
    tasks: Vec<Option<Task>>,
    left: Left,
    /// What I/O each vCPU has, and how many I/O tasks there are in all, as last summed up.
    loads: Vec<Load>,
    io_tasks: usize,
    /// vCPUs that are off for less than what counts: their ends are of no account.
    calm: Vec<bool>,
    /// No task has this number or a higher one: what is not used is not looked at.
    top: usize,
    lead: Lead,
    moves: Vec<Move>,
    /// Tasks to be decided on, the heaviest first.
    queue: Vec<usize>,
    /// Signals taken in, by which a task's moves are told apart.
    taken: u64,
    now_ns: u64,
    looked_ns: Option<u64>,
    /// Signals of before this time are old.
    catch_up_ns: u64,
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

    /// Takes in a signal and decides. The moves are to be carried out now, in this order; there is at most one for each
    /// task. Numbers of vCPUs and tasks beyond the settings are ignored. Signals are to come in the order of their times.
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
                if let Some(told) = self.next_off.get_mut(vcpu) {
                    *told = Some((off_ns, back_ns));
                }
            }
            _ => self.about_task(signal),
        }
        &self.moves
    }

    /// Lets time pass. A time that is a little old stands for now; one that is older by far shows that now was wrong, for no
    /// signal waits so long.
    fn follow(&mut self, at_ns: u64) {
        if at_ns.saturating_add(LEAP_NS) < self.now_ns {
            self.set_back(at_ns);
        }
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// The clock was ahead: everything that has a time begins anew, or it would wait for that time.
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

    /// What one task does, or what is done to it by others.
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
                let on = known.on.and_then(|on| Some((on, self.vcpus.get(on)?.stretch())));
                known.issued = on;
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

    /// An I/O that was in flight while the vCPU that it was issued on was off tells nothing of the device.
    fn learn_completion(&mut self, issued: Option<(usize, u64)>, at_ns: u64, took_ns: u64) {
        let same_slice = |(on, stretch): (usize, u64)| {
            self.vcpus.get(on).is_some_and(|vcpu| vcpu.is_on(at_ns) && vcpu.stretch() == stretch)
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
        // The guest's own delay says nothing of the host; the vCPU was on all the time.
        if let News::Back(gap) = news
            && gap.verdict != Verdict::Guest
        {
            self.back(beat.vcpu);
        }
        self.let_rest(beat.vcpu);
    }

    /// Leaves out beats that would tell nothing: while the vCPU hardly goes off, nor is about to within the lead.
    fn let_rest(&mut self, vcpu: usize) {
        if !self.acting || self.calm[vcpu] {
            return;
        }
        let safe_ns = match self.settings.policy.is_oracle() {
            true => self.remaining_ns(vcpu),
            false => self.vcpus[vcpu].remaining_at(RISK_PERCENT, self.now_ns),
        };
        let quiet_ns = safe_ns.unwrap_or(0).saturating_sub(self.lead_ns(vcpu));
        self.vcpus[vcpu].rest(self.now_ns, quiet_ns);
    }

    /// When the next beat of this vCPU is due after the last that was taken in, ns; `None` for a number beyond the settings.
    /// A period later, or more where beats would tell nothing.
    pub fn next_beat_ns(&self, vcpu: usize) -> Option<u64> {
        self.vcpus.get(vcpu).map(Vcpu::next_ns)
    }

    /// How long ahead of its end tasks leave this vCPU, ns.
    pub fn lead_ns(&self, vcpu: usize) -> u64 {
        self.vcpus.get(vcpu).map_or(0, |vcpu| {
            let (slices, late_ns) = (vcpu.slices(), vcpu.lateness().ordinary_ns());
            self.lead.lead_ns(vcpu.period_ns(), late_ns, slices.on_median_ns())
        })
    }

    /// What the beats of a vCPU told; `None` for a number beyond the settings.
    pub fn vcpu(&self, vcpu: usize) -> Option<&Vcpu> {
        self.vcpus.get(vcpu)
    }

    /// How far this vCPU's slices can be predicted: which share of the last ones was alike, in thousandths. To be shown;
    /// nothing is decided by it.
    pub fn trust_permille(&self, vcpu: usize) -> u32 {
        self.vcpus.get(vcpu).map_or(0, |vcpu| vcpu.slices().alike_permille())
    }

    /// Whether I/O tasks are on this vCPU, and it goes off.
    pub fn is_endangered(&self, vcpu: usize) -> bool {
        self.is_acting() && self.loads.get(vcpu).is_some_and(|load| load.tasks > 0)
    }

    /// Whether some vCPU is off for a share that counts.
    pub fn is_wrong(&self) -> bool {
        self.acting
    }

    /// Whether something is wrong, and tasks are moved for it.
    pub fn is_acting(&self) -> bool {
        self.acting && !self.halted
    }

    /// Whether the task is an I/O task at present.
    pub fn is_io(&self, task: usize) -> bool {
        self.task(task).is_some_and(|task| task.io.is_io())
    }

    /// Its I/O fraction, in thousandths.
    pub fn io_permille(&self, task: usize) -> u64 {
        self.task(task).map_or(0, |task| task.io.permille())
    }

    /// The vCPU that the task was put on; `None` if its user's mask holds.
    pub fn placed_on(&self, task: usize) -> Option<usize> {
        self.task(task).filter(|task| task.placed).and_then(|task| task.on)
    }

    /// The mask of the task's user.
    pub fn mask(&self, task: usize) -> Option<CpuSet> {
        self.task(task).map(|task| task.mask)
    }

    /// Number of I/O tasks at present.
    pub fn io_tasks(&self) -> usize {
        self.tasks[..self.top].iter().flatten().filter(|task| task.io.is_io()).count()
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn task(&self, task: usize) -> Option<&Task> {
        self.tasks.get(task)?.as_ref()
    }
}

#[cfg(test)]
mod tests;
