//! What a thread remembers: its records in every domain it reads in.
//!
//! `Domain::lock` finds the thread's record here; a thread's first lock of a domain registers it. When the
//! thread ends, all its records are given back, including those of readers that were leaked.
//!
//! The thread's end is a pthread key's destructor, which runs after the destructors of all thread-local
//! variables (glibc: `__call_tls_dtors` before `__nptl_deallocate_tsd`). A guard in a thread-local variable
//! is therefore dropped before; a section that is still open then belongs to a guard that was leaked and that
//! nobody can use any more, so that the record may go offline.

use crate::core::Core;
use crate::pool::Entry;
use crate::record::Record;
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::thread_local;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// A record in use by this thread.
struct Owned {
    core: Arc<Core>,
    entry: Entry<Record>,
}

#[derive(Default)]
struct Mine {
    /// Found again by `Domain::lock`.
    cached: Vec<Owned>,
    /// Those of `Reader`s.
    explicit: Vec<Owned>,
}

thread_local! {
    /// The record used last, and its core. No destructor: usable for as long as the thread lives.
    static LAST: Cell<(*const Core, *const Record)> = const { Cell::new((ptr::null(), ptr::null())) };
    static MINE: Cell<*mut Mine> = const { Cell::new(ptr::null_mut()) };
}

#[cfg_attr(shuttle, allow(dead_code))]
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// Too many readers are registered in the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyReaders {
    /// The domain's limit.
    pub limit: usize,
}

impl std::fmt::Display for TooManyReaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {} readers in one domain; Options::limit_readers raises the limit", self.limit)
    }
}

impl std::error::Error for TooManyReaders {}

/// The calling thread's record in `core`'s domain, registered at the first call.
///
/// # Panics
/// When the domain has as many readers as it may.
#[inline(always)]
pub(crate) fn record(core: &Arc<Core>) -> &Record {
    let (last, record) = LAST.get();
    if last == Arc::as_ptr(core) {
        // SAFETY: the thread's list keeps the core, and with it the record, alive until the thread ends or
        // the domain is closed; `core` is borrowed from an open domain.
        return unsafe { &*record };
    }
    find(core)
}

#[cold]
#[inline(never)]
fn find(core: &Arc<Core>) -> &Record {
    let known = |mine: &mut Mine| mine.cached.iter().find(|o| Arc::ptr_eq(&o.core, core)).map(|o| o.entry);
    let entry = with_mine(known).unwrap_or_else(|| {
        let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let entry = take(core, name).unwrap_or_else(|e| panic!("{e}"));
        with_mine(|mine| {
            forget_closed(mine);
            mine.cached.push(Owned { core: core.clone(), entry });
        });
        entry
    });
    // SAFETY: `core` owns the pool of the entry, and is borrowed for as long as the result.
    let record: &Record = unsafe { entry.get() };
    LAST.set((Arc::as_ptr(core), record));
    record
}

/// Registers a reader of its own.
pub(crate) fn register(core: &Arc<Core>, name: String) -> Result<Entry<Record>, TooManyReaders> {
    let entry = take(core, name)?;
    with_mine(|mine| mine.explicit.push(Owned { core: core.clone(), entry }));
    Ok(entry)
}

/// Ends what `register` began.
pub(crate) fn unregister(core: &Arc<Core>, entry: Entry<Record>) {
    let owned = with_mine(|mine| {
        let at = mine.explicit.iter().position(|o| Arc::ptr_eq(&o.core, core) && o.entry == entry)?;
        Some(mine.explicit.swap_remove(at))
    });
    if let Some(owned) = owned {
        release(&owned);
    }
}

fn take(core: &Arc<Core>, name: String) -> Result<Entry<Record>, TooManyReaders> {
    let limit = core.limit_readers;
    let entry = core.readers.take(limit).ok_or(TooManyReaders { limit })?;
    // SAFETY: the pool belongs to `core`, which is borrowed here.
    unsafe { entry.get() }.adopt(name);
    Ok(entry)
}

fn release(owned: &Owned) {
    // SAFETY: `owned.core` keeps the pool alive.
    unsafe { owned.entry.get() }.abandon(&owned.core.event);
    owned.core.readers.give(owned.entry);
}

/// Drops what the thread remembers of domains that are closed; a thread that uses many short-lived domains
/// would otherwise collect them.
fn forget_closed(mine: &mut Mine) {
    mine.cached.retain(|o| {
        let open = !o.core.closed.load(std::sync::atomic::Ordering::Relaxed);
        if !open {
            release(o);
        }
        open
    });
}

/// Runs `f` with the thread's list, made at the first call. Not for signal handlers.
fn with_mine<T>(f: impl FnOnce(&mut Mine) -> T) -> T {
    if MINE.get().is_null() {
        let mine = Box::into_raw(Box::<Mine>::default());
        call_at_thread_end(mine);
        MINE.set(mine);
    }
    // SAFETY: the list is this thread's own, and none of the functions that `f` may call comes back here.
    f(unsafe { &mut *MINE.get() })
}

#[cfg(not(shuttle))]
fn call_at_thread_end(mine: *mut Mine) {
    let key = *KEY.get_or_init(new_key);
    // SAFETY: the key exists for as long as the process.
    unsafe { libc::pthread_setspecific(key, mine.cast()) };
}

/// shuttle's threads are one thread to the system.
#[cfg(shuttle)]
fn call_at_thread_end(mine: *mut Mine) {
    struct End(Cell<*mut Mine>);
    impl Drop for End {
        fn drop(&mut self) {
            give_all_back(self.0.get());
        }
    }
    thread_local! {
        static END: End = End(Cell::new(ptr::null_mut()));
    }
    END.with(|end| end.0.set(mine));
}

#[cfg_attr(shuttle, allow(dead_code))]
fn new_key() -> libc::pthread_key_t {
    let mut key = 0;
    // SAFETY: `key` is valid for the call, and the destructor stays loaded (see platform/pin.rs).
    let r = unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_end)) };
    assert!(r == 0, "no pthread key is left for reprieve-rcu: error {r}");
    key
}

#[cfg_attr(shuttle, allow(dead_code))]
extern "C" fn at_thread_end(mine: *mut c_void) {
    LAST.set((ptr::null(), ptr::null()));
    MINE.set(ptr::null_mut());
    give_all_back(mine.cast());
}

fn give_all_back(mine: *mut Mine) {
    // SAFETY: the value is the thread's own list, set in `with_mine`, and no longer reachable from anywhere
    // else.
    let mine = unsafe { Box::from_raw(mine) };
    mine.cached.iter().chain(&mine.explicit).for_each(release);
}
