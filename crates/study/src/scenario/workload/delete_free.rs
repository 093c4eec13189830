//! The workload `delete-free`: readers of a hash table, and a reclamation scheme that frees what a writer deletes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::SECOND_NS;

/// `kind = "delete-free"`: threads that look up random elements of a hash table while one deletes elements and a
/// reclamation scheme frees them. On real threads and in real guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeleteFree {
    /// The scheme that frees, which must be given: the name of a program of `peers/`, such as `liburcu-memb` or
    /// `reprieve-restartable`.
    pub scheme: String,
    /// A scheme in the same language whose readers only look up: the read cost of `scheme` is counted from its.
    pub bare: String,
    /// Elements of the table. In a guest they take at most half of its memory, 128 bytes each.
    #[schemars(range(min = 16, max = 1 << 26))]
    pub entries: u64,
    /// Threads that look up.
    #[schemars(range(min = 1, max = 256))]
    pub readers: u32,
    /// CPUs on which the readers may run.
    pub reader_cpus: Vec<usize>,
    /// CPUs on which the writer, and threads that reclaim, may run.
    pub writer_cpus: Vec<usize>,
    /// Elements that the writer deletes, and inserts again, per second.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub deletes_per_s: u64,
    /// Time that a reader computes between two look-ups, in ns.
    #[schemars(range(min = 0, max = SECOND_NS))]
    pub think_ns: u64,
    /// Time that a reader computes within the read-side section of a look-up, in ns.
    #[schemars(range(min = 0, max = SECOND_NS))]
    pub section_ns: u64,
    /// Time that one reader stays in a section, or without a quiescent state, once in the window, in ms; 0 for never. At
    /// most `run.window_ms` and 60000.
    #[schemars(range(min = 0, max = 60_000))]
    pub stall_ms: u64,
    /// Look-ups of a reader between two quiescent states, for the schemes that have them.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub quiescent_every: u32,
}

impl Default for DeleteFree {
    fn default() -> Self {
        DeleteFree {
            scheme: String::new(),
            bare: "none".into(),
            entries: 4 << 20,
            readers: 8,
            reader_cpus: vec![0],
            writer_cpus: vec![1],
            deletes_per_s: 5_000,
            think_ns: 0,
            section_ns: 0,
            stall_ms: 0,
            quiescent_every: 1,
        }
    }
}
