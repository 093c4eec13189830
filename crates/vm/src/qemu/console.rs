//! The guest's serial console: read all the time so that the guest never waits for us, and only its end is
//! kept, for error messages.

use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use reprieve_study::shown;

use crate::Result;
use crate::error::{ConsoleTail, VmError};

/// Bytes kept.
const KEPT_BYTES: usize = 64 << 10;
/// Lines shown, and their longest length.
const SHOWN_LINES: usize = 25;
const SHOWN_CHARACTERS: usize = 160;

#[derive(Default)]
struct Kept {
    bytes: VecDeque<u8>,
    closed: bool,
}

/// A console that is being read.
pub struct Console(Arc<(Mutex<Kept>, Condvar)>);

impl Console {
    /// Reads `stream` on a thread of its own until the other end closes it.
    pub fn read(mut stream: UnixStream) -> Result<Console> {
        let shared: Arc<(Mutex<Kept>, Condvar)> = Arc::default();
        let writer = Arc::clone(&shared);
        let body = move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut chunk) {
                let mut kept = writer.0.lock().unwrap_or_else(PoisonError::into_inner);
                kept.bytes.extend(&chunk[..count]);
                let surplus = kept.bytes.len().saturating_sub(KEPT_BYTES);
                kept.bytes.drain(..surplus);
            }
            writer.0.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
            writer.1.notify_all();
        };
        let builder = std::thread::Builder::new().name("guest-console".into());
        builder.spawn(body).map_err(VmError::io("starting the console's reader"))?;
        Ok(Console(shared))
    }

    /// The last lines.
    pub fn tail(&self) -> ConsoleTail {
        let mut kept = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        console_tail(kept.bytes.make_contiguous())
    }

    /// Waits until the other end is closed, at most until the deadline.
    pub fn wait_closed(&self, deadline: Instant) {
        let mut kept = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !kept.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            kept = self.0.1.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The last lines of what a guest printed, fit for the user's terminal, with which it is not trusted.
pub fn console_tail(bytes: &[u8]) -> ConsoleTail {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(KEPT_BYTES)..]);
    let clean = |line: &str| {
        // A serial line ends with as many of these as its drivers like.
        let cut: String = line.trim_end_matches('\r').chars().take(SHOWN_CHARACTERS).collect();
        shown::line(&cut).into_owned()
    };
    let lines: Vec<String> = text.lines().map(clean).filter(|line| !line.trim().is_empty()).collect();
    ConsoleTail(lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    #[test]
    fn keeps_the_end_and_shows_control_characters() {
        let (mut guest, host) = UnixStream::pair().unwrap();
        let console = Console::read(host).unwrap();
        for number in 0..20_000 {
            writeln!(guest, "line {number}\x1b[31m\r").unwrap();
        }
        drop(guest);
        console.wait_closed(Instant::now() + Duration::from_secs(10));
        let tail = console.tail();
        assert_eq!(tail.0.len(), SHOWN_LINES);
        assert_eq!(tail.0.last().unwrap(), r"line 19999\x1b[31m");
    }
}
