//! Postmark on tmpfs: processes read or append to small files, and create or delete them. Inodes, dentries and opened
//! files are freed through `call_rcu()`, data pages at once.

use std::cell::Cell;
use std::rc::Rc;

use reprieve_study::scenario::Postmark;

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::lock::Lock;
use crate::guest::memory::{Cache, Frame, Mobility, Object};
use crate::guest::task::{Op, Program};
use crate::workload::Pace;

/// CPU time in user space for a transaction. Fitted to the share of user time of `rcu-postmark`'s baseline, 14 %.
const USER_US: u64 = 48;
/// CPU time in the kernel to open a file, read it or append to it, and close it. This constant and the next two are
/// fitted to the baseline's throughput, 6.0e3 transactions a second on 2 vCPUs.
const ACCESS_US: u64 = 128;
/// CPU time in the kernel to create or delete a file, without the time under the lock.
const NAME_US: u64 = 132;
/// CPU time under the file system's lock (list of inodes, block counters), once to create and once to delete. An
/// estimate: the two critical sections are a few dozen of the path's several thousand instructions.
const LOCKED_US: u64 = 3;
/// Sizes of a file's structures in Linux 6.1, from /proc/slabinfo: shmem_inode_cache, dentry, filp, and
/// radix_tree_node, which a file's second page needs.
const INODE_BYTES: u32 = 760;
const DENTRY_BYTES: u32 = 192;
const OPENED_BYTES: u32 = 256;
const NODE_BYTES: u32 = 576;
const PAGE_BYTES: u64 = 4096;
/// The file system's lock.
pub const LOCKS: u32 = 1;
const LOCK: Lock = Lock(0);

struct Caches {
    inode: Cache,
    dentry: Cache,
    opened: Cache,
    node: Cache,
}

struct File {
    inode: Object,
    dentry: Object,
    node: Option<Object>,
    pages: Vec<Frame>,
    bytes: u64,
}

/// Adds the processes.
pub fn add(guest: &mut Guest, pace: Pace, postmark: &Postmark) {
    let Postmark { processes, files, transactions, size_min_bytes, size_max_bytes, think_us } = *postmark;
    let mut cache = |bytes| guest.memory.add_cache(bytes, Mobility::Reclaimable);
    let caches = Rc::new(Caches {
        inode: cache(INODE_BYTES),
        dentry: cache(DENTRY_BYTES),
        opened: cache(OPENED_BYTES),
        node: cache(NODE_BYTES),
    });
    let ready = Rc::new(Cell::new(0));
    for process in 0..u64::from(processes) {
        let part =
            |whole: u64| whole / u64::from(processes) + u64::from(process < whole % u64::from(processes));
        guest.add_program(
            Box::new(Process {
                caches: caches.clone(),
                ready: ready.clone(),
                processes,
                pace,
                files: Vec::new(),
                files_wanted: part(files),
                transactions: part(transactions),
                size: (size_min_bytes, size_max_bytes),
                user_ns: pace.us(USER_US) + pace.stated_us(think_us),
                step: Step::Fill,
                deletes: false,
            }),
            None,
        );
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Creates its initial files.
    Fill,
    /// Waits until all processes have created theirs.
    Gather,
    /// Begins a transaction, in user space.
    User,
    /// Reads or appends.
    Access,
    /// Creates or deletes.
    Name,
    /// Waits, if what it has deferred asks for that.
    Defer,
    /// Takes the lock, works under it, releases it.
    Take,
    Held,
    Release,
    Done,
}

struct Process {
    caches: Rc<Caches>,
    ready: Rc<Cell<u32>>,
    processes: u32,
    pace: Pace,
    files: Vec<File>,
    files_wanted: u64,
    transactions: u64,
    size: (u64, u64),
    user_ns: u64,
    step: Step,
    deletes: bool,
}

impl Process {
    /// Creates a file with its data; `None` if memory ran out.
    fn create(&mut self, env: &mut Env<'_>) -> Option<()> {
        let inode = env.alloc(self.caches.inode).ok()?;
        let Ok(dentry) = env.alloc(self.caches.dentry) else {
            env.free(inode);
            return None;
        };
        let mut file = File { inode, dentry, node: None, pages: Vec::new(), bytes: 0 };
        let bytes = env.random.within(self.size.0, self.size.1);
        self.grow(env, &mut file, bytes);
        self.files.push(file);
        self.open_and_close(env);
        Some(())
    }

    /// Appends, as far as memory allows.
    fn grow(&self, env: &mut Env<'_>, file: &mut File, bytes: u64) {
        file.bytes += bytes;
        while (file.pages.len() as u64) < file.bytes.div_ceil(PAGE_BYTES) {
            if file.pages.len() == 1 && file.node.is_none() {
                file.node = env.alloc(self.caches.node).ok();
            }
            let Ok(frame) = env.alloc_pages(0, Mobility::Movable) else {
                return;
            };
            file.pages.push(frame);
        }
    }

    /// Every access opens the file; the structure of the opened file waits for a grace period after the close.
    fn open_and_close(&self, env: &mut Env<'_>) {
        if let Ok(opened) = env.alloc(self.caches.opened) {
            env.free_deferred(opened);
        }
    }

    fn delete(&mut self, env: &mut Env<'_>) {
        let place = env.random.within(0, self.files.len() as u64 - 1) as usize;
        let file = self.files.swap_remove(place);
        file.pages.into_iter().for_each(|frame| env.free_pages(frame, 0));
        [Some(file.inode), Some(file.dentry), file.node]
            .into_iter()
            .flatten()
            .for_each(|object| env.free_deferred(object));
    }

    fn access(&mut self, env: &mut Env<'_>) {
        let appends = env.random.one_in(2);
        if appends && !self.files.is_empty() {
            let place = env.random.within(0, self.files.len() as u64 - 1) as usize;
            let mut file = self.files.swap_remove(place);
            let room = (self.size.1).saturating_sub(file.bytes);
            let bytes = env.random.within(0, room);
            self.grow(env, &mut file, bytes);
            self.files.push(file);
        }
        self.open_and_close(env);
    }

    fn ready(&mut self, env: &mut Env<'_>) {
        self.ready.set(self.ready.get() + 1);
        env.counters.ready += 1;
        env.counters.ready_ns = env.now_ns;
    }

    fn finish(&mut self, env: &mut Env<'_>) -> Op {
        self.step = Step::Done;
        env.counters.finished += 1;
        env.counters.finished_ns = env.now_ns;
        Op::Schedule
    }

    fn kernel(&self, us: u64) -> Op {
        Op::Run { ns: self.pace.us(us), mode: Mode::Kernel }
    }
}

impl Program for Process {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        match self.step {
            Step::Fill => {
                let short = (self.files.len() as u64) < self.files_wanted && self.create(env).is_none();
                if short || self.files.len() as u64 >= self.files_wanted {
                    self.ready(env);
                    self.step = Step::Gather;
                }
                self.kernel(NAME_US)
            }
            Step::Gather => {
                if self.ready.get() < self.processes {
                    return Op::SleepJiffies(1);
                }
                self.step = Step::User;
                Op::Schedule
            }
            Step::User if self.transactions == 0 => self.finish(env),
            Step::User => {
                self.transactions -= 1;
                self.step = Step::Access;
                Op::Run { ns: self.user_ns, mode: Mode::User }
            }
            Step::Access => {
                self.access(env);
                self.step = Step::Name;
                self.kernel(ACCESS_US)
            }
            Step::Name => {
                self.deletes = env.random.one_in(2) && !self.files.is_empty();
                if self.deletes {
                    self.delete(env);
                } else if self.create(env).is_none() {
                    env.counters.memory_shortages += 1;
                }
                self.step = Step::Defer;
                self.kernel(NAME_US)
            }
            Step::Defer if let Some(op) = env.back_pressure() => {
                self.step = Step::Take;
                op
            }
            Step::Defer | Step::Take => {
                self.step = Step::Held;
                Op::Lock(LOCK)
            }
            Step::Held => {
                self.step = Step::Release;
                self.kernel(LOCKED_US)
            }
            Step::Release => {
                self.step = Step::User;
                env.counters.operations += 1;
                Op::Unlock(LOCK)
            }
            Step::Done => Op::Exit,
        }
    }
}
