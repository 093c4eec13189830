//! The timer slack of the calling thread: by how much the kernel may prolong its sleeps.
//!
//! The default of 50,000 ns disturbs a 1 kHz sampler. The kernel ignores it under real-time policies.
//! Source: PR_SET_TIMERSLACK(2const).

use std::num::NonZeroU64;

use super::own_tid;
use crate::error::{Error, Result, thread_path};

const WAY_OUT: &str = "continue with the default slack of 50 us";

/// Sets the calling thread's timer slack.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_set() {
        let set = std::thread::spawn(|| {
            set_timer_slack_ns(1_000).unwrap();
            rustix::thread::current_timer_slack().unwrap()
        });
        assert_eq!(set.join().unwrap(), 1_000);
        assert!(matches!(set_timer_slack_ns(0), Err(Error::Invalid { .. })));
    }
}
