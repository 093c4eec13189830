//! Remedies of the guest that would change nothing, given its workload, its size and their settings.

use crate::scenario::{Remedy, Scenario, Workload};

/// The largest object of a slab, in bytes.
const SLAB_OBJECT_BYTES: u64 = 8192;

impl Scenario {
    /// Why a remedy changes nothing here, and what to do.
    pub(super) fn has_no_effect(&self, remedy: Remedy) -> Option<&'static str> {
        match remedy {
            Remedy::DeferredAwareSlab if self.has_large_objects() => {
                Some("objects above 8 KiB come from no slab; lower workload.object_bytes, or remove it")
            }
            Remedy::Expedited if !self.synchronizes() => {
                Some("nobody waits for a grace period here; set observe.sync_every_ms, or remove it")
            }
            Remedy::AskFirst if self.guest.vcpus == 1 => {
                Some("with one vCPU there is nobody to ask; raise guest.vcpus, or remove it")
            }
            Remedy::BackPressure if self.guest.pressure.high_mib < self.guest.pressure.low_mib => {
                Some("guest.pressure.high_mib is below guest.pressure.low_mib; raise it")
            }
            _ => None,
        }
    }

    fn has_large_objects(&self) -> bool {
        matches!(&self.workload, Workload::Memory(memory) if memory.object_bytes > SLAB_OBJECT_BYTES)
    }

    /// Whether somebody waits for normal grace periods: whoever tears down namespaces, or who measures that.
    fn synchronizes(&self) -> bool {
        let is_measured = self.observe.sync_every_ms > 0 && self.guest.vcpus > 1;
        let tears_down = matches!(&self.workload, Workload::Clone(clones) if clones.namespaces.iter().any(|name| name == "net"));
        is_measured || tears_down
    }
}
