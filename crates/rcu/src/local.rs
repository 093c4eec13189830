//! What a thread remembers: its records in every domain it reads in, and a hazard slot in each where it needs one
//! (`local/slot.rs`).
//!
//! `Domain::lock` finds the thread's record here; a thread's first lock of a domain registers it. When the
//! thread ends, its records are given back, except those in a section.
//!
//! Invariant: only the guard's own drop ends a section. A guard that was leaked lent out references for as long as its
//! domain's handle is borrowed, and other threads may hold them: its section outlives its thread, and ends with the
//! domain.
//!
//! Where there are pthread keys, the thread's end comes after the destructors of all thread-local variables (see
//! `platform/thread_end/keyed.rs`): a guard in such a variable is dropped before, and its record is given back. Elsewhere
//! that record is lost to the domain, and nothing worse.

pub(crate) mod slot;

use crate::core::Core;
use crate::hazard;
use crate::platform::thread_end;
use crate::pool::Entry;
use crate::record::Record;
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::thread_local;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// An entry of a domain's pool that belongs to this thread.
struct Owned<T> {
    core: Arc<Core>,
    entry: Entry<T>,
}

/// What one thread remembers: at most one of each per domain.
#[derive(Default)]
struct Mine {
    records: Vec<Owned<Record>>,
    slots: Vec<Owned<hazard::Cell>>,
}

/// The entry of `core`'s domain.
fn entry_in<T>(owned: &[Owned<T>], core: &Arc<Core>) -> Option<Entry<T>> {
    owned.iter().find(|o| Arc::ptr_eq(&o.core, core)).map(|o| o.entry)
}

thread_local! {
    /// The record used last, and its core. No destructor: usable for as long as the thread lives.
    static LAST: Cell<(*const Core, *const Record)> = const { Cell::new((ptr::null(), ptr::null())) };
    static MINE: Cell<*mut Mine> = const { Cell::new(ptr::null_mut()) };
    /// The list is in use by a caller further down the stack, which a signal handler interrupted.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

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
    let entry = with_mine(|mine| entry_in(&mine.records, core)).unwrap_or_else(|| {
        let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let entry = take(core, name).unwrap_or_else(|e| panic!("{e}"));
        with_mine(|mine| {
            forget_closed(mine);
            mine.records.push(Owned { core: core.clone(), entry });
        });
        entry
    });
    // SAFETY: `core` owns the pool of the entry, and is borrowed for as long as the result.
    let record: &Record = unsafe { entry.get() };
    LAST.set((Arc::as_ptr(core), record));
    record
}

/// Takes a record for the calling thread.
pub(crate) fn take(core: &Core, name: String) -> Result<Entry<Record>, TooManyReaders> {
    let limit = core.limit_readers;
    let entry = core.readers.take(limit).ok_or(TooManyReaders { limit })?;
    // SAFETY: the pool belongs to `core`, which is borrowed here.
    unsafe { entry.get() }.adopt(name);
    Ok(entry)
}

/// Gives a record back whose sections' references are all gone.
pub(crate) fn release(core: &Core, entry: Entry<Record>) {
    // SAFETY: the pool belongs to `core`, which is borrowed here.
    unsafe { entry.get() }.abandon(&core.event);
    core.readers.give(entry);
}

/// Drops what the thread remembers of domains that are closed; a thread that uses many short-lived domains
/// would otherwise collect them.
fn forget_closed(mine: &mut Mine) {
    // A core made later may get the address of one that is forgotten. `find` sets `LAST` anew; nobody else does the
    // slot's.
    slot::forget_last();
    let is_open = |core: &Core| !core.closed.load(std::sync::atomic::Ordering::Relaxed);
    mine.records.retain(|o| is_open(&o.core));
    mine.slots.retain(|o| is_open(&o.core));
}

/// Runs `f` with the thread's list, made at the first call.
///
/// # Panics
/// In a signal handler that interrupted this very function.
fn with_mine<T>(f: impl FnOnce(&mut Mine) -> T) -> T {
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            BUSY.set(false);
        }
    }
    assert!(!BUSY.replace(true), "a signal handler locks a domain for the first time on its thread");
    let _done = Done;
    if MINE.get().is_null() {
        let mine = Box::into_raw(Box::<Mine>::default());
        thread_end::at_thread_end(mine.cast(), give_back);
        MINE.set(mine);
    }
    // SAFETY: the list is this thread's own, and `BUSY` keeps a handler from a second reference to it.
    f(unsafe { &mut *MINE.get() })
}

/// What runs at the thread's end. From here on the thread may make itself another list, for destructors that come later.
fn give_back(mine: *mut c_void) {
    // shuttle's variables may have gone by now, and nobody reads any more in its models.
    if cfg!(not(shuttle)) {
        LAST.set((ptr::null(), ptr::null()));
        slot::forget_last();
        MINE.set(ptr::null_mut());
    }
    give_all_back(mine.cast());
}

fn give_all_back(mine: *mut Mine) {
    // SAFETY: the value is the thread's own list, set in `with_mine`, and no longer reachable from anywhere
    // else.
    let mine = unsafe { Box::from_raw(mine) };
    for owned in &mine.slots {
        slot::give_back(owned);
    }
    for owned in &mine.records {
        // SAFETY: `owned.core` keeps the pool alive.
        let record: &Record = unsafe { owned.entry.get() };
        if record.is_in_section() {
            record.outlive_thread();
        } else {
            release(&owned.core, owned.entry);
        }
    }
}
