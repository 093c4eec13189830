//! What the kernel logs while we watch: new records of `/dev/kmsg`, never waited for.
//!
//! Reading takes nothing away from other readers. Source: the kernel's Documentation/ABI/testing/dev-kmsg.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use reprieve_policy::kernel_log::{self, Kind};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The longest record; the kernel refuses shorter buffers.
const RECORD_BYTES: usize = 8192;
/// The most bytes of a record's text that are kept; what matters stands at the begin.
const TEXT_BYTES: usize = 500;
/// The most records of one look. A kernel that logs more hides its own complaints.
const MOST_RECORDS: usize = 2000;

/// Complaints in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Complaints {
    pub stalls: u64,
    pub lockups: u64,
}

/// The end of the kernel's log.
#[derive(Debug)]
pub(super) struct KernelMessages {
    file: File,
    record: Box<[u8]>,
    text: String,
}

impl KernelMessages {
    /// Begins at the end of the log.
    ///
    /// # Errors
    /// The log is not there, or not for this user.
    pub fn open(path: &Path) -> std::io::Result<KernelMessages> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        seek(&file, SeekFrom::End(0))?;
        Ok(KernelMessages { file, record: vec![0; RECORD_BYTES].into(), text: String::new() })
    }

    /// What was logged since the last look.
    pub fn look(&mut self) -> Complaints {
        self.text.clear();
        for _ in 0..MOST_RECORDS {
            match self.file.read(&mut self.record) {
                Ok(0) => break,
                Ok(length) => add_line(&self.record[..length], &mut self.text),
                // The records that came next were overwritten.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
                Err(_) => break,
            }
        }
        complaints(&self.text)
    }
}

fn complaints(text: &str) -> Complaints {
    let mut all = Complaints::default();
    // Mostly the kernel says nothing, and nothing is allocated.
    for event in if text.is_empty() { Vec::new() } else { kernel_log::events(text) } {
        match event.kind {
            Kind::Stall { .. } => all.stalls += 1,
            Kind::SoftLockup { .. } => all.lockups += 1,
            _ => {}
        }
    }
    all
}

/// Adds a record, `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`, as a line of `dmesg`. Lines with more about it follow, and are left
/// out. Flags and unknown fields may follow the time. Priorities from 8 on are not the kernel's own: anybody may write those.
fn add_line(record: &[u8], to: &mut String) {
    let Some(at) = record.iter().position(|byte| *byte == b';') else { return };
    let mut fields = record[..at].split(|byte| *byte == b',').map(|field| std::str::from_utf8(field).ok());
    let mut next = || fields.next()??.parse::<u64>().ok();
    let (Some(0..8), Some(_), Some(time_us)) = (next(), next(), next()) else { return };
    let text = record[at + 1..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES)]);
    // A string takes everything.
    let _ = writeln!(to, "[{}.{:06}] {text}", time_us / 1_000_000, time_us % 1_000_000);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(records: &[&str]) -> String {
        let mut text = String::new();
        records.iter().for_each(|record| add_line(record.as_bytes(), &mut text));
        text
    }

    #[test]
    fn records_become_lines_of_a_log() {
        let long = format!("4,1,2,-;{}", "x".repeat(2 * TEXT_BYTES));
        assert_eq!(lines(&["3,7,1500000,-;words; more\n SUBSYSTEM=x\n"]), "[1.500000] words; more\n");
        assert_eq!(lines(&["12,7,5,-;a user's", "no record", "a,b,c;d", "3,7;few", ""]), "");
        assert_eq!(lines(&[&long]).len(), "[0.000002] \n".len() + TEXT_BYTES);
    }

    #[test]
    fn stalls_and_lockups_are_counted() {
        let said = lines(&[
            "3,1,9,-;rcu: INFO: rcu_sched self-detected stall on CPU",
            "3,2,9,-;rcu: \t1-....: (5249 ticks this GP) idle=a1b/1/0x1 softirq=1/1 fqs=2617",
            "0,3,9,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]",
            "6,4,9,-;eth0: link up",
        ]);
        assert_eq!(complaints(&said), Complaints { stalls: 1, lockups: 1 });
    }

    #[test]
    fn only_what_comes_is_read_and_never_waited_for() {
        let mut messages = match KernelMessages::open(Path::new("/dev/kmsg")) {
            Ok(messages) => messages,
            Err(error) => return eprintln!("skipped: /dev/kmsg: {error}"),
        };
        messages.look();
        let own = std::fs::write("/dev/kmsg", "<12>reprieve: a line of a test");
        if own.is_ok() {
            // Ours is not the kernel's own, so it is read, and left out.
            messages.look();
            assert!(!messages.text.contains("a line of a test"), "{}", messages.text);
        }
    }
}
