//! The CPUs a thread may run on.
//!
//! The kernel silently narrows a set to the CPUs that are online and in the thread's cpuset.
//! Source: sched_setaffinity(2).

use reprieve_policy::cpus::CpuSet;
use rustix::thread::{CpuSet as KernelSet, sched_getaffinity, sched_setaffinity};

use super::to_pid;
use crate::error::{Error, Result, thread_path};

/// The size of the C library's mask: CPUs with this number or a higher one cannot be named.
pub const MAX_CPUS: usize = KernelSet::MAX_CPU;

const WAY_OUT: &str = "run as the user who owns the process, or with CAP_SYS_NICE";
const WAY_OUT_CPUS: &str = "choose CPUs that are online and in the thread's cpuset";

/// The CPUs that thread `tid` may run on, ascending.
pub fn affinity(tid: i32) -> Result<Vec<usize>> {
    Ok(affinity_set(tid)?.iter().collect())
}

/// Restricts thread `tid` to `cpus`.
///
/// # Errors
/// [`Error::Invalid`] for an empty set or a number of [`MAX_CPUS`] or above, and as [`set_affinity_set`].
pub fn set_affinity(tid: i32, cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() || cpus.iter().any(|&cpu| cpu >= MAX_CPUS) {
        return Err(Error::invalid("CPU set", format!("{cpus:?}"), "name at least one CPU, all below 1024"));
    }
    set_affinity_set(tid, &cpus.iter().copied().collect())
}

/// As [`affinity`], but allocates only to report an error.
pub fn affinity_set(tid: i32) -> Result<CpuSet> {
    let set = sched_getaffinity(Some(to_pid(tid)?))
        .map_err(|e| Error::task("read the affinity of", thread_path(tid), e, WAY_OUT))?;
    Ok((0..MAX_CPUS).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Restricts thread `tid` to these CPUs. Allocates only to report an error.
///
/// # Errors
/// [`Error::Io`] if none of the CPUs is online and in the thread's cpuset.
pub fn set_affinity_set(tid: i32, cpus: &CpuSet) -> Result<()> {
    let mut set = KernelSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu));
    sched_setaffinity(Some(to_pid(tid)?), &set).map_err(|e| {
        let way_out = if e == rustix::io::Errno::INVAL { WAY_OUT_CPUS } else { WAY_OUT };
        Error::task("set the affinity of", thread_path(tid), e, way_out)
    })
}

#[cfg(test)]
mod tests {
    use super::super::own_tid;
    use super::*;

    #[test]
    fn a_thread_is_pinned() {
        let pinned = std::thread::spawn(|| {
            let one = [*affinity(own_tid()).unwrap().last().unwrap()];
            set_affinity(own_tid(), &one).unwrap();
            affinity(own_tid()).unwrap() == one
        });
        assert!(pinned.join().unwrap());
    }

    #[test]
    fn bad_sets_and_bad_threads_are_refused() {
        assert!(matches!(set_affinity(own_tid(), &[]), Err(Error::Invalid { .. })));
        assert!(matches!(set_affinity(own_tid(), &[MAX_CPUS]), Err(Error::Invalid { .. })));
        assert!(matches!(set_affinity(own_tid(), &[MAX_CPUS - 1]), Err(Error::Io { .. })));
        assert!(matches!(affinity(0), Err(Error::Invalid { .. })));
        assert!(matches!(affinity(-1), Err(Error::Invalid { .. })));
        assert!(affinity(i32::MAX).unwrap_err().is_gone());
    }
}
