//! Run time and run delay of one thread: `/proc/PID/task/TID/schedstat`.
//!
//! The file holds three numbers: ns on a CPU, ns runnable but waiting, number of switches in. The kernel adds the delay
//! only at the next switch in, so a thread's current wait does not show. The run time of a running thread advances only
//! at ticks and switches. Source: the kernel's Documentation/scheduler/sched-stats.rst.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::ProcRoot;
use crate::{Error, Result};

/// Three u64 in decimal, two spaces and a newline need 63 bytes.
const SCHEDSTAT_BYTES: usize = 64;

const WAY_OUT: &str = "run as the user who owns the process, or as root";
const EXPECTED: &str = "three decimal numbers (needs CONFIG_SCHED_INFO)";

/// The scheduler's statistics of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU, ns.
    pub run_ns: u64,
    /// Time runnable but not on a CPU, ns; added at each switch in.
    pub delay_ns: u64,
    /// Number of switches in.
    pub slices: u64,
}

impl ProcRoot {
    /// Reads the statistics of thread `tid` of process `pid` once.
    pub fn schedstat(&self, pid: i32, tid: i32) -> Result<SchedStat> {
        SchedStatReader::open(self, pid, tid)?.read()
    }
}

/// Reads one thread's [`SchedStat`] repeatedly. The file stays open, and reads allocate nothing.
///
/// A read takes less than 1 us (Linux 6.18 in a virtual machine), fast enough for 1 kHz. The open file belongs to the
/// thread, not to its number: once the thread has ended, reads fail with [`Error::Gone`] even if another thread has the
/// number.
#[derive(Debug)]
pub struct SchedStatReader {
    file: File,
    path: PathBuf,
}

impl SchedStatReader {
    /// Opens the file of thread `tid` of process `pid`.
    pub fn open(root: &ProcRoot, pid: i32, tid: i32) -> Result<SchedStatReader> {
        let path = root.join(format!("{pid}/task/{tid}/schedstat"));
        let file = File::open(&path).map_err(|e| Error::task("open", &path, e, WAY_OUT))?;
        Ok(SchedStatReader { file, path })
    }

    /// Reads the current numbers. Allocates only to report an error.
    pub fn read(&self) -> Result<SchedStat> {
        let mut buffer = [0u8; SCHEDSTAT_BYTES];
        let length =
            self.file.read_at(&mut buffer, 0).map_err(|e| Error::task("read", &self.path, e, WAY_OUT))?;
        parse(&buffer[..length]).ok_or_else(|| {
            Error::malformed(&self.path, EXPECTED, &String::from_utf8_lossy(&buffer[..length]))
        })
    }
}

fn parse(bytes: &[u8]) -> Option<SchedStat> {
    let mut fields = std::str::from_utf8(bytes).ok()?.split_ascii_whitespace().map(str::parse);
    let mut next = || fields.next()?.ok();
    Some(SchedStat { run_ns: next()?, delay_ns: next()?, slices: next()? })
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    #[test]
    fn three_numbers() {
        let proc = FakeProc::new();
        proc.put("7/task/8/schedstat", "1500000 20 3\n");
        let expected = SchedStat { run_ns: 1_500_000, delay_ns: 20, slices: 3 };
        assert_eq!(proc.root.schedstat(7, 8).unwrap(), expected);
    }

    #[test]
    fn the_widest_line_fits() {
        let line = format!("{0} {0} {0}\n", u64::MAX);
        assert!(line.len() <= SCHEDSTAT_BYTES);
        assert_eq!(parse(line.as_bytes()).unwrap().slices, u64::MAX);
    }

    #[test]
    fn a_reader_sees_changes() {
        let proc = FakeProc::new();
        proc.put("7/task/8/schedstat", "1 2 3\n");
        let reader = SchedStatReader::open(&proc.root, 7, 8).unwrap();
        assert_eq!(reader.read().unwrap().run_ns, 1);
        proc.put("7/task/8/schedstat", "9 2 3\n");
        assert_eq!(reader.read().unwrap().run_ns, 9);
    }

    #[test]
    fn errors_tell_gone_from_malformed() {
        let proc = FakeProc::new();
        assert!(proc.root.schedstat(1, 1).unwrap_err().is_gone());
        proc.put("1/task/1/schedstat", "1 2\n");
        assert!(matches!(proc.root.schedstat(1, 1).unwrap_err(), Error::Malformed { .. }));
    }

    #[test]
    fn a_live_thread_that_ends_is_gone() {
        let (send_tid, tid) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send_tid.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = stopped.recv();
        });
        let pid = std::process::id() as i32;
        let reader = SchedStatReader::open(&ProcRoot::default(), pid, tid.recv().unwrap()).unwrap();
        assert!(reader.read().unwrap().slices > 0);
        drop(stop);
        thread.join().unwrap();
        // `join` returns a moment before the kernel has removed the thread.
        let ended = (0..1_000_000).any(|_| matches!(reader.read(), Err(e) if e.is_gone()));
        assert!(ended);
    }
}
