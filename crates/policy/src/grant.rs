//! Decides whether a vCPU that is about to lose its pCPU gets one more slice, because it is within a read-side section.
//!
//! The guest marks the entry and the exit of each read-side section in memory that it shares with its host. When the
//! host is about to deschedule a vCPU, it reads the mark, and may let the vCPU run on for one bounded slice. The guest
//! does not learn of the slice and need not end it: the slice ends by time alone. The vCPU is charged for it like for
//! all its run time.
//!
//! Source: the idea of eCS (Kashyap, Min, Kim: "Scaling Guest OS Critical Sections with eCS", USENIX ATC 2018),
//! restricted to RCU readers and the grace-period kthread.

/// Bounds of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of the additional slice, ns.
    pub slice_ns: u64,
    /// A vCPU that owes this much CPU time gets no additional slice, ns.
    pub debt_ns: u64,
}

/// The state of a vCPU that is about to lose its pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// The vCPU is within a marked read-side section, or runs the grace-period kthread.
    pub is_marked: bool,
    /// The vCPU has already had an additional slice since it got its pCPU.
    pub has_had_one: bool,
    /// CPU time that the vCPU has had beyond its fair share, ns.
    pub debt_ns: u64,
}

impl Settings {
    /// Whether this vCPU gets an additional slice.
    pub fn grants(&self, vcpu: &Vcpu) -> bool {
        vcpu.is_marked && !vcpu.has_had_one && vcpu.debt_ns < self.debt_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slice_for_a_marked_vcpu_that_owes_little() {
        let settings = Settings { slice_ns: 1_000, debt_ns: 500 };
        let marked = Vcpu { is_marked: true, has_had_one: false, debt_ns: 499 };
        assert!(settings.grants(&marked));
        for other in [
            Vcpu { is_marked: false, ..marked },
            Vcpu { has_had_one: true, ..marked },
            Vcpu { debt_ns: 500, ..marked },
        ] {
            assert!(!settings.grants(&other), "{other:?}");
        }
    }
}
