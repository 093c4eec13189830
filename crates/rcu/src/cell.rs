//! A shared value that is replaced as a whole: configuration, routing tables, the root of a larger structure.
//!
//! | file | |
//! |---|---|
//! | `cell.rs` | what a cell is, how it is made, copies and references |
//! | `cell/write.rs` | changing the value |
//! | `cell/pin.rs` | using or cloning a value that is pinned meanwhile |
//! | `cell/held.rs` | a guard that keeps one value, for any time and on any thread |
//!
//! Invariant: `value` comes from `Box::into_raw` before `mode` becomes that of a domain, and for as long as the cell
//! lives after that. Before, `mode` is one that permits no restartable section and belongs to no guard. So readers
//! take a slower path, which makes the value, and the quick path needs no check of its own.

mod held;
mod pin;
mod write;

pub use held::Held;

use crate::domain::Domain;
use crate::field::Field;
use crate::local;
#[cfg(not(loom))]
use crate::mode::FENCED;
use crate::mode::is_asymmetric;
use crate::reader::Section;
use crate::retired::Retired;
use crate::section;
use crate::sync::AtomicU32;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The mode of cells that have not been used yet.
#[cfg(not(loom))]
static UNUSED: AtomicU32 = AtomicU32::new(FENCED);

#[cfg(not(loom))]
const fn unused() -> *mut AtomicU32 {
    (&raw const UNUSED).cast_mut()
}
/// loom has no statics, and its tests have no cells.
#[cfg(loom)]
const fn unused() -> *mut AtomicU32 {
    ptr::null_mut()
}

/// A value that readers read at the cost of following a pointer, and that writers replace.
///
/// ```
/// use reprieve_rcu::{Domain, RcuCell};
///
/// let limit = RcuCell::new(100u64);
/// assert_eq!(limit.get(), 100); // a copy, in a restartable section
/// limit.replace(200);
/// let guard = Domain::global().lock();
/// assert_eq!(*limit.load(&guard), 200); // a reference, for as long as the guard
/// ```
///
/// In statics, use [`lazy`](Self::lazy) or [`none`](Self::none):
/// ```
/// use reprieve_rcu::RcuCell;
///
/// static TIMEOUT_MS: RcuCell<u64> = RcuCell::lazy(|| 100);
/// static LEADER: RcuCell<Option<String>> = RcuCell::none();
///
/// TIMEOUT_MS.update(|ms| ms * 2);
/// LEADER.replace(Some("node-3".to_owned()));
/// assert_eq!((TIMEOUT_MS.get(), LEADER.get_cloned().as_deref()), (200, Some("node-3")));
/// ```
///
/// Several threads read a value, and any of them may drop it:
/// ```compile_fail
/// reprieve_rcu::RcuCell::new(std::cell::Cell::new(1)); // not Sync
/// ```
/// ```compile_fail
/// let local = String::new();
/// reprieve_rcu::RcuCell::new(&local); // does not live long enough
/// ```
pub struct RcuCell<T: Send + Sync + 'static> {
    /// The domain's mode, fewer loads away than through `domain`. `UNUSED` while the cell has not been used.
    mode: AtomicPtr<AtomicU32>,
    value: AtomicPtr<T>,
    /// Set after `value`.
    domain: OnceLock<Domain>,
    /// Makes the first value of a cell that starts without one.
    first: Option<fn() -> T>,
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell whose old values are freed by the domain that the process shares, [`Domain::global`]. In a static, use
    /// [`lazy`](Self::lazy).
    pub fn new(value: T) -> Self {
        Self::in_domain(Domain::global(), value)
    }

    /// A cell whose old values are freed by `domain`.
    pub fn in_domain(domain: &Domain, value: T) -> Self {
        Self {
            mode: AtomicPtr::new(mode_of(domain)),
            value: AtomicPtr::new(Box::into_raw(Box::new(value))),
            domain: OnceLock::from(domain.clone()),
            first: None,
        }
    }

    /// A cell of the domain that the process shares, for statics. `first` makes its first value when the cell is
    /// first used.
    ///
    /// If `first` panics, the panic goes on to the caller, and the next use calls it again. It must not use the cell.
    /// A signal handler may use the cell only after its first use.
    pub const fn lazy(first: fn() -> T) -> Self {
        Self {
            mode: AtomicPtr::new(unused()),
            value: AtomicPtr::new(ptr::null_mut()),
            domain: OnceLock::new(),
            first: Some(first),
        }
    }

    /// The domain that frees old values.
    pub fn domain(&self) -> &Domain {
        match self.domain.get() {
            Some(domain) => domain,
            None => self.begin(),
        }
    }

    /// Makes the first value of a cell that has not been used.
    #[cold]
    #[inline(never)]
    fn begin(&self) -> &Domain {
        let domain = self.domain.get_or_init(|| {
            let first = self.first.expect("a cell without a domain was made by `lazy`");
            let (value, domain) = (Box::new(first()), Domain::global().clone());
            // Relaxed: the later stores of the domain and of the mode are Releases.
            self.value.store(Box::into_raw(value), Ordering::Relaxed);
            domain
        });
        // Release pairs with the Acquire in `mode`.
        self.mode.store(mode_of(domain), Ordering::Release);
        domain
    }

    #[inline(always)]
    fn mode(&self) -> *const AtomicU32 {
        // Acquire pairs with the Release in `begin`: a reader that finds a domain's mode finds a value.
        self.mode.load(Ordering::Acquire)
    }

    /// The value, for as long as the section lasts.
    ///
    /// # Panics
    /// If the section belongs to another domain.
    #[inline(always)]
    pub fn load<'s>(&self, section: &'s impl Section) -> &'s T {
        if !section.has_mode_at(self.mode().cast()) {
            self.begin_within(section);
        }
        // SAFETY: the pointer is valid, and what it points to is retired in the domain whose section the caller is
        // in. Acquire pairs with the Release in `replace` and similar methods.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    /// The slow path of `load`, for a cell that has not been used yet.
    #[cold]
    #[inline(never)]
    fn begin_within(&self, section: &impl Section) {
        let domain = self.domain();
        assert!(section.is_of(domain.core()), "the section is not one of the cell's domain");
    }

    /// A copy of one field of the value, taken in a restartable section: a preempted reader delays no writer. The
    /// rest of the value is not copied, and need not be [`Copy`]. See [`field!`](crate::field).
    #[inline(always)]
    pub fn get_field<F: Copy>(&self, field: Field<T, F>) -> F {
        // SAFETY: `Field` guarantees that there is an `F` at this offset of every `T`.
        unsafe { self.copied(field.offset()) }
    }

    /// A copy of the `F` that lies `offset` bytes into the value.
    ///
    /// # Safety
    /// Every `T` has an `F` there.
    #[inline(always)]
    unsafe fn copied<F: Copy>(&self, offset: usize) -> F {
        if size_of::<F>() == 0 {
            // Nothing is loaded, but there must be a value.
            self.domain();
        }
        // SAFETY: the sections only load and copy. If the mode permits them, it is a domain's mode, so that the
        // pointer is valid within them; Acquire as in `load`. Modes live as long as the cell. An `F` in a packed
        // struct may be unaligned.
        unsafe {
            section::copied(&*self.mode(), &self.value, offset).unwrap_or_else(|| {
                let core = self.domain().core();
                if !is_asymmetric(&core.clock.mode)
                    && let Some(slot) = local::slot::claim_known(core)
                {
                    return slot.pin_fenced(&self.value).byte_add(offset).cast::<F>().read_unaligned();
                }
                let at = || self.value.load(Ordering::Acquire).cast_const().byte_add(offset).cast::<F>();
                self.domain().read(|| at().read_unaligned())
            })
        }
    }
}

impl<T: Copy + Send + Sync + 'static> RcuCell<T> {
    /// A copy of the value, taken in a restartable section: a preempted reader delays no writer.
    ///
    /// Values that are not [`Copy`] are cloned, by [`get_cloned`](Self::get_cloned):
    /// ```compile_fail
    /// reprieve_rcu::RcuCell::new(String::new()).get();
    /// ```
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: every `T` has a `T` at its beginning.
        unsafe { self.copied(0) }
    }
}

impl<T: Send + Sync + 'static> RcuCell<Option<T>> {
    /// A cell of the domain that the process shares, with the value [`None`]. For statics.
    pub const fn none() -> Self {
        Self::lazy(|| None)
    }
}

/// What `RcuCell::mode` holds for a cell of `domain`.
fn mode_of(domain: &Domain) -> *mut AtomicU32 {
    ptr::from_ref(&domain.core().clock.mode).cast_mut()
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // A cell without a domain has no value.
        let Some(domain) = self.domain.get() else { return };
        // There is nobody to whom this could report a refusal, so at its limits the domain exceeds them.
        let room = domain.reclaim().room_in_any_case(size_of::<T>());
        // SAFETY: nobody else can reach the cell, and its value came from a box. References to the value may live on
        // in sections, for which a grace period waits, or in slots.
        room.accept(unsafe { Retired::of_box(*self.value.get_mut()) });
    }
}

impl<T: Default + Send + Sync + 'static> Default for RcuCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + Sync + 'static> From<T> for RcuCell<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|value| f.debug_tuple("RcuCell").field(value).finish())
    }
}
