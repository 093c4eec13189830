//! The inlined entry of wide restartable sections, and the way back in after an abort.
//!
//! The entry fills a frame, which is a local variable of its caller, with the callee-saved registers, the stack pointer,
//! and the address at which to go on after an abort. It stores the frame's address in a TLS slot, arms the thread's
//! `rseq_cs` field with the one descriptor, and calls the section. The kernel sends an abort to the stub page. The stub
//! can rely on no register: it loads the frame's address from the slot and jumps to the address in the frame. The entry
//! then ends as if the section had returned, and reports the restart. A cold function starts the section again.
//!
//! The branches and loads of an entry cost most: among look-ups that wait for memory, each of them reduces how many
//! look-ups overlap (example `cost`). So there are only four loads: the slot, the mode, the return address and the
//! field. Besides call and return there are only three branches: slot idle, section permitted, and one at the end for
//! everything that went wrong. Stores cost less; there are eleven. That is why callee-saved registers are stored in
//! the frame instead of being declared clobbered: the section's function preserves them, and nothing reloads them
//! unless the section is aborted. They are not pushed, because unwinders would then not find the caller from within a
//! section. Small closures and small results travel in registers.
//!
//! The slot holds the frame's address while the thread has a section under way, armed or interrupted. Otherwise it is
//! idle, and holds 1 more than the field's offset, which is an odd number; at first it holds 0. Signal handlers may
//! run sections, whatever they interrupt. If a section does not find the slot idle, there are three cases. It is
//! nested (the field is armed); or it is the thread's first; or it is a handler's, on top of an interrupted one. In
//! the last case it makes the slot idle, and restores it when it is done. So a handler may interrupt:
//! - a section: the kernel has redirected the interrupted context to the stub and cleared the field before the
//!   handler starts. The slot is restored when that context resumes, at the stub.
//! - the entry or the exit, with the slot taken and the field clear: the same, but no abort happens.
//! - the stub, or the way from there back into the entry: the same. These run unarmed. Until they have reloaded the
//!   stack pointer they run on the section's stack, which is lower.
//!
//! The slot uses the initial-exec TLS model: one load, or none if the linker relaxes it, and no call. So it lies at
//! the same distance from every thread's pointer, and the stub contains this distance instead of an address of code.
//! Libraries opened at run time get the slot from the loader's static reserve.

use crate::mode::is_asymmetric;
use crate::section::packed::{Packed, Word, fits};
use crate::section::{RESTART_LIMIT, RESTARTS, Refusal, count_foreign};
use crate::sync::AtomicU32;
use std::arch::{asm, global_asm, naked_asm};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// `struct rseq_cs` of the kernel's uapi.
#[repr(C, align(32))]
pub(crate) struct Descriptor {
    version: u32,
    flags: u32,
    start: AtomicU64,
    length: AtomicU64,
    abort: AtomicU64,
}

/// The one descriptor. Its range goes from the end of the stub page to the end of user space.
pub(crate) static DESCRIPTOR: Descriptor = Descriptor {
    version: 0,
    flags: 0,
    start: AtomicU64::new(0),
    length: AtomicU64::new(0),
    abort: AtomicU64::new(0),
};
/// Offset of the field `rseq_cs` from the thread pointer. Never 0, because the thread pointer points to itself.
static FIELD: AtomicI64 = AtomicI64::new(0);
/// `FIELD` while threads may start using sections; otherwise 0. Threads that have started no longer read this.
static GATE: AtomicI64 = AtomicI64::new(0);

// What the entry reports; 0 is success.
/// The value that the entry's comparison yields.
const FOREIGN: u64 = 1;
const NOT_IDLE: u64 = 2;
const GAVE_UP: u64 = 3;
const FENCED: u64 = 4;
const RESTARTED: u64 = 5;

/// Publishes the stub page and switches sections on. The range goes from the stub page to the last address of user
/// space but one, which is as far as the kernel allows.
pub(crate) fn enable(page: usize, user_space_end: u64, field: isize) {
    let start = (page + 4096) as u64;
    DESCRIPTOR.start.store(start, Ordering::Relaxed);
    DESCRIPTOR.length.store(user_space_end - 1 - start, Ordering::Relaxed);
    DESCRIPTOR.abort.store((page + 4) as u64, Ordering::Relaxed);
    FIELD.store(field as i64, Ordering::Relaxed);
    // Release pairs with the Acquire in `begin`: a thread that sees the gate open sees the descriptor and the offset.
    GATE.store(field as i64, Ordering::Release);
}

/// Switches sections off for the calling thread, and for threads that have had none yet.
pub(crate) fn disable() {
    GATE.store(0, Ordering::Relaxed);
    set_slot(0);
}

/// The TLS slot's symbol. It differs between versions of the crate that are linked into one program.
macro_rules! slot {
    () => {
        concat!("reprieve_rcu_frame_", env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"))
    };
}

/// The code on the stub page at the abort address: it goes on in the entry whose frame the slot names. It clears the
/// direction flag. Registers are as the section left them, and the field is clear.
pub(crate) fn abort_code() -> [u8; 17] {
    let distance: i64;
    // SAFETY: loads a constant that the loader has set.
    unsafe {
        asm!(
            concat!("mov {distance}, [rip + ", slot!(), "@gottpoff]"),
            distance = out(reg) distance,
            options(nostack, preserves_flags, readonly),
        );
    }
    let distance = i32::try_from(distance).expect("static TLS lies within 2 GiB of the thread pointer");
    let mut code = [0; 17];
    code[..2].copy_from_slice(&[0xfc, 0xb9]); // cld; mov ecx, imm32
    code[2..6].copy_from_slice(&(RESTARTED as u32).to_le_bytes());
    code[6..11].copy_from_slice(&[0x64, 0x48, 0x8b, 0x04, 0x25]); // mov rax, fs:[disp32]
    code[11..15].copy_from_slice(&distance.to_le_bytes());
    code[15..].copy_from_slice(&[0xff, 0x20]); // jmp [rax]
    code
}

global_asm!(
    concat!(".pushsection .tbss.", slot!(), ",\"awT\",@nobits"),
    concat!(".globl ", slot!()),
    concat!(".hidden ", slot!()),
    concat!(".type ", slot!(), ",@object"),
    concat!(".size ", slot!(), ",8"),
    ".balign 8",
    concat!(slot!(), ": .zero 8"),
    ".popsection",
);

/// What an entry needs to go on after an abort. The assembly relies on the order.
#[repr(C)]
struct Frame {
    resume: Word,
    stack: Word,
    /// rbx, rbp, r13, r14, r15.
    saved: [Word; 5],
}

/// Leaves the section that the thread is in. Its entry then reports that it gave up.
#[unsafe(naked)]
extern "C" fn leave_section() -> ! {
    naked_asm!(
        "mov r12, [rip + {field}]",
        "mov qword ptr fs:[r12], 0",
        "mov ecx, {gave_up}",
        concat!("mov r11, [rip + ", slot!(), "@gottpoff]"),
        "mov rax, fs:[r11]",
        "jmp [rax]",
        field = sym FIELD,
        gave_up = const GAVE_UP,
    )
}

/// A small result, in the two registers of the calling convention.
#[repr(C)]
struct Small(Word, Word);

/// Calls the closure. A function of its own, so that the entry can call it by name. "C", so that a panic ends the
/// process instead of unwinding through the entry.
unsafe extern "C" fn trampoline<F: Fn() -> R, R: Copy>(
    a: Word,
    b: Word,
    result: *mut R,
    _: u64,
    c: Word,
    d: Word,
) -> Small {
    // SAFETY: `enter` passes the words of a closure that lives.
    let r = unsafe { Packed::<F>::from_words([a, b, c, d]) }.call();
    let mut small = Small(Word::uninit(), Word::uninit());
    // SAFETY: the destination is large and aligned enough for an `R`: `small`, or the caller's place for it.
    unsafe { if fits::<R>(2) { (&raw mut small).cast::<R>().write(r) } else { result.write(r) } }
    small
}

/// Runs `f` as a restartable section if `mode` is asymmetric: once to its end, and any number of times in part. If
/// that is not possible, calls `instead`.
///
/// # Safety
/// As for [`crate::section::restartable`].
#[inline(always)]
pub(crate) unsafe fn run<F: Fn() -> R, R: Copy>(
    mode: &AtomicU32,
    f: Packed<F>,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    // SAFETY: the caller's promise.
    match unsafe { enter(mode, f) } {
        Ok(r) => r,
        Err(report) => {
            let [a, b, c, d] = f.words();
            // SAFETY: as above.
            unsafe { not_done(report, mode, a, b, c, d, instead) }
        }
    }
}

/// Tries to run the section once. The error is the entry's report.
///
/// # Safety
/// As for [`crate::section::restartable`].
#[expect(clippy::too_many_lines, reason = "one asm block, which a restartable section cannot leave")]
#[inline(always)]
unsafe fn enter<F: Fn() -> R, R: Copy>(mode: &AtomicU32, f: Packed<F>) -> Result<R, u64> {
    let words = f.words();
    let mut large = MaybeUninit::<R>::uninit();
    let mut result = MaybeUninit::<*mut R>::uninit();
    if !fits::<R>(2) {
        result.write(large.as_mut_ptr());
    }
    let mut frame = MaybeUninit::<Frame>::uninit();
    let report: u64;
    let (low, high): (Word, Word);
    // SAFETY: the stack is aligned for the call; without `nostack` the compiler keeps nothing below the stack pointer.
    // The section's calling convention preserves the callee-saved registers but r12, and an abort restores them; all
    // other registers are declared. Every path ends with the stack pointer that it began with. The section itself is the
    // caller's promise. Memory: the assembly is a barrier for the compiler, so that no access of the section moves out of
    // it. The processor keeps loads before the later store that clears the field, which is x86's order.
    unsafe {
        asm!(
            concat!("mov r11, [rip + ", slot!(), "@gottpoff]"),
            "mov r12, fs:[r11]",
            "test r12b, 1",
            "jz 6f",
            "lea rax, [rip + {descriptor}]",
            "lea rcx, [rip + 4f]",
            "mov [r13], rcx",
            "mov [r13 + 8], rsp",
            "mov [r13 + 16], rbx",
            "mov [r13 + 24], rbp",
            "mov [r13 + 32], r13",
            "mov [r13 + 40], r14",
            "mov [r13 + 48], r15",
            "mov fs:[r11], r13",
            "mov fs:[r12 - 1], rax",
            "cmp dword ptr [r10], {asymmetric}",
            "jne 9f",
            "call {section}",
            concat!("mov r11, [rip + ", slot!(), "@gottpoff]"),
            "lea r10, [rip + {descriptor}]",
            "xor ecx, ecx",
            "cmp fs:[r12 - 1], r10",
            "setne cl",
            "mov qword ptr fs:[r12 - 1], 0",
            "3:",
            "mov fs:[r11], r12",
            "8:",
            ".pushsection .text.unlikely.reprieve_rcu,\"ax\",@progbits",
            "4: mov rsp, [rax + 8]",
            "mov rbx, [rax + 16]",
            "mov rbp, [rax + 24]",
            "mov r13, [rax + 32]",
            "mov r14, [rax + 40]",
            "mov r15, [rax + 48]",
            concat!("mov r11, [rip + ", slot!(), "@gottpoff]"),
            "mov r12, [rip + {field}]",
            "inc r12",
            "jmp 3b",
            "6: mov ecx, {not_idle}",
            "jmp 8b",
            "9: mov ecx, {fenced}",
            "mov qword ptr fs:[r12 - 1], 0",
            "jmp 3b",
            ".popsection",
            section = sym trampoline::<F, R>,
            field = sym FIELD,
            descriptor = sym DESCRIPTOR,
            asymmetric = const crate::mode::ASYMMETRIC,
            not_idle = const NOT_IDLE,
            fenced = const FENCED,
            // A register by name, because any other could be one of the outputs' below.
            in("r13") frame.as_mut_ptr(),
            inout("rdi") words[0] => _,
            inout("rsi") words[1] => _,
            inout("rdx") result => high,
            inout("r8") words[2] => _,
            inout("r9") words[3] => _,
            inout("r10") mode => _,
            lateout("rax") low,
            lateout("rcx") report,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    if report != 0 {
        return Err(report);
    }
    let small = Small(low, high);
    // SAFETY: report 0 means that the trampoline ran to its end and left its result in one of the two.
    Ok(unsafe { if fits::<R>(2) { (&raw const small).cast::<R>().read() } else { large.assume_init() } })
}

/// Handles what did not run at once, off the quick path. The closure's words are passed one by one, because a larger
/// argument would be written to memory before each section.
///
/// # Safety
/// As for `enter`; `report` comes from it.
#[cold]
#[inline(never)]
unsafe fn not_done<F: Fn() -> R, R: Copy>(
    report: u64,
    mode: &AtomicU32,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    instead: impl FnOnce(Refusal, Packed<F>) -> R,
) -> R {
    // SAFETY: `run` passes the words of a closure that lives.
    let f = unsafe { Packed::from_words([a, b, c, d]) };
    // SAFETY: the caller's promise.
    unsafe { again(report, mode, f) }.unwrap_or_else(|why| instead(why, f))
}

/// Runs a section that did not run at once.
///
/// # Safety
/// As for `not_done`.
unsafe fn again<F: Fn() -> R, R: Copy>(
    mut report: u64,
    mode: &AtomicU32,
    f: Packed<F>,
) -> Result<R, Refusal> {
    if report == NOT_IDLE && inside() {
        // Nested. An interruption restarts the outer section and this one with it, and the outer one is armed while
        // the mode is read.
        return if is_asymmetric(mode) { Ok(f.call()) } else { Err(Refusal::Fenced) };
    }
    let below = slot();
    // The thread's first section; or, in a signal handler, one on top of an interrupted section, entry or exit.
    if report == NOT_IDLE && !begin() {
        return Err(Refusal::Unavailable);
    }
    let mut restarts = 0;
    let end = loop {
        if report == RESTARTED {
            RESTARTS.fetch_add(1, Ordering::Relaxed);
        }
        match report {
            NOT_IDLE => {}
            RESTARTED if restarts + 1 < RESTART_LIMIT => restarts += 1,
            RESTARTED | GAVE_UP => break Err(Refusal::GaveUp),
            FOREIGN => {
                count_foreign();
                break Err(Refusal::Foreign);
            }
            _ => break Err(Refusal::Fenced),
        }
        // SAFETY: the caller's promise.
        match unsafe { enter(mode, f) } {
            Ok(r) => break Ok(r),
            Err(again) => report = again,
        }
    };
    if below != 0 && below & 1 == 0 {
        set_slot(below);
    }
    end
}

/// Makes the thread's slot idle, if the thread may have sections.
fn begin() -> bool {
    // Acquire pairs with the Release in `enable`.
    let field = GATE.load(Ordering::Acquire);
    let may = field != 0 && is_registered();
    if may {
        set_slot((field + 1) as u64);
    }
    may
}

/// Lets the calling thread begin anew, because it is no longer registered.
pub(crate) fn forget_thread() {
    set_slot(0);
}

fn slot() -> u64 {
    let held: u64;
    // SAFETY: the slot is the thread's own.
    unsafe {
        asm!(
            concat!("mov {held}, [rip + ", slot!(), "@gottpoff]"),
            "mov {held}, fs:[{held}]",
            held = out(reg) held,
            options(nostack, preserves_flags, readonly),
        );
    }
    held
}

/// Sets the thread's slot. A signal handler that sets it, too, restores it.
fn set_slot(value: u64) {
    // SAFETY: the slot is the thread's own.
    unsafe {
        asm!(
            concat!("mov {at}, [rip + ", slot!(), "@gottpoff]"),
            "mov fs:[{at}], {value}",
            at = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Whether the thread is registered. If not, its cpu_id, which is the field before `rseq_cs`, is negative.
fn is_registered() -> bool {
    let field = FIELD.load(Ordering::Relaxed);
    let cpu: i32;
    // SAFETY: `enable` has set the offset, because the gate was open; the area is the thread's own.
    unsafe {
        asm!("mov {:e}, fs:[{} - 4]", out(reg) cpu, in(reg) field, options(nostack, readonly, preserves_flags))
    };
    cpu >= 0
}

/// Whether the thread is in a restartable section.
pub(crate) fn inside() -> bool {
    let field = FIELD.load(Ordering::Relaxed);
    if field == 0 {
        return false;
    }
    let armed: u64;
    // SAFETY: the offset is that of the field `rseq_cs` in the thread's own area.
    unsafe {
        asm!("mov {}, fs:[{}]", out(reg) armed, in(reg) field, options(nostack, readonly, preserves_flags))
    };
    armed == &raw const DESCRIPTOR as u64
}

/// Leaves the restartable section that the thread is in, which its caller then runs as an epoch section. For code
/// within a section that cannot run there. Does nothing outside of sections.
pub(crate) fn abandon_if_inside() {
    if inside() {
        leave_section();
    }
}

#[cfg(all(test, not(loom)))]
#[path = "wide_tests.rs"]
pub(in crate::section) mod tests;
