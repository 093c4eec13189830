//! The last minutes of a VM on disk: a ring of samples that survives the death of its writer at any moment, and a full disk.
//!
//! | module | does |
//! |---|---|
//! | [`mod@line`] | the format: a line a sample, with a checksum |
//! | [`ring`] | writes it, and forgets what is older or more than wanted |
//! | [`disk`] | the folder that the ring is in, and its lock |
//! | [`dump`] | copies the ring into one file |
//! | [`mod@read`] | reads a ring or a dump, and trusts nothing in it |
//! | [`day`] | the clock of the day in words |
//!
//! A ring is a folder of *segments*, files of a minute each. A segment begins with a header line (format version, boot, host,
//! kernel, program) and is only ever appended to, one `write` a sample. A process that is killed leaves at most one torn line, the
//! last of its segment, which readers drop; whoever writes next begins a new segment. A dump is segments one after another. What
//! was written but is not on the disk when the *kernel* dies is lost: nothing waits for the disk.
//!
//! Invariant: nothing here needs Linux, so a dump can be read anywhere.
#![cfg(unix)]

pub mod day;
pub mod disk;
pub mod dump;
pub mod line;
pub mod read;
pub mod ring;
mod sane;

pub use read::{ReadError, Record, Stretch, read};
pub use ring::{Limits, Ring};
