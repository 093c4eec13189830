//! Time, in nanoseconds.

pub(crate) use crate::platform::now_ns;
