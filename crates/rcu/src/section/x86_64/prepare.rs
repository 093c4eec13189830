//! Switches restartable sections on, if the machine and the C library permit it.

use super::{narrow, rseq, stub, wide};
use crate::platform::membarrier;
use crate::section::Obstacle;
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Prepares restartable sections, or returns why there are none. `in_any_case`: see `rseq::field_offset`.
pub(crate) fn prepare(in_any_case: bool) -> Result<(), Obstacle> {
    let field = rseq::field_offset(in_any_case).ok_or(Obstacle::NoRseq)?;
    if !membarrier::has_rseq() {
        return Err(Obstacle::NoMembarrier);
    }
    // Narrow sections restore neither registers nor a stack, and need no stub.
    narrow::enable(field, own_object());
    if shadow_stack() {
        return Err(Obstacle::ShadowStack);
    }
    let page = stub::map(&wide::abort_code()).ok_or(Obstacle::NoStubPage)?;
    wide::enable(page, stub::user_space_end(), field);
    Ok(())
}

/// Whether user shadow stacks are on (`ARCH_SHSTK_STATUS`, Linux 6.6). glibc switches them on before `main`.
fn shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: libc::c_int = 0x5005;
    const ARCH_SHSTK_SHSTK: u64 = 1;
    let mut features = 0u64;
    // SAFETY: the kernel writes eight bytes to `features`, or fails if it does not know the request.
    let r = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    r == 0 && features & ARCH_SHSTK_SHSTK != 0
}

/// The addresses of the object that holds this function. It is never unloaded (`platform/linux/pin.rs`).
fn own_object() -> Range<usize> {
    let mut bounds = 0..0;
    // SAFETY: the C library calls `note_own` before this returns, and passes on `bounds`.
    unsafe { libc::dl_iterate_phdr(Some(note_own), (&raw mut bounds).cast()) };
    bounds
}

/// Records the bounds of one object if it holds this function, and then ends the iteration.
///
/// # Safety
/// The C library calls this, and `bounds` points to a range.
unsafe extern "C" fn note_own(object: *mut libc::dl_phdr_info, _: usize, bounds: *mut c_void) -> c_int {
    // SAFETY: the C library describes an object that is loaded and has this many headers.
    let (base, headers) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (object.dlpi_addr as usize, headers)
    };
    let loaded = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let ends = |h: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(h.p_vaddr as usize);
        start..start + h.p_memsz as usize
    };
    let union = |all: Range<usize>, one: Range<usize>| all.start.min(one.start)..all.end.max(one.end);
    let Some(all) = loaded.map(ends).reduce(union) else { return 0 };
    let here = note_own as *const () as usize;
    if !all.contains(&here) {
        return 0;
    }
    // SAFETY: `own_object` passed the range.
    unsafe { *bounds.cast::<Range<usize>>() = all };
    1
}
