//! Other libraries, each in two variants: a scheme as the library does by default and with every delete offered to it at
//! once, a cell in the two ways to read it. The binaries choose.

pub mod arc_swap;
pub mod crossbeam_epoch;
pub mod haphazard;
pub mod kovan;
pub mod sdd;
pub mod seize;
