//! Reading what the user hands in: files, and pipes that somebody writes into, of bounded size.
//!
//! Invariant: nothing waits for ever without a word. A file is opened without waiting for anybody. A FIFO that nobody
//! writes into is refused, because its writer may never come; while a writer that is there keeps silent, the user is told.
//! Process substitution, `<(...)`, is a FIFO with a writer. Source: fifo(7), open(2), poll(2).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::failure::Failure;
use crate::output;

/// How long a writer may keep silent before it is said what is waited for, s.
const SILENCE_S: i64 = 2;

/// The text in `path`. `what` it should be is said when it is larger than `limit_bytes`. The bytes are
/// counted as they come: a pipe has no size beforehand.
pub fn read_text(path: &Path, limit_bytes: u64, what: &str) -> Result<String, Failure> {
    let bad = |problem: String| Failure::Usage(format!("{}: {problem}", path.display()));
    let mut text = String::new();
    open(path)
        .and_then(|input| input.take(limit_bytes + 1).read_to_string(&mut text))
        .map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > limit_bytes {
        return Err(bad(format!("more than {} MiB are too many for a {what}", limit_bytes >> 20)));
    }
    Ok(text)
}

/// Opens a file, a pipe that somebody writes into, or standard input.
///
/// # Errors
/// It cannot be opened, or is of another kind.
pub fn open(path: &Path) -> io::Result<Input> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let kind = file.metadata()?.file_type();
    let is_pipe = kind.is_fifo();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() && !is_pipe && !is_standard_input(&file) {
        return Err(io::Error::other("neither a file nor a pipe"));
    }
    Ok(Input { file, path: path.into(), is_pipe, is_blocking: false, is_begun: false, is_said: false })
}

/// Standard input as it is. Opening `/dev/stdin` anew would fail if another user had opened it, as under `su` or `sudo -u`.
///
/// # Errors
/// It is closed, or is of another kind.
pub fn standard() -> io::Result<Input> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    if file.metadata()?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // A pipe without a writer is at its end: whoever began this program had a writer for it.
    let path = "standard input".into();
    Ok(Input { file, path, is_pipe: false, is_blocking: true, is_begun: false, is_said: false })
}

/// Whether it is the very thing that standard input is, a terminal for instance.
fn is_standard_input(file: &File) -> bool {
    let same = || {
        let input = rustix::fs::fstat(io::stdin()).ok()?;
        let metadata = file.metadata().ok()?;
        Some((input.st_dev, input.st_ino) == (metadata.dev(), metadata.ino()))
    };
    same().unwrap_or(false)
}

/// What has been opened; reading it waits for its writer, and says so.
#[derive(Debug)]
pub struct Input {
    file: File,
    path: PathBuf,
    is_pipe: bool,
    /// Reading it waits without a word.
    is_blocking: bool,
    /// Something has been read.
    is_begun: bool,
    /// The user knows what is waited for.
    is_said: bool,
}

impl Input {
    /// Whether a pipe at its end is one that nobody has written into since it was opened. One whose writer came and went
    /// has hung up.
    fn has_no_writer(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let hung_up = poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP);
        self.is_pipe && !self.is_begun && !hung_up
    }

    /// Waits until there is something to read, or the writer has gone.
    fn wait(&mut self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        let silence = Timespec { tv_sec: SILENCE_S, tv_nsec: 0 };
        let limit = (!self.is_said).then_some(&silence);
        match poll(&mut polled, limit) {
            Ok(0) => {
                self.is_said = true;
                let path = self.path.display();
                output::say(&format!("reprieve: {path}: waiting for its writer, which says nothing"));
                Ok(())
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_blocking && !self.is_said {
            self.wait()?;
        }
        loop {
            match self.file.read(into) {
                Ok(0) if !into.is_empty() && self.has_no_writer() => {
                    let problem = "a FIFO that nobody writes into; start its writer first";
                    return Err(io::Error::other(problem));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                read => {
                    self.is_begun |= matches!(read, Ok(1..));
                    return read;
                }
            }
        }
    }
}
