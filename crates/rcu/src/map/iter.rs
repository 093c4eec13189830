//! Iteration over a map's entries, while writers change it.

use super::RcuMap;
use super::group::{Lanes, WIDTH};
use super::shard::Shards;
use super::table::Table;
use crate::reader::Section;
use std::fmt;
use std::iter::FusedIterator;

/// All entries, in no particular order; see [`RcuMap::iter`].
pub struct Iter<'s, K, V> {
    shards: &'s Shards<K, V>,
    /// The shard after that of `table`.
    next_shard: usize,
    table: Table<K, V>,
    /// The group after that of `lanes`.
    next_group: usize,
    /// The lanes of the group that are still to come.
    lanes: Lanes,
}

/// All keys, in no particular order; see [`RcuMap::iter`].
pub struct Keys<'s, K, V>(Iter<'s, K, V>);

/// All values, in no particular order; see [`RcuMap::iter`].
pub struct Values<'s, K, V>(Iter<'s, K, V>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> RcuMap<K, V, S> {
    /// Iterates over all entries, and holds up no writer. Sees every entry that is there all the while, and may or
    /// may not see one that is inserted or removed meanwhile. An entry whose value is changed meanwhile is seen with
    /// a value that it had at some moment, and may be seen again with a later one.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    pub fn iter<'s>(&'s self, section: &'s impl Section) -> Iter<'s, K, V> {
        self.assert_section(section);
        Iter {
            shards: &self.shards,
            next_shard: 0,
            table: Table::vacant(),
            next_group: 0,
            lanes: Lanes::NONE,
        }
    }

    /// Iterates over all keys, as `iter` does.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    pub fn keys<'s>(&'s self, section: &'s impl Section) -> Keys<'s, K, V> {
        Keys(self.iter(section))
    }

    /// Iterates over all values, as `iter` does.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    pub fn values<'s>(&'s self, section: &'s impl Section) -> Values<'s, K, V> {
        Values(self.iter(section))
    }
}

impl<'s, K, V> Iterator for Iter<'s, K, V> {
    type Item = (&'s K, &'s V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(lane) = self.lanes.next() {
                // SAFETY: the lane held an entry when the group was loaded, with Acquire, within the section `'s`. So
                // the entry is complete, and lives as long as the section.
                let (key, value) = unsafe { self.table.entry((self.next_group - 1) * WIDTH + lane).as_ref() };
                return Some((key, value));
            }
            if self.next_group < self.table.groups() {
                // SAFETY: one of the table's groups.
                self.lanes = unsafe { self.table.group(self.next_group) }.full();
                self.next_group += 1;
            } else if self.next_shard < self.shards.count() {
                // SAFETY: the caller is in a section for `'s`, as long as the iterator lives.
                self.table = unsafe { self.shards.table(self.next_shard) };
                self.next_shard += 1;
                self.next_group = 0;
            } else {
                return None;
            }
        }
    }
}

// By hand, because a derived one would require that entries are `Clone`.
impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    /// What is still to come.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

/// Iterators over one part of each entry.
macro_rules! part {
    ($iter:ident, $part:ident, $at:tt) => {
        impl<'s, K, V> Iterator for $iter<'s, K, V> {
            type Item = &'s $part;
            fn next(&mut self) -> Option<&'s $part> {
                self.0.next().map(|entry| entry.$at)
            }
        }

        impl<K, V> Clone for $iter<'_, K, V> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }

        impl<K, V> fmt::Debug for $iter<'_, K, V>
        where
            $part: fmt::Debug,
        {
            /// What is still to come.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(self.clone()).finish()
            }
        }

        impl<K, V> FusedIterator for $iter<'_, K, V> {}
    };
}
part!(Keys, K, 0);
part!(Values, V, 1);
