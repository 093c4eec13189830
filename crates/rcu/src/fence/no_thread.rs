//! Stands in for the fence thread where no thread is needed: there is no membarrier, or it is a model's, which is
//! never slow.

use super::LateCpu;

pub(super) const LONGEST_NAP_NS: u64 = 0;

pub(super) const PATIENCE_NS: u64 = 0;

pub(super) fn answers() -> bool {
    false
}
pub(super) fn note_no_answer() {}
pub(crate) fn calls() -> bool {
    false
}
pub(super) fn ask() {}
pub(super) fn keep_off() {}
pub(super) fn hand_over_ahead() {}
pub(super) fn watch(_: u64) -> Option<()> {
    None
}
pub(super) fn note_slow_call(_: u64, _: u64, _: u64, _: Option<&()>) {}
pub(super) fn reset_after_fork() {}
pub(crate) fn late_cpu() -> Option<LateCpu> {
    None
}
