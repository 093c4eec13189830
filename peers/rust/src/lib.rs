//! The delete-free benchmark against other reclamation libraries: readers look up random entries of a hash table, a
//! writer replaces entries at a steady rate, and the delay from a node's unlink to its free is measured.
//!
//! Each binary of this crate is one [`Scheme`]: a reclamation library behind one trait, under one body. The same body
//! exists in C for C's libraries (`peers/c`); both take the same options and print the same line of JSON.
//!
//! This crate holds `unsafe` code because what it measures is the freeing of memory that others may read: every scheme
//! is trusted to free a node only when no reader can hold it, and the body checks that it was right.

pub mod clock;
pub mod cpus;
pub mod hands;
pub mod histogram;
pub mod ledger;
pub mod libraries;
pub mod lookup;
pub mod options;
pub mod phase;
pub mod random;
pub mod reader;
pub mod report;
pub mod reprieve;
pub mod run;
pub mod scheme;
pub mod section;
pub mod table;
pub mod value;
pub mod writer;

pub use ledger::Ledger;
pub use options::Options;
pub use report::Identity;
pub use run::main;
pub use scheme::{Reader, Scheme, Writer};
pub use section::{Found, Section, Sleep};
pub use table::{Node, Table};

/// Exit code when the machine lacks something a run needs.
pub const EXIT_MISSING: u8 = 69;
