//! The threads that carry out decisions.

pub mod mover;
