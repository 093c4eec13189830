//! Lists of CPUs, and running on them.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use std::str::FromStr;

/// A set of CPUs by number, ascending and not empty, written such as `0`, `0,2` or `0-3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// One CPU of the set: the `n`-th, counted round and round.
    pub fn nth(&self, n: usize) -> Self {
        Self(vec![self.0[n % self.0.len()]])
    }

    /// Runs the calling thread, and threads it starts later, on these CPUs alone.
    ///
    /// # Errors
    ///
    /// Says so when this process may use none of them.
    pub fn run_here(&self) -> Result<(), String> {
        let mut set = CpuSet::new();
        let failed =
            |error| format!("cannot run on the CPUs {:?} ({error}): see nproc, or name others", self.0);
        for &cpu in &self.0 {
            set.set(cpu).map_err(failed)?;
        }
        sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("{part} ends before it begins"));
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cpu) if cpu < CpuSet::count() && text.starts_with(|c: char| c.is_ascii_digit()) => Ok(cpu),
        _ => Err(format!("'{text}' is not a CPU number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        for (text, cpus) in
            [("0", vec![0]), ("0,1", vec![0, 1]), ("0-3", vec![0, 1, 2, 3]), ("4,1-2,2", vec![1, 2, 4])]
        {
            assert_eq!(text.parse(), Ok(Cpus(cpus)), "{text}");
        }
    }

    #[test]
    fn cpus_are_dealt_in_turn() {
        let cpus: Cpus = "1,3".parse().unwrap();
        assert_eq!([0, 1, 2].map(|n| cpus.nth(n).0[0]), [1, 3, 1]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "a", "0,", "1-", "2-1", "-1", "+1", "1024", "0 1"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }
}
