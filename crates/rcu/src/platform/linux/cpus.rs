//! CPUs: how many there are, which of them a thread may use, and how busy they are.

use crate::units::SECOND_NS;
use std::sync::atomic::{AtomicU64, Ordering};

/// As many CPUs as the C library's sets hold, 1,024. On larger machines no thread is bound to CPUs.
const WORDS: usize = size_of::<libc::cpu_set_t>() / 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set([u64; WORDS]);

impl Set {
    pub(crate) fn of(cpu: usize) -> Self {
        let mut set = Self::default();
        if let Some(word) = set.0.get_mut(cpu / 64) {
            *word = 1 << (cpu % 64);
        }
        set
    }

    pub(crate) fn has(&self, cpu: usize) -> bool {
        self.meets(&Self::of(cpu))
    }

    #[cfg(test)]
    pub(crate) fn is_just(&self, cpu: usize) -> bool {
        *self == Self::of(cpu)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the two have a CPU in common.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

pub(crate) struct Shared([AtomicU64; WORDS]);

impl Shared {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    pub(crate) fn add(&self, cpu: usize) {
        if let Some(word) = self.0.get(cpu / 64)
            && word.load(Ordering::Relaxed) & 1 << (cpu % 64) == 0
        {
            word.fetch_or(1 << (cpu % 64), Ordering::Relaxed);
        }
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    pub(crate) fn get(&self) -> Set {
        Set(std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }
}

/// The CPU that the caller runs on at the moment.
pub(crate) fn current() -> usize {
    // SAFETY: takes and touches nothing.
    unsafe { libc::sched_getcpu() }.max(0) as usize
}

/// How many CPUs the machine may have. Their numbers begin at 0.
pub(crate) fn count() -> usize {
    // SAFETY: a name that the C library knows.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize
}

/// How long this CPU has executed something since the machine started, in steps of a clock tick. This excludes time
/// for which a hypervisor had taken it away (proc_stat(5): user, nice, system, irq and softirq, of which the first
/// two contain what its own guests executed). None if that cannot be found out.
pub(crate) fn busy_ns(cpu: usize) -> Option<u64> {
    busy_ticks(&std::fs::read_to_string("/proc/stat").ok()?, cpu).map(|ticks| {
        // SAFETY: a name that the C library knows.
        let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        ticks * (SECOND_NS / per_s)
    })
}

fn busy_ticks(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let mut words = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next()? == name).then_some(words))?;
    [0, 0, 0, 2, 0].into_iter().map(|skip| words.nth(skip)?.parse::<u64>().ok()).sum()
}

/// The CPUs that the other threads of the process may use. Empty if that cannot be found out.
pub(crate) fn of_process() -> Set {
    let me = super::thread_id();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Set::default() };
    let ids = threads.flatten().filter_map(|t| t.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|&id| id != me).map(of_thread).fold(Set::default(), |all, one| all.or(&one))
}

/// The CPUs that a thread may use; none if it has ended.
pub(crate) fn of_thread(id: i32) -> Set {
    let mut set = Set::default();
    // SAFETY: the kernel writes at most this many bytes, into words for which any bits will do.
    let failed = unsafe { libc::sched_getaffinity(id, size_of::<Set>(), (&raw mut set).cast()) } != 0;
    if failed { Set::default() } else { set }
}

/// Lets the calling thread use these CPUs alone. If the kernel refuses, nothing changes.
pub(crate) fn bind(set: &Set) {
    // SAFETY: the kernel reads this many bytes.
    unsafe { libc::sched_setaffinity(0, size_of::<Set>(), std::ptr::from_ref(set).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        let (a, b) = (Set::of(3).or(&Set::of(700)), Set::of(3));
        assert!(a.has(3) && a.has(700) && !a.has(4) && !a.has(1 << 20));
        assert!(a.meets(&b) && !b.meets(&Set::of(700)));
        assert!(a.without(&b).is_just(700) && !a.is_just(3));
        assert!(b.without(&a).is_empty() && !b.is_empty());
        let shared = Shared::new();
        shared.add(700);
        shared.add(1 << 20);
        assert!(shared.get().is_just(700));
        shared.clear();
        assert!(shared.get().is_empty());
    }

    #[test]
    fn a_cpu_s_busy_time_is_what_it_executed() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 100 200 8 16 300 1 2\ncpu10 5 0 0 7 0 0 0 0 0 0\nintr 1\n";
        assert_eq!([0, 10, 1].map(|cpu| busy_ticks(stat, cpu)), [Some(31), Some(5), None]);
        assert_eq!(busy_ticks("cpu0 1 2 4\n", 0), None);
        assert!(busy_ns(current()).is_some());
    }

    #[test]
    fn a_thread_is_bound_within_what_the_others_may_use() {
        let process = of_process();
        assert!(!process.is_empty());
        std::thread::spawn(move || {
            let cpu = (0..1_024).find(|&c| process.has(c)).unwrap();
            bind(&Set::of(cpu));
            assert!(of_thread(0).is_just(cpu) && current() == cpu);
            bind(&Set::default());
            assert!(of_thread(0).is_just(cpu), "refused, and nothing has changed");
        })
        .join()
        .unwrap();
    }
}
