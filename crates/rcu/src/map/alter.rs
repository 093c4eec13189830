//! What every change of one key does: reserve room for the garbage, lock the shard, decide, change.
//!
//! Invariants:
//! - Room is reserved before anything is changed; and outside of the lock, because reserving may have to wait.
//! - Keys, values and copies that are not stored are dropped after the lock is released, also if the user's code
//!   panics: each belongs to a variable that is older than the lock. Their destructors may write to the map.

use super::limbo::{Garbage, entry_bytes};
use super::shard::{Locked, Rebuilt};
use super::{Decision, Effect, RcuMap};
use crate::garbage::Full;
use crate::reclaim::Reclaim;
use crate::reclaim::Room;
use std::borrow::Borrow;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;

/// How an operation reserves room in the domain's limits.
pub(super) trait Admission {
    /// Why there may be no room.
    type Refusal;
    fn room(reclaim: &Reclaim, bytes: usize) -> Result<Room<'_>, Self::Refusal>;
}

/// By the domain's policy; if that yields no room, beyond the limits.
pub(super) enum InAnyCase {}
/// By the domain's policy, within the limits.
pub(super) enum WithinLimits {}

impl Admission for InAnyCase {
    type Refusal = Infallible;
    fn room(reclaim: &Reclaim, bytes: usize) -> Result<Room<'_>, Infallible> {
        Ok(reclaim.room_in_any_case(bytes))
    }
}

impl Admission for WithinLimits {
    type Refusal = Full;
    fn room(reclaim: &Reclaim, bytes: usize) -> Result<Room<'_>, Full> {
        reclaim.room(bytes)
    }
}

/// The key that an operation is given, and the key that it stores.
pub trait Keyed<K> {
    /// What is looked up.
    type Lookup: Hash + Eq + ?Sized;
    /// Whether there is a key to store if none is present.
    const INSERTS: bool = true;
    /// The key to look up.
    fn lookup(&self) -> &Self::Lookup;
    /// The key to store. `present` is the key that it replaces.
    fn store(self, present: Option<&K>) -> K;
}

/// A key that the caller gives away.
#[derive(Debug)]
pub struct Owned<K>(pub(super) K);
/// A key that the caller lends, and that is copied if it is to be stored.
#[derive(Debug)]
pub struct Lent<'q, Q: ?Sized>(pub(super) &'q Q);
/// A key that the caller lends, for an operation that does nothing unless there is an entry.
pub(super) struct Present<'q, Q: ?Sized>(pub(super) &'q Q);

impl<K: Hash + Eq> Keyed<K> for Owned<K> {
    type Lookup = K;
    fn lookup(&self) -> &K {
        &self.0
    }
    fn store(self, _present: Option<&K>) -> K {
        self.0
    }
}

impl<K, Q: Hash + Eq + ToOwned<Owned = K> + ?Sized> Keyed<K> for Lent<'_, Q> {
    type Lookup = Q;
    fn lookup(&self) -> &Q {
        self.0
    }
    fn store(self, _present: Option<&K>) -> K {
        self.0.to_owned()
    }
}

impl<K: Clone, Q: Hash + Eq + ?Sized> Keyed<K> for Present<'_, Q> {
    type Lookup = Q;
    const INSERTS: bool = false;
    fn lookup(&self) -> &Q {
        self.0
    }
    fn store(self, present: Option<&K>) -> K {
        present.expect("nothing is stored unless an entry is present").clone()
    }
}

/// What an operation did. The entries live at least as long as any section of the domain that began before the operation.
pub(super) struct Altered<K, V> {
    pub(super) effect: Effect,
    /// The entry that was replaced or removed.
    pub(super) old: Option<NonNull<(K, V)>>,
    /// The entry that is there now.
    pub(super) now: Option<NonNull<(K, V)>>,
}

/// Two slots: that of the present entry, and that of the entry to come.
type Slots = [Option<usize>; 2];

/// What an operation has in hand. It is older than the lock, and so is dropped after the lock is released.
struct Hand<A, K, V> {
    given: Option<A>,
    key: Option<K>,
    value: Option<V>,
    tables: Vec<Rebuilt<K, V>>,
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets, removes or keeps the entry of a key. `decide` says which.
    pub(super) fn alter<P: Admission, A: Keyed<K>>(
        &self,
        given: A,
        decide: impl FnOnce(Option<&(K, V)>) -> Decision<V>,
    ) -> Result<Altered<K, V>, P::Refusal>
    where
        K: Borrow<A::Lookup> + Hash + Clone,
        V: Clone,
    {
        let hash = self.hasher().hash_one(given.lookup());
        let survey = |shard: &Locked<'_, K, V>| {
            let present = shard.find(hash, given.lookup());
            if present.is_none() && !A::INSERTS {
                return None;
            }
            let place = shard.place(hash, present);
            let bytes = match (place, present) {
                (None, _) => shard.table.bytes(),
                (Some(_), Some(_)) => entry_bytes::<K, V>(),
                (Some(_), None) => 0,
            };
            Some((bytes, [present, place]))
        };
        let Some((shard, room, slots)) = self.lock_with_room::<P, _>(self.shards.index(hash), survey)? else {
            return Ok(Altered { effect: Effect::Kept, old: None, now: None });
        };
        // The lock moves into the call and ends with it, also if it panics. What is in hand is dropped later, here.
        let mut hand = Hand { given: Some(given), key: None, value: None, tables: Vec::new() };
        let (altered, garbage) = self.decided(&mut hand, hash, decide, slots, shard);
        hand_over(room, garbage);
        Ok(altered)
    }

    /// Decides, and changes the shard. Returns what became of the entry, and the garbage that this makes. The user's
    /// code runs first.
    fn decided<A: Keyed<K>>(
        &self,
        hand: &mut Hand<A, K, V>,
        hash: u64,
        decide: impl FnOnce(Option<&(K, V)>) -> Decision<V>,
        [present, place]: Slots,
        mut shard: Locked<'_, K, V>,
    ) -> (Altered<K, V>, Option<Garbage<K, V>>)
    where
        K: Hash + Clone,
        V: Clone,
    {
        let old = present.map(|slot| shard.pointer_to(slot));
        let entry = present.map(|slot| shard.entry(slot));
        match (decide(entry), present) {
            (Decision::Keep, _) | (Decision::Remove, None) => {
                return (Altered { effect: Effect::Kept, old: None, now: old }, None);
            }
            (Decision::Remove, Some(slot)) => {
                let altered = Altered { effect: Effect::Removed, old, now: None };
                return (altered, Some(shard.remove(slot)));
            }
            (Decision::Set(value), _) => hand.value = Some(value),
        }
        let given = hand.given.take().expect("given at the start");
        hand.key = Some(given.store(entry.map(|(key, _)| key)));
        let effect = if old.is_some() { Effect::Replaced } else { Effect::Inserted };
        let Some(place) = place else {
            let slot = shard.rebuild(self.hasher(), Some(hash), present, &mut hand.tables);
            let (slot, mut new) = slot.zip(hand.tables.pop()).expect("a place in a new table");
            let now = new.fill(slot, hash, hand.entry());
            return (Altered { effect, old, now: Some(now) }, shard.replace(new));
        };
        // The new entry first, so that a reader that finds the old one removed finds the new one further on.
        let now = shard.fill(place, hash, hand.entry());
        (Altered { effect, old, now: Some(now) }, present.map(|slot| shard.remove(slot)))
    }

    /// Removes the entry of `key` if `doomed` says so. Returns the entry, which lives at least as long as any section
    /// of the domain that began before. Copies nothing.
    pub(super) fn take_out<P: Admission, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        doomed: impl FnOnce(&(K, V)) -> bool,
    ) -> Result<Option<NonNull<(K, V)>>, P::Refusal>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher().hash_one(key);
        let survey = |shard: &Locked<'_, K, V>| Some((entry_bytes::<K, V>(), shard.find(hash, key)?));
        let Some((mut shard, room, slot)) = self.lock_with_room::<P, _>(self.shards.index(hash), survey)?
        else {
            return Ok(None);
        };
        if !doomed(shard.entry(slot)) {
            return Ok(None);
        }
        let (entry, garbage) = (shard.pointer_to(slot), shard.remove(slot));
        drop(shard);
        hand_over(room, Some(garbage));
        Ok(Some(entry))
    }
}

impl<K, V, S> RcuMap<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Locks a shard, with room for the bytes of garbage that `survey` finds necessary. Locks again if more room
    /// turns out to be needed. Returns none if `survey` finds nothing to do.
    pub(super) fn lock_with_room<P: Admission, T>(
        &self,
        index: usize,
        survey: impl Fn(&Locked<'_, K, V>) -> Option<(usize, T)>,
    ) -> Result<Option<LockedWithRoom<'_, K, V, T>>, P::Refusal> {
        let mut room: Option<Room<'_>> = None;
        loop {
            let shard = self.shards.lock(index);
            let Some((bytes, found)) = survey(&shard) else { return Ok(None) };
            if bytes <= room.as_ref().map_or(0, Room::bytes) {
                return Ok(Some((shard, room, found)));
            }
            drop((shard, room.take()));
            room = Some(P::room(self.domain().reclaim(), bytes)?);
        }
    }
}

/// A shard's lock, the room for the garbage that its holder may make, and what the survey found.
type LockedWithRoom<'m, K, V, T> = (Locked<'m, K, V>, Option<Room<'m>>, T);

impl<A, K, V> Hand<A, K, V> {
    fn entry(&mut self) -> (K, V) {
        self.key.take().zip(self.value.take()).expect("an entry that was decided on")
    }
}

/// Passes garbage on to the domain. Must not be called under a lock, because the domain then frees what is due.
pub(super) fn hand_over<K, V>(room: Option<Room<'_>>, garbage: Option<Garbage<K, V>>)
where
    K: Send + 'static,
    V: Send + 'static,
{
    if let Some(garbage) = garbage {
        let room = room.expect("room was taken for garbage");
        // SAFETY: the caller made the garbage unreachable under a shard's lock.
        room.accept(unsafe { garbage.retired() });
    }
}
