//! Compares the conditions of one scenario: the effect of each against the baseline, and how much of it each cause
//! explains.

pub mod attribution;
pub mod comparison;
