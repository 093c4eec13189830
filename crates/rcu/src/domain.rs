//! Domains. A domain is a group of readers, together with the writers whose objects they read. A slow reader delays
//! only the writers of its own domain.

use crate::core::Core;
use crate::fence;
use crate::fork;
use crate::garbage::Full;
use crate::guard::{Guard, fall_back};
use crate::late::{Hook, Late, LateReader};
use crate::later;
use crate::local;
use crate::machine;
use crate::options::Options;
use crate::platform::now_ns;
use crate::reclaim::Reclaim;
use crate::retired::Retired;
use crate::section;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A handle of a domain, which is cheap to clone. Dropping the last handle frees everything. Dropping another handle while
/// garbage waits frees what may be freed, and waits for nobody; while membarrier is slow ([`Options::call_limit_ns`]), a
/// thread of the process does that later. Readers, cells, maps and reclaimer threads hold handles.
#[derive(Clone)]
pub struct Domain(Arc<Handle>);

impl Drop for Domain {
    fn drop(&mut self) {
        let left = self.reclaim().free_before_nobody_comes();
        if left && Arc::strong_count(&self.0) > 1 && !fence::is_refused() {
            let domain = Self(self.0.clone());
            later::run(Box::new(move || domain.reclaim().free_after_fences()));
        }
    }
}

struct Handle {
    core: Arc<Core>,
    reclaim: Reclaim,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.closed.store(true, Ordering::Relaxed);
        // This must come first: a callback below may panic, and what a fork visits must be alive.
        fork::forget(&self.core);
        let hook = self.core.hook.lock().take();
        self.reclaim.shut_down();
        drop(hook);
    }
}

/// The most bytes that one object counts for, so that sums of many do not overflow.
const MOST_BYTES: usize = usize::MAX >> 24;

/// A point in a domain's time. Once the domain's [`check`](Domain::check) confirms it, everything that was unlinked
/// before the token was taken may be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

/// A callback that was refused, and the reason.
pub struct Refused<F> {
    /// The callback, which was not run.
    pub callback: F,
    /// The limit that refused it.
    pub full: Full,
}

impl<F> fmt::Debug for Refused<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({})", self.full)
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Domain").field(&self.stats()).finish()
    }
}

impl Domain {
    /// Makes a new domain.
    pub fn new(options: Options) -> Self {
        let core = Arc::new(Core::new(&options, machine::probe().asymmetric));
        let domain = Self(Arc::new(Handle { reclaim: Reclaim::new(core.clone(), &options), core }));
        fork::remember(&domain.0.core, &domain.0.reclaim);
        domain
    }

    /// The domain that the whole process shares, with default options. It is never dropped.
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Domain> = OnceLock::new();
        GLOBAL.get_or_init(Self::default)
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    #[inline(always)]
    pub(crate) fn reclaim(&self) -> &Reclaim {
        &self.0.reclaim
    }

    /// Enters a section on the thread's own record, which the first call registers. Sections may nest.
    ///
    /// # Panics
    /// Beyond 4,095 nested sections, or when the domain has as many readers as it may.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_> {
        let core = self.core();
        // Check this before the thread's list is touched, which must not happen within a restartable section.
        debug_assert!(!section::inside(), "an epoch section within a restartable one");
        Guard::enter(local::record(core), core)
    }

    /// Runs `f` as a restartable section. Where that is not possible, runs it within a [`lock`](Self::lock). Needs no
    /// registration.
    ///
    /// # Safety
    /// As for [`Reader::read`](crate::Reader::read).
    #[inline(always)]
    pub unsafe fn read<R: Copy>(&self, f: impl Fn() -> R) -> R {
        let instead = |why, f| fall_back(self.core(), why, || self.lock(), f);
        // SAFETY: the caller's promise.
        unsafe { section::restartable(&self.core().clock.mode, &f, instead) }
    }

    /// Takes a token for everything that the caller has unlinked. Calls membarrier, or has it called while that is
    /// slow ([`Options::call_limit_ns`]). Waits for no reader.
    pub fn start(&self) -> Token {
        Token(self.core().start())
    }

    /// Whether all sections that began before `token` have ended. Never blocks, and calls no membarrier.
    pub fn check(&self, token: Token) -> bool {
        self.core().check(token.0)
    }

    /// Waits until all sections that began before the call have ended.
    ///
    /// # Panics
    /// Within a section of the domain, because it would wait for itself. Also if the kernel refuses membarrier, which
    /// it allowed before: then no grace period ends any more.
    pub fn synchronize(&self) {
        let start_ns = now_ns();
        self.core().wait(self.core().start());
        self.core().note_duration(now_ns() - start_ns);
    }

    /// Waits for a grace period, until `deadline` at the latest. The error names what holds it up.
    ///
    /// # Panics
    /// Within a section of the domain, because it would wait for itself.
    pub fn synchronize_until(&self, deadline: Instant) -> Result<(), Late> {
        let left = deadline.saturating_duration_since(Instant::now());
        let start_ns = now_ns();
        let token = self.core().start();
        let passed = self
            .core()
            .wait_until(token, Some(start_ns.saturating_add(left.as_nanos().try_into().unwrap_or(u64::MAX))));
        if passed == Ok(true) {
            self.core().note_duration(now_ns() - start_ns);
            return Ok(());
        }
        // Until the fence is complete, it is not known which readers are late.
        let cpu = if self.core().is_fenced(token) { None } else { fence::thread::late_cpu() };
        // A CPU that was late before, and is not now, does not count.
        let cpu = cpu.filter(|cpu| cpu.waiting_ns > 0);
        let readers = if cpu.is_some() { Vec::new() } else { self.core().late_readers(token) };
        Err(Late { readers, cpu, membarrier_refused: passed.is_err() })
    }

    /// Frees a boxed object after a grace period, by dropping it. It counts for the bytes of `T` itself. At the
    /// domain's limits this waits for room, as [`Options::at_limit`] says, and then exceeds them.
    ///
    /// # Safety
    /// `object` comes from `Box::into_raw`, is unlinked, and is not retired twice. From now on only sections of this
    /// domain use it, and they only read it.
    pub unsafe fn retire<T: Send + 'static>(&self, object: *mut T) {
        let room = self.reclaim().room_in_any_case(size_of::<T>());
        // SAFETY: the caller's promise.
        room.accept(unsafe { Retired::of_box(object) });
    }

    /// As [`retire`](Self::retire), within the limits.
    ///
    /// # Errors
    /// When there is no room; the object then still belongs to the caller.
    ///
    /// # Safety
    /// As for `retire`.
    pub unsafe fn try_retire<T: Send + 'static>(&self, object: *mut T) -> Result<(), Full> {
        let room = self.reclaim().room(size_of::<T>())?;
        // SAFETY: the caller's promise.
        room.accept(unsafe { Retired::of_box(object) });
        Ok(())
    }

    /// Frees a boxed object of any type after a grace period, by dropping it; for example a slice or a trait object.
    /// It counts for the bytes of the object itself. Costs an allocation, which [`retire`](Self::retire) does not.
    ///
    /// ```
    /// # use reprieve_rcu::Domain;
    /// let domain = Domain::default();
    /// let names: Box<[String]> = vec!["a".to_owned(), "b".to_owned()].into();
    /// // SAFETY: from a box, and nobody else has the pointer.
    /// unsafe { domain.retire_box(Box::into_raw(names)) };
    /// ```
    ///
    /// # Safety
    /// As for `retire`. Also, no hazard slot pins the object, because slots hold the addresses that `retire` is given.
    pub unsafe fn retire_box<T: Send + ?Sized + 'static>(&self, object: *mut T) {
        struct Object<T: ?Sized>(*mut T);
        // SAFETY: it stands for the box that the pointer comes from, and `T` may be sent.
        unsafe impl<T: Send + ?Sized> Send for Object<T> {}
        impl<T: ?Sized> Object<T> {
            /// # Safety
            /// The pointer comes from a box, and the grace period is over.
            unsafe fn free(self) {
                // SAFETY: the caller's promise.
                drop(unsafe { Box::from_raw(self.0) });
            }
        }
        // SAFETY: the caller says that the object is alive.
        let bytes = size_of_val(unsafe { &*object });
        let room = self.reclaim().room_in_any_case(bytes);
        let object = Object(object);
        // SAFETY: by the caller's promise nobody reads the object after the grace period. It is freed once.
        room.accept(Retired::of_callback(Box::new(move || unsafe { object.free() }), bytes));
    }

    /// Drops `value` after a grace period, that is, once all sections that are open now have ended. For what sections
    /// still need but do not own, such as an index that their objects refer to, or the file that these were read
    /// from. Counts for the value's own size; use [`defer_sized`](Self::defer_sized) for a value that owns more.
    ///
    /// Never fails: at the domain's limits it does what [`Options::at_limit`] says, and exceeds the limits if there
    /// is no room even then.
    pub fn defer_drop<T: Send + 'static>(&self, value: T) {
        let room = self.reclaim().room_in_any_case(size_of::<T>());
        room.accept(Retired::of_callback(Box::new(move || drop(value)), size_of::<T>()));
    }

    /// Frees an object after a grace period, by `free(object)`. It counts for `bytes`, which should include what it
    /// owns. At the limits this does as [`retire`](Self::retire) does.
    ///
    /// # Safety
    /// The object is unlinked, is not retired twice, and is only read within sections of this domain; `free`
    /// may be called on it by any thread.
    pub unsafe fn retire_with<T: Send>(&self, object: *mut T, bytes: usize, free: unsafe fn(*mut T)) {
        let bytes = bytes.min(MOST_BYTES);
        let room = self.reclaim().room_in_any_case(bytes);
        // SAFETY: the caller's promise.
        room.accept(unsafe { Retired::new(object, bytes, free) });
    }

    /// As [`retire_with`](Self::retire_with), within the limits.
    ///
    /// # Errors
    /// When there is no room; the object then still belongs to the caller.
    ///
    /// # Safety
    /// As for `retire_with`.
    pub unsafe fn try_retire_with<T: Send>(
        &self,
        object: *mut T,
        bytes: usize,
        free: unsafe fn(*mut T),
    ) -> Result<(), Full> {
        let bytes = bytes.min(MOST_BYTES);
        let room = self.reclaim().room(bytes)?;
        // SAFETY: the caller's promise.
        room.accept(unsafe { Retired::new(object, bytes, free) });
        Ok(())
    }

    /// Runs `callback` after a grace period, on the thread that frees. Counts for the closure's own size. At the
    /// limits this does as [`retire`](Self::retire) does.
    ///
    /// A callback that always defers another callback never lets the thread that frees go:
    /// [`barrier`](Self::barrier), or the drop of a handle or a [`Reclaimer`](crate::Reclaimer), then does not
    /// return. Work that repeats belongs in a thread of its own.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, callback: F) {
        self.defer_sized(size_of::<F>(), callback);
    }

    /// As [`defer`](Self::defer), but counts for `bytes`: what the callback will free.
    pub fn defer_sized<F: FnOnce() + Send + 'static>(&self, bytes: usize, callback: F) {
        let bytes = bytes.min(MOST_BYTES);
        let room = self.reclaim().room_in_any_case(bytes);
        room.accept(Retired::of_callback(Box::new(callback), bytes));
    }

    /// As [`defer`](Self::defer), within the limits.
    ///
    /// # Errors
    /// When there is no room; the callback is given back.
    pub fn try_defer<F: FnOnce() + Send + 'static>(&self, callback: F) -> Result<(), Refused<F>> {
        self.try_defer_sized(size_of::<F>(), callback)
    }

    /// As [`defer_sized`](Self::defer_sized), within the limits.
    ///
    /// # Errors
    /// As for `try_defer`.
    pub fn try_defer_sized<F: FnOnce() + Send + 'static>(
        &self,
        bytes: usize,
        callback: F,
    ) -> Result<(), Refused<F>> {
        let bytes = bytes.min(MOST_BYTES);
        match self.reclaim().room(bytes) {
            Ok(room) => room.accept(Retired::of_callback(Box::new(callback), bytes)),
            Err(full) => return Err(Refused { callback, full }),
        }
        Ok(())
    }

    /// Waits until everything retired or deferred before is freed, except objects that hazard slots pin. It may or
    /// may not wait for a call that retires on another thread and has not returned yet. While a panic unwinds in the
    /// calling thread, it also waits, but frees nothing, because a second panic would end the process.
    ///
    /// # Panics
    /// Within a section of the domain, or within one of its callbacks, because it would wait for itself. Also if the
    /// kernel refuses membarrier, which it allowed before: then no grace period ends any more.
    pub fn barrier(&self) {
        self.reclaim().barrier();
    }

    /// Frees what may be freed now, without waiting for readers. For callers that have a moment to spare.
    pub fn reclaim_now(&self) {
        self.reclaim().free_due();
    }

    /// For the child of a fork: ends the sections that threads of the parent were in, and those whose threads leaked
    /// their guards and ended. The domain otherwise keeps them open, because the child may hold references that they
    /// lent out; objects retired since then wait for ever ([`LateReader::ended`] shows this).
    ///
    /// # Safety
    /// Nobody uses a reference that such a section lent out: the forking thread holds only references of its own guards.
    pub unsafe fn end_sections_of_the_parent(&self) {
        // SAFETY: the caller's promise.
        unsafe { fork::end_sections_without_thread(self.core()) };
    }

    /// Calls `hook` when a reader has held up a writer for `limit_ns`: once per section, on the thread of a waiting
    /// writer. Returns false if there is a hook already.
    pub fn on_late(&self, limit_ns: u64, hook: impl Fn(&LateReader) + Send + Sync + 'static) -> bool {
        let hook = Arc::new(Hook { limit_ns, call: Box::new(hook) });
        let mut place = self.core().hook.lock();
        let free = place.is_none();
        if free {
            *place = Some(hook);
        }
        free
    }
}
