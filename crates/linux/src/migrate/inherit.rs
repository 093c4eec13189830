//! Children that inherit a binding: a child forked by a bound task is bound as well, and must be found and given its
//! mask.
//!
//! [`children`] finds them and waits until they have started, [`judge`] decides whether a child's mask is inherited and
//! restores it, and [`unrestored`] keeps the masks that cannot be restored yet.

pub mod ancestor;
pub mod children;
pub mod judge;
pub mod unrestored;
