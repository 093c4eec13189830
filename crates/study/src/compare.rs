//! What conditions did, from the observations of one scenario: their effect against the baseline, and how much of it
//! each cause explains.

pub mod attribution;
pub mod comparison;
