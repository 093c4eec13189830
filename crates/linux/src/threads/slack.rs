//! The timer slack of the calling thread: how late the kernel may let its sleeps end.
//!
//! 50,000 ns by default, which a 1 kHz sampler feels. Ignored under real-time policies. A thread can set
//! only its own through prctl(2), so the guard does not leave its thread. Source: PR_SET_TIMERSLACK(2const).

use std::marker::PhantomData;
use std::num::NonZeroU64;

use super::own_tid;
use crate::error::{Error, Result, thread_path};

const WAY_OUT: &str = "continue with the default slack of 50 us";

/// The calling thread's timer slack, ns.
///
/// # Errors
/// [`Error::Io`] if the kernel has no timer slack.
pub fn timer_slack_ns() -> Result<u64> {
    rustix::thread::current_timer_slack()
        .map_err(|e| Error::io("read the timer slack of", thread_path(own_tid()), e, WAY_OUT))
}

/// Sets the calling thread's timer slack to `slack_ns`, at least 1.
///
/// # Errors
/// [`Error::Invalid`] for 0, which means "the default" to the kernel; [`Error::Io`].
pub fn set_timer_slack_ns(slack_ns: u64) -> Result<()> {
    let Some(slack) = NonZeroU64::new(slack_ns) else {
        return Err(Error::invalid("timer slack", "0 ns", "at least 1 ns"));
    };
    rustix::thread::set_current_timer_slack(Some(slack))
        .map_err(|e| Error::io("set the timer slack of", thread_path(own_tid()), e, WAY_OUT))
}

/// Another timer slack for a while; dropping it puts the former one back.
#[derive(Debug)]
pub struct TimerSlackGuard {
    former_ns: u64,
    /// prctl(2) acts on the calling thread: the guard must be dropped where it was made.
    not_send: PhantomData<*const ()>,
}

impl TimerSlackGuard {
    /// Sets the calling thread's timer slack until the guard is dropped.
    ///
    /// # Errors
    /// As [`set_timer_slack_ns`].
    pub fn set(slack_ns: u64) -> Result<TimerSlackGuard> {
        let former_ns = timer_slack_ns()?;
        set_timer_slack_ns(slack_ns)?;
        Ok(TimerSlackGuard { former_ns, not_send: PhantomData })
    }
}

impl Drop for TimerSlackGuard {
    fn drop(&mut self) {
        // A former value of 0 belongs to real-time threads, whose slack the kernel ignores.
        let _ = set_timer_slack_ns(self.former_ns.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_sets_and_restores() {
        let before = timer_slack_ns().unwrap();
        let guard = TimerSlackGuard::set(1_000).unwrap();
        assert_eq!(timer_slack_ns().unwrap(), 1_000);
        drop(guard);
        assert_eq!(timer_slack_ns().unwrap(), before);
        assert!(matches!(set_timer_slack_ns(0), Err(Error::Invalid { .. })));
    }
}
