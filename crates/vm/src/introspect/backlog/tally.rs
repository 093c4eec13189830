//! Counts objects by who frees them and what they are.

use std::collections::HashMap;

use super::slabs::Slabs;

/// Who frees an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Callback {
    /// A function, by its address.
    Function(u64),
    /// `kfree_rcu`, which needs no function.
    KfreeRcu,
    /// Any of too many functions: no kernel has so many.
    Other,
}

/// Functions below this address are offsets of the `rcu_head` in an object for `kfree_rcu` (`__is_kvfree_rcu_offset`).
const OFFSETS: u64 = 4096;
/// Most owners that are told apart.
const OWNERS: usize = 4096;

impl Callback {
    /// The owner of an `rcu_head` with this second word.
    pub fn of(function: u64) -> Callback {
        if function < OFFSETS { Callback::KfreeRcu } else { Callback::Function(function) }
    }
}

/// Objects, by callback and cache.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    objects: HashMap<(Callback, Option<usize>), u64>,
}

impl Tally {
    /// Counts an object.
    pub fn see(&mut self, callback: Callback, address: u64, slabs: &Slabs) {
        let key = (callback, slabs.cache_of(address));
        self.add(key, 1);
    }

    /// Counts all that another has.
    pub fn join(&mut self, other: Tally) {
        other.objects.into_iter().for_each(|(key, count)| self.add(key, count));
    }

    fn add(&mut self, key: (Callback, Option<usize>), count: u64) {
        let is_new = self.objects.len() >= OWNERS && !self.objects.contains_key(&key);
        let key = if is_new { (Callback::Other, None) } else { key };
        *self.objects.entry(key).or_default() += count;
    }

    /// All counts, the largest first.
    pub fn sorted(&self) -> Vec<(Callback, Option<usize>, u64)> {
        let all = self.objects.iter().map(|((callback, cache), count)| (*callback, *cache, *count));
        let mut sorted: Vec<_> = all.collect();
        sorted
            .sort_unstable_by_key(|(callback, cache, count)| (std::cmp::Reverse(*count), *callback, *cache));
        sorted
    }
}
