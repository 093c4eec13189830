//! Watches forks and calls that set masks, through the kernel's own records.
//!
//! Errors: watching is not permitted, or the kernel has no such events or probes, or these do not work.

mod call_history;
mod call_watch;
mod calls;
mod forks;

pub use call_history::{CallHistory, CallTarget, SetByOther};
pub use call_watch::CallWatch;
pub use calls::{Call, Calls, Phase};
pub use forks::{Fork, Forks};
