//! The nice value of a thread, -20 (favoured) to 19.
//!
//! On Linux, setpriority(2) with PRIO_PROCESS acts on one thread, not on its process. Anyone may raise a nice value; to
//! lower it, even to its former value, takes CAP_SYS_NICE or RLIMIT_NICE. Source: setpriority(2), sched(7).

use super::to_pid;
use crate::error::{Error, Result, thread_path};

const WAY_OUT: &str = "run as root, or raise RLIMIT_NICE (ulimit -e)";

/// The nice value of thread `tid`.
pub fn nice(tid: i32) -> Result<i32> {
    rustix::process::getpriority_process(Some(to_pid(tid)?))
        .map_err(|e| Error::task("read the nice value of", thread_path(tid), e, WAY_OUT))
}

/// Sets the nice value of thread `tid`.
///
/// # Errors
/// [`Error::Invalid`] outside -20 to 19.
pub fn set_nice(tid: i32, nice: i32) -> Result<()> {
    if !(-20..=19).contains(&nice) {
        return Err(Error::invalid("nice value", nice.to_string(), "-20 (favoured) to 19"));
    }
    rustix::process::setpriority_process(Some(to_pid(tid)?), nice)
        .map_err(|e| Error::task("set the nice value of", thread_path(tid), e, WAY_OUT))
}

#[cfg(test)]
mod tests {
    use super::super::own_tid;
    use super::*;

    #[test]
    fn nice_is_per_thread() {
        let outside = nice(own_tid()).unwrap();
        let niced = std::thread::spawn(|| {
            set_nice(own_tid(), 19).unwrap();
            nice(own_tid()).unwrap()
        });
        assert_eq!(niced.join().unwrap(), 19);
        assert_eq!(nice(own_tid()).unwrap(), outside);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        assert!(matches!(set_nice(own_tid(), 20), Err(Error::Invalid { .. })));
        assert!(matches!(set_nice(own_tid(), -21), Err(Error::Invalid { .. })));
    }
}
