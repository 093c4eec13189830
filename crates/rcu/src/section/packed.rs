//! A closure on its way to a section: in registers, if it is small.
//!
//! Copies of a closure are only borrowed, never dropped, so that what it owns is dropped once, with the original.
//! Only closures that are too large for registers touch memory on the way. If the address of a small one were taken,
//! each entry would have to store it, for the sake of a rare restart.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

pub(crate) type Word = MaybeUninit<u64>;
/// How many words of a closure fit into registers.
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
    /// Packs `f`.
    ///
    /// # Safety
    /// The closure lives, and stays where it is, as long as the result and its copies are used.
    #[inline(always)]
    pub(crate) unsafe fn of(f: &F) -> Self {
        let mut words = [Word::uninit(); WORDS];
        if fits::<F>(WORDS) {
            // SAFETY: the words are large and aligned enough, and the copy is only borrowed.
            unsafe { ptr::copy_nonoverlapping(f, words.as_mut_ptr().cast(), 1) };
        } else {
            words[0].write(ptr::from_ref(f).expose_provenance() as u64);
        }
        Self { words, _closure: PhantomData }
    }

    /// Puts together what `words` took apart.
    ///
    /// # Safety
    /// They are the words of a `Packed<F>` whose closure still lives.
    #[inline(always)]
    pub(crate) unsafe fn from_words(words: [Word; WORDS]) -> Self {
        Self { words, _closure: PhantomData }
    }

    /// The words, to be passed one by one.
    #[inline(always)]
    pub(crate) fn words(self) -> [Word; WORDS] {
        self.words
    }

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
        // SAFETY: the closure lives, by the promise of the caller that made this. It, or its copy, is only borrowed.
        unsafe { (*f)() }
    }
}
