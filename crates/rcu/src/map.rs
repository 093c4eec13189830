//! A concurrent hash map: look-ups are wait-free, writers lock a shard, and a domain frees removed entries.
//!
//! Entries lie inline in open-addressing tables, so a look-up costs about one cache miss, as in `std`'s `HashMap`.
//! Readers write nothing and wait for nobody, not even while the map grows. Writers wait only for writers of the same
//! shard, and never for readers, except at the domain's limits.
//!
//! Invariants:
//! - An entry does not change once it is visible. Changing a value means publishing another entry and removing the old one.
//! - Rebuilding a shard means cloning its entries, hence `Clone`. Moving them is not possible: for a while readers
//!   would see both copies, so that a lock or an atomic in a value would exist twice, and stable Rust cannot tell
//!   which values have such parts. Clones share an `Arc` in the value.
//! - Whatever becomes invisible (an entry, a table) is freed after a grace period of the domain.
//! - A look-up or an iteration finds every key that is present all the while. `table.rs` and `control.rs` explain why.
//!
//! | file | |
//! |---|---|
//! | `group.rs` | sixteen control bytes and their states, compared at once |
//! | `control.rs` | how control bytes change, and all orderings but that of table pointers |
//! | `table.rs` | memory layout, search, placement |
//! | `shard.rs` | a table and its writers' lock; `shard/rebuild.rs` copies it |
//! | `limbo.rs` | garbage of a map, on its way to the domain |
//! | `alter.rs` | what every change of one key does |
//! | `write.rs`, `entry.rs`, `remove.rs`, `iter.rs` | the operations |
//! | `pinned.rs` | the same operations on a map with a section |
//! | `options.rs`, `collect.rs` | how large a map is made, and from which entries |
//! | `hash.rs`, `plain.rs` | a quick hasher; keys for restartable sections |

mod alter;
mod collect;
mod control;
mod entry;
mod group;
mod hash;
mod iter;
mod limbo;
mod options;
mod pinned;
mod plain;
mod remove;
mod shard;
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(shuttle, reprieve_fallback))
))]
mod short;
mod table;
mod write;

/// The one place to change when `control.rs` is compiled for a model checker.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
}

#[cfg(all(loom, test))]
mod model_tests;

pub use entry::Entry;
pub use hash::{FastHash, FastHasher};
pub use iter::{Iter, Keys, Values};
pub use options::MapOptions;
pub use pinned::Pinned;
pub use plain::Plain;
pub use write::{Decision, Effect};

use crate::core::Core;
use crate::domain::Domain;
use crate::local;
use crate::mode::is_asymmetric;
use crate::reader::Section;
use atomics::AtomicPtr;
use limbo::Garbage;
use shard::{Shards, load};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use table::Table;

/// How many look-ups `copied_many` fetches at a time: two cache lines each, a quarter of a first-level cache.
const FETCHED: usize = 64;

/// A concurrent hash map.
///
/// ```
/// use reprieve_rcu::RcuMap;
///
/// let ports: RcuMap<String, u16> = RcuMap::default();
/// ports.insert("http".to_owned(), 8080);
/// assert_eq!(ports.insert("http".to_owned(), 80), Some(8080)); // a clone of the old value
/// assert_eq!(ports.get_or_insert_with_ref("https", || 443), 443);
///
/// let view = ports.pin(); // a section, and references for as long as it lasts
/// assert_eq!(view.get("http"), Some(&80));
/// assert_eq!(view.remove("http"), Some(&80));
/// assert_eq!(view.iter().count(), 1);
/// ```
///
/// Sections of the map's domain work as well, and cost less where a thread is registered:
/// ```
/// use reprieve_rcu::{Domain, RcuMap};
///
/// let domain = Domain::default();
/// let ports = RcuMap::new(&domain);
/// ports.insert("http", 80);
/// let reader = domain.register("worker").unwrap();
/// let guard = reader.lock();
/// assert_eq!(ports.get("http", &guard), Some(&80));
/// ```
///
/// Keys and values that are plain data can be copied out in a restartable section, which delays no writer
/// even when its thread is preempted:
/// ```
/// # use reprieve_rcu::RcuMap;
/// let squares: RcuMap<u64, u64> = (0..100).map(|n| (n, n * n)).collect();
/// assert_eq!(squares.copied(&9), Some(81));
/// ```
///
/// # Values that cannot be cloned
///
/// Entries are cloned when a shard is rebuilt, so values must be [`Clone`]. Put locks and atomics behind an [`Arc`], whose
/// clones are the same object. Instead of a `Box<dyn Trait>`, use an `Arc<dyn Trait>`; `Arc::from` makes one from a box.
/// ```
/// use reprieve_rcu::RcuMap;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::{Arc, Mutex};
///
/// let hits: RcuMap<&str, Arc<AtomicU64>> = RcuMap::default();
/// hits.pin().get_or_insert_with("/", Arc::default).fetch_add(1, Ordering::Relaxed);
///
/// let carts: RcuMap<u32, Arc<Mutex<Vec<&str>>>> = RcuMap::default();
/// carts.pin().get_or_insert_with(7, Arc::default).lock().unwrap().push("tea");
/// let cart = carts.pin().get(&7).cloned(); // stays when the view is gone, and when the entry is
/// carts.discard(&7);
/// assert_eq!(*cart.unwrap().lock().unwrap(), ["tea"]);
///
/// type Handler = Arc<dyn Fn(&str) -> String + Send + Sync>;
/// let routes: RcuMap<&str, Handler> = RcuMap::default();
/// routes.set("/hello", Arc::new(|name| format!("hello, {name}")));
/// assert_eq!(routes.pin().get("/hello").unwrap()("Ann"), "hello, Ann");
///
/// let shapes: RcuMap<u32, Arc<dyn std::fmt::Debug + Send + Sync>> = RcuMap::default();
/// let boxed: Box<dyn std::fmt::Debug + Send + Sync> = Box::new((3, 4));
/// shapes.set(1, Arc::from(boxed));
/// assert_eq!(format!("{:?}", shapes.pin().get(&1).unwrap()), "(3, 4)");
/// ```
///
/// # Lifetimes
///
/// A reference does not outlive its section:
/// ```compile_fail
/// # use reprieve_rcu::{Domain, RcuMap};
/// let domain = Domain::default();
/// let map = RcuMap::new(&domain);
/// map.insert(1, String::from("one"));
/// let guard = domain.lock();
/// let one = map.get(&1, &guard);
/// drop(guard);
/// println!("{one:?}");
/// ```
///
/// A map of one type is not a map of its supertype: other values could be put into that.
/// ```compile_fail
/// # use reprieve_rcu::{Domain, RcuMap};
/// let map: RcuMap<u8, for<'a> fn(&'a str)> = RcuMap::new(&Domain::default());
/// let other: &RcuMap<u8, fn(&'static str)> = &map;
/// ```
///
/// # Notes
/// - `Eq`, `Hash`, `Clone` and the closures of writers run under the lock of a shard, except where a method says
///   otherwise. They may read the same map; if they write to it, they deadlock. If they panic, the map is unchanged.
/// - Keys and values are dropped outside of locks, by the thread that frees them. Their destructors may use the map.
/// - An update publishes a new entry and needs a free slot. Many updates of one key therefore cause its shard to be
///   rebuilt, every few hundred updates. For a few hot keys, let the value be an `Arc<RcuCell<T>>`.
/// - The hash must vary in its upper bits, too: the topmost seven are compared before keys are, and the bits below
///   them select the shard.
/// - In the child of a fork the map can be read. It can be written if no other thread of the parent was writing to it.
pub struct RcuMap<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    domain: Domain,
    /// The domain's core, one load nearer.
    core: Arc<Core>,
    shards: Shards<K, V>,
    hasher: S,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> RcuMap<K, V> {
    /// A map whose removed entries are freed by `domain`. Its hasher is that of `std`, with a random seed.
    pub fn new(domain: &Domain) -> Self {
        Self::with_hasher(domain, RandomState::new())
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> RcuMap<K, V, S> {
    /// A map that hashes keys by `hasher`.
    pub fn with_hasher(domain: &Domain, hasher: S) -> Self {
        Self::with_options(domain, MapOptions::default(), hasher)
    }

    /// A map with the given options.
    pub fn with_options(domain: &Domain, options: MapOptions, hasher: S) -> Self {
        Self {
            domain: domain.clone(),
            core: domain.core().clone(),
            shards: Shards::new(options.shards, options.capacity),
            hasher,
        }
    }

    /// The domain that frees removed entries.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The hasher of the keys.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// The number of entries. While others write, it is the sum of what the shards held at slightly different moments.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn assert_section(&self, section: &impl Section) {
        assert!(section.is_of(&self.core), "the section is not one of the map's domain");
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> RcuMap<K, V, S> {
    /// The value of `key`, for as long as the section lasts. Wait-free.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    #[inline]
    pub fn get<'s, Q: Hash + Eq + ?Sized>(&self, key: &Q, section: &'s impl Section) -> Option<&'s V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key, section).map(|(_, value)| value)
    }

    /// The entry of `key`, for as long as the section lasts. Wait-free.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    #[inline]
    pub fn get_key_value<'s, Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        section: &'s impl Section,
    ) -> Option<(&'s K, &'s V)>
    where
        K: Borrow<Q>,
    {
        self.assert_section(section);
        // SAFETY: the section is one of the map's domain, and is borrowed for `'s`.
        unsafe { self.look_up(key) }
    }

    /// Whether there is an entry of `key`. Wait-free.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q, section: &impl Section) -> bool
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key, section).is_some()
    }

    /// The entry of `key`.
    ///
    /// # Safety
    /// The caller is in a section of the map's domain for all of `'s`.
    #[inline(always)]
    unsafe fn look_up<'s, Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&'s K, &'s V)>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        // SAFETY: tables and entries are retired in the domain whose section the caller is in, so they live as long
        // as the section.
        unsafe {
            let table = load::<K, V>(self.shards.pointer(hash));
            let (key, value) = table.entry(table.find(hash, key)?).as_ref();
            Some((key, value))
        }
    }

    /// A copy of the value of `key`, taken in a restartable section: a preempted reader delays no writer. The key is
    /// hashed before that section, so any hasher works. Where the domain's readers execute fences, a hazard slot pins
    /// the shard's table during the look-up, and what is removed from the table meanwhile is freed afterwards.
    /// Without restartable sections it is a short locked section.
    #[inline]
    pub fn copied(&self, key: &K) -> Option<V>
    where
        K: Plain + Hash,
        V: Copy,
    {
        self.copied_by_hash(self.hasher.hash_one(key), key)
    }

    /// As `copied`, with the key's hash given.
    #[inline(always)]
    fn copied_by_hash(&self, hash: u64, key: &K) -> Option<V>
    where
        K: Plain,
        V: Copy,
    {
        let pointer = self.shards.pointer(hash);
        #[cfg(all(
            target_os = "linux",
            target_arch = "x86_64",
            target_pointer_width = "64",
            not(any(shuttle, reprieve_fallback))
        ))]
        // SAFETY: the pointer is to a table of these types, which is retired in this domain.
        if let Some(found) = unsafe { short::copied(&self.core.clock.mode, pointer, hash, key) } {
            return found;
        }
        self.copied_otherwise(pointer, hash, *key)
    }

    /// Copies of the values of several keys, in their order. The result is that of `copied` for each key, but the
    /// processor fetches the entries from memory side by side. Use it for maps that are larger than the caches, and
    /// for some 16 keys or more.
    ///
    /// ```
    /// # use reprieve_rcu::RcuMap;
    /// let squares: RcuMap<u64, u64> = (0..100).map(|n| (n, n * n)).collect();
    /// assert_eq!(squares.copied_many(&[9, 100, 3]), [Some(81), None, Some(9)]);
    /// ```
    #[inline]
    pub fn copied_many<const N: usize>(&self, keys: &[K; N]) -> [Option<V>; N]
    where
        K: Plain + Hash,
        V: Copy,
    {
        let hashes = keys.each_ref().map(|key| self.hasher.hash_one(key));
        let mut values = [None; N];
        for begin in (0..N).step_by(FETCHED) {
            let part = begin..N.min(begin + FETCHED);
            self.fetch(&hashes[part.clone()]);
            for n in part {
                values[n] = self.copied_by_hash(hashes[n], &keys[n]);
            }
        }
        values
    }

    /// Asks the processor to fetch what look-ups of these hashes will load.
    #[inline(always)]
    #[cfg_attr(
        not(all(
            target_os = "linux",
            target_arch = "x86_64",
            target_pointer_width = "64",
            not(any(shuttle, reprieve_fallback))
        )),
        expect(unused_variables, clippy::unused_self, reason = "only x86-64 looks up in assembly")
    )]
    fn fetch(&self, hashes: &[u64]) {
        #[cfg(all(
            target_os = "linux",
            target_arch = "x86_64",
            target_pointer_width = "64",
            not(any(shuttle, reprieve_fallback))
        ))]
        // SAFETY: the pointers are to tables of these types, which are retired in this domain.
        unsafe {
            let mode = &self.core.clock.mode;
            // First all groups, because they lead to the entries.
            hashes.iter().for_each(|&h| short::fetch_group::<K, V>(mode, self.shards.pointer(h), h));
            hashes.iter().for_each(|&h| short::fetch_entry::<K, V>(mode, self.shards.pointer(h), h));
        }
    }

    /// As `copied`, in a restartable section around compiled code, or with the table pinned. Never inlined, so that
    /// `copied` stays small and the processor overlaps one look-up with the next.
    #[inline(never)]
    fn copied_otherwise(&self, pointer: &AtomicPtr<()>, hash: u64, key: K) -> Option<V>
    where
        K: Plain,
        V: Copy,
    {
        if !is_asymmetric(&self.core.clock.mode)
            && let Some(slot) = local::slot::claim_known(&self.core)
        {
            // SAFETY: the slot pins the table and the entries in it that are retired from now on.
            return unsafe {
                let table = Table::<K, V>::from_raw(slot.pin_fenced(pointer).cast_mut());
                table.find(hash, &key).map(|at| table.entry(at).as_ref().1)
            };
        }
        // SAFETY: the section loads, compares keys, which are plain, and copies. What it reaches lives as long as the
        // section.
        unsafe {
            self.domain.read(
                // By value, because a reference would send the key through memory.
                #[inline(always)]
                move || {
                    let table = load::<K, V>(pointer);
                    let slot = table.find(hash, &key)?;
                    Some(table.entry(slot).as_ref().1)
                },
            )
        }
    }
}

// A panic of the user's code leaves the map and its domain unchanged. The compiler cannot know that, because a domain
// has a hook.
impl<K, V, S> UnwindSafe for RcuMap<K, V, S>
where
    K: RefUnwindSafe + Send + Sync + 'static,
    V: RefUnwindSafe + Send + Sync + 'static,
    S: UnwindSafe,
{
}
impl<K, V, S> RefUnwindSafe for RcuMap<K, V, S>
where
    K: RefUnwindSafe + Send + Sync + 'static,
    V: RefUnwindSafe + Send + Sync + 'static,
    S: RefUnwindSafe,
{
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for RcuMap<K, V, S> {
    /// Retires all entries at once. At the domain's limits this waits as
    /// [`Options::at_limit`](crate::Options::at_limit) says, and then exceeds them.
    fn drop(&mut self) {
        let garbage = Garbage::Tables(self.shards.take());
        let room = self.domain.reclaim().room_in_any_case(garbage.bytes());
        // SAFETY: nobody can reach the map any more. References to entries may live on in sections, for which the
        // domain waits.
        room.accept(unsafe { garbage.retired() });
    }
}
