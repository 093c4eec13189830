//! A shared library that contains this crate is opened, used by threads, and closed while they live. Each test runs
//! in a process of its own, one for each kind of section that the library may use.

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Barrier, Once};

/// `examples/library.rs`. It is built already if cargo was asked for all tests.
fn path() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/liblibrary.so")
}

fn build() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let args = ["build", "--offline", "-p", "reprieve-rcu", "--example", "library", "--profile", profile];
        let Ok(run) = Command::new(env!("CARGO")).args(args).output() else {
            // A machine without cargo, as in scripts/aarch64, brings the built library.
            return assert!(path().exists(), "no cargo, and no {}", path().display());
        };
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    });
}

fn open(flags: i32) -> *mut c_void {
    let path = CString::new(path().into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: the path is a C string; the library has no initialisers but Rust's.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | flags) }
}

/// The library's functions.
#[derive(Clone, Copy)]
struct Library {
    get: extern "C" fn() -> u64,
    get_locked: extern "C" fn() -> u64,
    hold: extern "C" fn(),
    replace: extern "C" fn(u64) -> bool,
    garbage: extern "C" fn(u64) -> usize,
}

impl Library {
    fn of(handle: *mut c_void) -> Self {
        assert!(!handle.is_null());
        let find = |name: &CStr| {
            // SAFETY: the handle is open, and the name a C string.
            let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!at.is_null(), "{name:?}");
            at
        };
        // SAFETY: these are the functions' types in examples/library.rs.
        unsafe {
            use std::mem::transmute;
            Self {
                get: transmute::<*mut c_void, extern "C" fn() -> u64>(find(c"setting_get")),
                get_locked: transmute::<*mut c_void, extern "C" fn() -> u64>(find(c"setting_get_locked")),
                hold: transmute::<*mut c_void, extern "C" fn()>(find(c"setting_hold")),
                replace: transmute::<*mut c_void, extern "C" fn(u64) -> bool>(find(c"setting_replace")),
                garbage: transmute::<*mut c_void, extern "C" fn(u64) -> usize>(find(c"setting_garbage")),
            }
        }
    }

    fn check(self) {
        for value in 1..1_000 {
            assert!((self.replace)(value));
            assert_ne!((self.get)(), 0);
            assert_ne!((self.get_locked)(), 0);
        }
    }
}

fn fork_works(library: Library) {
    // SAFETY: the child reads, writes and ends, all of which this crate defines for it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = (library.replace)(7) && (library.get)() == 7 && (library.get_locked)() == 7;
        // SAFETY: ends the child without anything of the parent's.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = -1;
    // SAFETY: the child is this thread's own, and the status valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Run by the tests below.
#[test]
#[ignore = "closes a library for the whole process"]
fn workload() {
    let handle = open(0);
    let library = Library::of(handle);
    let (used, closed) = (Barrier::new(4), Barrier::new(4));
    let held_up = std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                library.check();
                // Until the thread ends. At its end it must still find the library's code.
                (library.hold)();
                used.wait();
                closed.wait();
                assert_ne!((library.get)(), 0);
                (library.hold)();
            });
        }
        used.wait();
        let replaced = (library.replace)(1_000);
        let held_up = replaced && (library.garbage)(10) > 0;
        // SAFETY: what is used afterwards stays loaded: that is what is tested.
        let is_closed = unsafe { libc::dlclose(handle) } == 0;
        closed.wait();
        held_up && is_closed
    });
    assert!(held_up, "the threads' sections hold up what was replaced");
    // The threads have ended, and with them their sections.
    assert_eq!((library.garbage)(10_000), 0);
    fork_works(library);
    // Now the loader unloads what it could not unload while the threads lived.
    let again = open(0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dlclose(again) }, 0);
    let again = open(libc::RTLD_NOLOAD);
    assert!(!again.is_null(), "the library was unloaded");
    assert_eq!((Library::of(again).get)(), 1_000, "it is the same library");
    std::thread::scope(|s| drop(s.spawn(|| library.check())));
}

fn run_with(mode: &str) {
    build();
    let program = std::env::current_exe().unwrap();
    let mut run = Command::new(program);
    let run = run.args(["--ignored", "--exact", "workload"]).env("REPRIEVE_RCU", mode).output().unwrap();
    let out = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && out.contains("1 passed"), "{}: {out}", run.status);
}

#[test]
#[cfg_attr(reprieve_fallback, ignore = "the portable half keeps no library loaded")]
fn with_what_the_machine_offers() {
    run_with("");
}

#[test]
#[cfg_attr(reprieve_fallback, ignore = "the portable half keeps no library loaded")]
fn without_rseq() {
    run_with("no-rseq");
}

#[test]
#[cfg_attr(reprieve_fallback, ignore = "the portable half keeps no library loaded")]
fn without_membarrier() {
    run_with("off");
}
