//! `reprieve migrate`: keeps I/O tasks on vCPUs that are on, from inside a virtual machine, at user level.
//!
//! ```text
//! beat thread of each vCPU --beats--> decider, at a desk --orders--> movers: sched_setaffinity
//!           |                           ^    ^    |
//!           `-- whoever beats decides --'    |    | decisions, signals for the record
//!                     samples, tasks, advice |    v
//!                                         house thread: finds tasks, saves masks, writes record and metrics
//! ```
//! The decision is [`reprieve_policy`]'s; the rest is how signals come to it and how its decisions are carried out. Rings
//! join the threads, and no thread ever waits for another: a thread that is stuck on a vCPU that is off holds up nobody.
//!
//! Invariants: no kernel thread, not PID 1, and no task of our own is touched; a task's mask is only ever narrowed, is in the
//! state file before, and is given back at the end, by whoever starts next if we are killed; what a task forks while it is
//! bound gets the mask back at once; what could not be given back stays in that file, and is tried again; after its start the
//! decider allocates nothing, and memory is locked.

mod act;
mod beat;
mod clock;
mod daemon;
mod decide;
mod find;
mod inherit;
mod link;
mod main_loop;
mod masks;
mod notice;
mod options;
mod own_file;
mod report;
mod roots;
mod roster;
mod run;
#[cfg(test)]
mod testing;
mod watch;

pub use act::mover::{Mover, Outcomes};
pub use decide::decider::{Decider, Lines};
pub use decide::off_times::OffTimes;
pub use find::filter::{Condition, Filter, may_move_all};
pub use find::io_events::{Events, IoEvent, IoKind, Sorter};
pub use find::source::Source;
pub use inherit::ancestor::Ancestor;
pub use inherit::children::Children;
pub use inherit::unrestored::Unrestored;
pub use link::entry::{Decision, Entry};
pub use link::shared::{Shared, Sleeper};
pub use masks::follow::{Followed, follow_call};
pub use masks::state_file::{Doubtful, Restored, StateFile};
pub use masks::state_record::{Binding, Saved, StateRecord};
pub use masks::table::{Bound, Held, Table};
pub use notice::Notice;
pub use options::Options;
pub use report::run_record::{BadRecord, Replayed, replay, write_entry, write_header};
pub use roots::Roots;
pub use run::{Summary, run, settings};
pub use watch::call_history::SetByOther;
pub use watch::call_watch::CallWatch;
pub use watch::forks::{Fork, Forks};
