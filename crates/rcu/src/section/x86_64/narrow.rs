//! Narrow sections: a whole look-up in one piece of assembly, with a descriptor of its own.
//!
//! A wide section (`wide.rs`) covers whatever its closure calls, and pays for the way in and out. A look-up of a few
//! loads needs neither: its range is its own instructions, an abort goes to their start, and nothing is to be put back.
//! So there is nothing to do at its end either: the thread's `rseq_cs` field keeps pointing to the descriptor. The kernel
//! clears it when it interrupts the thread elsewhere; otherwise the next look-up of this site finds it armed, and a read
//! stores nothing.
//!
//! Invariants:
//! - The check that the field holds this site's descriptor lies WITHIN the range. Whatever comes between the check and
//!   the last load therefore starts the section again, and with it the check.
//! - The domain's mode is read after the check, as in wide sections.
//! - Within a wide section the field is left alone: that section restarts this one with it. It is the only case in which
//!   the loads run with another descriptor than their own.
//! - A descriptor must stay in memory for as long as a thread's field may point to it, which is for ever: only sites in
//!   the object that contains this crate are used, which is never unloaded (`platform/pin.rs`). Code that another shared
//!   object instantiated uses wide sections instead.
//!
//! Source: rseq(2); Linux `kernel/rseq.c` for when the field is cleared.

use crate::section::RESTART_LIMIT;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Offset of the field `rseq_cs` from the thread pointer while narrow sections may be used, else 0.
pub(crate) static FIELD: AtomicI64 = AtomicI64::new(0);
/// Where the object lies that contains this crate, and with it the sites that may be used.
pub(crate) static OBJECT_START: AtomicUsize = AtomicUsize::new(0);
pub(crate) static OBJECT_END: AtomicUsize = AtomicUsize::new(0);

/// After so many restarts a section gives up.
pub(crate) const LIMIT: u32 = RESTART_LIMIT as u32;
/// What a section reports that was not run to its end. Else it reports how often it was started again.
pub(crate) const NOT_DONE: u32 = u32::MAX;

/// Switches narrow sections on for sites within `object`.
pub(crate) fn enable(field: isize, object: Range<usize>) {
    OBJECT_START.store(object.start, Ordering::Relaxed);
    OBJECT_END.store(object.end, Ordering::Relaxed);
    // Release: a section that finds the offset finds the object's bounds, because x86 loads in order.
    FIELD.store(field as i64, Ordering::Release);
}

/// One narrow section around the lines of assembly in brackets, for x86-64: `asm!` with a way in and out. Its value is
/// whether they ran to their end, undisturbed; if not, the outputs mean nothing. It needs the domain's mode and `t`, a
/// scratch register that the lines may use too.
///
/// The lines only load and compute, and write nothing but outputs. They may be abandoned anywhere and run again from the
/// first, and leave the inputs as they are. Labels 20 to 29 are theirs; they leave by falling out at their end, which is
/// label 4.
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
            // An abort comes to label 2. Before it, the signature that the kernel looks for: RSEQ_SIG, as the operand
            // of an instruction that is undefined.
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
            // Not armed. The thread's cpu_id, the field before, is negative where rseq is not registered.
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
