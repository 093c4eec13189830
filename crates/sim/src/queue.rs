//! The event queue: timers ordered by (time, class, sequence).
//!
//! An entity owns a few timers for the whole run, each armed for one time at most. So the number of keys is bounded by
//! the number of timers. Of two timers armed for the same time, the one of the lower class comes first; within a class,
//! the one armed first.
//!
//! The set of timers is fixed, so the queue is a selection tree (Knuth, The Art of Computer Programming, volume 3,
//! section 5.4.1) rather than a heap. Each timer has its own leaf; four neighbours form a group, and the least key of a
//! group is copied to its parent. Keys do not move, so no positions are kept. Arming a timer replaces one leaf and
//! recomputes the groups above it, up to the first group whose least key stays the same: one cache line a level, with
//! conditional moves instead of a heap's mispredicted branches.
//!
//! The handler of a timer usually arms it again at once. So [`Queue::pop`] leaves the key in the tree, and the next pop
//! removes it unless the timer was armed again. The usual event then costs one walk up the tree instead of two.
//!
//! Invariants: a group's slot in its parent holds the group's least key; `least` is the least key of the root; an
//! unarmed timer has the greatest possible key, except `popped`, which still has its old one.

use std::hint::select_unpredictable;

/// A timer of this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timer(u32);

impl Timer {
    /// Its number: timers are numbered from 0 in the order in which they were added.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Of timers that expire at the same time, those of the lower class come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// The end of a stretch of work. It comes first, so that others see the work done.
    Work = 0,
    /// A guest's clock event.
    GuestClock = 1,
    /// A tick or timer of the host's scheduler.
    HostClock = 2,
    /// An outside event: a spike or another stimulus.
    Stimulus = 3,
    /// A sample of the state. It sees everything that happened at its time.
    Probe = 4,
}

/// The most timers in one queue; a key has no room for a larger number.
pub const MAX_TIMERS: usize = 1 << TIMER_BITS;

const TIMER_BITS: u32 = 24;
const SEQUENCE_BITS: u32 = 32;
/// Keys in a group: 4 keys of 16 bytes fill a cache line.
const SLOTS: usize = 4;

/// When a timer expires. `rank` holds, from the highest bit: class (8 bits), sequence (32 bits), timer (24 bits). The
/// timer never decides the order, because no two keys have the same class and sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    time_ns: u64,
    rank: u64,
}

impl Key {
    /// The key of an unarmed timer. No armed timer has it, because its class does not exist.
    const NEVER: Key = Key { time_ns: u64::MAX, rank: u64::MAX };

    fn new(time_ns: u64, class: Class, sequence: u32, timer: Timer) -> Key {
        let class = (class as u64) << (SEQUENCE_BITS + TIMER_BITS);
        Key { time_ns, rank: class | u64::from(sequence) << TIMER_BITS | u64::from(timer.0) }
    }

    fn timer(self) -> Timer {
        Timer((self.rank & (MAX_TIMERS as u64 - 1)) as u32)
    }

    /// The key as one number, in the order of the keys.
    fn order(self) -> u128 {
        u128::from(self.time_ns) << 64 | u128::from(self.rank)
    }

    /// The lesser of two keys. Which one it is cannot be predicted, so this must not compile to a branch.
    fn min(self, other: Key) -> Key {
        let less = self.order() < other.order();
        Key {
            time_ns: select_unpredictable(less, self.time_ns, other.time_ns),
            rank: select_unpredictable(less, self.rank, other.rank),
        }
    }
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Group([Key; SLOTS]);

impl Group {
    const EMPTY: Group = Group([Key::NEVER; SLOTS]);

    fn least(&self) -> Key {
        let [a, b, c, d] = self.0;
        a.min(b).min(c.min(d))
    }

    /// The least key of the other three slots.
    fn least_beside(&self, slot: usize) -> Key {
        self.0[slot ^ 1].min(self.0[slot ^ 2].min(self.0[slot ^ 3]))
    }
}

#[derive(Clone, Copy)]
struct Place {
    group: usize,
    slot: usize,
}

impl Place {
    /// The slot that holds the least key of this group; `None` for the root.
    fn parent(self) -> Option<Place> {
        let above = self.group.checked_sub(1)?;
        Some(Place { group: above / SLOTS, slot: above % SLOTS })
    }
}

/// The timers of a run.
#[derive(Debug)]
pub struct Queue {
    /// The root, then level by level: the children of group `g` are groups `4g + 1` to `4g + 4`. The leaves are the
    /// last level; its unused end is not allocated.
    groups: Vec<Group>,
    /// The first group of the leaves.
    leaves: usize,
    least: Key,
    /// The timer popped last, while its key is still in the tree.
    popped: Option<Timer>,
    classes: Vec<Class>,
    /// The sequence number of the next timer that is armed.
    sequence: u32,
    /// A deliberate fault for tests: of timers with the same time and class, the one armed last comes first.
    #[cfg(test)]
    pub(crate) ties_reversed: bool,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::new()
    }
}

impl Queue {
    /// A queue without timers.
    pub fn new() -> Queue {
        Queue {
            groups: vec![Group::EMPTY],
            leaves: 0,
            least: Key::NEVER,
            popped: None,
            classes: Vec::new(),
            sequence: 0,
            #[cfg(test)]
            ties_reversed: false,
        }
    }

    /// Adds an unarmed timer. Panics if there are [`MAX_TIMERS`] already.
    pub fn add(&mut self, class: Class) -> Timer {
        assert!(self.classes.len() < MAX_TIMERS, "a queue has at most {MAX_TIMERS} timers");
        let timer = Timer(self.classes.len() as u32);
        self.classes.push(class);
        if timer.index() == (3 * self.leaves + 1) * SLOTS {
            self.deepen();
        }
        if self.leaf(timer).group == self.groups.len() {
            self.groups.push(Group::EMPTY);
        }
        timer
    }

    /// Arms a timer, or moves an armed one. Of the timers with its time and class it now comes last.
    pub fn arm(&mut self, timer: Timer, at_ns: u64) {
        if self.sequence == u32::MAX {
            self.renumber();
        }
        if self.popped == Some(timer) {
            self.popped = None;
        }
        let key = Key::new(at_ns, self.classes[timer.index()], self.next_sequence(), timer);
        self.replace(timer, key);
    }

    fn next_sequence(&mut self) -> u32 {
        let next = self.sequence;
        self.sequence += 1;
        #[cfg(test)]
        if self.ties_reversed {
            return u32::MAX - next;
        }
        next
    }

    /// Disarms a timer, if it is armed.
    pub fn disarm(&mut self, timer: Timer) {
        if self.popped != Some(timer) {
            self.replace(timer, Key::NEVER);
        }
    }

    /// Disarms the next timer to expire, and returns it with its time.
    pub fn pop(&mut self) -> Option<(u64, Timer)> {
        self.pop_until(u64::MAX)
    }

    /// Like [`Queue::pop`], but `None` if the timer expires after `until_ns`.
    pub fn pop_until(&mut self, until_ns: u64) -> Option<(u64, Timer)> {
        self.settle();
        let next = self.least;
        if next.time_ns > until_ns || next == Key::NEVER {
            return None;
        }
        self.popped = Some(next.timer());
        Some((next.time_ns, next.timer()))
    }

    fn leaf(&self, timer: Timer) -> Place {
        Place { group: self.leaves + timer.index() / SLOTS, slot: timer.index() % SLOTS }
    }

    /// Replaces the key of a timer, and recomputes the groups above it.
    fn replace(&mut self, timer: Timer, key: Key) {
        let mut key = key;
        let mut place = Some(self.leaf(timer));
        while let Some(Place { group, slot }) = place {
            let keys = &mut self.groups[group];
            let beside = keys.least_beside(slot);
            let old = std::mem::replace(&mut keys.0[slot], key);
            if old.order() > beside.order() && key.order() > beside.order() {
                return;
            }
            key = beside.min(key);
            place = Place { group, slot }.parent();
        }
        self.least = key;
    }

    /// Removes the key of the timer popped last, unless it was armed again.
    fn settle(&mut self) {
        if let Some(popped) = self.popped.take() {
            self.replace(popped, Key::NEVER);
        }
    }

    /// Adds a level: four times as many leaves.
    fn deepen(&mut self) {
        let leaves = self.groups.split_off(self.leaves);
        self.leaves = self.leaves * SLOTS + 1;
        self.groups = vec![Group::EMPTY; self.leaves];
        self.groups.extend(leaves);
        self.decide_all();
    }

    fn decide_all(&mut self) {
        for group in (0..self.groups.len()).rev() {
            let least = self.groups[group].least();
            match (Place { group, slot: 0 }).parent() {
                Some(above) => self.groups[above.group].0[above.slot] = least,
                None => self.least = least,
            }
        }
    }

    /// Renumbers all keys in their order, so that sequence numbers start from 0 again. The key of `popped` is among
    /// them, which is harmless: it is removed by timer, not by number.
    #[cold]
    fn renumber(&mut self) {
        let leaves = self.groups[self.leaves..].iter_mut().flat_map(|group| &mut group.0);
        let mut armed: Vec<&mut Key> = leaves.filter(|key| **key != Key::NEVER).collect();
        armed.sort_unstable_by_key(|key| key.order());
        self.sequence = 0;
        for key in armed {
            let timer = key.timer();
            *key = Key::new(key.time_ns, self.classes[timer.index()], self.sequence, timer);
            self.sequence += 1;
        }
        self.decide_all();
    }
}

#[cfg(test)]
mod tests;
