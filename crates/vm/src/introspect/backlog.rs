//! Objects that wait for a grace period, by owner: walks RCU's lists of callbacks in a guest's memory, and groups them by the
//! function that frees them and by the slab cache that they are of.
//!
//! | lists of each CPU | what they hold |
//! |---|---|
//! | `rcu_data.cblist` | callbacks of `call_rcu`; up to `tails[0]` those whose grace period is over |
//! | `rcu_data.nocb_bypass` | the same, of CPUs whose callbacks are offloaded |
//! | `krc` | objects of `kfree_rcu`: a list, and blocks of pointers |
//!
//! The guest is not stopped, so lists change while they are walked. Only their ends change: callbacks are added behind the
//! last one, and batches are taken from the front. So a walk that reached the end, and after which the list begins where
//! it began, has seen live callbacks alone. Others are repeated a few times.
//!
//! Invariants: all walks together follow at most [`LINKS`] links an attempt; whatever the memory holds, they end.
//! Source: kernel/rcu/rcu_segcblist.c, kernel/rcu/tree.c of Linux 6.1 and 6.12.

mod functions;
mod lists;
mod memory;
mod places;
mod slabs;
mod tally;
mod waits;

pub use functions::{Function, of_modules};
pub use lists::End;
pub use memory::Memory;
pub use slabs::Cache;
pub use tally::Callback;
pub use waits::{Open, TASKS, Task};

use lists::{Limits, Marks, walk};
use places::{CpuLists, Krc, Places};
use slabs::Slabs;
use tally::Tally;

use super::{Reader, Symbols};
use crate::image::btf::Btf;
use crate::{Result, VmError};

/// Most links and pointers that are followed over all lists.
pub const LINKS: u64 = 4 << 20;
/// Walks of one list, until one saw no change.
const ATTEMPTS: usize = 5;
/// Most blocks of pointers in one list of them; the links limit them further.
const BLOCKS: usize = 1 << 16;
/// Most pointers in a block: it is a page.
const RECORDS: u64 = 512;

/// Who frees how many objects of which cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Who frees them.
    pub callback: Callback,
    /// What they are, if they are of a slab cache.
    pub cache: Option<Cache>,
    /// How many wait.
    pub objects: u64,
}

impl Owner {
    /// What the objects take, if their cache is known, bytes.
    pub fn bytes(&self) -> Option<u64> {
        self.cache.as_ref().map(|cache| cache.object_bytes * self.objects)
    }
}

/// A kind of lists that each CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `rcu_data.cblist`.
    Callbacks,
    /// `rcu_data.nocb_bypass`.
    Bypass,
    /// What `kfree_rcu` has.
    KfreeRcu,
}

/// What was seen of a CPU's lists of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListSeen {
    /// The CPU.
    pub cpu: usize,
    /// Which lists.
    pub kind: Kind,
    /// Objects that were found.
    pub found: u64,
    /// Objects that the kernel counts but that were not found: the CPU is invoking them, or the list is damaged.
    pub missing: u64,
    /// Callbacks whose grace period is over, and that were not invoked yet.
    pub ready: u64,
    /// How the walk ended; of several lists, the first that did not end well.
    pub end: End,
    /// Whether the list did not change at its front while it was walked.
    pub is_steady: bool,
}

/// The objects that wait for a grace period.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// By owner, most objects first.
    pub owners: Vec<Owner>,
    /// What was seen of each list.
    pub lists: Vec<ListSeen>,
    /// The open grace period, if one is open.
    pub open: Option<Open>,
    /// Why parts of the answer are missing.
    pub problems: Vec<String>,
}

impl Backlog {
    /// Walks all lists of a guest's CPUs, with its kernel's types and symbols. It ends soon once `is_over`.
    ///
    /// # Errors
    /// The lists are not where this kernel's types and symbols say; the memory is gone.
    pub fn of(reader: &Reader, btf: &Btf, symbols: &Symbols, is_over: &dyn Fn() -> bool) -> Result<Backlog> {
        let memory = Memory::new(&reader.ram, symbols);
        let places = Places { btf, symbols };
        let cpus = places.lists(&memory, reader.cpus())?;
        let (slabs, problem) = Slabs::read(&memory, &places);
        let krc = places.krc().and_then(|krc| places.symbol("krc").map(|_| krc));
        let mut problems: Vec<String> =
            problem.map(|why| format!("sizes are unknown: {why}")).into_iter().collect();
        if let Err(why) = &krc {
            problems.push(format!("objects of kfree_rcu are not counted: {why}"));
        }
        let mut walker =
            Walker { memory: &memory, slabs: &slabs, left: LINKS, is_over, tally: Tally::default() };
        let mut lists = Vec::new();
        for (cpu, places) in cpus.iter().enumerate() {
            lists.extend(walker.cpu(cpu, places, krc.as_ref().ok()));
        }
        let open = waits::open(reader, &memory, &places);
        if reader.is_lost() {
            return Err(VmError::Introspect("the guest's memory is gone: its process has ended".into()));
        }
        let owner = |(callback, cache, objects): (Callback, Option<usize>, u64)| Owner {
            callback,
            cache: cache.and_then(|number| slabs.all().get(number).cloned()),
            objects,
        };
        let owners = walker.tally.sorted().into_iter().map(owner).collect();
        Ok(Backlog { owners, lists, open, problems })
    }

    /// All objects that were found.
    pub fn objects(&self) -> u64 {
        self.owners.iter().map(|owner| owner.objects).sum()
    }

    /// What those take whose cache is known, bytes.
    pub fn bytes(&self) -> u64 {
        self.owners.iter().filter_map(Owner::bytes).sum()
    }

    /// The addresses of all functions that free objects, each once.
    pub fn functions(&self) -> Vec<u64> {
        let functions = self.owners.iter().filter_map(|owner| match owner.callback {
            Callback::Function(address) => Some(address),
            Callback::KfreeRcu | Callback::Other => None,
        });
        let mut functions: Vec<u64> = functions.collect();
        functions.sort_unstable();
        functions.dedup();
        functions
    }
}

/// Walks the lists of one CPU after the other.
struct Walker<'a> {
    memory: &'a Memory<'a>,
    slabs: &'a Slabs<'a>,
    /// Links that may still be followed: those of the longest attempt count.
    left: u64,
    is_over: &'a dyn Fn() -> bool,
    tally: Tally,
}

/// What an attempt has found.
#[derive(Default)]
struct Attempt {
    found: u64,
    ready: u64,
    end: End,
    is_steady: bool,
    tally: Tally,
}

impl Walker<'_> {
    fn cpu(&mut self, cpu: usize, places: &CpuLists, krc: Option<&Krc>) -> Vec<ListSeen> {
        let bypass = places.bypass.map(|head| self.best(|walker| walker.callbacks(head, None)));
        let listed = self.best(|walker| walker.callbacks(places.head, Some(places.ready)));
        // The kernel counts those of the bypass, too.
        let counted = self.memory.word(places.len).unwrap_or(0) as i64;
        let counted = u64::try_from(counted).unwrap_or(0);
        let both = listed.found + bypass.as_ref().map_or(0, |bypass| bypass.found);
        let freed = krc.zip(places.krc).map(|(krc, at)| self.best(|walker| walker.krc(at, krc)));
        let mut seen = Vec::new();
        for (kind, attempt) in
            [(Kind::Callbacks, Some(listed)), (Kind::Bypass, bypass), (Kind::KfreeRcu, freed)]
        {
            let Some(Attempt { found, ready, end, is_steady, tally }) = attempt else { continue };
            let missing = if kind == Kind::Callbacks { counted.saturating_sub(both) } else { 0 };
            self.tally.join(tally);
            seen.push(ListSeen { cpu, kind, found, missing, ready, end, is_steady });
        }
        seen
    }

    /// The first attempt that saw no change, or the last.
    fn best(&mut self, attempt: impl Fn(&Self) -> Attempt) -> Attempt {
        let (mut last, mut most) = (Attempt::default(), 0);
        for _ in 0..ATTEMPTS {
            last = attempt(self);
            most = most.max(last.found);
            if last.is_steady || last.end == End::Interrupted {
                break;
            }
        }
        self.left = self.left.saturating_sub(most);
        last
    }

    /// The list that begins at this place.
    fn callbacks(&self, head: u64, ready: Option<u64>) -> Attempt {
        let mut limits = Limits { links: self.left, is_over: self.is_over };
        let Some(first) = self.memory.word(head) else {
            return Attempt { end: End::Impossible(head), is_steady: true, ..Attempt::default() };
        };
        let last_ready = ready.and_then(|place| self.memory.word(place));
        let (mut tally, mut seen, mut ready) = (Tally::default(), 0, 0);
        let (found, end) = walk(self.memory, first, &mut limits, &mut |address, function| {
            tally.see(Callback::of(function), address, self.slabs);
            seen += 1;
            // `tails` holds the address of the last one's link, which is its first word.
            if last_ready == Some(address) {
                ready = seen;
            }
        });
        let is_same = self.memory.word(head) == Some(first);
        Attempt { found, ready, end, is_steady: is_same && end != End::Interrupted, tally }
    }

    /// What `kfree_rcu` has of a CPU.
    fn krc(&self, at: u64, krc: &Krc) -> Attempt {
        let mut limits = Limits { links: self.left, is_over: self.is_over };
        let mut all = Attempt { is_steady: true, ..Attempt::default() };
        let begins = |place: u64| self.memory.word(place);
        for place in krc.lists.iter().map(|offset| at.wrapping_add(*offset)) {
            let first = begins(place);
            let end = match first {
                None => End::Impossible(place),
                Some(first) => {
                    let mut see = |address, _| all.tally.see(Callback::KfreeRcu, address, self.slabs);
                    let (found, end) = walk(self.memory, first, &mut limits, &mut see);
                    all.found += found;
                    end
                }
            };
            all.note(end, begins(place) == first);
        }
        for place in krc.blocks.iter().map(|offset| at.wrapping_add(*offset)) {
            let first = begins(place);
            let end = self.blocks(place, krc, &mut limits, &mut all);
            all.note(end, begins(place) == first);
        }
        all
    }

    /// The blocks of pointers that begin at this place.
    fn blocks(&self, place: u64, krc: &Krc, limits: &mut Limits, all: &mut Attempt) -> End {
        let Some(mut link) = self.memory.word(place) else { return End::Impossible(place) };
        let end_of_list = if krc.in_rings { place } else { 0 };
        let mut marks = Marks::default();
        for _ in 0..BLOCKS {
            if link == end_of_list {
                return End::Whole;
            }
            if marks.pass(link) {
                return End::Cycle;
            }
            if (limits.is_over)() {
                return End::Interrupted;
            }
            // The link of a ring leads to the next one's link, and that of a list to the next block.
            let block = if krc.in_rings { link.wrapping_sub(krc.link) } else { link };
            let at = |offset: u64| self.memory.word(block.wrapping_add(offset));
            let (Some(count), Some(next)) = (at(krc.count).filter(|count| *count <= RECORDS), at(krc.link))
            else {
                return End::Impossible(link);
            };
            for record in 0..count {
                let Some(object) = at(krc.records + 8 * record) else { return End::Impossible(link) };
                if limits.links == 0 {
                    return End::Cut;
                }
                limits.links -= 1;
                all.tally.see(Callback::KfreeRcu, object, self.slabs);
                all.found += 1;
            }
            link = next;
        }
        End::Cut
    }
}

impl Attempt {
    /// Takes note of how one of several lists ended.
    fn note(&mut self, end: End, is_same: bool) {
        self.is_steady &= is_same;
        if self.end == End::Whole {
            self.end = end;
        }
    }
}

#[cfg(test)]
mod tests;
