//! Narrow sections: every way in and out, also while signals and membarriers interrupt them all the time. On machines
//! without them, nothing is tested here.

use crate::mode::FENCED;
use crate::platform::membarrier;
use crate::section::arch::wide::tests::{ASYM, available, under_membarriers};
use crate::section::{RESTART_LIMIT, copied, restartable, restarts};
use crate::sync::AtomicU32;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A section that spins for as long as `place` holds `value`.
fn spin_while(place: &AtomicU64, value: u64) -> bool {
    // SAFETY: the lines load from a place that is alive.
    unsafe {
        narrow!(
            &ASYM,
            ["20:", "cmp qword ptr [{place}], {value}", "je 20b"],
            place = in(reg) place,
            value = in(reg) value,
        )
    }
}

fn copies<const N: usize>() {
    let value: [u8; N] = std::array::from_fn(|i| i as u8 + 1);
    // Between bytes that are not part of it.
    let object = &mut (0xffu8, value, 0xffu8);
    let (start, offset) = (object as *mut (u8, [u8; N], u8), std::mem::offset_of!((u8, [u8; N], u8), 1));
    let place = AtomicPtr::new(start);
    // SAFETY: the object lives, and has the value at this offset.
    let copy = unsafe { copied::<[u8; N], _>(&ASYM, &place, offset) };
    assert_eq!(copy, (N <= 128).then_some(value));
}

macro_rules! for_sizes {
    ($($n:literal)*) => { $(copies::<$n>();)* };
}

#[test]
fn values_of_every_size_are_copied() {
    let true = available() else { return };
    for_sizes!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 23 24 25 31 32 33 34 47 48 49 63 64 65 66 80 96 127 128 129);
}

#[test]
fn a_fenced_domain_is_not_read() {
    let true = available() else { return };
    let mut value = 7u64;
    let (value, fenced) = (AtomicPtr::new(&raw mut value), AtomicU32::new(FENCED));
    // SAFETY: the object lives.
    assert_eq!(unsafe { copied::<u64, _>(&fenced, &value, 0) }, None);
}

#[test]
fn membarrier_starts_it_again_until_it_gives_up() {
    let true = available() else { return };
    let (zero, before) = (AtomicU64::new(0), restarts());
    assert!(!under_membarriers(|| spin_while(&zero, 0)), "it never ends by itself");
    assert!(restarts() - before >= RESTART_LIMIT);
    assert!(spin_while(&zero, 1), "the next one is a fresh one");
}

/// Within a wide section the field is the wide section's, before and after: its restart restarts both.
#[test]
fn a_wide_section_around_it_stays_armed() {
    let true = available() else { return };
    let runs = AtomicU64::new(0);
    // SAFETY: loads, and counts in a place of its own.
    let section = || unsafe {
        restartable(
            &ASYM,
            &|| {
                let run = runs.fetch_add(1, Ordering::Relaxed);
                // Ends when the section around it was restarted, and does not give up meanwhile.
                let done = spin_while(&runs, 1);
                while run == 1 && black_box(true) {}
                (run, done)
            },
            |why, _| panic!("{why:?}"),
        )
    };
    let (run, done) = under_membarriers(section);
    assert!(run >= 2 && done, "{run} {done}");
}

#[repr(C)]
struct Object {
    key: u64,
    value: u64,
}

const FREED: u64 = 0xdead_dead;
static PLACE: AtomicPtr<Object> = AtomicPtr::new(std::ptr::null_mut());
static IN_HANDLERS: AtomicU64 = AtomicU64::new(0);
static BAD_IN_HANDLERS: AtomicU64 = AtomicU64::new(0);

/// Whether the two halves of the object agree, with `turns` between the load of its address and theirs. None if the section
/// gave up. Always the same place in the code, so that signal handlers use the same descriptor as what they interrupt.
#[inline(never)]
fn read_slowly(turns: u64) -> Option<bool> {
    let (key, value): (u64, u64);
    // SAFETY: the object is never given back to the allocator.
    let done = unsafe {
        narrow!(
            &ASYM,
            [
                "mov {t}, qword ptr [{place}]",
                "mov {key}, {turns}",
                "20:",
                "dec {key}",
                "jnz 20b",
                "mov {key}, qword ptr [{t}]",
                "mov {value}, qword ptr [{t} + 8]",
            ],
            place = in(reg) &raw const PLACE,
            turns = in(reg) turns,
            key = out(reg) key,
            value = out(reg) value,
        )
    };
    done.then_some(value == key.wrapping_mul(31))
}

extern "C" fn on_signal(_: libc::c_int) {
    // First another place, and then the same one.
    let other = spin_while(&BAD_IN_HANDLERS, u64::MAX);
    BAD_IN_HANDLERS.fetch_add(u64::from(!other || read_slowly(100) == Some(false)), Ordering::Relaxed);
    IN_HANDLERS.fetch_add(1, Ordering::Relaxed);
}

/// What the writer does between unlinking and freeing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Barrier {
    Rseq,
    Plain,
    None,
}

static OBJECTS: OnceLock<Vec<Leaked>> = OnceLock::new();

/// An object that is never given back to the allocator.
struct Leaked(*mut Object);
// SAFETY: objects are shared on purpose. The test is about who may use them when.
unsafe impl Send for Leaked {}
// SAFETY: as above.
unsafe impl Sync for Leaked {}

/// Makes the `n`th object the one that readers find, and frees the one before.
fn replace(n: usize, barrier: Barrier) {
    let objects = OBJECTS.get_or_init(|| {
        (0..64).map(|_| Leaked(Box::into_raw(Box::new(Object { key: 0, value: 0 })))).collect()
    });
    let new = objects[n % objects.len()].0;
    // SAFETY: objects are leaked. This one is unlinked, and only this thread writes it.
    unsafe {
        (&raw mut (*new).key).write_volatile(n as u64);
        (&raw mut (*new).value).write_volatile((n as u64).wrapping_mul(31));
    }
    let old = PLACE.swap(new, Ordering::AcqRel);
    match barrier {
        Barrier::Rseq => assert!(membarrier::barrier()),
        Barrier::Plain => membarrier::barrier_without_rseq(),
        Barrier::None => {}
    }
    // A run may begin with the object with which the last one ended.
    if !old.is_null() && old != new {
        // SAFETY: as above.
        unsafe { (&raw mut (*old).value).write_volatile(FREED) };
    }
}

/// Readers beside a writer that frees, for `time`, or until a wrong read if `until_bad`. Returns all reads and wrong reads.
fn torture(barrier: Barrier, time: Duration, until_bad: bool) -> (u64, u64) {
    const READERS: usize = 3;
    replace(0, Barrier::None);
    let (stop, reads, bad) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let threads: [AtomicU64; READERS] = Default::default();
    std::thread::scope(|s| {
        for thread in &threads {
            s.spawn(|| {
                // SAFETY: pthread_self takes and touches nothing.
                thread.store(unsafe { libc::pthread_self() } as _, Ordering::SeqCst);
                // Short sections end in spite of the interruptions. A fence that restarts nothing is over before long
                // sections end.
                for turns in [100, 4_000, 40_000].into_iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match read_slowly(turns) {
                        Some(agree) => bad.fetch_add(u64::from(!agree), Ordering::Relaxed),
                        None => continue,
                    };
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while threads.iter().any(|t| t.load(Ordering::SeqCst) == 0) {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let mut n = 0;
        while begun.elapsed() < time && !(until_bad && bad.load(Ordering::Relaxed) > 0) {
            for _ in 0..20 {
                n += 1;
                replace(n, barrier);
            }
            // SAFETY: the thread lives until the scope ends.
            unsafe { libc::pthread_kill(threads[n % READERS].load(Ordering::Relaxed) as _, libc::SIGUSR2) };
        }
        stop.store(true, Ordering::SeqCst);
    });
    (reads.into_inner(), bad.into_inner())
}

#[test]
fn readers_under_fire_see_no_freed_object_and_controls_do() {
    let true = available() else { return };
    // SAFETY: the handler loads and counts.
    unsafe { libc::signal(libc::SIGUSR2, on_signal as *const () as libc::sighandler_t) };
    const LIMIT: Duration = Duration::from_secs(20);
    for control in [Barrier::Plain, Barrier::None] {
        assert!(torture(control, LIMIT, true).1 > 0, "{control:?}: the fault is not seen");
    }
    BAD_IN_HANDLERS.store(0, Ordering::SeqCst);
    let (reads, bad) = torture(Barrier::Rseq, Duration::from_secs(2), false);
    let in_handlers = IN_HANDLERS.load(Ordering::SeqCst);
    println!("{reads} reads, {in_handlers} of them in handlers");
    assert!(reads > 0 && in_handlers > 0);
    assert_eq!((bad, BAD_IN_HANDLERS.load(Ordering::SeqCst)), (0, 0));
}

/// How many traps are still to come before the thread runs freely.
static STEPS: AtomicU64 = AtomicU64::new(0);
/// The processor's flag for a trap after each instruction.
const TRAP: i64 = 1 << 8;

/// The descriptor of the section that is stepped through.
static OWN: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if STEPS.fetch_sub(1, Ordering::Relaxed) > 1 {
        // Restores the field, which the kernel cleared for this signal, as if the signal had not come.
        let field = super::FIELD.load(Ordering::Relaxed);
        // SAFETY: this is the thread's own field, and the descriptor is never unloaded.
        unsafe { std::arch::asm!("mov fs:[{}], {}", in(reg) field, in(reg) OWN.load(Ordering::Relaxed)) };
        return;
    }
    // SAFETY: the kernel passes the interrupted context.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP };
}

/// At whichever instruction a signal comes, it clears the thread's field or restarts the section. What runs from
/// there on must be armed, so that a writer's membarrier restarts it.
#[test]
fn it_is_armed_after_a_signal_at_any_instruction() {
    let true = available() else { return };
    // SAFETY: the handler changes only the interrupted context's flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
    // The first call shows which descriptor it is.
    for steps in 1..=200 {
        STEPS.store(steps, Ordering::SeqCst);
        let (seen, own): (u64, u64);
        // SAFETY: sets a flag of this thread, which the handler takes back; the section's lines load the thread's field.
        let done = unsafe {
            std::arch::asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq");
            narrow!(
                &ASYM,
                ["mov {seen}, qword ptr fs:[{field}]", "mov {own}, {descriptor}"],
                seen = out(reg) seen,
                own = out(reg) own,
            )
        };
        // Beyond the section, further instructions trap here.
        while STEPS.load(Ordering::SeqCst) as i64 > 0 {}
        assert!(!done || seen == own, "not armed after {steps} steps");
        OWN.store(own, Ordering::SeqCst);
    }
}
