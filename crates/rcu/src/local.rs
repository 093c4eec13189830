//! What a thread remembers: its record in every domain that it reads in, and a hazard slot in each domain where it
//! needs one (`local/slot.rs`).
//!
//! `Domain::lock` finds the thread's record here. A thread's first lock of a domain registers it. When the thread
//! ends, its records are given back, except those in a section.
//!
//! Invariant: a section ends only when its guard is dropped. A leaked guard has lent out references for as long as
//! its domain's handle is borrowed, and other threads may hold these. So its section outlives its thread, and ends
//! with the domain.
//!
//! Where there are pthread keys, the thread's end comes after the destructors of all thread-local variables (see
//! `platform/thread_end/keyed.rs`). A guard in such a variable is dropped first, and its record is then given back.
//! On other systems the domain loses that record, which does no other harm.

pub(crate) mod slot;

use crate::core::Core;
use crate::hazard;
use crate::platform::{self, thread_end};
use crate::pool::Entry;
use crate::reader_record::Record;
use crate::section;
#[cfg(shuttle)]
use crate::sync::LocalCell as _;
use crate::sync::thread_local;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// An entry of a domain's pool that belongs to this thread. It has a box of its own, whose address stands for both
/// parts in `LAST`: as one word, so that a signal handler finds the two together.
struct Owned<T> {
    core: Arc<Core>,
    entry: Entry<T>,
}

type List<T> = Vec<Box<Owned<T>>>;

/// What one thread remembers: at most one of each kind per domain.
#[derive(Default)]
struct Mine {
    records: List<Record>,
    /// Those of `Reader`s, which give them back themselves. If a `Reader` is leaked, its record is marked when the
    /// thread ends.
    readers: List<Record>,
    slots: List<hazard::Cell>,
}

/// What is remembered of `core`'s domain.
fn known_in<T>(list: &List<T>, core: &Arc<Core>) -> Option<*const Owned<T>> {
    list.iter().find(|o| Arc::ptr_eq(&o.core, core)).map(|o| ptr::from_ref(&**o))
}

thread_local! {
    /// The record used last: null, or one of the list. It has no destructor, and so is usable for as long as the
    /// thread lives.
    static LAST: Cell<*const Owned<Record>> = const { Cell::new(ptr::null()) };
    static MINE: Cell<*mut Mine> = const { Cell::new(ptr::null_mut()) };
    /// Set while the list is in use by a caller further down the stack, which a signal handler has interrupted.
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
    // SAFETY: it is null, or in the thread's list.
    if let Some(last) = unsafe { LAST.get().as_ref() }
        && Arc::ptr_eq(&last.core, core)
    {
        // SAFETY: `core` owns the pool of the entry, and is borrowed for as long as the result.
        return unsafe { last.entry.get() };
    }
    find(core)
}

#[cold]
#[inline(never)]
fn find(core: &Arc<Core>) -> &Record {
    let known = with_mine(|mine| known_in(&mine.records, core)).unwrap_or_else(|| {
        let name = platform::thread_name().unwrap_or_else(|| "unnamed".to_owned());
        let entry = take(core, name).unwrap_or_else(|e| panic!("{e}"));
        let known = remember(core, entry, |mine| &mut mine.records);
        if core.modes.may_be_fenced() {
            // What the thread then reads by, in signal handlers too, and a handler must not take one.
            slot::keep(core);
        }
        known
    });
    LAST.set(known);
    // SAFETY: the list holds it, and `core`, which owns the pool of the entry, is borrowed for as long as the result.
    unsafe { (*known).entry.get() }
}

/// Adds an entry to the list.
fn remember<T>(core: &Arc<Core>, entry: Entry<T>, list: fn(&mut Mine) -> &mut List<T>) -> *const Owned<T> {
    let owned = Box::new(Owned { core: core.clone(), entry });
    let known = ptr::from_ref(&*owned);
    let closed = with_mine(|mine| {
        let closed = take_closed(mine);
        list(mine).push(owned);
        closed
    });
    // This may drop the last trace of a domain, which must not happen while the list is in use.
    drop(closed);
    known
}

/// Takes a record for a `Reader` of the calling thread.
pub(crate) fn register(core: &Arc<Core>, name: String) -> Result<Entry<Record>, TooManyReaders> {
    let entry = take(core, name)?;
    remember(core, entry, |mine| &mut mine.readers);
    Ok(entry)
}

/// Ends what `register` began.
pub(crate) fn unregister(core: &Core, entry: Entry<Record>) {
    let owned = with_mine(|mine| {
        let at = mine.readers.iter().position(|o| o.entry == entry)?;
        Some(mine.readers.swap_remove(at))
    });
    // Not while the list is in use.
    drop(owned);
    release(core, entry);
}

/// Takes a record for the calling thread.
fn take(core: &Core, name: String) -> Result<Entry<Record>, TooManyReaders> {
    let limit = core.limit_readers;
    let entry = core.readers.take(limit).ok_or(TooManyReaders { limit })?;
    // SAFETY: the pool belongs to `core`, which is borrowed here.
    unsafe { entry.get() }.adopt(name);
    Ok(entry)
}

/// Gives back a record. No reference that one of its sections lent out may be left.
fn release(core: &Core, entry: Entry<Record>) {
    // SAFETY: the pool belongs to `core`, which is borrowed here.
    unsafe { entry.get() }.abandon(&core.event);
    core.readers.give(entry);
}

/// Takes out what the thread remembers of closed domains. Otherwise a thread that uses many short-lived domains would
/// collect them.
fn take_closed(mine: &mut Mine) -> Mine {
    forget_last();
    let closed = |core: &Core| core.closed.load(std::sync::atomic::Ordering::Relaxed);
    Mine {
        records: mine.records.extract_if(.., |o| closed(&o.core)).collect(),
        // A leaked reader keeps its domain open.
        readers: List::new(),
        slots: mine.slots.extract_if(.., |o| closed(&o.core)).collect(),
    }
}

/// Makes the next calls look their entries up again, because those used last may go.
fn forget_last() {
    LAST.set(ptr::null());
    slot::forget_last();
}

/// Runs `f` with the thread's list, which the first call creates.
///
/// # Panics
/// If called by a signal handler that interrupted this very function.
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
        section::register_thread();
    }
    // SAFETY: the list is this thread's own, and `BUSY` keeps a handler from a second reference to it.
    f(unsafe { &mut *MINE.get() })
}

/// Runs at the thread's end. From here on the thread may make itself another list, for destructors that run later.
fn give_back(mine: *mut c_void) {
    // shuttle's variables may be gone by now, and in its models nobody reads after this point.
    if cfg!(not(shuttle)) {
        forget_last();
        MINE.set(ptr::null_mut());
    }
    section::unregister_thread();
    // SAFETY: the value is the thread's own list, set in `with_mine`, and nothing else can reach it any more.
    let mine = unsafe { Box::from_raw(mine.cast::<Mine>()) };
    for owned in &mine.slots {
        slot::give_back(owned);
    }
    for owned in &mine.readers {
        // SAFETY: `owned.core` keeps the pool alive.
        unsafe { owned.entry.get() }.outlive_thread();
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
