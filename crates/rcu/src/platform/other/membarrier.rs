//! There is no membarrier: readers execute their own fences, and writers never call it.

/// False: there is none.
pub(crate) fn register() -> bool {
    false
}

/// Nothing was registered.
pub(crate) fn register_again() {}

/// Never called, because `register` says that there is none.
pub(crate) fn barrier() -> bool {
    unreachable!("no membarrier on this system");
}
