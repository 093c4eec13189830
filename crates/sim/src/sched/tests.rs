//! Tests of the fair schedulers, by a small dispatcher that keeps the contract.

mod affinity;
mod balance;
mod bench;
mod boost;
mod fairness;
mod fuzz;
mod policies;
mod quota;
