//! Tests on a fake kernel at various places in fake memory, and on damaged copies of it.

use std::sync::Mutex;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::attach::kallsyms::tests::{Form, tables};

/// Memory whose clock advances at every read of the clock.
#[derive(Debug)]
struct Fake {
    bytes: Mutex<Vec<u8>>,
    clock: Option<usize>,
}

impl Foreign for Fake {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let mut bytes = self.bytes.lock().unwrap();
        if let Some(tick) = self.clock.and_then(|clock| bytes.get_mut(clock)) {
            *tick = tick.wrapping_add(1);
        }
        let from = offset as usize;
        match bytes.get(from..from.saturating_add(buffer.len())) {
            Some(piece) => buffer.copy_from_slice(piece),
            None => return false,
        }
        true
    }
}

const MEMORY: usize = 16 << 20;
/// The address that the image is linked for, and the one to which this boot has moved it.
const VIRTUAL: u64 = KERNEL_MAP + (0x2a << 20);
const BANNER_AT: u64 = 0x1000;
const PHYS_BASE_AT: u64 = 0x2000;
const CLOCK_AT: u64 = 0x3000;

fn symbols(text: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("rcu_data", 0x80),
        ("_text", text),
        ("linux_banner", text + BANNER_AT),
        ("phys_base", text + PHYS_BASE_AT),
        ("jiffies_64", text + CLOCK_AT),
    ]
}

/// Puts a kernel at this place in memory. Its `phys_base` says that it is at `claimed`.
fn plant(bytes: &mut [u8], at: usize, claimed: u64) {
    let put = |bytes: &mut [u8], offset: u64, piece: &[u8]| {
        bytes[at + offset as usize..][..piece.len()].copy_from_slice(piece);
    };
    put(bytes, BANNER_AT, b"Linux version 6.1.0-made (x) #1\n");
    put(bytes, PHYS_BASE_AT, &claimed.wrapping_sub(VIRTUAL - KERNEL_MAP).to_le_bytes());
    let (tables, _) = tables(Form::New, VIRTUAL, &symbols(VIRTUAL));
    // Across the border of two pieces, and of a 2 MiB unit that is not the image's first.
    put(bytes, (2 << 20) + 0x123 * 8, &tables);
}

fn search(fake: &Fake) -> Search<'_> {
    Search {
        memory: fake,
        bytes: MEMORY as u64,
        splits: [Split::PC, Split::Q35],
        pause: Duration::ZERO,
        is_over: &|| false,
    }
}

fn fake(kernels: &[(usize, u64)], clock: Option<usize>) -> Fake {
    let mut bytes = vec![0; MEMORY];
    kernels.iter().for_each(|(at, claimed)| plant(&mut bytes, *at, *claimed));
    Fake { bytes: Mutex::new(bytes), clock: clock.map(|at| at + CLOCK_AT as usize) }
}

const AT: usize = 6 << 20;

#[test]
fn a_kernel_is_found_wherever_it_was_put() {
    for at in [0, 2 << 20, AT, 8 << 20] {
        let fake = fake(&[(at, at as u64)], Some(at));
        let kernel = search(&fake).running(None).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.text_offset), ("6.1.0-made", at as u64));
        assert_eq!(kernel.symbols, symbols(VIRTUAL).into_iter().map(|(n, a)| (n.to_string(), a)).collect());
        assert_eq!(kernel.phys_base, (at as u64).wrapping_sub(VIRTUAL - KERNEL_MAP));
        assert_eq!(kernel.splits.len(), 2);
    }
}

#[test]
fn a_copy_is_not_taken_for_the_kernel() {
    let copy = 2 << 20;
    let both = fake(&[(copy, AT as u64), (AT, AT as u64)], Some(AT));
    assert_eq!(search(&both).running(None).unwrap().text_offset, AT as u64);
    let error = search(&fake(&[(copy, AT as u64)], Some(copy))).running(None).unwrap_err().to_string();
    assert!(error.contains("no Linux kernel") && error.contains("--symbols"), "{error}");
}

#[test]
fn what_an_earlier_boot_has_left_does_not_run() {
    let old = 2 << 20;
    let both = fake(&[(old, old as u64), (AT, AT as u64)], Some(AT));
    assert_eq!(search(&both).running(None).unwrap().text_offset, AT as u64);
    let error = search(&fake(&[(old, old as u64)], None)).running(None).unwrap_err().to_string();
    assert!(error.contains("6.1.0-made stands still"), "{error}");
}

#[test]
fn given_symbols_are_moved_to_where_the_kernel_is() {
    let fake = fake(&[(AT, AT as u64)], Some(AT));
    let linked = KERNEL_MAP + (16 << 20);
    for text in [linked, VIRTUAL] {
        let given = symbols(text).into_iter().map(|(name, address)| (name.to_string(), address)).collect();
        let kernel = search(&fake).running(Some(&given)).unwrap();
        assert_eq!(kernel.symbols["_text"], VIRTUAL);
        assert_eq!(kernel.symbols["jiffies_64"], VIRTUAL + CLOCK_AT);
        assert_eq!(kernel.symbols["rcu_data"], 0x80, "an offset does not move");
    }
    let mut wrong: Symbols = symbols(linked).into_iter().map(|(name, at)| (name.to_string(), at)).collect();
    wrong.insert("linux_banner".into(), linked + 0x5000);
    let error = search(&fake).running(Some(&wrong)).unwrap_err().to_string();
    assert!(error.contains("no kernel that these --symbols fit"), "{error}");
}

#[test]
fn a_kernel_without_types_says_what_to_give() {
    let fake = fake(&[(AT, AT as u64)], Some(AT));
    let search = search(&fake);
    let mut kernel = search.running(None).unwrap();
    let error = |kernel: &Kernel| search.btf(kernel).unwrap_err().to_string();
    assert!(error(&kernel).contains("--btf"));
    for (start, stop) in [(0x9000, 0x8000), (0x8000, 0x8000), (0x8000, 1 << 29)] {
        kernel.symbols.insert("__start_BTF".into(), VIRTUAL + start);
        kernel.symbols.insert("__stop_BTF".into(), VIRTUAL + stop);
        assert!(error(&kernel).contains("no plausible size"));
    }
}

/// Whatever the memory contains, the search ends with a kernel or an error.
#[test]
fn damaged_memory_gives_a_kernel_or_an_error() {
    const SMALL: usize = 4 << 20;
    let mut whole = vec![0; MEMORY];
    plant(&mut whole, 0, 0);
    let whole = &whole[..SMALL];
    let words = [0, 1, u64::MAX, 1 << 63, KERNEL_MAP, VIRTUAL, i64::MAX as u64];
    let damage = proptest::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()),
        0..10,
    );
    // Places that matter: the banner, the variables, the tables.
    let places: Vec<usize> = [BANNER_AT, PHYS_BASE_AT, CLOCK_AT]
        .map(|at| at as usize / 8)
        .into_iter()
        .chain((0x20_0918 / 8)..(0x20_0918 / 8 + 4000))
        .collect();
    let (found, refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let config = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    let tested = TestRunner::new(config).run(&damage, |pokes| {
        let mut bytes = whole.to_vec();
        for (place, value, bit) in pokes {
            let at = 8 * places[place.index(places.len())];
            match bit {
                true => bytes[at + value.index(8)] ^= 1 << value.index(7),
                false => bytes[at..at + 8].copy_from_slice(&words[value.index(words.len())].to_le_bytes()),
            }
        }
        let fake = Fake { bytes: Mutex::new(bytes), clock: Some(CLOCK_AT as usize) };
        let search = Search { bytes: SMALL as u64, ..search(&fake) };
        match search.running(None) {
            Ok(_) => found.set(found.get() + 1),
            Err(_) => refused.set(refused.get() + 1),
        }
        Ok(())
    });
    tested.unwrap();
    assert!(found.get() > 100 && refused.get() > 100, "{} {}", found.get(), refused.get());
}

#[test]
fn a_search_that_is_over_ends_and_says_so() {
    let fake = fake(&[(AT, AT as u64)], Some(AT));
    let given: Symbols = symbols(VIRTUAL).into_iter().map(|(n, a)| (n.to_string(), a)).collect();
    let asked = std::cell::Cell::new(0);
    for limit in 0..3 {
        for given in [None, Some(&given)] {
            asked.set(0);
            let is_over = || asked.replace(asked.get() + 1) >= limit;
            let error = Search { is_over: &is_over, ..search(&fake) }.running(given).unwrap_err().to_string();
            assert!(error.contains("took too long, or was interrupted"), "{error}");
        }
    }
}

#[test]
fn only_so_many_places_are_tried() {
    // Digits and nothing else, more often than any guest has kernels.
    let mut bytes = vec![0; MEMORY];
    bytes.chunks_exact_mut(64 << 10).for_each(|chunk| chunk[..DIGITS.len()].copy_from_slice(DIGITS));
    let fake = Fake { bytes: Mutex::new(bytes), clock: None };
    let asked = std::cell::Cell::new(0);
    let is_over = || {
        asked.set(asked.get() + 1);
        false
    };
    assert!(Search { is_over: &is_over, ..search(&fake) }.running(None).is_err());
    assert!(asked.get() <= MAX_PLACES_IN_ALL + MEMORY / PIECE as usize + 1, "{}", asked.get());
}
