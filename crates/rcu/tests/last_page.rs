//! The last page of user space is part of every section. The kernel runs instructions there for uprobes, so that a
//! probe on a function that a section calls leads through it.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use reprieve_rcu::capabilities;
use std::sync::atomic::{AtomicBool, Ordering};

/// The end of 47-bit user space: the kernel ends it a page early.
const LAST_PAGE: usize = 0x7fff_ffff_e000;

/// A function in the last page that spins for milliseconds. None if something else is there.
fn spin_in_the_last_page() -> Option<extern "C" fn()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: leaves existing mappings alone.
    let at = unsafe { libc::mmap(LAST_PAGE as *mut libc::c_void, 4096, protection, flags, -1, 0) };
    if at as usize != LAST_PAGE {
        return None;
    }
    // mov ecx, 1 << 21; dec ecx; jnz -4; ret
    let code = [0xb9, 0x00, 0x00, 0x20, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xc3];
    // SAFETY: the page is mapped above, and holds a function of this type.
    unsafe {
        std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast::<u8>(), code.len());
        Some(std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(at))
    }
}

#[test]
fn a_section_that_runs_there_is_started_again() {
    let domain = common::domain();
    if capabilities().restartable.is_err() {
        return;
    }
    let spin = spin_in_the_last_page().expect("the last page is free");
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: the section counts down in a register.
            (0..20).for_each(|_| unsafe { domain.read(|| spin()) });
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            domain.synchronize();
        }
    });
    let stats = domain.stats();
    assert_eq!(stats.foreign_rseq, 0, "a section lost its protection");
    assert!(stats.restarts > 0);
}
