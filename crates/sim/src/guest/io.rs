//! A guest that does I/O: its block layer, its I/O tasks, and when it is inactive.
//!
//! *I/O inactivity* of a task is time during which it could go on but for a vCPU that is not on a pCPU: the one on which it
//! is runnable, or the one whose interrupt would tell it that its request is done. An I/O task that computes between two
//! requests is one that could go on. Time in which that vCPU is on, though the task may wait there for another task of the
//! guest, is not inactive; nor is time in which the device works on what the task waits for. That of a VM is the sum over its
//! I/O tasks. Beside it stands the time during which nothing of the VM is at the device for that reason alone.

use crate::guest::block::Block;
use crate::guest::ids::TaskId;
use crate::guest::network::Network;
use crate::guest::pausing::Pausing;
use crate::guest::vcpu::{Presence, interrupt};
use crate::guest::{Clock, Guest, Request};
use crate::sched::{Cpu, Entity};

/// A guest's devices.
#[derive(Debug, Default)]
pub(super) struct IoSide {
    pub network: Network,
    /// Only guests that do block I/O have it.
    pub disk: Option<Box<BlockIo>>,
}

/// What a guest has that does block I/O.
#[derive(Debug)]
pub struct BlockIo {
    /// Its block layer.
    pub block: Block,
    /// Its I/O tasks.
    pub tasks: Vec<TaskId>,
    /// vMigrater's beat threads.
    pub beats: Vec<TaskId>,
    /// Tasks that compute for ever.
    pub computing: Vec<TaskId>,
    /// xBalloon's guest side, if it has one.
    pub(super) pausing: Option<Pausing>,
    /// Changes of affinity that a program asked for, in that order.
    masks: Vec<(TaskId, u64)>,
    wakes: Vec<TaskId>,
    /// Changes of affinity so far.
    pub moves: u64,
    /// Beats so far.
    pub(super) beats_done: u64,
    inactivity: Inactivity,
}

/// Who is inactive at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Inactive {
    tasks: u64,
    /// Whether nothing of the VM is at the device for that reason.
    whole: bool,
}

/// Inactivity booked up to a time, and who is inactive since then.
#[derive(Clone, Copy, Debug, Default)]
struct Inactivity {
    tasks_ns: u64,
    whole_ns: u64,
    booked_ns: u64,
    now: Inactive,
}

impl Inactivity {
    fn at(self, now_ns: u64) -> Inactivity {
        let elapsed_ns = now_ns - self.booked_ns;
        Inactivity {
            tasks_ns: self.tasks_ns + self.now.tasks * elapsed_ns,
            whole_ns: self.whole_ns + if self.now.whole { elapsed_ns } else { 0 },
            booked_ns: now_ns,
            now: self.now,
        }
    }
}

impl BlockIo {
    /// One with that block layer and no tasks.
    pub fn new(block: Block) -> BlockIo {
        BlockIo {
            block,
            tasks: Vec::new(),
            beats: Vec::new(),
            computing: Vec::new(),
            pausing: None,
            masks: Vec::new(),
            wakes: Vec::new(),
            moves: 0,
            beats_done: 0,
            inactivity: Inactivity::default(),
        }
    }

    /// A program asks that a task may only run on these vCPUs, a bit for each.
    pub(super) fn change_mask(&mut self, task: TaskId, mask: u64) {
        self.moves += 1;
        self.masks.push((task, mask));
    }

    /// Inactivity of its tasks up to now, the sum.
    pub fn inactive_ns(&self, now_ns: u64) -> u64 {
        self.inactivity.at(now_ns).tasks_ns
    }

    /// Inactivity of the VM as a whole up to now.
    pub fn whole_inactive_ns(&self, now_ns: u64) -> u64 {
        self.inactivity.at(now_ns).whole_ns
    }
}

impl Guest {
    /// Gives it a block layer.
    pub fn set_io(&mut self, io: BlockIo) {
        self.io.disk = Some(Box::new(io));
    }

    /// Its I/O side.
    pub fn io(&self) -> Option<&BlockIo> {
        self.io.disk.as_deref()
    }

    /// Its I/O side, to add tasks and files.
    pub fn io_mut(&mut self) -> Option<&mut BlockIo> {
        self.io.disk.as_deref_mut()
    }

    /// CPU time of a beat outside of its thread: the timer's interrupt, the wake-up, and switches to the thread and back.
    pub fn around_a_beat_ns(&self) -> u64 {
        self.costs.interrupt_ns + self.costs.wake_ns + 2 * self.costs.switch_ns
    }

    /// CPU time of vMigrater: its beat threads with what is around their beats, and the tracepoints.
    pub fn daemon_ns(&self) -> u64 {
        let Some(io) = &self.io.disk else { return 0 };
        let threads_ns: u64 = io.beats.iter().map(|task| self.task_ns(*task)).sum();
        threads_ns + io.beats_done * self.around_a_beat_ns() + io.block.traced_ns
    }

    /// CPU time of a task, interrupts not counted, up to when its vCPU was booked last.
    pub fn task_ns(&self, task: TaskId) -> u64 {
        self.tasks[task].exec_ns
    }

    /// The device is done with a request.
    pub fn disk_done(&mut self, id: u32) {
        let Some(io) = &mut self.io.disk else { return };
        let v = io.block.came_back(id);
        self.vcpus[v].pending |= interrupt::BLOCK;
        self.requests.push(Request::Kick(v));
    }

    /// A vCPU takes the disk's interrupt. Returns the CPU time.
    pub(super) fn disk_interrupt(&mut self, clock: &mut Clock<'_>, v: usize) -> u64 {
        let Some(io) = &mut self.io.disk else { return 0 };
        let mut wakes = std::mem::take(&mut io.wakes);
        let mut ns = self.costs.interrupt_ns + io.block.complete(clock.now_ns, v, &mut wakes);
        for task in wakes.drain(..) {
            ns += self.costs.wake_ns;
            self.notify(clock, task, v);
        }
        self.io.disk.as_mut().expect("it has one").wakes = wakes;
        self.send_to_disk();
        ns
    }

    /// Tells the host that requests leave for the disk.
    pub(super) fn send_to_disk(&mut self) {
        if self.io.disk.as_ref().is_some_and(|io| io.block.has_leaving()) {
            self.requests.push(Request::Disk);
        }
    }

    /// Carries out changes of affinity.
    pub(super) fn apply_masks(&mut self, clock: &mut Clock<'_>, here: usize) {
        let Some(io) = self.io.disk.as_mut().filter(|io| !io.masks.is_empty()) else { return };
        let mut masks = std::mem::take(&mut io.masks);
        for (task, mask) in masks.drain(..) {
            let vcpus = (0..self.vcpus.len() as u32).filter(|v| mask >> v & 1 == 1);
            let allowed: Vec<Cpu> = vcpus.map(Cpu).collect();
            self.tasks.scheduler.set_allowed(clock.now_ns, Entity(task.0), &allowed, &mut self.tasks.orders);
            self.apply_orders(Some(here));
        }
        self.io.disk.as_mut().expect("it has one").masks = masks;
    }

    /// Looks anew at who is inactive. Called after every event. Returns the work that the event made the block layer do.
    pub fn book_inactivity(&mut self, now_ns: u64) -> u64 {
        let now = Inactive { tasks: self.inactive_tasks(), whole: self.is_inactive() };
        let Some(io) = &mut self.io.disk else { return 0 };
        if now != io.inactivity.now {
            io.inactivity = Inactivity { now, ..io.inactivity.at(now_ns) };
        }
        io.block.take_work()
    }

    fn is_on(&self, v: usize) -> bool {
        self.vcpus[v].presence == Presence::Running
    }

    /// I/O tasks that are inactive.
    fn inactive_tasks(&self) -> u64 {
        let Some(io) = &self.io.disk else { return 0 };
        let place = |task: &TaskId| self.tasks.place(*task);
        let runnable = io.tasks.iter().filter_map(place).filter(|v| !self.is_on(*v)).count();
        (runnable + io.block.kept_waiting(|v| self.is_on(v))) as u64
    }

    /// Whether the VM has I/O to do and none of it is at the device, because every vCPU that would issue it, or take a
    /// completion, is off.
    fn is_inactive(&self) -> bool {
        let Some(io) = &self.io.disk else { return false };
        if !io.block.is_idle_at_device() {
            return false;
        }
        let interrupted = (0..self.vcpus.len()).filter(|v| io.block.waits_for_interrupt(*v));
        let runnable = io.tasks.iter().filter_map(|task| self.tasks.place(*task));
        let mut needed = interrupted.chain(runnable).peekable();
        needed.peek().is_some() && needed.all(|v| !self.is_on(v))
    }
}
