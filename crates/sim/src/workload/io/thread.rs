//! A thread of an application: computes, reads and writes in a loop.

use std::rc::Rc;

use reprieve_study::scenario::io::{Access, Step};

use crate::guest::block::Pages;
use crate::guest::block::cache::FileId;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::task::{Op, Program};
use crate::random::Stream;

/// Time to load a working set into the caches of another vCPU: 10 GiB/s, the speed of memory. An estimate.
const REFILL_NS_PER_KIB: u64 = 100;

/// What a thread does, and what it costs.
pub(super) struct Loop {
    pub steps: Rc<[Step]>,
    pub page_kib: u64,
    pub call_ns: u64,
    pub copy_ns_per_kib: u64,
    pub working_set_kib: u64,
}

/// A file, and a thread's position in it.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    file: FileId,
    pages: u32,
    /// The next page of a sequential access.
    next: u32,
}

impl Cursor {
    /// The start of a file of that many pages.
    pub fn new(file: FileId, pages: u32) -> Cursor {
        Cursor { file, pages, next: 0 }
    }

    /// The next `count` pages.
    fn take(&mut self, random: &mut Stream, access: Access, count: u32) -> Pages {
        let first = match access {
            Access::Random => random.within(0, u64::from(self.pages / count) - 1) as u32 * count,
            Access::Sequential if self.next + count > self.pages => 0,
            Access::Sequential => self.next,
        };
        self.next = first + count;
        Pages { file: self.file, first, count }
    }
}

/// What an unfinished step waits for.
#[derive(Clone, Copy)]
enum Waits {
    ForRead(Pages),
    /// Some of the pages are still being read or written.
    ToWrite(Pages),
    ForWrite(Pages),
}

pub(super) struct Thread {
    does: Loop,
    reads: Cursor,
    /// The file that it writes, if it does.
    writes: Option<Cursor>,
    begins_ns: u64,
    at: usize,
    waits: Option<Waits>,
    vcpu: Option<usize>,
}

impl Thread {
    /// A thread that begins at that time.
    pub fn new(does: Loop, reads: Cursor, writes: Option<Cursor>, begins_ns: u64) -> Thread {
        Thread { does, reads, writes, begins_ns, at: 0, waits: None, vcpu: None }
    }

    /// Charges the cost of cold caches if it came from another vCPU.
    fn refill(&mut self, env: &mut Env<'_>) {
        let from = self.vcpu.replace(env.vcpu);
        if from.is_some_and(|from| from != env.vcpu) {
            env.spend(self.does.working_set_kib * REFILL_NS_PER_KIB);
        }
    }

    fn kib(&self, pages: Pages) -> u64 {
        u64::from(pages.count) * self.does.page_kib
    }

    /// Continues an unfinished step.
    fn go_on(&mut self, env: &mut Env<'_>, mut waits: Waits) -> Op {
        if let Waits::ToWrite(pages) = waits
            && env.write(pages)
        {
            waits = Waits::ForWrite(pages);
        }
        let (is_done, pages, copied_kib) = match waits {
            Waits::ForRead(pages) => (env.read(pages), pages, self.kib(pages)),
            Waits::ToWrite(pages) => (false, pages, 0),
            Waits::ForWrite(pages) => (env.is_written(pages), pages, 0),
        };
        self.waits = Some(waits);
        if !is_done {
            return Op::Wait;
        }
        self.waits = None;
        self.step_done(env);
        env.counters.io_bytes += self.kib(pages) << 10;
        env.counters.read_bytes += copied_kib << 10;
        Op::Run { ns: (copied_kib * self.does.copy_ns_per_kib).max(1), mode: Mode::Kernel }
    }

    fn step_done(&mut self, env: &mut Env<'_>) {
        self.at += 1;
        if self.at == self.does.steps.len() {
            self.at = 0;
            env.counters.operations += 1;
        }
    }

    fn read(&mut self, env: &mut Env<'_>, access: Access, kib: u64) -> Op {
        let pages = self.reads.take(env.random, access, (kib / self.does.page_kib) as u32);
        env.spend(self.does.call_ns);
        self.go_on(env, Waits::ForRead(pages))
    }

    fn write(&mut self, env: &mut Env<'_>, access: Access, kib: u64) -> Op {
        let cursor = self.writes.as_mut().expect("a thread that writes has a file for it");
        let pages = cursor.take(env.random, access, (kib / self.does.page_kib) as u32);
        env.spend(self.does.call_ns + kib * self.does.copy_ns_per_kib);
        self.go_on(env, Waits::ToWrite(pages))
    }
}

impl Program for Thread {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        if env.now_ns < self.begins_ns {
            return Op::Sleep { ns: self.begins_ns - env.now_ns };
        }
        self.refill(env);
        if let Some(waits) = self.waits {
            return self.go_on(env, waits);
        }
        match self.does.steps[self.at] {
            Step::Read { access, kib } => self.read(env, access, kib),
            Step::Write { access, kib } => self.write(env, access, kib),
            Step::Compute { us, spread_percent } => {
                self.step_done(env);
                let (ns, by_ns) = (us * 1_000, us * 10 * spread_percent);
                let ns = if by_ns == 0 { ns } else { env.random.within(ns - by_ns, ns + by_ns) };
                Op::Run { ns: ns.max(1), mode: Mode::User }
            }
        }
    }
}
