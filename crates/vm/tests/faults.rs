//! Faults in reading a guest's memory are noticed. A reader with one wrong address disagrees with the guest's own
//! figures; a kernel that is not at its linked addresses is refused; and whatever a guest says or has in its memory,
//! the host does not panic.

mod support;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use reprieve_vm::image::btf::Btf;
use reprieve_vm::introspect::{Layout, Ram, Reader, Symbols, unusable_index_printed};
use reprieve_vm::lab::Booted;
use reprieve_vm::qemu::GuestMemory;
use support::{Bench, STOP_LIMIT, compare, image};

/// The symbols that a layout needs, except the one for `preempt_count`, whose name depends on the kernel.
const USED: [&str; 11] = [
    "jiffies_64",
    "linux_banner",
    "page_offset_base",
    "rcu_state",
    "rcu_num_lvls",
    "rcu_num_nodes",
    "__per_cpu_offset",
    "kernel_cpustat",
    "rcu_data",
    "vm_node_stat",
    "node_data",
];

/// Compares a reader's figures with the guest's own; the error says where they disagree.
type Compare = fn(&mut Booted, &Reader) -> Result<(), String>;
/// Puts one fault into a layout.
type Plant = fn(&mut Layout);

/// A reader whose layout has one fault.
fn faulty(bench: &Bench, booted: &Booted, plant: Plant) -> Reader {
    let (ram, mut layout) = bench.layout(booted).unwrap_or_else(|error| panic!("{error}"));
    plant(&mut layout);
    Reader::new(ram, layout)
}

/// A reader for which one symbol's address is a word too high; `None` if the kernel was then refused.
fn shifted(bench: &Bench, booted: &mut Booted, symbol: &str) -> Option<Reader> {
    let right = booted.hello.symbols.clone();
    *booted.hello.symbols.get_mut(symbol).unwrap() += 8;
    let reader = bench.lab.reader(booted);
    booted.hello.symbols = right;
    reader.inspect_err(|error| eprintln!("{symbol} + 8: refused, {error}")).ok()
}

#[test]
fn a_wrong_address_is_noticed() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, "");
    let right = bench.reader(&booted);
    let check = |booted: &mut Booted, what: &str, wrong: &Reader, compare: Compare| {
        compare(booted, &right).unwrap();
        eprintln!("{what}: {}", compare(booted, wrong).expect_err(what));
    };
    let orders_shifted: Plant = |l| l.zones.iter_mut().for_each(|zone| zone.free_blocks.rotate_left(1));
    // Each fault, with the comparison that must notice it. "slab" reads one counter of two; "time" leaves out the
    // system time, which is most of a boot.
    let plants: [(&str, Plant, Compare); 6] = [
        ("orders", orders_shifted, compare::buddy),
        ("orders", orders_shifted, compare::unusable_index),
        ("zones", |l| l.zones.truncate(1), compare::buddy),
        ("managed", |l| l.zones[0].managed_pages = l.zones[0].free_blocks[0], compare::footprint),
        ("slab", |l| l.slab.truncate(1), compare::slab),
        ("time", |l| l.cpus.iter_mut().for_each(|cpu| drop(cpu.kernel_time.drain(..1))), compare::cpu_time),
    ];
    for (what, plant, compare) in plants {
        let wrong = faulty(&bench, &booted, plant);
        check(&mut booted, what, &wrong, compare);
    }
    let symbols: [(&str, Compare); 3] = [
        ("vm_node_stat", compare::slab),
        ("node_data", compare::buddy),
        ("kernel_cpustat", compare::cpu_time),
    ];
    for (symbol, compare) in symbols {
        if let Some(wrong) = shifted(&bench, &mut booted, symbol) {
            check(&mut booted, symbol, &wrong, compare);
        }
    }
}

#[test]
fn reading_the_wrong_counter_is_noticed() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(2, 512, "");
    booted.link.start("memory pause_us=200 poll_us=100").unwrap();
    let idle_time: Plant = |layout| layout.gp_seq = layout.cpus[0].idle_time[0];
    let leaf: Plant = |layout| layout.gp_seq = layout.leaves[0].mask;
    for plant in [idle_time, leaf] {
        let readers = [faulty(&bench, &booted, plant), faulty(&bench, &booted, plant)];
        let figures = compare::watch_grace_periods(&mut booted, readers, Duration::from_millis(500));
        eprintln!("gp_seq: {}", figures.counts_agree().and(figures.means_agree()).unwrap_err());
    }
    booted.link.stop(STOP_LIMIT).unwrap();

    let kernel_time: Plant =
        |layout| layout.cpus.iter_mut().for_each(|cpu| cpu.callbacks = cpu.kernel_time[0]);
    let time = faulty(&bench, &booted, kernel_time);
    let elsewhere = shifted(&bench, &mut booted, "rcu_data");
    for wrong in [Some(time), elsewhere].iter().flatten() {
        booted.link.start(&compare::stalling(3_000)).unwrap();
        let seen = compare::backlog(&mut booted, wrong);
        booted.link.stop(STOP_LIMIT).unwrap();
        let seen = seen.and(compare::drained_backlog(wrong));
        eprintln!("backlog: {}", seen.expect_err("a wrong backlog agreed"));
    }
}

#[test]
fn the_reader_copes_with_any_memory() {
    let Some(bench) = Bench::open() else { return };
    let booted = bench.boot(2, 256, "");
    let bytes = booted.machine.memory.bytes;
    for word in [0, 1, u64::MAX, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX / 3, 1 << 40] {
        let memory = GuestMemory::new(bytes).unwrap();
        let piece = word.to_le_bytes().repeat(1 << 17);
        for offset in (0..bytes).step_by(piece.len()) {
            rustix::io::pwrite(memory.as_fd(), &piece, offset).unwrap();
        }
        let (_, layout) = bench.layout(&booted).unwrap_or_else(|error| panic!("{error}"));
        check_bounds(&Reader::new(Ram::map(&memory).unwrap(), layout), bytes);
    }
}

/// Reads everything, and asserts that the figures stay within the guest's size.
fn check_bounds(reader: &Reader, bytes: u64) {
    let memory = reader.memory();
    assert!(memory.used_bytes <= bytes && memory.slab_bytes <= bytes, "{memory:?}");
    assert!((0.0..=1.0).contains(&memory.unusable_index), "{memory:?}");
    for (name, blocks) in reader.zones() {
        let printed = (0..blocks.len()).map(|order| unusable_index_printed(&blocks, order));
        assert!(name.is_ascii() && printed.into_iter().all(|thousandths| thousandths <= 1000));
    }
    assert!(reader.rcu_work().gp_kthread_on.is_none_or(|cpu| cpu < reader.cpus()));
    std::hint::black_box((reader.gp(), reader.backlog(), reader.cpu(), reader.rcu_work()));
}

#[test]
fn a_kernel_elsewhere_and_missing_symbols_are_refused() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(1, 256, "");
    let right = booted.hello.clone();
    let refusal = |booted: &Booted| bench.lab.reader(booted).expect_err("not refused").to_string();

    // All symbols are 2 MiB too high, as if address randomisation had moved the kernel.
    booted.hello.symbols.values_mut().for_each(|address| *address = address.wrapping_add(2 << 20));
    assert!(refusal(&booted).contains("nokaslr"), "{}", refusal(&booted));
    booted.hello = right.clone();
    *booted.hello.symbols.get_mut("linux_banner").unwrap() = 0xffff_ffff_ffff_fff0;
    assert!(refusal(&booted).contains("0xfffffffffffffff0"), "{}", refusal(&booted));
    // The release of another image's kernel.
    booted.hello = right.clone();
    booted.hello.release = "5.0.0-other".into();
    assert!(refusal(&booted).contains("banner"), "{}", refusal(&booted));

    for name in USED {
        for lost in [None, Some(0)] {
            booted.hello = right.clone();
            match lost {
                None => drop(booted.hello.symbols.remove(name)),
                Some(address) => drop(booted.hello.symbols.insert(name.into(), address)),
            }
            let error = refusal(&booted);
            // Without this symbol the kernel counts as one without NUMA, which has another symbol instead.
            let named = if name == "node_data" { "contig_page_data" } else { name };
            assert!(error.contains(named), "{name}: {error}");
        }
    }
    booted.hello = right;
    bench.reader(&booted);
}

const RELEASE: &str = "6.1.0-hostile";
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// Size of a made-up guest's memory: room for all structures in [`kernel`].
const MEMORY_BYTES: u64 = 1 << 20;

/// What a hostile guest may write: addresses within its memory, at the ends of its mappings and beyond, small and huge
/// numbers.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..MEMORY_BYTES / 8).prop_map(|word| DIRECT_MAP + 8 * word),
        4 => (0..MEMORY_BYTES / 8).prop_map(|word| KERNEL_MAP + 8 * word),
        2 => 0..70_u64,
        1 => Just(DIRECT_MAP + MEMORY_BYTES - 8),
        1 => Just(KERNEL_MAP + (1 << 30) - 8),
        1 => (0..64_u64).prop_map(|below| u64::MAX - below),
        1 => (0..64_u64).prop_map(|around| (i64::MAX as u64 - 32) + around),
        1 => any::<u64>(),
    ]
}

/// The least that passes for a kernel: its symbols, and the words of its memory, each with its index.
fn kernel(btf: &Btf) -> (Symbols, Vec<(u64, u64)>) {
    let at = |structure: &str, path: &str| btf.offset(structure, path).unwrap().offset_bytes as u64;
    // Offsets in the memory, bytes.
    let (variables, rcu_state, table, task, per_cpu, node) =
        (0x100, 0x1000, 0x8000, 0x10000, 0x20000, 0x40000);
    let zone = node + at("pglist_data", "node_zones");
    let words = vec![
        (variables, DIRECT_MAP),
        (variables + 8, 1),
        (variables + 16, 1),
        (rcu_state + at("rcu_state", "level"), KERNEL_MAP + rcu_state + at("rcu_state", "node")),
        (rcu_state + at("rcu_state", "gp_kthread"), DIRECT_MAP + task),
        // Both vCPUs share one per-CPU area.
        (table, DIRECT_MAP + per_cpu),
        (table + 8, DIRECT_MAP + per_cpu),
        (variables + 24, DIRECT_MAP + node),
        (node + at("pglist_data", "nr_zones"), 1),
        (zone + at("zone", "name"), KERNEL_MAP),
        (zone + at("zone", "managed_pages"), 100),
    ];
    let words = words.into_iter().map(|(offset, word)| (offset / 8, word)).collect();
    let symbols = [
        ("linux_banner", KERNEL_MAP),
        ("page_offset_base", KERNEL_MAP + variables),
        ("rcu_state", KERNEL_MAP + rcu_state),
        ("jiffies_64", KERNEL_MAP + variables + 32),
        ("rcu_num_lvls", KERNEL_MAP + variables + 8),
        ("rcu_num_nodes", KERNEL_MAP + variables + 16),
        ("__per_cpu_offset", KERNEL_MAP + table),
        ("kernel_cpustat", 0x100),
        ("rcu_data", 0x1000),
        ("__preempt_count", 0x80),
        ("vm_node_stat", KERNEL_MAP + 0x9000),
        ("node_data", KERNEL_MAP + variables + 24),
    ];
    (symbols.map(|(name, address)| (name.to_string(), address)).into(), words)
}

fn memory(words: &[(u64, u64)]) -> GuestMemory {
    let memory = GuestMemory::new(MEMORY_BYTES).unwrap();
    let write = |offset: u64, bytes: &[u8]| rustix::io::pwrite(memory.as_fd(), bytes, offset).unwrap();
    write(0, format!("Linux version {RELEASE} \0").as_bytes());
    for (word, value) in words {
        write(8 * word, &value.to_le_bytes());
    }
    memory
}

/// Counts that no kernel can have are refused with a message that names them. They are not cut down to a limit.
#[test]
fn counts_that_no_kernel_has_are_refused() {
    let Some(image) = image() else { return };
    let (symbols, words) = kernel(&image.btf);
    let place =
        |structure: &str, path: &str| image.btf.offset(structure, path).unwrap().offset_bytes as u64 / 8;
    let refusal = |word: u64, value: u64| {
        let mut words = words.clone();
        words.push((word, value));
        let mut ram = Ram::map(&memory(&words)).unwrap();
        Layout::find(&mut ram, &image.btf, &symbols, RELEASE, 1, MEMORY_BYTES)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    let grplo = 0x1000 / 8 + place("rcu_state", "node") + place("rcu_node", "grplo");
    let zones = 0x40000 / 8 + place("pglist_data", "nr_zones");
    // Both halves of a word have the value, so that it does not matter which half the count is.
    let both = |value: u64| value << 32 | value;
    assert_eq!(refusal(grplo, 0), Ok(()));
    let error = refusal(grplo, both(5)).unwrap_err();
    assert!(error.contains("the rcu_node tree: leaves that begin with the CPUs [5]"), "{error}");
    let error = refusal(zones, both(9)).unwrap_err();
    assert!(error.contains("the memory zones: a memory node of 9 zones"), "{error}");
    let error = refusal(0x8000 / 8, 8).unwrap_err();
    assert!(error.contains("the per-CPU area: "), "{error}");
}

/// Takes a valid kernel, and replaces some of its symbols and words at random.
#[test]
fn no_guest_makes_the_host_panic() {
    let Some(image) = image() else { return };
    let (true_symbols, true_words) = kernel(&image.btf);
    let lies = (
        proptest::collection::vec((any::<prop::sample::Index>(), value()), 0..3),
        proptest::collection::vec((any::<prop::sample::Index>(), value()), 0..4),
        proptest::collection::vec((0..MEMORY_BYTES / 8, value()), 0..20),
        0..3_usize,
    );
    let (found, refused, started) = (Cell::new(0), Cell::new(0), Instant::now());
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    let tested = TestRunner::new(config).run(&lies, |(symbol_lies, word_lies, noise, cpus)| {
        let (mut symbols, mut words) = (true_symbols.clone(), noise);
        words.extend(&true_words);
        for (which, value) in symbol_lies {
            *symbols.values_mut().nth(which.index(true_symbols.len())).unwrap() = value;
        }
        for (which, value) in word_lies {
            words.push((which.get(&true_words).0, value));
        }
        let mut ram = Ram::map(&memory(&words)).unwrap();
        match Layout::find(&mut ram, &image.btf, &symbols, RELEASE, cpus, MEMORY_BYTES) {
            Ok(layout) => {
                found.set(found.get() + 1);
                check_bounds(&Reader::new(ram, layout), MEMORY_BYTES);
            }
            Err(_) => refused.set(refused.get() + 1),
        }
        Ok(())
    });
    tested.unwrap();
    eprintln!("{} found, {} refused, in {:?}", found.get(), refused.get(), started.elapsed());
    assert!(found.get() > 100 && refused.get() > 100);
}
