//! User-space RCU whose grace periods do not wait for preempted readers.
//!
//! # The problem
//!
//! A writer unlinks an object, and must not free it before every reader that may have found it is done. Libraries for
//! that (RCU, epochs, quiescent states) wait for the readers. But a reader that the scheduler has taken off its CPU
//! in the middle of a look-up is not done before it runs again. With liburcu and a hash table, the time from delete
//! to free was measured as 6.6 ms with a core per reader, and 154.7 ms when the readers share one ("Faster memory
//! reclamation with DPDK RCU", FOSDEM 2022). Meanwhile memory piles up.
//!
//! # What is different here
//!
//! A look-up is a *restartable section*: when its thread is preempted, migrated or interrupted by a signal, the
//! kernel (by rseq) sends it back to its start. A descheduled reader holds nothing, and nobody waits for it. A grace
//! period is one membarrier call, which takes microseconds however many readers wait for a CPU.
//!
//! ```
//! use reprieve_rcu::{Domain, RcuCell};
//!
//! #[derive(Clone, Copy)]
//! struct Limits { requests: u32, bytes: u64 }
//!
//! let limits = RcuCell::new(Limits { requests: 10, bytes: 1 << 20 });
//!
//! // Readers, any thread: a copy that delays no writer. As a rule it stores nothing.
//! assert_eq!(limits.get().requests, 10);
//!
//! // Writers: the old value is freed within this call.
//! limits.replace(Limits { requests: 20, bytes: 1 << 21 });
//! assert_eq!(Domain::global().stats().garbage_objects, 0);
//! ```
//!
//! # Three kinds of section
//!
//! | | protects | may | delays a writer |
//! |---|---|---|---|
//! | [`Domain::read`], [`Reader::read`] | everything, while the closure runs | load and compute; the closure may be run again at any point, hence `unsafe` | never |
//! | [`RcuCell::with`], [`RcuCell::hold`], [`Slot::acquire`] | one object, as long as its guard | anything, for any time | never; only that object waits |
//! | [`Domain::lock`], [`Reader::lock`], [`Reader::enter`], [`Reader::online`] | everything, as long as the guard | anything; should be short | until it is left |
//!
//! [`RcuCell::get`] and [`RcuMap::copied`] of small plain values are of the first kind, and need neither a closure
//! nor `unsafe`: the whole look-up is one piece of assembly. No other read that delays no writer costs less.
//! [`traverse`] has the same for structures of your own.
//!
//! A thread that reads often should register once ([`Domain::register`]) and, where it can, enter without nesting
//! ([`Reader::enter`]), which costs less. An event loop stays [`Online`], and declares at the end of each round that
//! it holds nothing.
//!
//! # Writers
//!
//! [`RcuCell`] and [`RcuMap`] free what they replace. In a structure of your own, unlink the object and then
//! [`retire`](Domain::retire) it or [`defer`](Domain::defer) a callback. By default the same call frees, if no section of
//! the third kind is in the way; otherwise a later call does. [`Options`] has batches, deadlines and limits on garbage,
//! in objects and in bytes. [`Domain::spawn_reclaimer`] moves the work to a thread. Or do it by hand: [`Domain::start`]
//! takes a [`Token`], [`Domain::check`] tells whether it has passed, and [`Domain::synchronize`] waits.
//!
//! A [`Domain`] is a group of readers: a slow reader delays only the writers of its own domain. [`Domain::stats`],
//! [`Domain::synchronize_until`] and [`Domain::on_late`] name the reader that holds up memory.
//!
//! # What may go wrong, and what happens then
//!
//! - *A reader stalls.* In a section of the first two kinds, this holds up nothing else. In one of the third kind,
//!   garbage grows. At the domain's limits, each call that retires waits a millisecond and then exceeds them, unless
//!   [`AtLimit`] says otherwise.
//! - *A section is interrupted too often.* After 64 restarts it runs as a section of the third kind, and `stats` counts it.
//! - *A callback panics.* The others of its batch still run. Then the panic goes on, or ends at the reclaimer thread.
//! - *A signal handler reads.* [`Domain::read`] works whatever the handler interrupts. Where it falls back to a
//!   section of the third kind, and for [`Domain::lock`], the thread must have locked that domain before, and no
//!   other domain since; otherwise the handler would allocate. Handlers must not retire.
//! - *A guard is leaked.* Its section lasts as long as its domain, even after its thread has ended, because other
//!   threads may hold references that it lent out. `stats` names it, and garbage grows to the domain's limits. A
//!   leaked [`Held`] or slot keeps one object.
//! - *The process forks.* The child has no reclaimer threads. Sections that other threads were in last as long as the
//!   domain, unless [`Domain::end_sections_of_the_parent`] is called. If a callback forks, both processes free the
//!   other objects of that call, but only the parent counts them and waits for them.
//! - *The kernel refuses membarrier* after it allowed it, because a seccomp filter was installed later. From then on
//!   nothing is freed, and `stats` and [`capabilities`] report it. Calls that wait for a grace period panic.
//! - *A shared library that contains this crate is closed.* It stays loaded from its first domain on, and keeps
//!   working: threads that have read in it run its code when they end.
//! - *A debugger steps through a section.* The section never gets far. Set `REPRIEVE_RCU=no-rseq`.
//! - *Code within a section uses rseq itself* (tcmalloc, librseq). The section notices this at its end, and is then
//!   run again as one of the third kind; after 16 times restartable sections are switched off. Until then the section
//!   was not protected, so the rules of [`Reader::read`] forbid it.
//!
//! The [`guide`] has examples, and explains what to use when.
//!
//! # Where it runs
//!
//! Restartable sections need Linux 5.10 on x86-64. If the C library does not register threads for rseq (musl, glibc
//! before 2.35), this library does. Everywhere else the same program runs with sections of the third kind instead.
//! Without membarrier, readers execute fences. [`capabilities`] reports what is used. The feature `tracing`, off by
//! default, reports long grace periods, switches between membarrier and fences, and limits that were reached; readers
//! never report. In a virtual machine whose CPUs are taken away, membarrier itself is slow: see
//! [`Options::call_limit_ns`] and [`Fencing::Adaptive`].
//!
//! On Windows, macOS, WebAssembly and 32-bit Linux the crate uses the standard library alone. It compiles there, but
//! this half is tested on 64-bit Linux, not on those systems. The differences are:
//! - Readers execute fences.
//! - A signal handler must not read.
//! - The child of a fork must not use the domains of its parent.
//! - Thread ids, as in [`LateReader`], are numbers that this crate assigns.

mod awaited;
mod cell;
mod core;
mod domain;
mod epoch;
mod fence;
mod field;
mod fork;
mod freeing;
mod futex;
mod garbage;
mod guard;
mod hazard;
mod histogram;
mod late;
mod later;
mod local;
mod machine;
pub mod map;
mod mode;
mod options;
mod platform;
mod pool;
mod reader;
mod reader_record;
mod reclaim;
mod reclaimer;
mod retired;
mod section;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod slot;
mod stats;
mod sync;
mod trace;
pub mod traverse;
mod units;

#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

/// Compiles and runs the example of the README with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use cell::{Held, RcuCell};
pub use domain::{Domain, Refused, Token};
pub use fence::LateCpu;
pub use field::Field;
pub use garbage::Full;
pub use guard::Guard;
pub use histogram::Histogram;
pub use late::{Late, LateReader};
pub use local::TooManyReaders;
pub use machine::{Capabilities, capabilities};
pub use map::RcuMap;
pub use options::{AtLimit, Fencing, Help, Options};
pub use reader::{Entered, Online, Reader, Section};
pub use reclaimer::Reclaimer;
pub use section::Obstacle;
pub use slot::{HazardGuard, Slot, TooManySlots};
pub use stats::Stats;
