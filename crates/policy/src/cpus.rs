//! Sets of CPUs, one bit each, like affinity masks.
//!
//! Invariant: no set contains a number of [`MAX_CPUS`] or above. Source: `cpu_set_t`, CPU_SET(3), and its 1024 bits.

use std::fmt;
use std::str::FromStr;

/// The number of CPUs a set can hold, numbered from 0.
pub const MAX_CPUS: usize = 1024;

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs; `Copy`, 128 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet([0; WORDS]);

    /// The set of one CPU; empty if the number is too large.
    pub fn of(cpu: usize) -> CpuSet {
        [cpu].into_iter().collect()
    }

    /// The set of CPUs 0 to `count` - 1.
    pub fn first(count: usize) -> CpuSet {
        (0..count.min(MAX_CPUS)).collect()
    }

    /// Adds a CPU; a number from [`MAX_CPUS`] on is ignored.
    pub fn insert(&mut self, cpu: usize) {
        if cpu < MAX_CPUS {
            self.0[cpu / 64] |= 1 << (cpu % 64);
        }
    }

    /// Removes a CPU.
    pub fn remove(&mut self, cpu: usize) {
        if cpu < MAX_CPUS {
            self.0[cpu / 64] &= !(1 << (cpu % 64));
        }
    }

    /// Whether the set contains the CPU.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < MAX_CPUS && self.0[cpu / 64] & (1 << (cpu % 64)) != 0
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The CPUs in both sets.
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.and(other) == *self
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_CPUS).filter(|cpu| self.contains(*cpu))
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

/// The kernel's list format, such as `0-3,8`; the empty set is `-`.
impl fmt::Display for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("-");
        }
        let mut cpu = 0;
        let mut comma = "";
        while cpu < MAX_CPUS {
            if !self.contains(cpu) {
                cpu += 1;
                continue;
            }
            let end = (cpu..MAX_CPUS).take_while(|next| self.contains(*next)).last().unwrap_or(cpu);
            match end == cpu {
                true => write!(out, "{comma}{cpu}")?,
                false => write!(out, "{comma}{cpu}-{end}")?,
            }
            (cpu, comma) = (end + 1, ",");
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The error for a text that is not a list of CPUs below [`MAX_CPUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCpuList;

impl fmt::Display for BadCpuList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "expected a list of CPUs below {MAX_CPUS}, such as 0-3,8")
    }
}

impl std::error::Error for BadCpuList {}

impl FromStr for CpuSet {
    type Err = BadCpuList;

    fn from_str(text: &str) -> Result<CpuSet, BadCpuList> {
        let mut set = CpuSet::EMPTY;
        if text.trim() == "-" {
            return Ok(set);
        }
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<usize>().map_err(|_| BadCpuList);
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MAX_CPUS {
                return Err(BadCpuList);
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for text in ["0", "0-3,8", "1,3,5-6", "1023", "-"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
        for text in ["", "a", "3-1", "1024", "0-", "1,,2"] {
            assert_eq!(text.parse::<CpuSet>(), Err(BadCpuList), "{text:?}");
        }
    }

    #[test]
    fn sets_behave_as_sets() {
        let mut set: CpuSet = [1, 64, 5000].into_iter().collect();
        assert_eq!((set.len(), set.contains(64), set.contains(5000)), (2, true, false));
        assert!(CpuSet::of(64).is_subset(&set) && !set.is_subset(&CpuSet::of(64)));
        set.remove(64);
        set.remove(1);
        assert!(set.is_empty());
        assert_eq!(CpuSet::first(3).iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
