//! Compares the conditions of one scenario: the effect of each against the baseline, how much of it each cause explains,
//! and how much of it each remedy takes away.

pub mod attribution;
pub mod comparison;
pub mod recovery;
