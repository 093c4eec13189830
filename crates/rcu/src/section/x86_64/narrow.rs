//! Narrow sections: a whole look-up in one piece of assembly, with a descriptor of its own.
//!
//! A wide section (`wide.rs`) covers everything that its closure calls, and pays for the way in and out. A look-up of
//! a few loads needs neither. Its range is its own instructions, an abort goes back to their start, and there is no
//! state to restore. So there is nothing to do at its end either: the thread's `rseq_cs` field keeps pointing to the
//! descriptor. The kernel clears the field when it interrupts the thread elsewhere. Otherwise the next look-up at
//! this place finds the field armed, so that a read stores nothing.
//!
//! Invariants:
//! - The check that the field holds this place's descriptor lies WITHIN the range. So whatever interrupts between the
//!   check and the last load restarts the section, and with it the check.
//! - The domain's mode is read after the check, as in wide sections.
//! - Within a wide section the field is left alone, because an interruption restarts that section and this one with
//!   it. Only in this case do the loads run under a descriptor other than their own.
//! - A descriptor must stay in memory for as long as a thread's field may point to it, which is for ever. So narrow
//!   sections are used only in the object that contains this crate, which is never unloaded
//!   (`platform/linux/pin.rs`). Code that another shared object instantiated uses wide sections.
//!
//! Sources: rseq(2); Linux `kernel/rseq.c` for when the field is cleared.

use crate::section::RESTART_LIMIT;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Offset of the field `rseq_cs` from the thread pointer while narrow sections may be used; otherwise 0.
pub(crate) static FIELD: AtomicI64 = AtomicI64::new(0);
/// The bounds of the object that contains this crate, in which narrow sections may be used.
pub(crate) static OBJECT_START: AtomicUsize = AtomicUsize::new(0);
pub(crate) static OBJECT_END: AtomicUsize = AtomicUsize::new(0);

/// After how many restarts a section gives up.
pub(crate) const LIMIT: u32 = RESTART_LIMIT as u32;
/// The report of a section that did not run to its end. Other reports are the number of restarts.
pub(crate) const NOT_DONE: u32 = u32::MAX;

/// Switches narrow sections on for code within `object`.
pub(crate) fn enable(field: isize, object: Range<usize>) {
    OBJECT_START.store(object.start, Ordering::Relaxed);
    OBJECT_END.store(object.end, Ordering::Relaxed);
    // Release: a section that finds the offset also finds the object's bounds, because x86 executes loads in order.
    FIELD.store(field as i64, Ordering::Release);
}

/// One narrow section around the lines of assembly in brackets, for x86-64: `asm!` with a way in and out. Its value
/// is whether the lines ran to their end without interruption; if not, the outputs mean nothing. It needs the
/// domain's mode, and `t`, a scratch register that the lines may use, too.
///
/// The lines only load and compute, and write nothing but outputs. They may be abandoned at any point and run again
/// from the first one, so they must not change the inputs. Labels 20 to 29 are free for them. They end by reaching
/// their end, which is label 4.
macro_rules! narrow {
    ($mode:expr, [$($line:expr),* $(,)?], $($operands:tt)*) => {{
        let report: u32;
        std::arch::asm!(
            "mov {field}, qword ptr [rip + {narrow_field}]",
            "lea {descriptor}, [rip + 9f]",
            "xor {report:e}, {report:e}",
            "3:",
            "cmp qword ptr fs:[{field}], {descriptor}",
            "jne 5f",
            "8:",
            "cmp dword ptr [{mode}], {asymmetric}",
            "jne 6f",
            $($line,)*
            "4:",
            ".pushsection .text.unlikely.reprieve_rcu,\"ax\",@progbits",
            // An abort goes to label 2. Before it is the signature that the kernel checks: RSEQ_SIG, as the operand
            // of an undefined instruction.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "2:",
            "lock inc qword ptr [rip + {restarts}]",
            "inc {report:e}",
            "cmp {report:e}, {limit}",
            "jb 3b",
            "6:",
            "mov {report:e}, {not_done}",
            "jmp 4b",
            // Not armed. The thread's cpu_id, which is the field before, is negative if rseq is not registered.
            "5:",
            "test {field}, {field}",
            "jz 6b",
            "cmp dword ptr fs:[{field} - 4], 0",
            "jl 6b",
            "lea {t}, [rip + {wide}]",
            "cmp qword ptr fs:[{field}], {t}",
            "je 8b",
            "cmp {descriptor}, qword ptr [rip + {object_start}]",
            "jb 6b",
            "cmp {descriptor}, qword ptr [rip + {object_end}]",
            "jae 6b",
            "mov qword ptr fs:[{field}], {descriptor}",
            "jmp 3b",
            ".popsection",
            // The kernel's struct rseq_cs: version, flags, start, length, abort.
            ".pushsection .data.rel.ro.reprieve_rcu,\"aw\",@progbits",
            ".balign 32",
            "9:",
            ".long 0, 0",
            ".quad 3b, 4b - 3b, 2b",
            ".popsection",
            narrow_field = sym $crate::section::arch::narrow::FIELD,
            wide = sym $crate::section::arch::wide::DESCRIPTOR,
            object_start = sym $crate::section::arch::narrow::OBJECT_START,
            object_end = sym $crate::section::arch::narrow::OBJECT_END,
            restarts = sym $crate::section::RESTARTS,
            asymmetric = const $crate::mode::ASYMMETRIC,
            limit = const $crate::section::arch::narrow::LIMIT,
            not_done = const $crate::section::arch::narrow::NOT_DONE as i32,
            mode = in(reg) std::ptr::from_ref::<$crate::sync::AtomicU32>($mode),
            field = out(reg) _,
            descriptor = out(reg) _,
            report = out(reg) report,
            t = out(reg) _,
            $($operands)*
            options(nostack),
        );
        report != $crate::section::arch::narrow::NOT_DONE
    }};
}
pub(crate) use narrow;

#[cfg(all(test, not(loom)))]
#[path = "narrow_tests.rs"]
mod tests;
