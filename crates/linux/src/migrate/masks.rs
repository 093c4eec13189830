//! The affinity masks of managed tasks: saves, changes, follows and restores them.

mod changes;
mod follow;
mod restore;
mod state_file;
mod state_record;
mod table;

pub use changes::{Changes, Window};
pub use follow::{Followed, follow, follow_call};
pub use restore::{find_children, is_everything, is_still_in_doubt, restore_mask, successor};
pub use state_file::{Doubtful, Restored, StateFile};
pub use state_record::{Binding, NEVER_TICKS, Saved, StateRecord};
pub use table::{Bound, Held, Table};
