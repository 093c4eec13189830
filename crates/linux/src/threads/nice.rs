//! The nice value of a thread, -20 (favoured) to 19.
//!
//! On Linux setpriority(2) with PRIO_PROCESS acts on one thread, not on its process. Anybody may raise a
//! nice value, lowering it (also back to what it was) needs CAP_SYS_NICE or RLIMIT_NICE.
//! Source: setpriority(2), sched(7).

use super::to_pid;
use crate::error::{Error, Result, thread_path};

const WAY_OUT: &str = "run as root, or raise RLIMIT_NICE (ulimit -e)";

/// The nice value of thread `tid`.
///
/// # Errors
/// [`Error::Gone`] if there is no such thread.
pub fn nice(tid: i32) -> Result<i32> {
    rustix::process::getpriority_process(Some(to_pid(tid)?))
        .map_err(|e| Error::task("read the nice value of", thread_path(tid), e, WAY_OUT))
}

/// Sets the nice value of thread `tid`.
///
/// # Errors
/// [`Error::Invalid`] outside -20 to 19, [`Error::Gone`], [`Error::NotPermitted`].
pub fn set_nice(tid: i32, nice: i32) -> Result<()> {
    if !(-20..=19).contains(&nice) {
        return Err(Error::invalid("nice value", nice.to_string(), "-20 (favoured) to 19"));
    }
    rustix::process::setpriority_process(Some(to_pid(tid)?), nice)
        .map_err(|e| Error::task("set the nice value of", thread_path(tid), e, WAY_OUT))
}

/// Another nice value for a while; dropping it puts the former one back, if that is permitted.
#[derive(Debug)]
pub struct NiceGuard {
    tid: i32,
    former: i32,
}

impl NiceGuard {
    /// Sets the nice value of thread `tid` until the guard is dropped.
    ///
    /// # Errors
    /// As [`nice`] and [`set_nice`].
    pub fn set(tid: i32, to: i32) -> Result<NiceGuard> {
        let former = nice(tid)?;
        set_nice(tid, to)?;
        Ok(NiceGuard { tid, former })
    }
}

impl Drop for NiceGuard {
    fn drop(&mut self) {
        // Fails if the thread has ended or lowering is not permitted: nothing better can be done here.
        let _ = set_nice(self.tid, self.former);
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_tid;
    use super::*;

    #[test]
    fn nice_is_per_thread_and_a_guard_restores() {
        let outside = nice(own_tid()).unwrap();
        let niced = std::thread::spawn(|| {
            let tid = own_tid();
            let before = nice(tid).unwrap();
            let guard = NiceGuard::set(tid, 19).unwrap();
            assert_eq!(nice(tid).unwrap(), 19);
            drop(guard);
            (before, nice(tid).unwrap())
        });
        let (before, after) = niced.join().unwrap();
        assert!(after == before || set_nice(own_tid(), -20).is_err());
        assert_eq!(nice(own_tid()).unwrap(), outside);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        assert!(matches!(set_nice(own_tid(), 20), Err(Error::Invalid { .. })));
        assert!(matches!(set_nice(own_tid(), -21), Err(Error::Invalid { .. })));
    }
}
