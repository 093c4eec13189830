//! The affinity masks of managed tasks: saves, changes, follows and restores them.

pub mod changes;
pub mod follow;
pub mod restore;
pub mod state_file;
pub mod state_record;
pub mod table;
