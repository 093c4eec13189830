//! There is no membarrier here: readers execute their own fences, and writers never call it.

/// Returns false: there is none.
pub(crate) fn register() -> bool {
    false
}

/// Does nothing: there was nothing to register.
pub(crate) fn register_again() {}

/// Never called, because `register` says that there is none.
pub(crate) fn barrier() -> bool {
    unreachable!("no membarrier on this system");
}
