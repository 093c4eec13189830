//! Traversals find what a walk over the same structure finds, in every kind of section and for every kind of key and
//! value.

mod common;

use reprieve_rcu::traverse::{Chained, TrieNode};
use reprieve_rcu::{Domain, Fencing, Field, field};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LASTS: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(60);

/// Two domains: one reads in narrow sections, and the other in locked ones, if possible.
fn domains() -> [Domain; 2] {
    [common::options(), common::options().fencing(Fencing::Fenced)].map(Domain::new)
}

#[derive(Default)]
struct Object {
    before: u16,
    next: AtomicPtr<Self>,
    number: u32,
}

#[test]
fn a_path_is_followed_to_its_end_or_to_a_null_pointer() {
    let next = field!(Object, next);
    let number = field!(Object, number);
    let before = field!(Object, before);
    for domain in domains() {
        let mut objects: Vec<Object> =
            (0..4).map(|n| Object { before: 9, number: n, ..Object::default() }).collect();
        let first = AtomicPtr::new(null_mut());
        // SAFETY: the objects outlive the sections.
        unsafe {
            assert_eq!(domain.follow(&first, (number,)), None);
            for length in 1..=4 {
                let object = &raw mut objects[length - 1];
                match length {
                    1 => first.store(object, Ordering::Release),
                    _ => objects[length - 2].next.store(object, Ordering::Release),
                }
                assert_eq!(domain.follow(&first, (before,)), Some(9));
                let ends = [
                    domain.follow(&first, (number,)),
                    domain.follow(&first, (next, number)),
                    domain.follow(&first, (next, next, number)),
                    domain.follow(&first, (next, next, next, number)),
                ];
                let expected: Vec<_> = (0..4).map(|n| (n < length as u32).then_some(n)).collect();
                assert_eq!(ends.as_slice(), expected, "{length}");
            }
        }
    }
}

struct Link<K, V> {
    value: V,
    next: AtomicPtr<Self>,
    key: K,
}

macro_rules! chained {
    ($($k:ty, $v:ty;)*) => {$(
        impl Chained for Link<$k, $v> {
            type Key = $k;
            type Value = $v;
            const NEXT: Field<Self, AtomicPtr<Self>> = field!(Link<$k, $v>, next);
            const KEY: Field<Self, $k> = field!(Link<$k, $v>, key);
            const VALUE: Field<Self, $v> = field!(Link<$k, $v>, value);
        }
    )*};
}
chained! {
    u8, (); u8, u8; u16, u16; u32, u32; u64, u64; char, [u8; 3]; i64, [u8; 15];
    u64, [u64; 2]; u64, [u8; 31]; (u32, u32), u64; u128, u64; u64, [u8; 63]; u64, [u64; 16]; u64, [u64; 17]; Ipv4Addr, u64;
}

/// Looks up all keys that are there, the first one twice, and one key that is not there.
fn chain<K: Copy + PartialEq + std::fmt::Debug, V: Copy + PartialEq + std::fmt::Debug>(
    key: fn(u8) -> K,
    value: fn(u8) -> V,
) where
    Link<K, V>: Chained<Key = K, Value = V>,
{
    for domain in domains() {
        let mut links: Vec<Link<K, V>> =
            (1..=9).map(|n| Link { value: value(n), next: AtomicPtr::default(), key: key(n) }).collect();
        let first = AtomicPtr::new(null_mut());
        // SAFETY: the links outlive the sections.
        unsafe {
            assert_eq!(domain.find_in_chain(&first, &key(1)), None);
            for at in (0..links.len()).rev() {
                links[at].next = AtomicPtr::new(first.load(Ordering::Relaxed));
                first.store(&raw mut links[at], Ordering::Release);
                let found: Vec<_> = (0..=9).map(|n| domain.find_in_chain(&first, &key(n))).collect();
                let expected: Vec<_> = (0..=9).map(|n| (usize::from(n) > at).then(|| value(n))).collect();
                assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn chains_of_keys_and_values_of_every_size_are_searched() {
    fn bytes<const N: usize>(n: u8) -> [u8; N] {
        std::array::from_fn(|i| (i as u8).wrapping_mul(n))
    }
    fn words<const N: usize>(n: u8) -> [u64; N] {
        std::array::from_fn(|i| u64::from_ne_bytes(bytes(n)) + i as u64)
    }
    // Keys that differ only in the topmost byte, if there is more than one.
    let high = |n: u8| u64::from(n) << 56 | 5;
    chain(|n| n, |_| ());
    chain(|n| n, |n| n);
    chain(|n| u16::from(n) << 8 | 5, u16::from);
    chain(|n| u32::from(n) << 24 | 5, u32::from);
    chain(high, u64::from);
    chain(char::from, bytes);
    chain(|n| i64::from(n) - 5, bytes);
    chain(high, words::<2>);
    chain(high, bytes::<31>);
    chain(high, bytes::<63>);
    chain(high, words::<16>);
    chain(|n| Ipv4Addr::new(n, 0, 0, 1), u64::from);
    // These do not run in narrow sections: a key of two parts, a key of two words, and a value that fits no
    // registers.
    chain(|n| (u32::from(n), 5), u64::from);
    chain(|n| u128::from(n) << 120, u64::from);
    chain(high, words::<17>);
}

struct Branch<const N: usize, V = u32> {
    value: AtomicPtr<V>,
    children: [AtomicPtr<Self>; N],
}

impl<const N: usize, V: Copy> TrieNode<N> for Branch<N, V> {
    type Value = V;
    const CHILDREN: Field<Self, [AtomicPtr<Self>; N]> = field!(Branch<N, V>, children);
    const VALUE: Field<Self, AtomicPtr<V>> = field!(Branch<N, V>, value);
}

impl<const N: usize, V> Default for Branch<N, V> {
    fn default() -> Self {
        Self { value: AtomicPtr::default(), children: std::array::from_fn(|_| AtomicPtr::default()) }
    }
}

impl<const N: usize, V> Drop for Branch<N, V> {
    fn drop(&mut self) {
        free(&mut self.value);
        self.children.iter_mut().for_each(free);
    }
}

fn free<T>(pointer: &mut AtomicPtr<T>) {
    let pointer = *pointer.get_mut();
    if !pointer.is_null() {
        // SAFETY: it came from a box, and no section is left.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// The place below `root` for the first digits of `key`.
fn node<const N: usize, V>(root: &AtomicPtr<Branch<N, V>>, key: u128, digits: u32) -> &Branch<N, V> {
    let bits = N.trailing_zeros();
    let mut place = root;
    for digit in 0..=digits {
        if place.load(Ordering::Relaxed).is_null() {
            place.store(Box::into_raw(Box::default()), Ordering::Release);
        }
        // SAFETY: the trie is freed at the end of the test.
        let node = unsafe { &*place.load(Ordering::Relaxed) };
        if digit == digits {
            return node;
        }
        let shift = 128 - bits * (digit + 1);
        place = &node.children[(key >> shift) as usize % N];
    }
    unreachable!()
}

/// Random prefixes of random lengths, compared with the longest match in a list.
fn trie<const N: usize>(seed: u64) {
    let bits = N.trailing_zeros();
    let mut random = seed;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for domain in domains() {
        let mut root = AtomicPtr::<Branch<N>>::default();
        // SAFETY: nodes and values are freed at the end.
        let look_up = |root: &AtomicPtr<_>, key: u128| unsafe { domain.longest_prefix(root, key) };
        assert_eq!(look_up(&root, 1), None);
        let mut prefixes: Vec<(u128, u32, u32)> = Vec::new();
        for n in 0..200 {
            // Only a few bits differ, so that keys share prefixes.
            let digits = next() as u32 % (128 / bits).min(12);
            let key = (0..128).fold(0u128, |key, _| key << 1 | u128::from(next() % 8 == 0));
            let kept = if digits == 0 { 0 } else { key >> (128 - digits * bits) << (128 - digits * bits) };
            // The empty prefix comes last: until then some keys have no prefix.
            if digits > 0 && !prefixes.iter().any(|&(k, d, _)| (k, d) == (kept, digits)) {
                node(&root, kept, digits).value.store(Box::into_raw(Box::new(n)), Ordering::Release);
                prefixes.push((kept, digits, n));
            }
            let matches = |&&(k, d, _): &&(u128, u32, u32)| d > 0 && (key ^ k) >> (128 - d * bits) == 0;
            let longest = prefixes.iter().filter(matches).max_by_key(|&&(_, d, _)| d).map(|&(_, _, n)| n);
            assert_eq!(look_up(&root, key), longest, "{key:032x}");
        }
        let none = prefixes.iter().fold(0u128, |key, &(k, ..)| key | k) ^ u128::MAX;
        let before = look_up(&root, none);
        node(&root, 0, 0).value.store(Box::into_raw(Box::new(777)), Ordering::Release);
        assert_eq!(look_up(&root, none), before.or(Some(777)));
        free(&mut root);
    }
}

#[test]
fn the_longest_prefix_is_found_in_tries_of_every_width() {
    trie::<2>(1);
    trie::<4>(2);
    trie::<8>(3);
    trie::<16>(4);
    trie::<256>(5);
}

/// Values that need several registers, at the end of long keys: as many operands as there can be.
#[test]
fn values_of_every_size_are_found_at_the_end_of_long_keys() {
    fn deep<V: Copy + PartialEq + std::fmt::Debug>(value: V) {
        let key: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        for domain in domains() {
            for digits in [1, 8, 9, 16] {
                let mut root = AtomicPtr::<Branch<256, V>>::default();
                node(&root, key.to_bits(), digits)
                    .value
                    .store(Box::into_raw(Box::new(value)), Ordering::Release);
                // SAFETY: nodes and values are freed at the end.
                unsafe {
                    assert_eq!(domain.longest_prefix(&root, key), Some(value), "{digits} bytes");
                    assert_eq!(domain.longest_prefix(&root, !key.to_bits()), None);
                }
                free(&mut root);
            }
        }
    }
    deep(());
    deep(7u8);
    deep([1u8, 2, 3]);
    deep([1u32, 2, 3]);
    deep([1u64, 2]);
    deep([3u8; 31]);
    deep([1u64, 2, 3, 4]);
    deep([5u8; 63]);
    deep([6u64; 16]);
    deep([7u64; 17]);
}

/// A trie as deep as a whole key: at the last level there is no further digit.
#[test]
fn addresses_are_looked_up_from_their_first_bit_to_their_last() {
    for domain in domains() {
        let mut root = AtomicPtr::<Branch<16>>::default();
        let v4 = Ipv4Addr::new(10, 1, 2, 3);
        let v6: Ipv6Addr = "2001:db8::17".parse().unwrap();
        node(&root, u128::from(v4.to_bits()) << 96, 8)
            .value
            .store(Box::into_raw(Box::new(4)), Ordering::Release);
        node(&root, v6.to_bits(), 32).value.store(Box::into_raw(Box::new(6)), Ordering::Release);
        // SAFETY: nodes and values are freed at the end.
        unsafe {
            assert_eq!(domain.longest_prefix(&root, v4), Some(4));
            assert_eq!(domain.longest_prefix(&root, v4.to_bits()), Some(4));
            assert_eq!(domain.longest_prefix(&root, Ipv4Addr::new(10, 1, 2, 4)), None);
            assert_eq!(domain.longest_prefix(&root, v6), Some(6));
            assert_eq!(domain.longest_prefix(&root, v6.to_bits() ^ 1), None);
            assert_eq!(domain.longest_prefix(&root, 0x0a01_0203_u64 << 32), Some(4));
            assert_eq!(domain.longest_prefix(&root, 0x0a01_u16), None);
        }
        free(&mut root);
    }
}

/// A link that is spoilt when it may be freed, and freed at the end of the test: memory that is used again would hide
/// a late reader.
struct Spoilt {
    key: u64,
    value: u64,
    next: AtomicPtr<Self>,
}

static SPOILT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// # Safety
/// Nobody can find the link, which came from a box.
unsafe fn spoil(link: *mut Spoilt) {
    // SAFETY: the caller's promise.
    unsafe {
        (*link).next.store(null_mut(), Ordering::Relaxed);
    }
    SPOILT.lock().unwrap().push(link.expose_provenance());
}

impl Chained for Spoilt {
    type Key = u64;
    type Value = u64;
    const NEXT: Field<Self, AtomicPtr<Self>> = field!(Spoilt, next);
    const KEY: Field<Self, u64> = field!(Spoilt, key);
    const VALUE: Field<Self, u64> = field!(Spoilt, value);
}

/// One thread replaces every link in turn, and each link is freed at once. The other threads find all keys all the
/// time.
#[test]
fn what_is_replaced_during_a_search_is_not_found_freed() {
    // Long enough for a search to be under way when a link is freed.
    const KEYS: u64 = 500;
    for domain in domains() {
        let link =
            |key, next| Box::into_raw(Box::new(Spoilt { key, value: key * 31, next: AtomicPtr::new(next) }));
        let first = AtomicPtr::new((0..KEYS).fold(null_mut(), |next, key| link(key, next)));
        let (stop, searches) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for key in (0..KEYS).cycle() {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        // SAFETY: links are replaced first, and then retired in this domain.
                        assert_eq!(unsafe { domain.find_in_chain(&first, &key) }, Some(key * 31));
                        searches.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // Long enough for searches to be preempted. Ends early if one has failed.
            let begun = Instant::now();
            while begun.elapsed() < LASTS
                || (searches.load(Ordering::Relaxed) < 1_000 && begun.elapsed() < LIMIT)
            {
                let mut place = &first;
                for _ in 0..KEYS {
                    let old = place.load(Ordering::Relaxed);
                    // SAFETY: this thread alone replaces links; each came from a box.
                    unsafe {
                        place.store(link((*old).key, (*old).next.load(Ordering::Relaxed)), Ordering::Release);
                        domain.retire_with(old, size_of::<Spoilt>(), spoil);
                        place = &(*place.load(Ordering::Relaxed)).next;
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(searches.into_inner() >= 1_000);
        let mut link = first.into_inner();
        while !link.is_null() {
            // SAFETY: no search is under way.
            let mut last = unsafe { Box::from_raw(link) };
            link = *last.next.get_mut();
        }
        for link in SPOILT.lock().unwrap().drain(..) {
            // SAFETY: it was retired, and is freed once.
            drop(unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Spoilt>(link)) });
        }
    }
}
