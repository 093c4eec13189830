//! Pauses: stops a vCPU's thread at a given time after the window's start, for a given time. The guest does not notice, and
//! its other vCPUs run on until they wait for the stopped one.
//!
//! Invariant: no pause outlives its owner or this process: see [`Stopped`].

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reprieve_linux::threads::Stopped;
use reprieve_study::scenario::Pause;

use crate::Result;

/// The pauses of one run.
pub struct Pauses {
    /// One thread for each pause: only the thread that stopped a vCPU can let it go on.
    threads: Vec<JoinHandle<()>>,
    /// Dropping these ends the threads.
    stop: Vec<Sender<()>>,
}

impl Pauses {
    /// Stops the vCPUs that run as these threads, at the pauses' times counted from `start`.
    ///
    /// # Errors
    /// The kernel does not permit it. This is tried before any pause begins.
    pub fn start(pauses: &[Pause], vcpu_tids: &[i32], start: Instant) -> Result<Self> {
        let mut running = Self { threads: Vec::new(), stop: Vec::new() };
        // The check of the scenario made sure that every pause names an existing vCPU.
        let tids: Vec<i32> = pauses.iter().map(|pause| vcpu_tids[pause.vcpu]).collect();
        for &tid in &tids {
            drop(Stopped::stop(tid)?);
        }
        for (pause, tid) in pauses.iter().zip(tids) {
            let (stop, stopped) = mpsc::channel::<()>();
            let begin = start + Duration::from_millis(pause.at_ms);
            let end = begin + Duration::from_millis(pause.for_ms);
            let over = move |at: Instant| {
                let left = at.saturating_duration_since(Instant::now());
                stopped.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
            };
            let run = move || {
                // If the guest has ended meanwhile, the caller notices: it waits for the guest.
                let _pause = over(begin).then(|| Stopped::stop(tid));
                over(end);
            };
            running.threads.push(std::thread::spawn(run));
            running.stop.push(stop);
        }
        Ok(running)
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn is_stopped(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('t')
    }

    #[test]
    fn a_pause_begins_and_ends_at_its_times_or_with_its_owner() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (tids, start) = ([busy.id() as i32], Instant::now());
        let pause = |at_ms, for_ms| [Pause { vcpu: 0, at_ms, for_ms }];
        let pauses = Pauses::start(&pause(50, 100), &tids, start).unwrap();
        while !is_stopped(busy.id()) {
            std::thread::yield_now();
        }
        assert!(start.elapsed() >= Duration::from_millis(50));
        while is_stopped(busy.id()) {
            std::thread::yield_now();
        }
        assert!(start.elapsed() >= Duration::from_millis(150));
        drop(pauses);
        let pauses = Pauses::start(&pause(0, 3_600_000), &tids, Instant::now()).unwrap();
        while !is_stopped(busy.id()) {
            std::thread::yield_now();
        }
        drop(pauses);
        assert!(!is_stopped(busy.id()));
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(Pauses::start(&pause(0, 1), &tids, Instant::now()).is_err());
    }
}
