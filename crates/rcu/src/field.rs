//! Where a field lies within a type, checked by the compiler.

use std::fmt;
use std::marker::PhantomData;

/// A field of type `F` in every `T`. [`field!`](crate::field) makes it, for
/// [`RcuCell::get_field`](crate::RcuCell::get_field).
pub struct Field<T, F> {
    offset: usize,
    _types: PhantomData<fn(T) -> F>,
}

impl<T, F> Clone for Field<T, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, F> Copy for Field<T, F> {}

impl<T, F> fmt::Debug for Field<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<T, F> Field<T, F> {
    /// The field at `offset`. The second argument gives its type, and is not called.
    ///
    /// # Safety
    /// Every `T` has an `F` there, which may be read through a shared reference to the `T`.
    #[doc(hidden)]
    pub const unsafe fn new(offset: usize, _type: fn(&T) -> &F) -> Self {
        Self { offset, _types: PhantomData }
    }

    #[inline(always)]
    pub(crate) const fn offset(self) -> usize {
        self.offset
    }

    /// The address of the field in `object`.
    ///
    /// # Safety
    /// `object` points to an object.
    #[inline(always)]
    pub(crate) unsafe fn of(self, object: *const T) -> *const F {
        // SAFETY: a field lies within its object.
        unsafe { object.byte_add(self.offset).cast() }
    }
}

/// A [`Field`]: a type, and the path to one of its fields.
///
/// ```
/// use reprieve_rcu::{Field, RcuCell, field};
///
/// struct Config { limits: Limits, upstreams: Vec<String> }
/// struct Limits { requests: u32, timeout_ms: u64 }
/// const TIMEOUT_MS: Field<Config, u64> = field!(Config, limits.timeout_ms);
///
/// let limits = Limits { requests: 10, timeout_ms: 250 };
/// let config = RcuCell::new(Config { limits, upstreams: vec!["a:80".to_owned()] });
/// assert_eq!(config.get_field(TIMEOUT_MS), 250); // a preempted reader delays no writer
/// assert_eq!(config.get_field(field!(Config, limits.requests)), 10);
/// # assert_eq!(config.with(|c| c.upstreams.len()), 1);
/// ```
/// Only a field that is [`Copy`] can be copied out:
/// ```compile_fail
/// use reprieve_rcu::{RcuCell, field};
/// struct Config { upstreams: Vec<String> }
/// RcuCell::new(Config { upstreams: vec![] }).get_field(field!(Config, upstreams));
/// ```
/// The path stays within the value; it does not go through a pointer:
/// ```compile_fail
/// struct Config { limits: Box<Limits> }
/// struct Limits { requests: u32 }
/// reprieve_rcu::field!(Config, limits.requests);
/// ```
/// ```compile_fail
/// use reprieve_rcu::{Field, field};
/// struct Config { requests: Box<u32> }
/// const REQUESTS: Field<Config, u32> = field!(Config, requests);
/// ```
/// Nor does it go into a union, which may hold another of its fields:
/// ```compile_fail
/// union Either { number: u8, truth: bool }
/// reprieve_rcu::field!(Either, truth);
/// ```
/// The type must be that of the field:
/// ```compile_fail
/// use reprieve_rcu::{Field, field};
/// struct Limits { requests: u32 }
/// const REQUESTS: Field<Limits, u64> = field!(Limits, requests);
/// ```
/// and the field must be one of the cell's value:
/// ```compile_fail
/// use reprieve_rcu::{RcuCell, field};
/// struct Limits { requests: u32 }
/// RcuCell::new(7u64).get_field(field!(Limits, requests));
/// ```
#[macro_export]
macro_rules! field {
    ($type:ty, $($path:tt)+) => {{
        // This is safe code, which cannot read a union. `offset_of` ensures that the path goes through no pointer.
        let typed: fn(&$type) -> &_ = |value| &value.$($path)+;
        // SAFETY: both name the same field: each takes the path's first step that is a field of the type itself.
        unsafe { $crate::Field::<$type, _>::new(::core::mem::offset_of!($type, $($path)+), typed) }
    }};
}
