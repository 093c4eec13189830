//! Remedies of the guest that would change nothing, given its workload and its size.

use crate::scenario::{Remedy, Scenario, Workload};

/// The largest object of a slab, in bytes.
const SLAB_OBJECT_BYTES: u64 = 8192;

impl Scenario {
    /// Why a remedy changes nothing here, and what to do.
    pub(super) fn has_no_effect(&self, remedy: Remedy) -> Option<&'static str> {
        let is_large =
            matches!(&self.workload, Workload::Memory(memory) if memory.object_bytes > SLAB_OBJECT_BYTES);
        match remedy {
            Remedy::DeferredAwareSlab if is_large => {
                Some("objects above 8 KiB come from no slab; lower workload.object_bytes, or remove it")
            }
            _ => None,
        }
    }
}
