//! Keeps the shared library that holds this code loaded.
//!
//! A thread that has read runs a destructor of this library when it ends, the reclaimer thread runs its code, the
//! stub page returns into it, and the TLS slot is allocated statically. A `dlclose` that unloaded the code would
//! leave all of these dangling, whatever kind of section is in use. So the library asks the loader never to unload
//! it; `dlclose` then only drops the reference. In a program's own text this has no effect.

use std::ffi::c_void;

/// Marks the object that holds this function as one that is never unloaded.
pub(crate) fn keep_loaded() {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = keep_loaded as *const () as *const c_void;
    // SAFETY: `info` is valid for the call. The name that it yields belongs to the loader and stays valid while this
    // code is loaded, which lies in the object named. The handle is kept for ever, on purpose.
    unsafe {
        if libc::dladdr(here, &raw mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}
