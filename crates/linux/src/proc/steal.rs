//! Reads the steal of each CPU repeatedly, and drops impossible values.
//!
//! The hypervisor passes steal to the kernel through shared memory, and some hosts get it wrong: after a live migration
//! it falls, or leaps by years. If a reading fell, or grew by more than the time that passed, its growth is dropped,
//! and growth counts from that reading on. Steal is printed in ticks of 1/USER_HZ s, mostly 10 ms, so anything shorter
//! than a tick does not show. Source: proc_stat(5); the kernel's Documentation/virt/kvm/x86/msr.rst
//! (MSR_KVM_STEAL_TIME).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::system::{cpu_ticks, is_cpu_line};
use super::{ProcRoot, WAY_OUT_SYSTEM, tick_ns};
use crate::{Error, Result};

/// The most bytes read from `/proc/stat`: the lines of CPUs come first, 4096 of them at 60 bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// The place of steal among the numbers of a CPU's line.
const STEAL: usize = 7;

/// The steal of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Value and time of the last reading, ns.
    last: Option<(u64, u64)>,
    /// The sum of all plausible growth, ns.
    believed_ns: u64,
}

/// Reads steal. The file stays open, and nothing is allocated after [`StealReader::open`].
#[derive(Debug)]
pub struct StealReader {
    file: File,
    path: PathBuf,
    buffer: Box<[u8]>,
    accounts: Vec<Account>,
    ns_per_tick: u64,
}

impl StealReader {
    /// Opens `/proc/stat` for CPUs 0 to `cpus` - 1.
    pub fn open(root: &ProcRoot, cpus: usize) -> Result<StealReader> {
        let path = root.join("stat");
        let file = File::open(&path).map_err(|e| Error::io("open", &path, e, WAY_OUT_SYSTEM))?;
        Ok(StealReader {
            file,
            path,
            buffer: vec![0; BUFFER_BYTES].into(),
            accounts: vec![Account::default(); cpus],
            ns_per_tick: tick_ns(),
        })
    }

    /// Reads all CPUs at `now_ns`, by any monotonic clock. CPUs that are offline keep their value.
    pub fn read(&mut self, now_ns: u64) -> Result<()> {
        let mut length = 0;
        // The kernel returns about a page at a time.
        while length < self.buffer.len() {
            let read = self.file.read_at(&mut self.buffer[length..], length as u64);
            let read = read.map_err(|e| Error::io("read", &self.path, e, WAY_OUT_SYSTEM))?;
            length += read;
            // The lines of CPUs come first, so they are complete once any other line follows.
            if read == 0 || has_other_line(&self.buffer[..length]) {
                break;
            }
        }
        let StealReader { buffer, accounts, ns_per_tick, .. } = self;
        for line in buffer[..length].split(|byte| *byte == b'\n') {
            let Some((cpu, ticks)) = parse(line) else { continue };
            let Some(account) = accounts.get_mut(cpu) else { continue };
            account.take(ticks.saturating_mul(*ns_per_tick), now_ns, *ns_per_tick);
        }
        Ok(())
    }

    /// The plausible steal of a CPU since the first reading, ns; `None` before that.
    pub fn steal_ns(&self, cpu: usize) -> Option<u64> {
        let account = self.accounts.get(cpu)?;
        account.last.map(|_| account.believed_ns)
    }
}

impl Account {
    /// Takes in a reading.
    fn take(&mut self, steal_ns: u64, now_ns: u64, ns_per_tick: u64) {
        let Some((before_ns, then_ns)) = self.last.replace((steal_ns, now_ns)) else { return };
        // Both readings are rounded down to ticks, so growth may seem larger by one tick.
        let most_ns = now_ns.saturating_sub(then_ns).saturating_add(ns_per_tick);
        let grown_ns = steal_ns.checked_sub(before_ns).filter(|grown_ns| *grown_ns <= most_ns);
        self.believed_ns += grown_ns.unwrap_or(0);
    }
}

fn has_other_line(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| line.len() >= 3 && !line.starts_with(b"cpu"))
}

/// The CPU and its steal in ticks, if the line is that of one CPU.
fn parse(line: &[u8]) -> Option<(usize, u64)> {
    let line = std::str::from_utf8(line).ok().filter(|line| is_cpu_line(line))?;
    cpu_ticks(line).map(|(cpu, ticks)| (cpu, ticks[STEAL]))
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    fn stat(steal: [u64; 2]) -> String {
        let all = steal[0] + steal[1];
        format!(
            "cpu  1 2 3 4 5 6 7 {all} 0 0\ncpu0 1 2 3 4 5 6 7 {} 0 0\ncpu1 1 2 3 4 5 6 7 {} 0 0\nintr 5 6\n",
            steal[0], steal[1]
        )
    }

    #[test]
    fn steal_is_read_for_each_cpu() {
        let proc = FakeProc::new();
        proc.put("stat", &stat([100, 7]));
        let mut reader = StealReader::open(&proc.root, 2).unwrap();
        assert_eq!(reader.steal_ns(0), None);
        reader.read(0).unwrap();
        proc.put("stat", &stat([103, 7]));
        reader.read(10 * tick_ns()).unwrap();
        assert_eq!((reader.steal_ns(0), reader.steal_ns(1)), (Some(3 * tick_ns()), Some(0)));
        assert_eq!(reader.steal_ns(2), None);
    }

    #[test]
    fn growth_of_steal_that_falls_or_leaps_is_dropped() {
        let proc = FakeProc::new();
        proc.put("stat", &stat([100, 100]));
        let mut reader = StealReader::open(&proc.root, 2).unwrap();
        reader.read(0).unwrap();
        proc.put("stat", &stat([50, 1_000_000]));
        reader.read(10 * tick_ns()).unwrap();
        assert_eq!((reader.steal_ns(0), reader.steal_ns(1)), (Some(0), Some(0)));
        proc.put("stat", &stat([52, 1_000_001]));
        reader.read(20 * tick_ns()).unwrap();
        let expected = (Some(2 * tick_ns()), Some(tick_ns()));
        assert_eq!((reader.steal_ns(0), reader.steal_ns(1)), expected);
    }

    #[test]
    fn growth_is_dropped_if_the_clock_goes_back() {
        let proc = FakeProc::new();
        proc.put("stat", &stat([100, 0]));
        let mut reader = StealReader::open(&proc.root, 2).unwrap();
        reader.read(100 * tick_ns()).unwrap();
        proc.put("stat", &stat([150, 0]));
        reader.read(tick_ns()).unwrap();
        assert_eq!(reader.steal_ns(0), Some(0));
    }

    #[test]
    fn a_thousand_cpus_and_broken_lines_are_read() {
        let proc = FakeProc::new();
        let mut text = "cpu  1\ncpu\ncpux 1 2 3 4 5 6 7 8\ncpu5 1 2\n".to_string();
        (0..1000).for_each(|cpu| text.push_str(&format!("cpu{cpu} 1 2 3 4 5 6 7 {cpu} 0 0\n")));
        proc.put("stat", &text);
        let mut reader = StealReader::open(&proc.root, 1024).unwrap();
        reader.read(0).unwrap();
        assert_eq!((reader.steal_ns(999), reader.steal_ns(1000)), (Some(0), None));
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut reader = StealReader::open(&ProcRoot::default(), 1).unwrap();
        reader.read(0).unwrap();
        assert!(reader.steal_ns(0).is_some());
    }
}
