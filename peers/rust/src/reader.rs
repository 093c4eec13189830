//! The readers' loop, the same for every scheme, which the compiler inlines into it.

use crate::clock::{MILLISECOND_NS, thread_cpu_ns};
use crate::phase::{self, Phase};
use crate::random::Stream;
use crate::scheme::Reader;
use crate::section::{Found, Section};
use crate::table::{Node, Table};

/// Look-ups between two glances at the phase: enough that the glance's cost vanishes.
const BATCH: u64 = 64;

/// What a reader is given.
#[derive(Debug)]
pub struct Reading<'a> {
    /// The table it reads.
    pub table: &'a Table,
    /// The phase of the run.
    pub phase: &'a phase::Clock,
    /// What it does in a section.
    pub section: Section,
    /// Rounds of computing after each section.
    pub think_rounds: u64,
    /// A node of nobody's table, to compute on after a section.
    pub own: &'a Node,
    /// How long it sleeps in one section in the middle of the window, in milliseconds.
    pub stall_ms: u64,
}

/// What a reader counted. Reads and CPU time are those of the window, misses and errors those of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads made: look-ups, or copies of the one value.
    pub reads: u64,
    /// CPU time spent, in nanoseconds.
    pub cpu_ns: u64,
    /// Look-ups of a key that was being replaced.
    pub misses: u64,
    /// Reads that met a node or a value that did not hold.
    pub errors: u64,
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |a, b| Self {
            reads: a.reads + b.reads,
            cpu_ns: a.cpu_ns + b.cpu_ns,
            misses: a.misses + b.misses,
            errors: a.errors + b.errors,
        })
    }
}

/// Counters since the reader started, and those of the window.
#[derive(Default)]
struct Tally {
    all: Counts,
    start: Option<Counts>,
    end: Option<Counts>,
}

impl Tally {
    #[inline]
    fn count(&mut self, found: Found) {
        match found {
            Found::Right => {}
            Found::Missing => self.all.misses += 1,
            Found::Wrong => self.all.errors += 1,
        }
    }

    /// Takes the counters that belong to `phase`, which was just noticed. A reader that was not scheduled for long
    /// meets a later phase first.
    fn notice(&mut self, phase: Phase) {
        let here = Counts { cpu_ns: thread_cpu_ns(), ..self.all };
        self.start.get_or_insert(here);
        if phase >= Phase::Drain {
            self.end.get_or_insert(here);
        }
    }

    fn of_the_window(mut self) -> Counts {
        self.notice(Phase::Stop);
        let (start, end) = (self.start.unwrap_or_default(), self.end.unwrap_or_default());
        Counts { reads: end.reads - start.reads, cpu_ns: end.cpu_ns - start.cpu_ns, ..self.all }
    }
}

/// The one look-up that sleeps in its section. Out of the loop's way.
#[cold]
#[inline(never)]
fn look_up_stalled(reader: &mut impl Reader, given: &Reading<'_>, key: u64) -> Found {
    reader.look_up(given.table, key, &given.section.stalled(given.stall_ms * MILLISECOND_NS))
}

/// Reads random entries until the last phase.
pub fn read(reader: &mut impl Reader, given: &Reading<'_>, mut random: Stream) -> Counts {
    let table = given.table;
    let mut tally = Tally::default();
    let mut seen = Phase::Warmup;
    loop {
        let phase = given.phase.now();
        if phase != seen {
            tally.notice(phase);
            if phase == Phase::Middle && given.stall_ms != 0 {
                tally.count(look_up_stalled(reader, given, random.below(table.entries())));
                tally.all.reads += 1;
            }
            seen = phase;
        }
        if phase == Phase::Stop {
            return tally.of_the_window();
        }
        for _ in 0..BATCH {
            let key = random.below(table.entries());
            let found = reader.look_up(table, key, &given.section);
            tally.count(found);
            if given.think_rounds != 0 {
                assert!(given.own.dwell(given.own.key(), given.think_rounds));
            }
        }
        tally.all.reads += BATCH;
    }
}
