//! `reprieve migrate`: keeps I/O tasks on vCPUs that are on, from user space inside a virtual machine.
//!
//! ```text
//! beat threads, one per vCPU --beats--> decider, shared --orders--> movers: sched_setaffinity
//!           |                             ^    ^    |
//!           `-- run it, one at a time ----'    |    | decisions, signals for the record
//!                       samples, tasks, advice |    v
//!                                          main loop: finds tasks, saves masks, writes record and metrics
//! ```
//! [`reprieve_policy`] decides; this module brings signals to it and carries out its decisions. Rings connect the
//! threads, and no thread ever waits for another, so a thread stuck on a vCPU that is off holds up no other thread.
//!
//! Words: the daemon *binds* a task when it narrows the task's mask to one CPU, and *restores* the mask that the user
//! wants. A *managed* task may be bound, and has a *slot*, the number by which all threads know it. A child *inherits*
//! its parent's binding when it is forked; a child is *in doubt* if its user may have chosen the same mask.
//!
//! Invariants:
//! - kernel threads, PID 1 and the daemon's own threads are never touched;
//! - a mask is only ever narrowed, is saved in the state file before, and is restored at the end, or by the warden or
//!   the next start if the daemon is killed;
//! - a child that inherits a binding soon gets its parent's user mask;
//! - a mask that cannot be restored stays in the state file, and is tried again;
//! - after the start, the decider allocates nothing, and memory is locked.

mod act;
mod beat;
mod daemon;
mod decide;
mod find;
mod inherit;
mod link;
mod main_loop;
mod masks;
mod notice;
mod options;
pub(crate) mod own_file;
mod report;
mod roots;
mod roster;
mod run;
#[cfg(test)]
mod testing;
mod watch;

pub use act::{Mover, Outcomes};
pub use decide::{Decider, Lines, OffTimes};
pub use find::{Condition, Events, Filter, IoEvent, IoKind, Sorter, Source, may_move_all};
pub use inherit::{Ancestor, Children, Unrestored};
pub use link::{Decision, Entry, Shared, Sleeper};
pub use masks::{
    Binding, Bound, Doubtful, Followed, Held, Restored, Saved, StateFile, StateRecord, Table, follow_call,
};
pub use notice::Notice;
pub use options::Options;
pub use report::run_record::{BadRecord, Replayed, replay, write_entry, write_header};
pub use roots::Roots;
pub use run::{Summary, run, settings};
pub use watch::{CallWatch, Fork, Forks, SetByOther};
