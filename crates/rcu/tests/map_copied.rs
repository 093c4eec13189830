//! `RcuMap::copied` against `get`, for keys and values of every size that fits registers and some that do not, among
//! many keys and among keys that all collide.

mod common;

use reprieve_rcu::RcuMap;
use reprieve_rcu::map::{FastHash, Plain};
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

/// A hasher under which all keys collide.
#[derive(Clone, Default)]
struct One;
impl BuildHasher for One {
    type Hasher = One;
    fn build_hasher(&self) -> One {
        One
    }
}
impl Hasher for One {
    fn finish(&self) -> u64 {
        0x1234_5678_9abc_def0
    }
    fn write(&mut self, _: &[u8]) {}
}

/// Half of the keys have entries. Some of the others had one before.
fn agrees<K, V, S>(keys: impl Iterator<Item = K>, value: impl Fn(usize) -> V, hasher: S)
where
    K: Plain + Hash + Debug + Send + Sync + 'static,
    V: Copy + PartialEq + Debug + Send + Sync + 'static,
    S: BuildHasher,
{
    let map = RcuMap::with_hasher(&common::domain(), hasher);
    let keys: Vec<K> = keys.collect();
    assert_eq!(map.copied(&keys[0]), None, "an empty map");
    assert_eq!(map.copied_many(&[keys[0]; 2]), [None; 2]);
    assert_eq!(map.copied_many(&[]), []);
    keys.iter().enumerate().for_each(|(n, &key)| _ = map.insert(key, value(n)));
    keys.iter().skip(1).step_by(2).for_each(|key| _ = map.remove(key));
    keys.iter().step_by(4).enumerate().for_each(|(n, &key)| _ = map.insert(key, value(n + 7)));
    let view = map.pin();
    for key in &keys {
        assert_eq!(map.copied(key), view.get(key).copied(), "{key:?}");
    }
    // More keys than are fetched at a time.
    let many: [K; 150] = std::array::from_fn(|n| keys[n * 7 % keys.len()]);
    assert_eq!(map.copied_many(&many), many.map(|key| view.get(&key).copied()));
    assert_eq!(view.len(), keys.len().div_ceil(2));
}

/// Keys of 1, 4 and 16 bytes, and some with padding.
fn with_some_keys<V: Copy + PartialEq + Debug + Send + Sync + 'static>(value: impl Fn(usize) -> V + Copy) {
    agrees(0..=u8::MAX, value, FastHash::default());
    agrees((0..3_000u32).map(|n| n << 12), value, FastHash::default());
    agrees((0..3_000u128).map(|n| n << 100), value, FastHash::default());
    agrees((0..300u32).map(|n| (n, n as u8)), value, One);
}

fn with_all_keys<V: Copy + PartialEq + Debug + Send + Sync + 'static>(value: impl Fn(usize) -> V + Copy) {
    with_some_keys(value);
    agrees(0..3_000u16, value, FastHash::default());
    agrees((0..3_000u64).map(|n| n << 40), value, FastHash::default());
    agrees((-100..100i64).rev(), value, One);
    agrees((1..300).filter_map(NonZeroU16::new), value, One);
    agrees([true, false].into_iter(), value, One);
    agrees(('a'..='z').chain('α'..='ω'), value, One);
    agrees((0..300u32).map(Ipv4Addr::from_bits), value, One);
    agrees((0..300u128).map(Ipv6Addr::from_bits), value, One);
    agrees((0..300u32).map(|n| IpAddr::V4(Ipv4Addr::from_bits(n))), value, One);
    agrees((0..300u64).map(|n| [n, !n]), value, One);
}

macro_rules! with_values {
    ($($name:ident: $keys:ident, $value:expr;)*) => {
        $(#[test]
        fn $name() {
            $keys($value);
        })*
    };
}
// All pairs would take the compiler minutes.
with_values! {
    values_of_no_bytes: with_all_keys, |_| ();
    values_of_1_byte: with_all_keys, |n| n as u8;
    values_of_2_bytes: with_some_keys, |n| n as u16 ^ 0x5555;
    values_of_3_bytes: with_some_keys, |n| [n as u8, 1, !(n as u8)];
    values_of_4_bytes: with_all_keys, |n| n as u32 ^ 0x5555_5555;
    values_of_5_bytes: with_some_keys, |n| [n as u8; 5];
    values_of_8_bytes: with_all_keys, |n| n as u64 ^ 0x5555_5555_5555_5555;
    values_of_12_bytes: with_some_keys, |n| [n as u32, 1, !(n as u32)];
    values_of_16_bytes: with_some_keys, |n| [n as u64, !(n as u64)];
    values_with_padding: with_some_keys, |n| (n as u64, n as u8);
    values_of_24_bytes: with_all_keys, |n| [n as u64, 1, !(n as u64)];
    values_of_64_bytes: with_some_keys, |n| [n as u64; 8];
    optional_values: with_some_keys, |n: usize| n.is_multiple_of(3).then_some(n as u32);
}
