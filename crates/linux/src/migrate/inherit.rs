//! Tasks that inherited a binding: what a bound task forks is bound as well, and has to be found and given its mask.

pub mod ancestor;
pub mod children;
pub mod unrestored;
