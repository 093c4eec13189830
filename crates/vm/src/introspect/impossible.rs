//! Figures that no guest of its size can have. The kernel that wrote them is damaged, or its guest means harm: a run in
//! which they are seen says so, since what else it read is of the same memory.
//!
//! Bounds are those of the guest's size alone, so that no healthy kernel is ever doubted; a guest can still lie within
//! them.

use std::fmt;

use reprieve_study::units::SECOND_NS;

use super::ram::PAGE_BYTES;
use super::sample::{CpuState, Reader};

/// A callback stands in an `rcu_head`, of two pointers (include/linux/types.h): so many fit into a page.
const CALLBACKS_A_PAGE: i128 = PAGE_BYTES as i128 / 16;
/// A counter that is kept for each CPU may be so far below zero for a moment, as may the sum of its parts.
const BELOW_ZERO: i128 = 1 << 20;
/// No guest has run for ten years.
const CPU_TIME_NS: i128 = 10 * 365 * 86_400 * SECOND_NS as i128;

/// A figure that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// Of what, in the kernel's words.
    pub what: &'static str,
    /// What the guest's memory holds.
    pub value: i128,
    /// The most that a guest of this size can have.
    pub most: i128,
}

impl Impossible {
    /// `None` for a value from `least` to `most`.
    pub fn unless(what: &'static str, value: i128, least: i128, most: i128) -> Option<Impossible> {
        (!(least..=most).contains(&value)).then_some(Impossible { what, value, most })
    }

    /// CPU time that was accounted between two looks, if it went back or there is too much of it.
    pub fn cpu_time(first: CpuState, last: CpuState) -> Option<Impossible> {
        let went = |of: fn(&CpuState) -> u64| {
            let (first, last) = (i128::from(of(&first)), i128::from(of(&last)));
            Impossible::unless("the CPU time of kernel_cpustat", last, first.min(CPU_TIME_NS), CPU_TIME_NS)
        };
        went(|cpu| cpu.kernel_ns).or_else(|| went(|cpu| cpu.idle_ns)).or_else(|| went(|cpu| cpu.user_ns))
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is {}, and can be {} at most", self.what, self.value, self.most)
    }
}

/// What a run saw that cannot be, for the notes beside its figures: counted, and the first kept.
#[derive(Debug, Default)]
pub struct ImpossibleLooks {
    looks: u64,
    first: Option<Impossible>,
}

impl ImpossibleLooks {
    /// Takes what a look found.
    pub fn see(&mut self, impossible: Option<Impossible>) {
        self.looks += u64::from(impossible.is_some());
        self.first = self.first.or(impossible);
    }

    /// For people, if there is anything to doubt.
    pub fn note(&self) -> Option<String> {
        let first = self.first?;
        Some(format!(
            "do not trust these figures: {} looks met some that cannot be, at first {first}; the guest's kernel is damaged or \
             hostile",
            self.looks
        ))
    }
}

impl Reader {
    /// The first figure of this moment that cannot be.
    pub fn impossible(&self) -> Option<Impossible> {
        self.impossible_rcu().or_else(|| self.impossible_memory())
    }

    fn impossible_rcu(&self) -> Option<Impossible> {
        let (layout, cpus) = (&self.layout, self.cpus());
        // With 64 CPUs and more every bit can be one's.
        let bits = 1_i128.checked_shl(cpus.min(64) as u32).unwrap_or(i128::MAX) - 1;
        let holdouts = Impossible::unless("rcu_node.qsmask", self.holdouts().into(), 0, bits);
        let most = i128::from(layout.memory_pages) * CALLBACKS_A_PAGE;
        let mut backlogs = layout.cpus.iter().map(|cpu| i128::from(self.ram.get(cpu.callbacks) as i64));
        let backlog = backlogs.find_map(|len| Impossible::unless("rcu_data.cblist.len", len, -most, most));
        holdouts.or(backlog)
    }

    fn impossible_memory(&self) -> Option<Impossible> {
        let (layout, pages) = (&self.layout, i128::from(self.layout.memory_pages));
        let of_zone = |zone: &super::layout::Zone| {
            let managed = self.ram.get(zone.managed_pages);
            let mut free = zone.free_blocks.iter().enumerate();
            Impossible::unless("zone.managed_pages", managed.into(), 0, pages).or_else(|| {
                free.find_map(|(order, word)| {
                    Impossible::unless("free_area.nr_free", self.ram.get(*word).into(), 0, pages >> order)
                })
            })
        };
        let mut slab = layout.slab.iter().map(|word| i128::from(self.ram.get(*word) as i64));
        layout.zones.iter().find_map(of_zone).or_else(|| {
            slab.find_map(|count| Impossible::unless("the count of slab pages", count, -BELOW_ZERO, pages))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_out_of_its_bounds_cannot_be() {
        assert_eq!(Impossible::unless("x", 5, -1, 5), None);
        assert_eq!(Impossible::unless("x", -1, -1, 5), None);
        let error = Impossible::unless("x", 6, -1, 5).unwrap();
        assert_eq!(error.to_string(), "x is 6, and can be 5 at most");
        assert!(Impossible::unless("x", -2, -1, 5).is_some());
    }

    #[test]
    fn cpu_time_goes_on_and_is_no_lifetime() {
        let of = |kernel_ns, idle_ns, user_ns| CpuState { kernel_ns, idle_ns, user_ns };
        assert_eq!(Impossible::cpu_time(of(1, 2, 3), of(1, 4, 9)), None);
        assert_eq!(Impossible::cpu_time(of(1, 2, 3), of(1, 1, 9)).unwrap().value, 1);
        assert!(Impossible::cpu_time(of(0, 0, 0), of(0, 0, u64::MAX)).is_some());
        assert!(Impossible::cpu_time(of(0, u64::MAX, 0), of(0, u64::MAX, 0)).is_some());
    }

    #[test]
    fn the_first_is_named_and_all_are_counted() {
        let mut looks = ImpossibleLooks::default();
        looks.see(None);
        assert_eq!(looks.note(), None);
        looks.see(Impossible::unless("a", 7, 0, 1));
        looks.see(Impossible::unless("b", 8, 0, 1));
        let note = looks.note().unwrap();
        assert!(note.contains("2 looks") && note.contains("a is 7, and can be 1 at most"), "{note}");
    }
}
