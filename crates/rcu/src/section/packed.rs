//! A closure as it travels to a section: in registers, if it is small.
//!
//! Copies of a closure are only ever borrowed, never dropped, so what it owns is dropped once, with the
//! original. Memory is touched on the way only by closures that are too large: a small one whose address is
//! taken would be stored at each entry, for the sake of a rare restart.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

pub(crate) type Word = MaybeUninit<u64>;
/// Words of a closure that fit into registers.
const WORDS: usize = 4;

/// The closure itself, or a pointer to it.
pub(crate) struct Packed<F> {
    words: [Word; WORDS],
    _closure: PhantomData<F>,
}

impl<F> Clone for Packed<F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Packed<F> {}

/// Whether a `T` fits into `words` words.
pub(crate) const fn fits<T>(words: usize) -> bool {
    size_of::<T>() <= words * 8 && align_of::<T>() <= 8
}

impl<F> Packed<F> {
    /// `f`.
    ///
    /// # Safety
    /// It lives, and stays where it is, as long as the result and its copies are used.
    #[inline(always)]
    pub(crate) unsafe fn of(f: &F) -> Self {
        let mut words = [Word::uninit(); WORDS];
        if fits::<F>(WORDS) {
            // SAFETY: the words are large and aligned enough; the copy is only ever borrowed.
            unsafe { ptr::copy_nonoverlapping(f, words.as_mut_ptr().cast(), 1) };
        } else {
            words[0].write(ptr::from_ref(f).expose_provenance() as u64);
        }
        Self { words, _closure: PhantomData }
    }

    /// What `words` came from.
    ///
    /// # Safety
    /// They are the words of a `Packed<F>` whose closure still lives.
    #[inline(always)]
    pub(crate) unsafe fn from_words(words: [Word; WORDS]) -> Self {
        Self { words, _closure: PhantomData }
    }

    /// To be passed one by one.
    #[inline(always)]
    pub(crate) fn words(self) -> [Word; WORDS] {
        self.words
    }

    /// Calls the closure.
    #[inline(always)]
    pub(crate) fn call<R>(&self) -> R
    where
        F: Fn() -> R,
    {
        let f: *const F = if fits::<F>(WORDS) {
            self.words.as_ptr().cast()
        } else {
            // SAFETY: `of` has made the first word a pointer.
            ptr::with_exposed_provenance(unsafe { self.words[0].assume_init() } as usize)
        };
        // SAFETY: the closure lives, by the promise of who made this; it or its copy is only borrowed.
        unsafe { (*f)() }
    }
}
