//! The thread's rseq area. Sources: rseq(2), glibc manual "Restartable Sequences".
//!
//! From 2.35 on, glibc registers an area for every thread, and publishes its place relative to the thread pointer in
//! `__rseq_offset` and `__rseq_size`. These symbols are looked up at run time, so that the program also links and
//! runs where they do not exist: with musl, and with an older glibc. There this library has an area of its own, in
//! static thread-local storage, and so at the same distance from every thread's pointer. A thread registers it when
//! it first locks a domain, and unregisters it when it ends, before the C library frees its storage.
//!
//! If glibc was told not to register threads (the tunable `glibc.pthread.rseq=0`), other code probably registers an
//! area of its own. Then this library does not register threads either, unless `REPRIEVE_RCU=rseq` is set.

use super::{stub, wide};
use crate::platform::without_signals;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// `struct rseq`: cpu_id_start at 0, cpu_id at 4, rseq_cs at 8. This is its first version, which every kernel knows.
const RSEQ_CS: isize = 8;
const SIZE: u32 = 32;
const UNREGISTER: i32 = 1;

/// Whether threads register the library's area.
static OWN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The thread is ending, and must not register again.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// The area's symbol, which must differ from that of another version of this library.
macro_rules! area {
    () => {
        concat!("reprieve_rcu_area_", env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"))
    };
}

// cpu_id is -1, RSEQ_CPU_ID_UNINITIALIZED, until the kernel writes it.
std::arch::global_asm!(
    concat!(".pushsection .tdata.", area!(), ",\"awT\",@progbits"),
    concat!(".globl ", area!()),
    concat!(".hidden ", area!()),
    concat!(".type ", area!(), ",@object"),
    concat!(".size ", area!(), ",{size}"),
    ".balign 32",
    concat!(area!(), ": .long 0, -1"),
    ".zero {size} - 8",
    ".popsection",
    size = const SIZE,
);

/// Offset of the field `rseq_cs` from the thread pointer. None if rseq is not registered and cannot be. With
/// `in_any_case`, rseq is registered even if glibc was told not to.
pub(crate) fn field_offset(in_any_case: bool) -> Option<isize> {
    match published() {
        Some((size, offset)) if size > 0 => Some(offset + RSEQ_CS),
        Some(_) if !in_any_case => None,
        _ => own_field_offset(),
    }
}

/// Size and offset of glibc's area.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
fn published() -> Option<(u32, isize)> {
    Some((symbol(c"__rseq_size")?, symbol(c"__rseq_offset")?))
}

/// The same for a program that contains glibc, where no symbol can be looked up at run time. With an older glibc the
/// addresses are null.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
fn published() -> Option<(u32, isize)> {
    let (size, offset): (*const u32, *const isize);
    // SAFETY: loads two addresses that the linker has set.
    unsafe {
        std::arch::asm!(
            ".weak __rseq_size",
            ".weak __rseq_offset",
            "mov {size}, [rip + __rseq_size@GOTPCREL]",
            "mov {offset}, [rip + __rseq_offset@GOTPCREL]",
            size = out(reg) size,
            offset = out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: glibc documents the two as constant objects of these types.
    (!size.is_null() && !offset.is_null()).then(|| unsafe { (*size, *offset) })
}

#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
fn symbol<T: Copy>(name: &std::ffi::CStr) -> Option<T> {
    // SAFETY: the name is a C string. glibc documents these two symbols as constant objects of the types asked for.
    unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<T>();
        (!at.is_null()).then(|| *at)
    }
}

/// The same for the library's own area, if the kernel lets the calling thread register it.
fn own_field_offset() -> Option<isize> {
    if !call(0) {
        return None;
    }
    // That was only a trial: the thread registers when it first locks a domain.
    call(UNREGISTER);
    OWN.store(true, Ordering::Release);
    Some(own_offset() + RSEQ_CS)
}

/// Registers the calling thread if the C library does not.
pub(crate) fn register_thread() {
    // If another library has registered the thread, this fails, and the thread reads as if there were no rseq.
    let _registered = OWN.load(Ordering::Acquire) && !ENDING.get() && call(0);
}

/// Unregisters the calling thread, which is ending, and clears its field: a later section must not find a descriptor
/// there that an earlier one left armed.
pub(crate) fn unregister_thread() {
    if !OWN.load(Ordering::Acquire) {
        return;
    }
    ENDING.set(true);
    // No signal handler's section may come in between.
    without_signals(|| {
        if call(UNREGISTER) {
            wide::forget_thread();
            let field = own_offset() + RSEQ_CS;
            // SAFETY: this is the thread's own area, which the kernel no longer reads.
            unsafe {
                std::arch::asm!("mov qword ptr fs:[{}], 0", in(reg) field, options(nostack, preserves_flags))
            };
        }
    });
}

/// The offset of the library's area from the thread pointer.
fn own_offset() -> isize {
    let offset: isize;
    // SAFETY: loads a constant that the loader has set.
    unsafe {
        std::arch::asm!(
            concat!("mov {offset}, [rip + ", area!(), "@gottpoff]"),
            offset = out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    offset
}

/// Makes the system call for the library's area of the calling thread. Returns whether it succeeded.
fn call(flags: i32) -> bool {
    let thread: isize;
    // SAFETY: on x86-64 the word at fs:0 is the thread pointer itself (System V ABI, TLS).
    unsafe {
        std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, preserves_flags, readonly))
    };
    let area = thread + own_offset();
    // SAFETY: the area belongs to the thread, has the size and alignment that the kernel asks for, and stays
    // registered until the thread unregisters it.
    unsafe { libc::syscall(libc::SYS_rseq, area, SIZE, flags, stub::SIGNATURE) == 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::machine::capabilities;
    use crate::mode::ASYMMETRIC;
    use crate::section::{Obstacle, Refusal, copied, restartable};
    use crate::sync::AtomicU32;
    use std::process::Command;
    use std::sync::atomic::AtomicPtr;

    fn wide() -> Result<u64, Refusal> {
        // SAFETY: a section that computes.
        unsafe { restartable(&AtomicU32::new(ASYMMETRIC), &|| Ok(7), |why, _| Err(why)) }
    }

    /// Always the same place in the code, with one descriptor.
    #[inline(never)]
    fn narrow() -> Option<u64> {
        let (mode, mut value) = (AtomicU32::new(ASYMMETRIC), 7u64);
        // SAFETY: the value outlives the section.
        unsafe { copied(&mode, &AtomicPtr::new(&raw mut value), 0) }
    }

    fn none() -> bool {
        narrow().is_none() && wide() == Err(Refusal::Unavailable)
    }

    /// Run by the test below.
    #[test]
    #[ignore = "needs another environment"]
    fn in_a_process_whose_c_library_does_not_register() {
        assert_eq!(capabilities().restartable, Ok(()));
        for _ in 0..2 {
            std::thread::spawn(|| {
                assert!(none(), "not registered");
                register_thread();
                // The narrow one comes last, because its descriptor stays armed.
                assert_eq!((wide(), narrow()), (Ok(7), Some(7)));
                unregister_thread();
                assert!(none(), "its end has begun");
                register_thread();
                assert!(none(), "not again");
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn a_thread_registers_itself_where_the_c_library_does_not() {
        // Not on machines without rseq.
        if !matches!(capabilities().restartable, Ok(()) | Err(Obstacle::NoRseq)) || !call_is_known() {
            return;
        }
        let name = "section::x86_64::rseq::tests::in_a_process_whose_c_library_does_not_register";
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", name, "--nocapture"])
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .env("REPRIEVE_RCU", "rseq")
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{words}");
        assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
    }

    /// Whether the kernel has the system call. Here it fails, because the area has no size.
    fn call_is_known() -> bool {
        // SAFETY: registers nothing.
        let r = unsafe { libc::syscall(libc::SYS_rseq, 0, 0, 0, 0) };
        r != 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
    }
}
