//! Grace-period numbers: a counter above two bits that say whether a grace period is in progress (`rcu_seq_*`,
//! kernel/rcu/rcu.h). They wrap, so they are only ever compared by distance.

/// The bits that are not 0 while a grace period is in progress.
const STATE: u64 = 3;
/// Bits of the state.
pub(super) const STATE_BITS: u32 = 2;

/// Whether `a` is before `b`.
#[inline]
pub(super) fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) > u64::MAX / 2
}

/// Whether a grace period is in progress.
#[inline]
pub(super) fn in_progress(seq: u64) -> bool {
    seq & STATE != 0
}

/// The number once the next grace period started.
pub(super) fn start(seq: u64) -> u64 {
    seq.wrapping_add(1)
}

/// The number once the current grace period ended.
pub(super) fn end(seq: u64) -> u64 {
    (seq | STATE).wrapping_add(1)
}

/// The number at which a full grace period, started from now on, will have ended: the current one, if there is one,
/// does not count, because it may not wait for readers that began before now.
pub(super) fn snapshot(seq: u64) -> u64 {
    seq.wrapping_add(2 * STATE + 1) & !STATE
}

/// Whether the grace period that ends at `target` has started by `seq`.
pub(super) fn has_started(seq: u64, target: u64) -> bool {
    is_before(target.wrapping_sub(1) & !STATE, seq)
}

/// Whether a grace period ended between `old` and `new`.
pub(super) fn ended_between(old: u64, new: u64) -> bool {
    is_before(old, new & !STATE)
}

/// Whether a grace period started between `old` and `new`.
pub(super) fn started_between(old: u64, new: u64) -> bool {
    is_before(old.wrapping_add(STATE) & !STATE, new)
}
