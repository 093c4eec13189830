//! Tests on a kernel made by hand, whole and damaged.
//!
//! REPRIEVE_HOSTILE_IMAGES says how many damaged images there are, and REPRIEVE_HOSTILE_SEED where they begin: each follows from
//! its seed.

mod kernel;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand::RngExt;
use reprieve_study::statistics;

use super::*;
use crate::introspect::KERNEL_MAP;
use kernel::{
    BLOCKS, BYTES, CPUS, DATA, DENTRIES, DIRECT, FREES, Image, LARGE, LINK, MODULE, Made, OWN, STATE,
    VMEMMAP, Wound,
};
use types::Form;

/// Damaged images, without a wish.
const IMAGES: u64 = 4_000;
/// Most reads that an image of 1 MiB takes, however it is damaged.
const READS: u64 = 20_000_000;

fn image(made: &Made, wounds: &[(u64, u64)]) -> Arc<Image> {
    let wounds = wounds.iter().map(|(word, value)| (*word, Wound(*value, AtomicU64::new(0)))).collect();
    Arc::new(Image { bytes: Arc::new(made.bytes.clone()), wounds, ..Image::default() })
}

fn look(made: &Made, image: &Arc<Image>) -> Result<Backlog> {
    Backlog::of(&made.reader(image)?, &made.btf, &made.symbols, &|| false)
}

fn with(made: &Made, wounds: &[(u64, u64)]) -> Backlog {
    look(made, &image(made, wounds)).unwrap()
}

fn list(backlog: &Backlog, cpu: usize, kind: Kind) -> ListSeen {
    *backlog.lists.iter().find(|list| list.cpu == cpu && list.kind == kind).unwrap()
}

fn counts(backlog: &Backlog) -> Vec<(Callback, &str, u64)> {
    let cache = |owner: &'_ Owner| owner.cache.as_ref().map_or("?".into(), |cache| cache.name.clone());
    let counts = backlog.owners.iter().map(|owner| (owner.callback, cache(owner), owner.objects));
    counts.map(|(callback, cache, objects)| (callback, &*cache.leak(), objects)).collect()
}

#[test]
fn owners_are_told_apart_in_all_lists_of_both_kernels() {
    for form in [Form::Linux61, Form::Linux612] {
        let made = Made::new(form);
        let backlog = with(&made, &[]);
        let expected = [
            (Callback::KfreeRcu, "dentry", 9),
            (Callback::Function(FREES), "dentry", 4),
            (Callback::Function(OWN), "kmalloc-2k", 2),
        ];
        assert_eq!(counts(&backlog), expected, "{form:?}");
        assert_eq!((backlog.objects(), backlog.bytes()), (15, 13 * 192 + 2 * 2048));
        assert_eq!(backlog.functions(), [OWN, FREES]);
        let whole = list(&backlog, 0, Kind::Callbacks);
        assert_eq!((whole.found, whole.ready, whole.missing), (5, 2, 1), "{form:?}");
        let bypass = list(&backlog, 1, Kind::Bypass);
        assert_eq!((bypass.found, list(&backlog, 1, Kind::Callbacks).missing), (1, 0));
        assert_eq!(list(&backlog, 0, Kind::KfreeRcu).found, 7);
        assert_eq!(list(&backlog, 1, Kind::KfreeRcu).found, 2);
        assert!(backlog.lists.iter().all(|list| list.end == End::Whole && list.is_steady));
        assert_eq!(backlog.problems, [""; 0]);
        let open = Open {
            age_ns: Some(1_200_000_000),
            vcpus: vec![1],
            tasks: vec![Task { pid: 77, name: "reader".into() }],
        };
        assert_eq!(backlog.open, Some(open));
    }
}

#[test]
fn functions_of_modules_are_named_by_the_module_s_own_table() {
    for form in [Form::Linux61, Form::Linux612] {
        let made = Made::new(form);
        let reader = made.reader(&image(&made, &[])).unwrap();
        let memory = Memory::new(reader.ram(), &made.symbols);
        let named = of_modules(&memory, &made.btf, &made.symbols, &[FREES, OWN, FREES + 1]);
        let frees = Function { name: "frees".into(), module: Some("planted".into()) };
        assert_eq!(named, BTreeMap::from([(FREES, frees)]), "{form:?}");
    }
}

#[test]
fn lists_that_lead_nowhere_or_back_are_told() {
    let made = Made::new(Form::Linux612);
    let (data, second) = (CPUS[0] + DATA, DENTRIES + 192 + 16);
    let seen = list(&with(&made, &[(second, DIRECT + BYTES)]), 0, Kind::Callbacks);
    assert_eq!((seen.end, seen.found, seen.missing), (End::Impossible(DIRECT + BYTES), 2, 4));
    let seen = list(&with(&made, &[(second, 0x18)]), 0, Kind::Callbacks);
    assert_eq!(seen.end, End::Impossible(0x18));
    let seen = list(&with(&made, &[(second, DIRECT + DENTRIES + 20)]), 0, Kind::Callbacks);
    assert_eq!(seen.end, End::Impossible(DIRECT + DENTRIES + 20), "an rcu_head is aligned");
    for back in [second, DENTRIES + 16] {
        let seen = list(&with(&made, &[(LARGE + 2048, DIRECT + back)]), 0, Kind::Callbacks);
        assert!(seen.end == End::Cycle && seen.found < 20, "{seen:?}");
    }
    // A block of pointers with more than fit, and a ring that never comes back.
    let seen = list(&with(&made, &[(BLOCKS + 24, 513)]), 0, Kind::KfreeRcu);
    assert_eq!((seen.end, seen.found), (End::Impossible(DIRECT + BLOCKS + LINK), 3));
    let seen = list(&with(&made, &[(BLOCKS + 0x1000 + LINK, DIRECT + BLOCKS + LINK)]), 0, Kind::KfreeRcu);
    assert_eq!(seen.end, End::Cycle);
    assert_eq!(with(&made, &[(data, 0)]).functions(), [FREES], "an empty list is whole");
}

#[test]
fn a_list_is_followed_as_far_as_allowed() {
    let made = Made::new(Form::Linux61);
    let reader = made.reader(&image(&made, &[])).unwrap();
    let memory = Memory::new(reader.ram(), &made.symbols);
    let first = memory.word(DIRECT + CPUS[0] + DATA).unwrap();
    for (links, expected) in [(0, (0, End::Cut)), (2, (2, End::Cut)), (5, (5, End::Whole))] {
        let mut limits = Limits { links, is_over: &|| false };
        assert_eq!(walk(&memory, first, &mut limits, &mut |_, _| {}), expected);
        assert_eq!(limits.links, links - expected.0);
    }
}

#[test]
fn a_front_that_changes_is_told() {
    let made = Made::new(Form::Linux61);
    let data = CPUS[0] + DATA;
    let moving =
        Image { is_moving: true, ..Arc::into_inner(image(&made, &[(data, DIRECT + LARGE)])).unwrap() };
    let backlog = look(&made, &Arc::new(moving)).unwrap();
    let seen = list(&backlog, 0, Kind::Callbacks);
    assert!(!seen.is_steady && seen.end == End::Whole, "{seen:?}");
    assert!(list(&backlog, 1, Kind::Callbacks).is_steady);
}

#[test]
fn pages_and_caches_that_are_none_make_sizes_unknown() {
    for form in [Form::Linux61, Form::Linux612] {
        let made = Made::new(form);
        let page = 0x4_0000 + DENTRIES / 4096 * 64;
        let is_slab = if form == Form::Linux61 { page } else { page + 48 };
        for wound in [(is_slab, 0), (page + 24, DIRECT + 0x1_0200), (0x8030, 0), (0x1_0000, 4)] {
            let backlog = with(&made, &[wound]);
            assert!(counts(&backlog).contains(&(Callback::Function(FREES), "?", 4)), "{form:?} {wound:x?}");
        }
    }
}

#[test]
fn an_age_that_cannot_be_is_unknown() {
    let made = Made::new(Form::Linux61);
    assert_eq!(with(&made, &[(STATE + 8, 2000)]).open.unwrap().age_ns, None);
    assert_eq!(with(&made, &[(0x8060, 0)]).open.unwrap().age_ns, None);
    assert_eq!(with(&made, &[(STATE, 8)]).open, None);
}

/// What a guest may have written over a word: what could be believed, or just not.
fn value(rng: &mut impl rand::Rng, words: &[u64]) -> u64 {
    let word = words[rng.random_range(0..words.len())];
    match rng.random_range(0..16) {
        0 => 0,
        1 => u64::MAX,
        2 => DIRECT + word,
        3 => KERNEL_MAP + word,
        4 => VMEMMAP + word,
        5 => MODULE + word % 0x3000,
        6 => DIRECT + BYTES - 8,
        7 => DIRECT + word + rng.random_range(1..8),
        8 => DIRECT + 8 * rng.random_range(0..BYTES / 8),
        9 => (8 * rng.random_range(0..BYTES / 8)) | 1,
        10 => 1 << rng.random_range(0..64),
        11 => rng.random_range(0..600),
        12 => u64::MAX - rng.random_range(0..64),
        13 => i64::MAX as u64 - rng.random_range(0..64),
        14 => 0x0000_8000_0000_0000 + word,
        _ => rng.random(),
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

/// The words that a look at a healthy memory reads.
fn words_read(made: &Made) -> Vec<u64> {
    let log = Some(Mutex::new(BTreeSet::new()));
    let healthy = Arc::new(Image { log, ..Arc::into_inner(image(made, &[])).unwrap() });
    let reader = made.reader(&healthy).unwrap();
    let backlog = Backlog::of(&reader, &made.btf, &made.symbols, &|| false).unwrap();
    let memory = Memory::new(reader.ram(), &made.symbols);
    of_modules(&memory, &made.btf, &made.symbols, &backlog.functions());
    let words = healthy.log.as_ref().unwrap().lock().unwrap();
    words.iter().copied().collect()
}

#[test]
fn whatever_the_memory_holds_walks_end_and_nothing_panics() {
    let (first, images) = (setting("REPRIEVE_HOSTILE_SEED", 1), setting("REPRIEVE_HOSTILE_IMAGES", IMAGES));
    let kernels = [Form::Linux61, Form::Linux612].map(Made::new);
    let words = kernels.each_ref().map(words_read);
    let bytes = kernels.each_ref().map(|made| Arc::new(made.bytes.clone()));
    let (mut read, mut refused, mut damaged, mut most) = (0_u64, 0_u64, 0_u64, (0, 0));
    for seed in first..first + images {
        let mut rng = statistics::stream(seed, "images");
        let which = rng.random_range(0..2);
        let (made, words) = (&kernels[which], &words[which]);
        let count = if rng.random_bool(0.8) { rng.random_range(1..=4) } else { 40 };
        let wound = |_| {
            let word = words[rng.random_range(0..words.len())];
            (word, Wound(value(&mut rng, words), AtomicU64::new(0)))
        };
        let wounds = (0..count).map(wound).collect();
        let is_moving = rng.random_bool(0.3);
        let image = Arc::new(Image { bytes: bytes[which].clone(), wounds, is_moving, ..Image::default() });
        match made.reader(&image) {
            Err(_) => refused += 1,
            Ok(reader) => {
                let backlog = Backlog::of(&reader, &made.btf, &made.symbols, &|| false);
                refused += u64::from(backlog.is_err());
                if let Ok(backlog) = backlog {
                    assert!(backlog.objects() <= 6 * LINKS, "seed {seed}");
                    let memory = Memory::new(reader.ram(), &made.symbols);
                    of_modules(&memory, &made.btf, &made.symbols, &backlog.functions());
                    damaged += u64::from(backlog.lists.iter().any(|list| list.end != End::Whole));
                    read += 1;
                }
            }
        }
        most = most.max((image.reads.load(Ordering::Relaxed), seed));
        assert!(most.0 < READS, "seed {seed}: {} reads", most.0);
    }
    eprintln!(
        "{read} read, {damaged} of them with lists that do not end well, {refused} refused; most reads: {most:?}"
    );
    assert_eq!(read + refused, images);
    assert!(read > images / 10 && refused > images / 100 && damaged > images / 100);
}
