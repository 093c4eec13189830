//! Relaxed co-scheduling: decides when the vCPUs of a VM run together for a slice.
//!
//! If some vCPUs of a VM run while others wait for a pCPU, all that have work get a pCPU at once for a slice, and the
//! slice ends for all of them together. A vCPU without work takes no pCPU. Under strict co-scheduling, where a VM runs
//! wholly or not at all, a pCPU would idle for it. The time is lent: the next slice begins only after each vCPU has
//! paid most of it back.
//!
//! Source: Ousterhout's gang scheduling (1982), relaxed as hypervisors do it. The constants are estimates; none are
//! published.

/// When slices begin, and how long they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a slice, ns.
    pub slice_ns: u64,
    /// No slice begins while a vCPU owes more CPU time than this, ns.
    pub lead_ns: u64,
}

/// The state of a vCPU at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// The vCPU has a pCPU.
    pub is_on: bool,
    /// The vCPU has work but no pCPU.
    pub is_off: bool,
    /// CPU time that the vCPU has had beyond its fair share, ns.
    pub debt_ns: u64,
}

/// What to do with all vCPUs of the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run all that have work at once.
    Begin,
    /// Let them compete for pCPUs again, like any other vCPUs.
    End,
}

/// Makes the decisions for one VM.
#[derive(Clone, Copy, Debug)]
pub struct Gang {
    settings: Settings,
    /// When the slice under way ends.
    ends_ns: Option<u64>,
}

impl Gang {
    /// Decisions for a VM that has no slice under way.
    pub fn new(settings: Settings) -> Gang {
        Gang { settings, ends_ns: None }
    }

    /// Takes a look, and returns what to do, if anything.
    pub fn look(&mut self, at_ns: u64, vcpus: &[Vcpu]) -> Option<Order> {
        if let Some(ends_ns) = self.ends_ns {
            let is_over = at_ns >= ends_ns;
            return is_over.then(|| {
                self.ends_ns = None;
                Order::End
            });
        }
        let is_torn = vcpus.iter().any(|vcpu| vcpu.is_on) && vcpus.iter().any(|vcpu| vcpu.is_off);
        let is_paid = vcpus.iter().all(|vcpu| vcpu.debt_ns <= self.settings.lead_ns);
        (is_torn && is_paid).then(|| {
            self.ends_ns = Some(at_ns.saturating_add(self.settings.slice_ns));
            Order::Begin
        })
    }

    /// When to look again after a look at `at_ns`: after `look_ns`, or earlier if the slice under way ends earlier.
    pub fn next_look_ns(&self, at_ns: u64, look_ns: u64) -> u64 {
        self.ends_ns.unwrap_or_else(|| at_ns.saturating_add(look_ns)).max(at_ns + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Vcpu = Vcpu { is_on: true, is_off: false, debt_ns: 0 };
    const OFF: Vcpu = Vcpu { is_on: false, is_off: true, debt_ns: 0 };
    const HALTED: Vcpu = Vcpu { is_on: false, is_off: false, debt_ns: 0 };

    fn gang() -> Gang {
        Gang::new(Settings { slice_ns: 400, lead_ns: 50 })
    }

    #[test]
    fn a_vm_that_is_torn_runs_as_one_for_a_slice() {
        let mut gang = gang();
        assert_eq!(gang.look(1_000, &[ON, OFF]), Some(Order::Begin));
        assert_eq!(gang.next_look_ns(1_000, 100), 1_400);
        assert_eq!(gang.look(1_399, &[ON, OFF]), None);
        assert_eq!(gang.look(1_400, &[ON, OFF]), Some(Order::End));
        assert_eq!(gang.next_look_ns(1_400, 100), 1_500);
    }

    #[test]
    fn one_that_runs_wholly_or_not_at_all_or_has_not_paid_is_left_alone() {
        let in_debt = |vcpu: Vcpu| Vcpu { debt_ns: 51, ..vcpu };
        for vcpus in
            [[ON, ON], [OFF, OFF], [ON, HALTED], [OFF, HALTED], [in_debt(ON), OFF], [ON, in_debt(OFF)]]
        {
            assert_eq!(gang().look(0, &vcpus), None, "{vcpus:?}");
        }
    }
}
