//! Carries out decisions: threads that change affinities.

pub mod mover;
