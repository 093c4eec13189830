//! Keeps the shared library that holds this code loaded.
//!
//! A thread that has read runs a destructor of ours when it ends, the reclaimer thread runs our code, the stub
//! page returns into it, and the TLS slot is allocated statically. A `dlclose` that unloaded the
//! code would leave all of them dangling, whatever kind of section is in use. So the library asks the loader
//! never to unload it; `dlclose` then drops the reference and nothing else. In a program's own text this has
//! no effect.

use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Marks the object that holds this function as one that is never unloaded.
pub(crate) fn keep_loaded() {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = keep_loaded as *const () as *const c_void;
    // SAFETY: `info` is valid for the call; the name it yields belongs to the loader and stays valid while
    // this code, which lies in the object named, is loaded. The handle is kept for ever, on purpose.
    unsafe {
        if libc::dladdr(here, &raw mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// The addresses of the object that holds this function: what `keep_loaded` keeps.
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
pub(crate) fn own_object() -> Range<usize> {
    let mut bounds = 0..0;
    // SAFETY: `note_own` is called before this returns, with `bounds`.
    unsafe { libc::dl_iterate_phdr(Some(note_own), (&raw mut bounds).cast()) };
    bounds
}

/// Notes the bounds of one object, if it holds this function; then ends the iteration.
///
/// # Safety
/// As the C library calls it; `bounds` is a range.
#[cfg(all(target_arch = "x86_64", not(shuttle)))]
unsafe extern "C" fn note_own(object: *mut libc::dl_phdr_info, _: usize, bounds: *mut c_void) -> c_int {
    // SAFETY: the C library describes an object that is loaded, with so many headers.
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
