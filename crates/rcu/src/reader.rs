//! Registered readers and their sections.

use crate::core::Core;
use crate::domain::Domain;
use crate::epoch;
use crate::guard::{Guard, fall_back};
use crate::local::{self, TooManyReaders};
use crate::mode::is_asymmetric;
use crate::pool::Entry;
use crate::reader_record::Record;
use crate::section;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A thread's registration in a domain: the quickest way to read. It stays on its thread.
///
/// ```compile_fail
/// fn send<T: Send>(_: T) {}
/// send(reprieve_rcu::Domain::global().register("reader").unwrap());
/// ```
pub struct Reader {
    domain: Domain,
    entry: Entry<Record>,
    /// Where the two above lead to, so that a reader's path needs only one load each. Alive as long as the domain's handle.
    core: NonNull<Core>,
    record: NonNull<Record>,
    /// Only one thread writes a reader's word.
    _thread: PhantomData<*mut ()>,
}

impl Domain {
    /// Registers the calling thread as a reader called `name`. No sections are quicker than those of a [`Reader`].
    pub fn register(&self, name: &str) -> Result<Reader, TooManyReaders> {
        let entry = local::register(self.core(), name.to_owned())?;
        // SAFETY: the pool belongs to the domain's core.
        let record = NonNull::from(unsafe { entry.get() });
        let core = NonNull::from(&**self.core());
        Ok(Reader { domain: self.clone(), entry, core, record, _thread: PhantomData })
    }
}

impl Reader {
    /// The domain that this reader reads in.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline(always)]
    fn record(&self) -> &Record {
        // SAFETY: the domain keeps the pool alive.
        unsafe { self.record.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the domain keeps its core alive.
        unsafe { self.core.as_ref() }
    }

    /// Enters a section: objects that are reachable now are not freed before the guard is dropped. Sections may nest.
    ///
    /// # Panics
    /// Beyond 4,095 nested sections.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_> {
        Guard::enter(self.record(), self.core())
    }

    /// Enters a section as [`lock`](Self::lock) does, on a reader that is in no other section. The exclusive borrow
    /// guarantees that, so neither entry nor exit has to check it: this is the quickest section of the kind that may
    /// last. If a guard of this reader was leaked before, its section ends with this one: the borrow guarantees that
    /// no reference from it is left.
    ///
    /// ```compile_fail
    /// let domain = reprieve_rcu::Domain::default();
    /// let mut reader = domain.register("reader").unwrap();
    /// let first = reader.enter();
    /// let second = reader.enter(); // does not nest
    /// drop(first);
    /// ```
    #[inline(always)]
    pub fn enter(&mut self) -> Entered<'_> {
        let (record, core) = (self.record(), self.core());
        debug_assert!(!section::inside(), "an epoch section within a restartable one");
        epoch::enter_alone(&record.word, &core.clock);
        Entered { record, core, _thread: PhantomData }
    }

    /// Runs `f` as a restartable section. Where that is not possible, runs it within a [`lock`](Self::lock).
    ///
    /// # Safety
    /// `f` may be abandoned at any instruction and run again from its start, any number of times; what it owns at
    /// that moment is not dropped. `f`, and everything that it calls, must not
    /// - make system calls, allocate, free, lock, panic, or run destructors with effects;
    /// - write what other code can see;
    /// - enter or leave sections of other kinds;
    /// - let references to objects of the domain escape through its result.
    #[inline(always)]
    pub unsafe fn read<R: Copy>(&self, f: impl Fn() -> R) -> R {
        let instead = |why, f| fall_back(self.core(), why, || self.lock(), f);
        // SAFETY: the caller's promise.
        unsafe { section::restartable(&self.core().clock.mode, &f, instead) }
    }

    /// Whether the domain's readers execute fences at the moment ([`Fencing`](crate::Fencing)). If so,
    /// [`read`](Self::read) is the same as [`lock`](Self::lock), and of all reads only a [`Slot`](crate::Slot)'s
    /// [`pin`](crate::Slot::pin) holds up nothing else.
    #[inline(always)]
    pub fn is_fenced(&self) -> bool {
        !is_asymmetric(&self.core().clock.mode)
    }

    /// Enters the one long section of an event loop, which [`Online::quiescent`] renews.
    pub fn online(&self) -> Online<'_> {
        Online { guard: Some(self.lock()), reader: self }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Guards of this reader borrow it, so none is left, nor any reference that one lent out.
        local::unregister(self.domain.core(), self.entry);
    }
}

/// An open section of a reader that has no other. It ends when this is dropped.
#[must_use = "the section ends when this is dropped"]
pub struct Entered<'a> {
    record: &'a Record,
    core: &'a Core,
    _thread: PhantomData<*mut ()>,
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        epoch::leave_alone(&self.record.word);
        self.record.answer_if_asked(&self.core.event);
    }
}

/// A reader in one long section, for event loops: references may be held until the next quiescent state, and entering
/// costs nothing.
///
/// ```compile_fail
/// let domain = reprieve_rcu::Domain::default();
/// let cell = reprieve_rcu::RcuCell::in_domain(&domain, 1u64);
/// let reader = domain.register("loop").unwrap();
/// let mut online = reader.online();
/// let value = cell.load(&online);
/// online.quiescent();
/// println!("{value}"); // held across a quiescent state
/// ```
pub struct Online<'a> {
    /// None while offline.
    guard: Option<Guard<'a>>,
    reader: &'a Reader,
}

impl Online<'_> {
    /// Declares that the thread holds no reference. Costs a load and a store. Has no effect while a guard of the same
    /// reader exists.
    #[inline(always)]
    pub fn quiescent(&mut self) {
        // Going online again has failed before. If a section is open, it belongs to another guard.
        if self.guard.is_none() {
            return;
        }
        let record = self.reader.record();
        let core = self.reader.core();
        epoch::refresh(&record.word, &core.clock);
        record.answer_if_asked(&core.event);
    }

    /// Leaves the section, runs `f`, which may block, and enters the section again.
    pub fn offline<R>(&mut self, f: impl FnOnce() -> R) -> R {
        /// Goes online again, also if `f` panics.
        struct Back<'b, 'a>(&'b mut Online<'a>);
        impl Drop for Back<'_, '_> {
            fn drop(&mut self) {
                // A second panic would end the process. Leaked guards keep the section open.
                let word = self.0.reader.record().word.load(Ordering::Relaxed);
                if !std::thread::panicking() || epoch::can_nest(word) {
                    self.0.guard = Some(self.0.reader.lock());
                }
            }
        }
        self.guard = None;
        let _back = Back(self);
        f()
    }
}

/// Proof that the thread is in a section of a domain: a [`Guard`], an [`Entered`] or an [`Online`].
pub trait Section: sealed::Sealed {}

#[allow(private_interfaces, reason = "nobody else can name the trait")]
pub(crate) mod sealed {
    use super::{Core, Entered, Guard, Online};

    pub trait Sealed {
        /// The core of the section's domain; none while offline.
        #[doc(hidden)]
        fn core(&self) -> Option<&Core>;
        #[doc(hidden)]
        #[inline(always)]
        fn is_of(&self, core: &Core) -> bool {
            self.core().is_some_and(|own| std::ptr::eq(own, core))
        }
        /// Whether the mode of the section's domain is at this address.
        #[doc(hidden)]
        #[inline(always)]
        fn has_mode_at(&self, mode: *const ()) -> bool {
            self.core().is_some_and(|own| std::ptr::from_ref(&own.clock.mode).cast() == mode)
        }
    }
    impl Sealed for Guard<'_> {
        #[inline(always)]
        fn core(&self) -> Option<&Core> {
            Some(self.core())
        }
    }
    impl Sealed for Entered<'_> {
        #[inline(always)]
        fn core(&self) -> Option<&Core> {
            Some(self.core)
        }
    }
    impl Sealed for Online<'_> {
        #[inline(always)]
        fn core(&self) -> Option<&Core> {
            self.guard.as_ref().map(Guard::core)
        }
    }
}
impl Section for Guard<'_> {}
impl Section for Entered<'_> {}
impl Section for Online<'_> {}
