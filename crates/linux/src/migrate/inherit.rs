//! Children that inherit a binding: a child forked by a bound task is bound as well, and must be found and given its
//! mask.
//!
//! [`children`] finds them and waits until they have started, [`judge`] decides whether a child's mask is inherited and
//! restores it, and [`unrestored`] keeps the masks that cannot be restored yet.

mod ancestor;
mod children;
mod judge;
mod unrestored;

pub use ancestor::{Ancestor, FORK_TAKES_NS};
pub use children::Children;
pub use judge::{Judge, Judged};
pub use unrestored::Unrestored;
