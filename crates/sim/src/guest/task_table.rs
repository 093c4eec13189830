//! The tasks of a guest, each an entity of the guest's scheduler and with a random stream of its own.

use std::ops::{Index, IndexMut};

use crate::guest::ids::TaskId;
use crate::guest::task::{Kind, Task};
use crate::random::Stream;
use crate::sched::{Cpu, Entity, Orders, Placement, Spec};

/// All tasks of a guest, by their number.
pub(super) struct TaskTable {
    tasks: Vec<Task>,
    streams: Vec<Stream>,
    /// Where each may run, by its own affinity; empty for everywhere.
    affinities: Vec<Vec<Cpu>>,
    pub scheduler: Box<dyn Placement>,
    /// What the scheduler wants done.
    pub orders: Orders,
    /// Tasks to wake: the program that decides right now has asked for it.
    pub to_wake: Vec<TaskId>,
    /// The ksoftirqd of each vCPU.
    pub ksoftirqd: Vec<TaskId>,
    seed: u64,
}

impl TaskTable {
    /// A table without tasks. `seed` is that of the tasks' random streams.
    pub fn new(scheduler: Box<dyn Placement>, seed: u64) -> TaskTable {
        TaskTable {
            tasks: Vec::new(),
            streams: Vec::new(),
            affinities: Vec::new(),
            scheduler,
            orders: Orders::default(),
            to_wake: Vec::new(),
            ksoftirqd: Vec::new(),
            seed,
        }
    }

    /// Adds a blocked task.
    pub fn add(&mut self, kind: Kind, spec: &Spec) -> TaskId {
        let entity = self.scheduler.add(spec);
        self.streams.push(Stream::new(self.seed, "task", self.tasks.len() as u64));
        self.affinities.push(spec.allowed.clone());
        self.tasks.push(Task::new(kind));
        TaskId(entity.0)
    }

    /// All tasks, in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.tasks.len() as u32).map(TaskId)
    }

    /// Where a task may run of these vCPUs, a bit for each; where its own affinity says, if that leaves nothing. `None` for
    /// one that may run on one vCPU alone.
    pub fn allowed_of(&self, task: TaskId, used: u64) -> Option<Vec<Cpu>> {
        let affinity = &self.affinities[task.0 as usize];
        let is_used = |cpu: &Cpu| used >> cpu.0 & 1 == 1;
        match affinity.len() {
            0 => Some((0..u64::BITS).map(Cpu).filter(is_used).collect()),
            1 => None,
            _ => {
                let both: Vec<Cpu> = affinity.iter().copied().filter(is_used).collect();
                Some(if both.is_empty() { affinity.clone() } else { both })
            }
        }
    }

    /// The random stream of a task, and the list of the tasks that it wakes.
    pub fn surroundings(&mut self, task: TaskId) -> (&mut Stream, &mut Vec<TaskId>) {
        (&mut self.streams[task.0 as usize], &mut self.to_wake)
    }

    /// The vCPU on which a task runs or waits to run.
    pub fn place(&self, task: TaskId) -> Option<usize> {
        self.scheduler.place(Entity(task.0)).map(|Cpu(v)| v as usize)
    }
}

impl Index<TaskId> for TaskTable {
    type Output = Task;

    fn index(&self, task: TaskId) -> &Task {
        &self.tasks[task.0 as usize]
    }
}

impl IndexMut<TaskId> for TaskTable {
    fn index_mut(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.0 as usize]
    }
}
