//! The limits of the workload `delete-free`: those of the programs that run it, and of a guest that they run in.

use super::{bad, within};
use crate::scenario::{BadScenario, DeleteFree, Scenario};

/// Memory of an element of the hash table: a node of a cache line, and its part of the buckets, rounded up.
const ELEMENT_BYTES: u64 = 128;

impl Scenario {
    /// Checks what does not depend on the ground.
    pub(super) fn check_delete_free(&self, asked: &DeleteFree) -> Result<(), BadScenario> {
        if asked.scheme.is_empty() {
            return bad("workload.scheme", "name the scheme that frees, such as liburcu-memb");
        }
        // The name becomes that of a program, and must not lead out of the directory of the peers.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        for (key, name) in [("scheme", &asked.scheme), ("bare", &asked.bare)] {
            if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
                return bad(
                    format!("workload.{key}"),
                    format!("{name:?} is not a name; use 1 to 64 of a-z, 0-9 and -"),
                );
            }
        }
        for (key, cpus) in [("reader_cpus", &asked.reader_cpus), ("writer_cpus", &asked.writer_cpus)] {
            within(&format!("workload.{key}"), cpus.len() as u64, 1, 1_024)?;
        }
        within("workload.stall_ms", asked.stall_ms, 0, self.run.window_ms.min(60_000))
    }

    /// The programs' own limits.
    pub(super) fn check_program(&self) -> Result<(), BadScenario> {
        within("run.warmup_ms", self.run.warmup_ms, 0, 60_000)?;
        within("run.window_ms", self.run.window_ms, 500, 600_000)
    }

    /// The programs' own limits, and those of a guest that runs them: its CPUs and its memory.
    pub(super) fn check_guest_program(&self, asked: &DeleteFree) -> Result<(), BadScenario> {
        self.check_program()?;
        for (key, cpus) in [("reader_cpus", &asked.reader_cpus), ("writer_cpus", &asked.writer_cpus)] {
            if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= self.guest.vcpus) {
                return bad(format!("workload.{key}"), self.no_vcpu(*cpu));
            }
        }
        let most = (self.guest.memory_mib << 20) / 2 / ELEMENT_BYTES;
        if asked.entries > most {
            let problem = format!(
                "{} elements take more than half of a guest with {} MiB; at most {most}, or raise \
                 guest.memory_mib",
                asked.entries, self.guest.memory_mib
            );
            return bad("workload.entries", problem);
        }
        Ok(())
    }
}
