//! The limits of the workload `delete-free`: those of the programs that run it, and of a guest that they run in.

use super::{bad, refuse_if, within};
use crate::scenario::{DeleteFree, Result, Scenario};

/// Memory of an element of the hash table: a node of a cache line, and its part of the buckets, rounded up.
const ELEMENT_BYTES: u64 = 128;

impl Scenario {
    /// Checks what does not depend on the ground.
    pub(super) fn check_delete_free(&self, asked: &DeleteFree) -> Result {
        let problem = "name the scheme that frees, such as liburcu-memb";
        refuse_if(asked.scheme.is_empty(), "workload.scheme", problem)?;
        // The name becomes that of a program, and must not lead out of the directory of the peers.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        for (key, name) in [("scheme", &asked.scheme), ("bare", &asked.bare)] {
            let is_name = (1..=64).contains(&name.len()) && name.chars().all(plain);
            let problem = format!("{name:?} is not a name; use 1 to 64 of a-z, 0-9 and -");
            refuse_if(!is_name, format!("workload.{key}"), problem)?;
        }
        for (key, cpus) in [("reader_cpus", &asked.reader_cpus), ("writer_cpus", &asked.writer_cpus)] {
            within(&format!("workload.{key}"), cpus.len(), 1, 1_024)?;
        }
        within("workload.stall_ms", asked.stall_ms, 0, self.run.window_ms.min(60_000))
    }

    /// The programs' own limits.
    pub(super) fn check_program(&self) -> Result {
        within("run.warmup_ms", self.run.warmup_ms, 0, 60_000)?;
        within("run.window_ms", self.run.window_ms, 500, 600_000)
    }

    /// The programs' own limits, and those of a guest that runs them: its CPUs and its memory.
    pub(super) fn check_guest_program(&self, asked: &DeleteFree) -> Result {
        self.check_program()?;
        for (key, cpus) in [("reader_cpus", &asked.reader_cpus), ("writer_cpus", &asked.writer_cpus)] {
            if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= self.guest.vcpus) {
                return bad(format!("workload.{key}"), self.no_vcpu(*cpu));
            }
        }
        let most = (self.guest.memory_mib << 20) / 2 / ELEMENT_BYTES;
        let problem = format!(
            "{} elements take more than half of a guest with {} MiB; at most {most}, or raise guest.memory_mib",
            asked.entries, self.guest.memory_mib
        );
        refuse_if(asked.entries > most, "workload.entries", problem)
    }
}
