//! A guest that means harm: its kernel's memory holds anything, also while the host reads it, and its runner says
//! anything. The host neither crashes nor hangs, its memory is bounded, and what it cannot believe it refuses or marks.
//!
//! Every round follows from its seed, which is printed when the round fails. REPRIEVE_HOSTILE_ROUNDS says how many rounds
//! there are of real guests (`make hostile`: 1,000), and REPRIEVE_HOSTILE_SEED where they begin.

mod support;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::threads;
use reprieve_study::observation::{Observation, Provenance};
use reprieve_study::scenario::{Memory, Workload};
use reprieve_study::units::SECOND_NS;
use reprieve_vm::VmError;
use reprieve_vm::analysis::{self, RunLeft};
use reprieve_vm::introspect::{Layout, Ram, Reader, unusable_index_printed};
use reprieve_vm::lab::Booted;
use reprieve_vm::link::{Hello, Link, Outcome};
use reprieve_vm::qemu::GuestMemory;
use reprieve_vm::watch::{Sampler, Watcher};
use support::hostile::{Anatomy, Wound};
use support::ledger::Ledger;
use support::{BOOT_LIMIT, Bench, MIB, PATIENCE, STOP_LIMIT};

const VCPUS: usize = 2;
const MEMORY_MIB: u64 = 256;
const BYTES: u64 = MEMORY_MIB * MIB;
/// Rounds on a copy of a guest's memory, which take no guest.
const COPY_ROUNDS: u64 = 20_000;
/// Looks a second; a storm takes some milliseconds.
const HZ: u32 = 5_000;
/// Every so many rounds the damage stays, which a guest seldom survives.
const KEEP_EVERY: u64 = 40;
/// How long such a guest is given to fall.
const FALL: Duration = Duration::from_millis(300);
const STORM: &str = "/sys/kernel/debug/reprieve_hostile/storm";

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

fn anatomy(bench: &Bench, booted: &Booted) -> Anatomy {
    let (ram, _) = bench.layout(booted).unwrap_or_else(|error| panic!("{error}"));
    Anatomy::of(&ram, &bench.lab.image.btf, &booted.hello.symbols, VCPUS as u64, BYTES)
}

/// Reads all there is once; what is bounded by the guest's size must be.
fn look(reader: &Reader) {
    let memory = reader.memory();
    assert!(memory.used_bytes <= BYTES && memory.slab_bytes <= BYTES, "{memory:?}");
    assert!((0.0..=1.0).contains(&memory.unusable_index), "{memory:?}");
    for (name, blocks) in reader.zones() {
        let mut printed = (0..blocks.len()).map(|order| unusable_index_printed(&blocks, order));
        assert!(name.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{name:?}");
        assert!(printed.all(|thousandths| thousandths <= 1000));
    }
    assert!(reader.rcu_work().gp_kthread_on.is_none_or(|cpu| cpu < reader.cpus()));
    std::hint::black_box((reader.gp(), reader.backlog(), reader.cpu()));
}

/// Watches with this reader while `meanwhile` goes on, and makes an observation of it, as a run does.
fn watched<T>(reader: Reader, meanwhile: impl FnOnce() -> T) -> (Observation, T) {
    let (pid, tid) = (std::process::id() as i32, threads::own_tid());
    let watcher = Watcher::delays(&ProcRoot::default(), pid, &[tid, tid]).unwrap();
    let sampler = Sampler::start(reader, watcher, HZ, 1).unwrap();
    let done = meanwhile();
    let observation = analysis::observe(RunLeft {
        condition: "hostile",
        repetition: 0,
        workload: &Workload::Memory(Memory::default()),
        quotas: &[],
        boosts: None,
        recording: Some(sampler.finish()),
        marks: Default::default(),
        outcome: Outcome::default(),
        look_ns: SECOND_NS / u64::from(HZ),
        provenance: Provenance::default(),
    });
    check(&observation);
    (observation, done)
}

/// What must hold of any observation.
fn check(observation: &Observation) {
    for (name, value) in &observation.metrics {
        assert!(value.is_finite() && *value >= 0.0, "{name}: {value}");
    }
    for (name, series) in &observation.timelines {
        assert!(series.values.iter().all(|value| value.is_finite()), "{name}");
    }
}

/// What was impossible, as the observation's notes have it.
fn doubts(observation: &Observation) -> Vec<String> {
    observation.provenance.notes.iter().filter(|note| note.contains("cannot be")).cloned().collect()
}

/// A copy of a guest's memory.
fn copy(memory: &GuestMemory) -> GuestMemory {
    let copied = GuestMemory::new(memory.bytes).unwrap();
    let mut piece = vec![0; MIB as usize];
    for offset in (0..memory.bytes).step_by(piece.len()) {
        assert_eq!(rustix::io::pread(memory.as_fd(), &mut piece[..], offset).unwrap(), piece.len());
        if piece.iter().any(|byte| *byte != 0) {
            rustix::io::pwrite(copied.as_fd(), &piece, offset).unwrap();
        }
    }
    copied
}

/// Writes these words into a memory, and gives what was there.
fn inflict(memory: &GuestMemory, wounds: &[Wound]) -> Vec<Wound> {
    let one = |wound: &Wound| {
        let mut before = [0; 8];
        rustix::io::pread(memory.as_fd(), &mut before, wound.offset).unwrap();
        rustix::io::pwrite(memory.as_fd(), &wound.value.to_le_bytes(), wound.offset).unwrap();
        Wound { value: u64::from_le_bytes(before), ..wound.clone() }
    };
    wounds.iter().map(one).collect()
}

/// A reader of a memory that is no guest's (any more), by what the guest told.
fn reader_of(bench: &Bench, memory: &GuestMemory, hello: &Hello) -> Result<Reader, VmError> {
    let mut ram = Ram::map(memory)?;
    let (btf, symbols) = (&bench.lab.image.btf, &hello.symbols);
    let layout = Layout::find(&mut ram, btf, symbols, &hello.release, hello.vcpus, memory.bytes)?;
    Ok(Reader::new(ram, layout))
}

#[test]
fn figures_that_cannot_be_are_named_and_those_of_a_busy_guest_are_not_doubted() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(VCPUS, MEMORY_MIB, "");
    booted.link.start("memory").unwrap();
    let (busy, ()) = watched(bench.reader(&booted), || std::thread::sleep(Duration::from_secs(1)));
    assert_eq!(doubts(&busy), [""; 0]);
    booted.link.stop(STOP_LIMIT).unwrap();
    let (anatomy, memory) = (anatomy(&bench, &booted), copy(&booted.machine.memory));
    let cases = [
        ("rcu_state.gp_seq", "the step of rcu_state.gp_seq", 1 << 40),
        ("rcu_node.qsmask", "rcu_node.qsmask", 0b100),
        ("rcu_data.cblist.len", "rcu_data.cblist.len", 1 << 40),
        ("rcu_data.cblist.len", "rcu_data.cblist.len", i64::MIN as u64),
        ("zone.managed_pages", "zone.managed_pages", BYTES),
        ("free_area.nr_free", "free_area.nr_free", BYTES),
        ("NR_SLAB_RECLAIMABLE_B", "the count of slab pages", BYTES),
        ("kernel_cpustat", "the CPU time of kernel_cpustat", u64::MAX),
    ];
    for (what, named, value) in cases {
        let reader = reader_of(&bench, &memory, &booted.hello).unwrap();
        let (observation, before) = watched(reader, || {
            std::thread::sleep(Duration::from_millis(5));
            let before = inflict(&memory, &[anatomy.wound(what, value)]);
            std::thread::sleep(Duration::from_millis(5));
            before
        });
        inflict(&memory, &before);
        let doubts = doubts(&observation);
        assert!(
            doubts.len() == 1 && doubts[0].contains(&format!("at first {named} is ")),
            "{what}: {doubts:?}"
        );
    }
}

#[test]
fn whatever_a_copy_of_a_guest_s_memory_holds_is_refused_or_read_within_bounds() {
    let Some(bench) = Bench::open() else { return };
    let booted = bench.boot(VCPUS, MEMORY_MIB, "");
    let (anatomy, memory, hello) =
        (anatomy(&bench, &booted), copy(&booted.machine.memory), booted.hello.clone());
    drop(booted);
    let attach = || reader_of(&bench, &memory, &hello);
    let (first, rounds) =
        (setting("REPRIEVE_HOSTILE_SEED", 1), setting("REPRIEVE_HOSTILE_COPY_ROUNDS", COPY_ROUNDS));
    let mut ledger = Ledger::open();
    for seed in first..first + rounds {
        let wounds = anatomy.wounds(seed);
        let _told = Told(seed, &wounds);
        ledger.round(seed, || {
            let healthy = attach().unwrap_or_else(|error| panic!("healed, and {error}"));
            let before = inflict(&memory, &wounds);
            look(&healthy);
            let end = attach().map(|reader| {
                look(&reader);
                if seed % 50 == 0 {
                    watched(reader, || std::thread::sleep(Duration::from_millis(3)));
                }
            });
            inflict(&memory, &before);
            vec![end.map_or_else(|error| error.to_string(), |()| "read".into())]
        });
    }
    ledger.tell("a copy of a guest's memory");
    assert!(ledger.ends["read"] > rounds / 10 && ledger.ends.len() > 10);
}

/// Says of a round that fails what it was.
struct Told<'a>(u64, &'a [Wound]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the round of seed {} failed, with", self.0);
            self.1.iter().for_each(|wound| eprintln!("    {} = {:#x}", wound.what, wound.value));
        }
    }
}

/// A storm's line: half a thousand writes, some microseconds apart.
fn storm(seed: u64, wounds: &[Wound], keep: bool) -> String {
    let words = wounds.iter().map(|wound| format!(" {:x}={:x}", wound.offset, wound.value));
    words.fold(format!("{:x} {:x} {:x} {}", seed + 1, 500, 20_000, u8::from(keep)), |line, word| line + &word)
}

/// One storm in a real guest. How it ended for the host; `Err` if the guest did not outlive it.
fn weather(
    bench: &Bench,
    booted: &mut Booted,
    seed: u64,
    wounds: &[Wound],
    keep: bool,
) -> Result<Vec<String>, (Vec<String>, VmError)> {
    let reader = bench.lab.reader(booted).map_err(|error| (Vec::new(), error))?;
    let (over, line) = (AtomicBool::new(false), storm(seed, wounds, keep));
    // The guest is told by one thread, and read by others.
    let Booted { machine, link, hello, .. } = booted;
    let (machine, hello) = (&*machine, &*hello);
    let (observation, (mut ends, survived)) = watched(reader, || {
        std::thread::scope(|scope| {
            let attaching = scope.spawn(|| {
                let mut ends = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    match reader_of(bench, &machine.memory, hello) {
                        Ok(reader) => look(&reader),
                        // The same again is one and the same end: a storm is long.
                        Err(error) if ends.last() != Some(&error.to_string()) => ends.push(error.to_string()),
                        Err(_) => {}
                    }
                }
                ends
            });
            let survived = link.append(STORM, &line).and_then(|()| match keep {
                true => link.let_work(FALL).and_then(|()| link.mark().map(drop)),
                false => Ok(()),
            });
            over.store(true, Ordering::Relaxed);
            (attaching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), survived)
        })
    });
    ends.extend(doubts(&observation));
    match survived {
        Ok(()) => Ok(ends),
        Err(error) => Err((ends, error)),
    }
}

#[test]
fn a_guest_that_writes_over_its_own_kernel_while_it_is_watched_is_told_as_such() {
    let Some(bench) = Bench::open_hostile() else { return };
    let (first, rounds) = (setting("REPRIEVE_HOSTILE_SEED", 1), setting("REPRIEVE_HOSTILE_ROUNDS", 60));
    let boot = || {
        let booted = bench.boot(VCPUS, MEMORY_MIB, "");
        let anatomy = anatomy(&bench, &booted);
        (booted, anatomy)
    };
    let (mut ledger, mut reboots, mut doubted) = (Ledger::open(), 0, 0);
    let (mut booted, mut anatomy) = boot();
    for seed in first..first + rounds {
        let (wounds, keep) = (anatomy.wounds(seed), seed % KEEP_EVERY == 0);
        let _told = Told(seed, &wounds);
        ledger.round(seed, || {
            let weathered = weather(&bench, &mut booted, seed, &wounds, keep);
            let (mut ends, died) = match weathered {
                Ok(ends) => (ends, None),
                Err((ends, error)) => (ends, Some(booted.machine.explain(error))),
            };
            doubted += u64::from(ends.iter().any(|end| end.contains("cannot be")));
            if let Some(error) = &died {
                assert!(matches!(error, VmError::Guest { .. }), "not told as the guest's: {error}");
                eprintln!("seed {seed}: {error}");
                ends.push(format!("the guest's end: {error}"));
            }
            // A guest whose damage stays is of no more use.
            if died.is_some() || keep {
                reboots += 1;
                (booted, anatomy) = boot();
            }
            ends
        });
    }
    ledger.tell("guests that write over their own kernel");
    eprintln!("{reboots} guests started anew; impossible figures marked in {doubted} rounds");
    assert!(ledger.ends.keys().any(|end| end.starts_with("introspection")), "nothing was refused");
    assert!(doubted > 0, "nothing was marked");
}

/// The crash is why the memory holds nothing to be read: it is what is told.
#[test]
fn a_memory_that_cannot_be_read_is_the_guest_s_error_once_the_guest_has_crashed() {
    let Some(bench) = Bench::open() else { return };
    let mut booted = bench.boot(1, MEMORY_MIB, "");
    let unreadable = || VmError::Introspect("no memory zone has pages".into());
    assert!(matches!(booted.machine.explain(unreadable()), VmError::Introspect(_)), "it runs");
    booted.link.power_off().unwrap();
    assert!(booted.machine.wait_end(PATIENCE));
    let error = booted.machine.explain(unreadable());
    assert!(matches!(error, VmError::Guest { .. }), "{error:?}");
    assert!(error.to_string().contains("no memory zone has pages (QEMU ended"), "{error}");
}

/// What a run asks of a guest, in any order; a deadline that the host sets is short.
fn ask(link: &mut Link, which: u64) -> Result<(), VmError> {
    let soon = Duration::from_millis(200);
    match which % 10 {
        0 => link.mark().map(drop),
        1 => link.start("memory pause_us=200"),
        2 => link.let_work(soon / 4),
        3 => link.wait_finished(soon),
        4 => link.read_file("/proc/zoneinfo").map(drop),
        5 => link.read_whole("/tmp/record", 4 << 20).map(drop),
        6 => link.stop(soon).map(drop),
        7 => link.append("/tmp/told", "a;b"),
        8 => link.frame("send a frame", soon).map(drop),
        _ => link.wait_ready(soon).map(drop),
    }
}

#[test]
fn a_guest_whose_runner_says_anything_is_refused_or_taken_at_its_word() {
    let Some(bench) = Bench::open_hostile() else { return };
    let (first, rounds) = (setting("REPRIEVE_HOSTILE_SEED", 1), setting("REPRIEVE_HOSTILE_ROUNDS", 60));
    let append = format!("RUNNER=/bin/babble SEED={first}");
    // It always says that it has two vCPUs.
    let lie = bench.lab.boot(&bench.spec(1, MEMORY_MIB, &append), &bench.lab.pcpus, BOOT_LIMIT);
    let lie = lie.map(drop).unwrap_err().to_string();
    assert!(lie.contains("says that it has 2 vCPUs online, of the machine's 1"), "{lie}");
    let mut booted = bench.boot(VCPUS, MEMORY_MIB, &append);
    let error = bench.lab.reader(&booted).expect_err("a kernel without symbols");
    eprintln!("{error}");
    let mut ledger = Ledger::open();
    for seed in first..first + rounds {
        ledger.round(seed, || {
            // Each on a line of its own: what one has not read comes out of order for the next.
            let port = booted.machine.port.try_clone().unwrap();
            let mut link = Link::new(port, bench.lab.host.interrupt.clone()).unwrap();
            let end = ask(&mut link, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
            let text = end.map_or_else(|error| error.to_string(), |()| "an answer".into());
            assert!(!text.contains('\x1b'), "{text:?}");
            // Its own words are as many as there are.
            vec![match (text.starts_with("error"), text.ends_with("is no frame's head")) {
                (true, _) => "an error in the guest's words".into(),
                (_, true) => "no frame's head".into(),
                _ => text,
            }]
        });
    }
    ledger.tell("a guest whose runner says anything");
    assert!(booted.machine.is_running() && ledger.ends.len() > 3);
}
