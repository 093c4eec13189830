//! Lets tests of the whole crate plant faults in a guest.

use super::*;

impl Guest {
    pub(crate) fn vcpu_mut(&mut self, v: usize) -> &mut Vcpu {
        &mut self.vcpus[v]
    }
}
