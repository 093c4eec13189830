//! The name of the calling thread, as `ps -L` and traces show it. Reading names:
//! [`ProcRoot::thread_name`](crate::proc::ProcRoot::thread_name). Source: PR_SET_NAME(2const).

use std::ffi::CString;

use super::own_tid;
use crate::error::{Error, Result, thread_path};

/// The longest thread name the kernel keeps, in bytes.
pub const MAX_NAME_BYTES: usize = 15;

/// Names the calling thread.
///
/// # Errors
/// [`Error::Invalid`] for a name over [`MAX_NAME_BYTES`] (the kernel would cut it silently) or with a NUL.
pub fn set_own_name(name: &str) -> Result<()> {
    let fitting = (name.len() <= MAX_NAME_BYTES).then(|| CString::new(name).ok()).flatten();
    let Some(c_name) = fitting else {
        return Err(Error::invalid("thread name", name, "at most 15 bytes, without NUL"));
    };
    rustix::thread::set_name(&c_name)
        .map_err(|e| Error::io("set the name of", thread_path(own_tid()), e, "continue without a name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::ProcRoot;

    #[test]
    fn a_name_can_be_read_back() {
        let thread = std::thread::spawn(|| {
            set_own_name("sampler 1").unwrap();
            ProcRoot::default().thread_name(std::process::id() as i32, own_tid()).unwrap()
        });
        assert_eq!(thread.join().unwrap(), "sampler 1");
        assert!(matches!(set_own_name("sixteen bytes !!"), Err(Error::Invalid { .. })));
        assert!(matches!(set_own_name("a\0b"), Err(Error::Invalid { .. })));
    }
}
