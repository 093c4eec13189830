//! A perf event with its ring of records. Source: perf_event_open(2).

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use perf_event_open_sys::{bindings as perf, perf_event_open};

use super::ring::Ring;

/// An open event. The fields drop in this order, so the ring is unmapped before its event is closed.
#[derive(Debug)]
pub(crate) struct Event {
    pub ring: Ring,
    pub file: OwnedFd,
}

/// Why there is no event.
pub(crate) enum Refusal {
    /// The kernel has no such event.
    Unknown,
    /// The kernel refuses to open the event.
    Open(io::Error),
    /// The kernel refuses to map the ring.
    Map(io::Error),
}

/// The attributes that all events here share: each record has the task, the time by CLOCK_MONOTONIC, and the CPU.
pub(crate) fn attributes() -> perf::perf_event_attr {
    let mut attributes = perf::perf_event_attr::default();
    attributes.size = std::mem::size_of::<perf::perf_event_attr>() as u32;
    attributes.sample_type = (perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME | perf::PERF_SAMPLE_CPU).into();
    attributes.clockid = libc::CLOCK_MONOTONIC;
    attributes.set_use_clockid(1);
    attributes
}

/// The attributes of a software event that counts nothing; only its records matter.
pub(crate) fn dummy_attributes() -> perf::perf_event_attr {
    let mut attributes = attributes();
    attributes.type_ = perf::PERF_TYPE_SOFTWARE;
    attributes.config = perf::PERF_COUNT_SW_DUMMY.into();
    attributes.set_sample_id_all(1);
    attributes
}

impl Event {
    /// Opens an event of one thread, or of all if `tid` is -1, on one CPU, or on any if `cpu` is -1. Its ring has this many
    /// pages, a power of two.
    pub fn open(
        mut attributes: perf::perf_event_attr,
        tid: i32,
        cpu: i32,
        ring_pages: usize,
    ) -> Result<Event, Refusal> {
        let (no_group, flags) = (-1, perf::PERF_FLAG_FD_CLOEXEC.into());
        // SAFETY: `attributes` is a live, initialised perf_event_attr of the size it states. If it has a pointer, that
        // is to a constant, the name of a function.
        let opened = unsafe { perf_event_open(&mut attributes, tid, cpu, no_group, flags) };
        if opened < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOSYS | libc::ENOENT | libc::EINVAL) => Refusal::Unknown,
                _ => Refusal::Open(error),
            });
        }
        // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(opened) };
        let ring = Ring::map(file.as_fd(), ring_pages).map_err(Refusal::Map)?;
        Ok(Event { ring, file })
    }
}
