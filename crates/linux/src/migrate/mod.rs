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

mod ancestor;
mod beats;
mod calls;
mod clock;
mod daemon;
mod debts;
mod decider;
mod desk;
#[cfg(feature = "ebpf")]
mod ebpf;
mod entry;
mod events;
mod follow;
mod foretold;
mod forks;
mod give_back;
mod heirs;
mod house;
mod masks;
mod metrics;
mod mover;
mod only;
mod owed;
mod own_file;
mod per_cpu;
mod record;
mod ring;
mod roster;
mod run;
mod scan;
mod sets;
mod shared;
mod source;
mod status;
mod table;
#[cfg(test)]
mod testing;
mod wishes;
mod witness;

pub use ancestor::Ancestor;
pub use debts::Debts;
pub use decider::{Decider, Lines};
pub use entry::{Decision, Entry};
pub use events::{Events, IoEvent, IoKind, Sorter};
pub use follow::{Followed, follow_call};
pub use foretold::Foretold;
pub use forks::{Fork, Forks};
pub use heirs::Heirs;
pub use masks::{Doubtful, Restored, StateFile};
pub use mover::{Mover, Outcomes};
pub use only::{Filter, Only, may_move_all};
pub use owed::{Binding, Owed, Saved};
pub use record::{BadRecord, Replayed, replay, write_entry, write_header};
pub use ring::{Consumer, Producer, ring};
pub use roster::Roots;
pub use run::{Options, Summary, run, settings};
pub use shared::{Shared, Sleeper};
pub use source::Source;
pub use table::{Bound, Held, Table};
pub use wishes::Set;
pub use witness::Witness;

use reprieve_policy::cpus::CpuSet;
use reprieve_policy::guard::Advice;

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Told<'a> {
    /// It has begun: so many vCPUs, and what tells I/O tasks.
    Began {
        /// vCPUs.
        vcpus: usize,
        /// What tells I/O tasks.
        source: Source,
    },
    /// Something of the machine is less than it could be.
    Warning(String),
    /// A task is looked after from now on.
    TakenIn {
        /// Its process.
        pid: i32,
        /// Its number.
        tid: i32,
        /// Its name.
        comm: &'a str,
        /// Where its user lets it run.
        mask: CpuSet,
        /// When, ns.
        at_ns: u64,
    },
    /// A decision was made, and is carried out if the run does that.
    Decision {
        /// The task's process.
        pid: i32,
        /// Its number.
        tid: i32,
        /// Its name.
        comm: &'a str,
        /// The decision.
        decision: &'a Decision,
    },
    /// Whether acting pays has changed.
    Advice {
        /// What is advised from now on.
        advice: Advice,
        /// When, ns.
        at_ns: u64,
    },
    /// Values were lost between threads: the house thread came too late.
    Lost {
        /// How many.
        values: u64,
        /// When it was noticed, ns.
        at_ns: u64,
    },
}
