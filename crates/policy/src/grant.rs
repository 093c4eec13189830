//! Whether a vCPU that is about to lose its pCPU gets one more slice, because it is within a read-side section.
//!
//! The guest marks the entry and the exit of each read-side section in memory that it shares with its host. A host that
//! is about to deschedule a vCPU reads the mark, and may let the vCPU run on for one bounded slice. The guest is told
//! nothing and asked for nothing: the slice ends by time alone. It is lent: the vCPU is charged for it as ever.
//!
//! Source: the idea of eCS (Kashyap, Min, Kim: "Scaling Guest OS Critical Sections with eCS", USENIX ATC 2018), for RCU
//! readers and the grace-period kthread alone.

/// What may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of the one more slice, ns.
    pub slice_ns: u64,
    /// A vCPU that owes this much CPU time gets none, ns.
    pub debt_ns: u64,
}

/// What is known of a vCPU that is about to lose its pCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// It is within a marked read-side section, or runs the grace-period kthread.
    pub is_marked: bool,
    /// It has had one more slice since it got its pCPU.
    pub has_had_one: bool,
    /// CPU time that it has had beyond what it has a right to, ns.
    pub debt_ns: u64,
}

impl Settings {
    /// Whether that vCPU gets one more slice.
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
