//! The affinity masks of managed tasks: saved, changed, followed, restored.

pub mod changes;
pub mod follow;
pub mod restore;
pub mod state_file;
pub mod state_record;
pub mod table;
