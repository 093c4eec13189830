//! Other libraries' schemes, each as the library does by default and with every delete offered to it at once. The binaries
//! choose.

pub mod crossbeam_epoch;
pub mod haphazard;
pub mod kovan;
pub mod sdd;
pub mod seize;
