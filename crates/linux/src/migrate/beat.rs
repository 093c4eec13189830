//! The beat threads, one for each vCPU.

pub mod thread;
