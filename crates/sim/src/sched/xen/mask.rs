//! A set of pCPUs, searched in turn.

use crate::bits::bits;
use crate::sched::Cpu;

const BITS: u32 = u64::BITS;

/// A set of pCPUs. Two that are used together are for the same number of pCPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask(Vec<u64>);

impl Mask {
    /// None of that many pCPUs.
    pub fn none(cpus: u32) -> Mask {
        Mask(vec![0; cpus.div_ceil(BITS) as usize])
    }

    /// These of that many pCPUs; all if none is named, and those that do not exist are left out.
    pub fn of(cpus: u32, named: &[Cpu]) -> Mask {
        let mut mask = Mask::none(cpus);
        if named.is_empty() {
            (0..cpus).for_each(|cpu| mask.insert(cpu));
        }
        named.iter().filter(|cpu| cpu.0 < cpus).for_each(|cpu| mask.insert(cpu.0));
        mask
    }

    /// Those of the set that are named; all of it if none of them is.
    pub fn narrowed(&self, named: &[Cpu]) -> Mask {
        let both = self.and(&Mask::of(self.0.len() as u32 * BITS, named));
        if both.is_empty() { self.clone() } else { both }
    }

    /// Adds one.
    pub fn insert(&mut self, cpu: u32) {
        self.0[(cpu / BITS) as usize] |= 1 << (cpu % BITS);
    }

    /// Takes one out.
    pub fn remove(&mut self, cpu: u32) {
        self.0[(cpu / BITS) as usize] &= !(1 << (cpu % BITS));
    }

    /// Whether it is in the set.
    pub fn has(&self, cpu: u32) -> bool {
        self.0.get((cpu / BITS) as usize).is_some_and(|word| word >> (cpu % BITS) & 1 == 1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Those of both sets.
    pub fn and(&self, other: &Mask) -> Mask {
        Mask(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    /// Whether the sets have one in common.
    pub fn meets(&self, other: &Mask) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// The lowest.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The first one after `cpu` that is in this set and in `other`, in turn: `cpu` itself comes last.
    pub fn next_with(&self, other: &Mask, cpu: u32) -> Option<u32> {
        let words = self.0.len() as u32;
        let (at, bit) = (cpu / BITS, cpu % BITS);
        let both = |word: u32| self.0[word as usize] & other.0[word as usize];
        let up_to = u64::MAX >> (BITS - 1 - bit);
        let parts = std::iter::once((at, both(at) & !up_to))
            .chain((1..words).map(|step| (at + step) % words).map(|word| (word, both(word))))
            .chain(std::iter::once((at, both(at) & up_to)));
        parts.filter(|part| part.1 != 0).map(|(word, bits)| word * BITS + bits.trailing_zeros()).next()
    }

    /// All, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.0).flat_map(|(at, &word)| bits(word).map(move |bit| at * BITS + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_searched_in_turn_and_across_words() {
        let all = Mask::of(130, &[]);
        let some = Mask::of(130, &[Cpu(3), Cpu(64), Cpu(129), Cpu(500)]);
        assert_eq!((all.count(), some.count()), (130, 3));
        let next = |cpu| some.next_with(&all, cpu).unwrap();
        assert_eq!([next(0), next(3), next(63), next(64), next(129)], [3, 64, 64, 129, 3]);
        let one = Mask::of(130, &[Cpu(64)]);
        assert_eq!(one.next_with(&some, 64), Some(64), "itself comes last");
        assert_eq!(one.next_with(&Mask::none(130), 0), None);
        assert!(one.meets(&some) && !one.meets(&Mask::of(130, &[Cpu(65)])));
        assert_eq!(some.iter().collect::<Vec<_>>(), [3, 64, 129]);
        assert_eq!(some.and(&one), one);
        assert!(Mask::none(130).is_empty() && !one.has(1000));
    }
}
