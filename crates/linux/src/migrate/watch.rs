//! Watches forks and calls that set masks, through the kernel's own records.

pub mod call_history;
pub mod call_watch;
pub mod calls;
pub mod forks;
pub mod per_cpu;
