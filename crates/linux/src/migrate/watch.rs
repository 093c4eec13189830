//! The kernel's own records of forks and of calls that set masks.

pub mod call_history;
pub mod call_watch;
pub mod calls;
pub mod forks;
pub mod per_cpu;
