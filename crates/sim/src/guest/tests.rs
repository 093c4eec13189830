//! For tests that plant faults in a guest: the way to what is kept from others.

use super::*;

impl Guest {
    pub(crate) fn vcpu_mut(&mut self, v: usize) -> &mut Vcpu {
        &mut self.vcpus[v]
    }

    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
