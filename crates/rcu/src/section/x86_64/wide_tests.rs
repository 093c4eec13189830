//! Wide sections by themselves: every way in and out. On machines without them, nothing is tested here.

use super::*;
use crate::mode::{ASYMMETRIC, FENCED};
use crate::platform;
use crate::section::arch::rseq;
use crate::section::{foreign, restartable, restarts};
use std::sync::atomic::AtomicBool;

pub(in crate::section) static ASYM: AtomicU32 = AtomicU32::new(ASYMMETRIC);

pub(in crate::section) fn available() -> bool {
    crate::machine::probe().restartable.is_ok()
}

/// Runs `f` as a section.
fn run<R: Copy>(f: impl Fn() -> R) -> Result<R, Refusal> {
    // SAFETY: the tests' sections only load, spin, and count in places of their own.
    unsafe { restartable(&ASYM, &|| Ok(f()), |why, _| Err(why)) }
}

/// Runs `section` on a thread of its own, and calls membarrier here until it is over.
pub(in crate::section) fn under_membarriers<R: Send>(section: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| {
        let thread = s.spawn(section);
        while !thread.is_finished() {
            assert!(platform::membarrier::barrier());
        }
        thread.join().unwrap()
    })
}

#[test]
fn results_of_every_size_come_back() {
    let true = available() else { return };
    assert_eq!(run(|| ()), Ok(()));
    assert_eq!(run(|| 7u8), Ok(7));
    assert_eq!(run(|| u64::MAX), Ok(u64::MAX));
    assert_eq!(run(|| Some(5u64)), Ok(Some(5)));
    assert_eq!(run(|| 2.5f64), Ok(2.5));
    assert_eq!(run(|| [1u64, 2, 3]), Ok([1, 2, 3]));
    assert_eq!(run(|| 1u128 << 100), Ok(1 << 100));
}

#[test]
fn closures_of_every_size_arrive() {
    let true = available() else { return };
    let [a, b, c, d, e] = std::hint::black_box([1u64, 2, 3, 4, 5]);
    assert_eq!(run(move || a), Ok(1));
    assert_eq!(run(move || [a, b, c, d]), Ok([1, 2, 3, 4]));
    assert_eq!(run(move || [a, b, c, d, e]), Ok([1, 2, 3, 4, 5]));
    assert_eq!(run(|| a + b + c + d + e), Ok(15));
}

#[test]
fn membarrier_starts_a_running_section_again() {
    let true = available() else { return };
    // The section's first run never ends by itself.
    let runs = AtomicU64::new(0);
    let before = restarts();
    let seen = under_membarriers(|| {
        run(|| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            while run == 0 && std::hint::black_box(true) {}
            run
        })
    });
    assert!(seen.is_ok_and(|run| run > 0), "{seen:?}");
    assert!(restarts() > before);
}

#[test]
fn values_held_across_a_restart_survive() {
    let true = available() else { return };
    // More live values than registers, of both kinds, around a section that is restarted many times.
    under_membarriers(|| {
        let ints: [u64; 12] = std::array::from_fn(|i| std::hint::black_box(i as u64 * 3));
        let floats: [f64; 12] = std::array::from_fn(|i| std::hint::black_box(i as f64 * 0.5));
        for _ in 0..2_000 {
            let spin = || (0..500u64).fold(0, |a, i| std::hint::black_box(a ^ i));
            let expected = spin();
            match run(spin) {
                Ok(sum) => assert_eq!(sum, expected),
                Err(why) => assert_eq!(why, Refusal::GaveUp),
            }
            (0..12).for_each(|i| assert_eq!(ints[i], i as u64 * 3));
            (0..12).for_each(|i| assert_eq!(floats[i], i as f64 * 0.5));
        }
    });
}

/// Calls `f` with known values in the callee-saved registers. Returns which bits of them differ afterwards.
#[unsafe(naked)]
extern "C" fn bits_that_differ_after(f: extern "C" fn()) -> u64 {
    std::arch::naked_asm!(
        "push rbx; push rbp; push r12; push r13; push r14; push r15; sub rsp, 8",
        "mov ebx, 0x01; mov ebp, 0x02; mov r12d, 0x04; mov r13d, 0x08; mov r14d, 0x10; mov r15d, 0x20",
        "call rdi",
        "xor rbx, 0x01; xor rbp, 0x02; xor r12, 0x04; xor r13, 0x08; xor r14, 0x10; xor r15, 0x20",
        "mov rax, rbx; or rax, rbp; or rax, r12; or rax, r13; or rax, r14; or rax, r15",
        "add rsp, 8; pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
        "ret",
    )
}

/// Sections that keep other values in the callee-saved registers while they are restarted.
extern "C" fn sections_that_use_all_registers() {
    let before = restarts();
    while restarts() < before + 1_000 {
        // SAFETY: the assembly restores what it cannot declare, and touches no memory but the stack.
        let used = run(|| unsafe {
            std::arch::asm!(
                "push rbx; push rbp",
                "mov rbx, -1; mov rbp, -1; mov r12, -1; mov r13, -1; mov r14, -1; mov r15, -1",
                "2: dec {turns:e}; jnz 2b",
                "pop rbp; pop rbx",
                turns = inout(reg) 2_000 => _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            );
        });
        assert!(matches!(used, Ok(()) | Err(Refusal::GaveUp)), "{used:?}");
    }
}

#[test]
fn callee_saved_registers_survive_a_restart() {
    if available() {
        assert_eq!(under_membarriers(|| bits_that_differ_after(sections_that_use_all_registers)), 0);
    }
}

#[test]
fn a_section_that_never_ends_gives_up() {
    let true = available() else { return };
    let runs = AtomicU64::new(0);
    let end = under_membarriers(|| {
        run(|| {
            runs.fetch_add(1, Ordering::Relaxed);
            while std::hint::black_box(true) {}
        })
    });
    assert_eq!(end, Err(Refusal::GaveUp));
    assert!(runs.load(Ordering::Relaxed) <= RESTART_LIMIT, "one run, and restarts below the limit");
    assert!(!inside());
    assert_eq!(run(|| 1), Ok(1), "the next section is a fresh one");
}

#[test]
fn nested_sections_are_part_of_the_outer_one() {
    let true = available() else { return };
    assert!(!inside());
    let seen = run(|| {
        let inner = run(inside);
        (inside(), inner)
    });
    assert_eq!(seen, Ok((true, Ok(true))), "still inside after the inner one");
    assert!(!inside());
}

#[test]
fn the_outer_section_restarts_with_the_inner_one() {
    let true = available() else { return };
    let outer = AtomicU64::new(0);
    let seen = under_membarriers(|| {
        run(|| {
            let run_of_outer = outer.fetch_add(1, Ordering::Relaxed);
            run(|| while run_of_outer == 0 && std::hint::black_box(true) {})
        })
    });
    assert!(seen.is_ok());
    assert!(outer.load(Ordering::Relaxed) > 1);
}

#[test]
fn a_fenced_domain_refuses_also_within_a_section() {
    let true = available() else { return };
    let fenced = AtomicU32::new(FENCED);
    // SAFETY: the section does nothing.
    let refused = || unsafe { restartable(&fenced, &|| Ok(1), |why, _| Err(why)) };
    assert_eq!(refused(), Err(Refusal::Fenced));
    assert!(!inside());
    assert_eq!(run(refused), Ok(Err(Refusal::Fenced)));
}

#[test]
fn abandoning_ends_the_outer_section() {
    let true = available() else { return };
    let ends = run(|| {
        let _ = run(abandon_if_inside);
        1
    });
    assert_eq!(ends, Err(Refusal::GaveUp));
    assert!(!inside());
    abandon_if_inside();
    assert_eq!(run(|| 1), Ok(1));
}

#[test]
fn foreign_use_of_the_field_is_noticed() {
    let true = available() else { return };
    let field = rseq::field_offset(true).unwrap();
    let before = foreign();
    let seen = run(|| {
        // SAFETY: does what careless users of rseq do: leaves the field with something else in it.
        unsafe { std::arch::asm!("mov qword ptr fs:[{}], 0", in(reg) field) };
        1
    });
    assert_eq!(seen, Err(Refusal::Foreign));
    assert_eq!(foreign(), before + 1);
    assert_eq!(run(|| 1), Ok(1));
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Reads, nested, in a handler, whatever the handler has interrupted.
extern "C" fn on_signal(_: libc::c_int) {
    let seen = run(|| run(|| HANDLED.load(Ordering::Relaxed)).is_ok());
    WRONG.fetch_add(
        u64::from(inside() || !matches!(seen, Ok(true) | Err(Refusal::GaveUp))),
        Ordering::Relaxed,
    );
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signal_handlers_read_whatever_they_interrupt() {
    let true = available() else { return };
    // SAFETY: the handler is async-signal-safe: it loads and counts.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
    let (stop, thread) = (AtomicBool::new(false), AtomicU64::new(0));
    let reads = std::thread::scope(|s| {
        let reader = s.spawn(|| {
            // SAFETY: pthread_self takes and touches nothing.
            thread.store(unsafe { libc::pthread_self() } as _, Ordering::SeqCst);
            read_until(&stop)
        });
        while thread.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Signals coalesce while the reader waits for a CPU, so this sends them until enough have arrived.
        while HANDLED.load(Ordering::Relaxed) < 500 {
            // SAFETY: the thread lives until it is joined below.
            unsafe { libc::pthread_kill(thread.load(Ordering::SeqCst) as _, libc::SIGUSR1) };
            (0..50).for_each(|_| std::hint::spin_loop());
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 0);
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
}

fn read_until(stop: &AtomicBool) -> u64 {
    let mut reads = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let (x, y) = std::hint::black_box((reads, reads ^ 5));
        match run(move || (0..50).fold(x, |a, i| std::hint::black_box(a + i)) ^ y) {
            Ok(sum) => assert_eq!(sum, (x + 49 * 50 / 2) ^ y),
            Err(why) => assert_eq!(why, Refusal::GaveUp),
        }
        assert!(!inside());
        reads += 1;
    }
    reads
}
