//! What a reclamation scheme is to the benchmark. Each binary implements these traits for one library.

use crate::ledger::Ledger;
use crate::options::Options;
use crate::report::{Fences, Identity};
use crate::section::{Found, Section, Sleep};
use crate::table::{Node, Table};
use std::ptr::NonNull;

/// A reclamation library, set up for one run.
pub trait Scheme: Sized + Sync {
    /// Who this is.
    const IDENTITY: Identity;

    /// Whether retired nodes are freed while readers read.
    const FREES: bool = true;

    /// Whether the writer marks unlinked nodes, see [`Table::unlink`].
    const MARKS: bool = false;

    /// A reader thread's part.
    type Reader<'s>: Reader
    where
        Self: 's;

    /// The writer thread's part.
    type Writer<'s>: Writer
    where
        Self: 's;

    /// Makes the scheme ready, in the writer's thread, before readers start. A thread that it starts runs on the
    /// writer's CPUs, for it inherits them.
    ///
    /// # Errors
    ///
    /// Says what the machine lacks.
    fn new(options: &Options) -> Result<Self, String>;

    /// A node for `key`, not in a table. A library that keeps a header with each object has it allocated here.
    fn node(key: u64, ledger: &'static Ledger) -> NonNull<Node> {
        Node::boxed(key, ledger)
    }

    /// Remarks for the report: settings, who frees, what the machine can.
    fn notes(&self) -> Vec<String>;

    /// The part of reader `id` (from 0), made in its thread and dropped there.
    fn reader(&self, id: usize) -> Self::Reader<'_>;

    /// The part of the writer, made and dropped in its thread.
    fn writer(&self) -> Self::Writer<'_>;

    /// CPU time of the scheme's own threads so far, in nanoseconds.
    fn background_cpu_ns(&self) -> u64 {
        0
    }

    /// What is known of the fences that the writer executes for the readers, since the start.
    fn fences(&self) -> Option<Fences> {
        None
    }

    /// Frees every node that still waits, after the readers have ended and the writer's part is dropped.
    fn finish(self) {}
}

/// A reader thread's part of a scheme.
pub trait Reader {
    /// Enters a read-side section, finds the node of `key` in `table`, lets `section` hold it, and leaves. Inline it.
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found;
}

/// The writer thread's part of a scheme.
pub trait Writer {
    /// Takes an unlinked node; the scheme frees it, now or later and from any thread, when no reader can hold it: by
    /// [`Node::free`], or by [`Node::end`] if the scheme allocated it.
    ///
    /// # Safety
    ///
    /// `node` is from [`Scheme::node`], unlinked from the table that the readers of this scheme read, and was not retired
    /// before.
    unsafe fn retire(&mut self, node: NonNull<Node>);
}
