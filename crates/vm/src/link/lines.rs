//! Lines and raw bytes over a guest's port, with limits.
//!
//! A line and a file have a largest size. Every wait has a deadline, and ends at once when the user interrupts or QEMU dies.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use reprieve_linux::signals::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::{Result, VmError};

/// Longest line of the protocol.
pub(super) const LINE_BYTES: usize = 4096;
/// Largest file, or piece of one, that a guest may send.
pub(super) const FILE_BYTES: usize = 1 << 20;

/// The host's end of a guest's port.
pub(super) struct Lines {
    stream: UnixStream,
    interrupt: Interrupt,
    buffer: Vec<u8>,
    /// Whether the last wait ended because its deadline passed.
    pub deadline_passed: bool,
}

impl Lines {
    pub fn new(stream: UnixStream, interrupt: Interrupt) -> Result<Lines> {
        stream.set_nonblocking(true).map_err(VmError::io("preparing the guest's port"))?;
        Ok(Lines { stream, interrupt, buffer: Vec::new(), deadline_passed: false })
    }

    pub fn send(&mut self, line: &str) -> Result<()> {
        debug_assert!(line.len() < LINE_BYTES && !line.contains('\n'));
        // A line is far smaller than the socket's buffer, so the buffer is full only if the guest does not read.
        let gone = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock => VmError::guest("the guest does not read what the host says"),
            _ => VmError::guest("the guest is gone"),
        };
        self.stream.write_all(format!("{line}\n").as_bytes()).map_err(gone)
    }

    /// The next line. `what` and `limit` say in an error what the guest did not do, and within which time.
    pub fn line(&mut self, what: &str, deadline: Instant, limit: Duration) -> Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).trim_end_matches('\r').to_string());
            }
            if self.buffer.len() > LINE_BYTES {
                return Err(VmError::guest("the guest sent a line without an end"));
            }
            self.fill(what, deadline, limit)?;
        }
    }

    /// The next `size` raw bytes.
    pub fn bytes(&mut self, size: usize, what: &str, deadline: Instant, limit: Duration) -> Result<Vec<u8>> {
        if size > FILE_BYTES {
            return Err(VmError::guest(format!("the guest announced a file of {size} bytes")));
        }
        while self.buffer.len() < size {
            self.fill(what, deadline, limit)?;
        }
        Ok(self.buffer.drain(..size).collect())
    }

    /// Waits for the guest, the user's interrupt or the deadline, and then reads once.
    fn fill(&mut self, what: &str, deadline: Instant, limit: Duration) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.deadline_passed = left.is_zero();
        if self.deadline_passed {
            return Err(VmError::late(what, limit));
        }
        let timeout = Timespec::try_from(left).ok();
        let mut wanted = [
            PollFd::new(&self.stream, PollFlags::IN),
            PollFd::from_borrowed_fd(self.interrupt.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut wanted, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(VmError::Io { doing: "waiting for the guest".into(), source: errno.into() });
            }
        }
        if self.interrupt.is_raised() {
            return Err(VmError::Interrupted);
        }
        let mut chunk = [0; LINE_BYTES];
        let ended = || VmError::guest(format!("the guest ended before it could {what}"));
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ended()),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(ended()),
        }
    }
}
