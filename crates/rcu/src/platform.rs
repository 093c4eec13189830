//! System calls, and what the C library offers: for Linux, and for every other system.
//!
//! This is the one switch between systems. Both halves have the same functions, and no other file asks which system it is.

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(reprieve_fallback)))]
mod linux;
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(reprieve_fallback)))]
pub(crate) use linux::*;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(reprieve_fallback))))]
mod other;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(reprieve_fallback))))]
pub(crate) use other::*;

#[cfg(all(unix, not(any(shuttle, reprieve_fallback))))]
#[path = "platform/thread_end/keyed.rs"]
pub(crate) mod thread_end;
#[cfg(not(all(unix, not(any(shuttle, reprieve_fallback)))))]
#[path = "platform/thread_end/local.rs"]
pub(crate) mod thread_end;

/// To the system, all threads of a shuttle model are one thread.
#[cfg(shuttle)]
pub(crate) fn thread_id() -> i32 {
    usize::from(shuttle::current::me()) as i32 + 1
}
