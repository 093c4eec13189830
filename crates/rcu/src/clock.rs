//! Time, in nanoseconds.

pub(crate) use crate::platform::{now_ns, thread_cpu_ns};
