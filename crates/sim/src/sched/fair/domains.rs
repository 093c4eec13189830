//! Domains: CPUs that share a last-level cache, at most 64, so that a set of them is one word.
//!
//! Searches for a CPU look at one domain or two, never at every CPU of the machine.

use crate::bits::bits;
use crate::sched::Cpu;

/// CPUs on which an entity may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Any.
    Any,
    /// One: the entity never moves.
    One(u32),
    /// Some: a word for each domain.
    Some(Box<[u64]>),
}

/// The machine's CPUs by domain, with what is looked for in them.
#[derive(Debug)]
pub struct Domains {
    cpus: u32,
    /// CPUs of a domain; the last may have fewer.
    size: u32,
    crowded_count: u32,
    domains: Box<[Domain]>,
}

/// CPUs of a domain, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    idle: u64,
    crowded: u64,
}

impl Domains {
    /// That many CPUs in domains of that size (1 to 64). None of them is known to be idle or crowded.
    pub fn new(cpus: u32, size: u32) -> Domains {
        let domains = vec![Domain::default(); cpus.div_ceil(size) as usize].into_boxed_slice();
        Domains { cpus, size, crowded_count: 0, domains }
    }

    /// Number of domains.
    pub fn count(&self) -> usize {
        self.domains.len()
    }

    /// A CPU's domain, and its bit there.
    pub fn locate(&self, cpu: u32) -> (usize, u32) {
        ((cpu / self.size) as usize, cpu % self.size)
    }

    /// The CPU with that bit in that domain.
    pub fn cpu(&self, domain: usize, bit: u32) -> u32 {
        domain as u32 * self.size + bit
    }

    /// What `allowed` means. CPUs that do not exist are left out; if none is left, all are allowed, as in Linux.
    pub fn affinity(&self, allowed: &[Cpu]) -> Affinity {
        let mut words = vec![0; self.count()].into_boxed_slice();
        for cpu in allowed.iter().filter(|cpu| cpu.0 < self.cpus) {
            let (domain, bit) = self.locate(cpu.0);
            words[domain] |= 1 << bit;
        }
        let mut set = (0..self.count()).flat_map(|domain| bits(words[domain]).map(move |bit| (domain, bit)));
        match (set.next(), set.next()) {
            (None, _) if self.cpus == 1 => Affinity::One(0),
            (None, _) => Affinity::Any,
            (Some((domain, bit)), None) => Affinity::One(self.cpu(domain, bit)),
            _ => Affinity::Some(words),
        }
    }

    /// The CPUs of that domain in `affinity`.
    pub fn allowed(&self, affinity: &Affinity, domain: usize) -> u64 {
        match affinity {
            Affinity::Any => self.all(domain),
            Affinity::One(cpu) => {
                let (home, bit) = self.locate(*cpu);
                if home == domain { 1 << bit } else { 0 }
            }
            Affinity::Some(words) => words[domain],
        }
    }

    /// Every CPU of that domain.
    fn all(&self, domain: usize) -> u64 {
        let count = self.size.min(self.cpus - domain as u32 * self.size);
        u64::MAX >> (64 - count)
    }

    /// The idle CPUs of that domain: nothing runs or waits there.
    pub fn idle(&self, domain: usize) -> u64 {
        self.domains[domain].idle
    }

    /// The crowded CPUs of that domain: one runnable too many is there, and it may run elsewhere.
    pub fn crowded(&self, domain: usize) -> u64 {
        self.domains[domain].crowded
    }

    /// The CPUs of a set in that domain, beginning after that bit and going round.
    pub fn round(&self, set: u64, domain: usize, bit: u32) -> impl Iterator<Item = u32> {
        let turn = (bit + 1) % 64;
        bits(set.rotate_right(turn)).map(move |bit| self.cpu(domain, (bit + turn) % 64))
    }

    /// Whether any CPU is crowded.
    pub fn any_crowded(&self) -> bool {
        self.crowded_count > 0
    }

    /// Says what a CPU is now.
    pub fn update(&mut self, cpu: u32, idle: bool, crowded: bool) {
        let (domain, bit) = self.locate(cpu);
        let domain = &mut self.domains[domain];
        let was = domain.crowded >> bit & 1;
        self.crowded_count = self.crowded_count + crowded as u32 - was as u32;
        domain.idle = domain.idle & !(1 << bit) | (idle as u64) << bit;
        domain.crowded = domain.crowded & !(1 << bit) | (crowded as u64) << bit;
    }
}

/// The first bit that is set after `bit`, going round.
pub fn next_bit(word: u64, bit: u32) -> Option<u32> {
    let turn = (bit + 1) % 64;
    (word != 0).then(|| (word.rotate_right(turn).trailing_zeros() + turn) % 64)
}
