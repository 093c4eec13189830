//! Temporary SCHED_FIFO for a thread, such as a sampler that must wake up on time.
//!
//! Invariants: dropping the guard, in any thread, restores the former policy. Children that the thread forks meanwhile
//! do not inherit the priority (SCHED_RESET_ON_FORK), so they cannot starve the host. Source: sched(7),
//! sched_setscheduler(2).

use super::own_tid;
use crate::error::{Error, Result, thread_path};

const WAY_OUT: &str = "run as root, or raise RLIMIT_RTPRIO (ulimit -r); on cgroup v1 the cpu group \
                       also needs cpu.rt_runtime_us";

/// SCHED_FIFO on a thread; dropping it restores the former policy.
#[derive(Debug)]
pub struct FifoGuard {
    tid: i32,
    former_policy: i32,
    former_priority: i32,
}

impl FifoGuard {
    /// Puts the calling thread under SCHED_FIFO with `priority`, from 1 (lowest) to 99.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other priority, or if the thread is under SCHED_DEADLINE, whose parameters the guard could
    /// not restore; [`Error::NotPermitted`].
    pub fn raise(priority: u8) -> Result<FifoGuard> {
        FifoGuard::raise_thread(own_tid(), priority)
    }

    /// As [`FifoGuard::raise`], for thread `tid` of any process. The thread must outlive the guard: otherwise another
    /// thread could get its number, and then the guard would change that one.
    ///
    /// # Errors
    /// As [`FifoGuard::raise`], and [`Error::Gone`].
    pub fn raise_thread(tid: i32, priority: u8) -> Result<FifoGuard> {
        if !(1..=99).contains(&priority) {
            let expected = "1 (lowest) to 99 (highest)";
            return Err(Error::invalid("real-time priority", priority.to_string(), expected));
        }
        let (former_policy, former_priority) = current(tid)?;
        if former_policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE {
            let expected = "leave SCHED_DEADLINE before raising a guard";
            return Err(Error::invalid("scheduling policy", "SCHED_DEADLINE", expected));
        }
        set(tid, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority.into())?;
        Ok(FifoGuard { tid, former_policy, former_priority })
    }
}

impl Drop for FifoGuard {
    fn drop(&mut self) {
        // Without CAP_SYS_NICE the kernel refuses to clear the reset-on-fork flag, but lets the policy change.
        if set(self.tid, self.former_policy, self.former_priority).is_err() {
            let _ = set(self.tid, self.former_policy | libc::SCHED_RESET_ON_FORK, self.former_priority);
        }
    }
}

/// The policy (with the reset-on-fork flag) and priority of a thread.
fn current(tid: i32) -> Result<(i32, i32)> {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: takes no pointers.
    let policy = unsafe { libc::sched_getscheduler(tid) };
    // SAFETY: `param` is a live, writable sched_param.
    if policy < 0 || unsafe { libc::sched_getparam(tid, &mut param) } < 0 {
        return Err(failed("read the policy of", tid));
    }
    Ok((policy, param.sched_priority))
}

fn set(tid: i32, policy: i32, priority: i32) -> Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is a live sched_param that the kernel only reads.
    match unsafe { libc::sched_setscheduler(tid, policy, &param) } {
        0 => Ok(()),
        _ => Err(failed("set the policy of", tid)),
    }
}

fn failed(action: &'static str, tid: i32) -> Error {
    Error::task(action, thread_path(tid), std::io::Error::last_os_error(), WAY_OUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_raises_and_restores_or_says_why_not() {
        let before = current(own_tid()).unwrap();
        match FifoGuard::raise(1) {
            Ok(guard) => {
                let during = current(own_tid()).unwrap();
                drop(guard);
                assert_eq!(during, (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1));
            }
            Err(e) => assert!(e.is_not_permitted(), "{e}"),
        }
        assert_eq!(current(own_tid()).unwrap(), before);
    }

    #[test]
    fn priorities_outside_1_to_99_are_refused() {
        assert!(matches!(FifoGuard::raise(0), Err(Error::Invalid { .. })));
        assert!(matches!(FifoGuard::raise(100), Err(Error::Invalid { .. })));
    }
}
