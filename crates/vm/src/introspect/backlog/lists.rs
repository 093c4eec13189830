//! Walks lists of `rcu_head`s. The guest may change them meanwhile, or may have made them into anything: a walk ends at the
//! list's end, at an address that cannot be, when it meets itself, or at its limit.

use super::memory::Memory;

/// How the walk of a list ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At the list's own end.
    #[default]
    Whole,
    /// The list is longer than what is walked, or than what was left of that.
    Cut,
    /// The list leads back into itself.
    Cycle,
    /// At this address, which is none of the guest's memory.
    Impossible(u64),
    /// It took too long, or was interrupted.
    Interrupted,
}

/// How far walks may go.
pub struct Limits<'a> {
    /// Links that may still be followed, over all lists.
    pub links: u64,
    /// Whether to give up.
    pub is_over: &'a dyn Fn() -> bool,
}

/// Between so many links it is asked whether to give up.
const ASK_EVERY: u64 = 1 << 12;

/// Finds cycles as Brent does: a mark is set at each power of two, and a list that comes by its mark again is a cycle. So each
/// link of a cycle is passed at most a few times.
#[derive(Default)]
pub struct Marks {
    mark: Option<u64>,
    passed: u64,
}

impl Marks {
    /// Passes a link; `true` if it is the mark.
    pub fn pass(&mut self, link: u64) -> bool {
        if self.mark == Some(link) {
            return true;
        }
        self.passed += 1;
        if self.passed.is_power_of_two() {
            self.mark = Some(link);
        }
        false
    }
}

/// Follows a list from its first link on, and shows each link's address and second word.
pub fn walk(memory: &Memory, first: u64, limits: &mut Limits, visit: &mut dyn FnMut(u64, u64)) -> (u64, End) {
    let (mut at, mut count, mut marks) = (first, 0_u64, Marks::default());
    while at != 0 {
        if limits.links == 0 {
            return (count, End::Cut);
        }
        if count % ASK_EVERY == ASK_EVERY - 1 && (limits.is_over)() {
            return (count, End::Interrupted);
        }
        let Some([next, second]) = memory.pair(at) else { return (count, End::Impossible(at)) };
        if marks.pass(at) {
            return (count, End::Cycle);
        }
        limits.links -= 1;
        visit(at, second);
        count += 1;
        at = next;
    }
    (count, End::Whole)
}
