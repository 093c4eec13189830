//! Bursts: on each of the guest's pCPUs a real-time thread takes the pCPU for part of every period, the pCPUs in turn. The
//! times are known beforehand, and hold to a fraction of a millisecond; CPU quotas would have no phase that can be set.
//!
//! The vCPUs are ordinary threads and have to wait. QEMU's other threads, which serve devices and timers, get a higher
//! real-time priority than the bursts, and do not wait.
//!
//! Invariant: no burst outlives its owner: it is a thread of this process, and ends within a millisecond of its stop flag.
//!
//! Source: sched(7).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use reprieve_linux::clock::{now_ns, sleep_until};
use reprieve_linux::threads::{self, FifoGuard};
use reprieve_study::scenario::Bursts;
use reprieve_study::units::MILLISECOND_NS;
use reprieve_study::{Span, statistics};

use crate::{Result, VmError};

/// Priority of the bursts: above everything that is not real-time.
const PRIORITY: u8 = 1;
/// Priority of QEMU's threads that are not vCPUs: above the bursts.
const DEVICES: u8 = 2;

/// When bursts happen.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Seed of the jitter.
    pub seed: u64,
    /// When the first period begins, ns of the host's CLOCK_MONOTONIC.
    pub epoch_ns: u64,
}

impl Timing {
    /// The first period begins now.
    pub fn from_now(seed: u64) -> Timing {
        Timing { seed, epoch_ns: now_ns() }
    }
}

/// The endless bursts of one pCPU, or none if it is spared: when each begins and ends, ns from the epoch.
#[derive(Clone, Debug)]
pub struct Spans {
    spared: bool,
    bursts: Bursts,
    next_ns: u64,
    rng: ChaCha8Rng,
}

impl Spans {
    /// The bursts of pCPU number `index` of `pcpus`.
    pub fn new(bursts: Bursts, index: usize, pcpus: usize, seed: u64) -> Spans {
        let every_ns = bursts.every_ms * MILLISECOND_NS;
        let phase_ns = every_ns * index as u64 / pcpus.max(1) as u64;
        // Jitter may bring the first burst forward, but not to before the epoch.
        let next_ns = phase_ns + bursts.jitter_ms * MILLISECOND_NS;
        let spared = bursts.vcpu.is_some_and(|vcpu| vcpu % pcpus.max(1) != index);
        Spans { spared, bursts, next_ns, rng: statistics::stream(seed, &format!("bursts of pCPU {index}")) }
    }
}

impl Iterator for Spans {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        if self.spared {
            return None;
        }
        let jitter_ns = self.bursts.jitter_ms * MILLISECOND_NS;
        let begin_ns = match jitter_ns {
            0 => self.next_ns,
            _ => self.next_ns - jitter_ns + self.rng.random_range(0..=2 * jitter_ns),
        };
        self.next_ns += self.bursts.every_ms * MILLISECOND_NS;
        Some(Span::new(begin_ns, begin_ns + self.bursts.for_ms * MILLISECOND_NS))
    }
}

/// Bursts in force. Dropping them ends them.
pub struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a thread for each pCPU.
    ///
    /// # Errors
    /// Real-time threads that are not permitted.
    pub fn start(bursts: Bursts, pcpus: &[usize], timing: Timing) -> Result<Running> {
        let mut running = Running { stop: Arc::default(), threads: Vec::new() };
        for (index, pcpu) in pcpus.iter().copied().enumerate() {
            let spans = Spans::new(bursts, index, pcpus.len(), timing.seed);
            let (stop, (ready, is_ready)) = (Arc::clone(&running.stop), mpsc::channel());
            let body = move || match prepare(pcpu) {
                Ok(_guard) => {
                    // Fails only if the owner has given up and no longer listens.
                    let _ = ready.send(Ok(()));
                    burn(spans, timing.epoch_ns, &stop);
                }
                Err(error) => drop(ready.send(Err(error))),
            };
            let thread = std::thread::Builder::new().name(format!("burst {pcpu}"));
            running.threads.push(thread.spawn(body).map_err(VmError::io("starting a burst's thread"))?);
            let said = is_ready.recv().unwrap_or(Err(VmError::Interrupted));
            said?;
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Relaxed: the flag orders no other memory access.
        self.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has ended as well.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Whether real-time threads are permitted here.
///
/// # Errors
/// Why they are not, and the way out.
pub fn try_permission() -> Result<()> {
    let tried = std::thread::spawn(|| FifoGuard::raise(PRIORITY).map(drop)).join();
    tried.unwrap_or(Ok(())).map_err(VmError::from)
}

/// Gives QEMU's threads that are not vCPUs real-time priority, so that bursts do not delay devices and timers.
pub fn raise(tids: &[i32]) -> Result<Vec<FifoGuard>> {
    Ok(tids.iter().map(|tid| FifoGuard::raise_thread(*tid, DEVICES)).collect::<Result<_, _>>()?)
}

fn prepare(pcpu: usize) -> Result<FifoGuard> {
    threads::set_affinity(threads::own_tid(), &[pcpu])?;
    Ok(FifoGuard::raise(PRIORITY)?)
}

fn burn(spans: Spans, epoch_ns: u64, stop: &AtomicBool) {
    for span in spans {
        sleep_until(epoch_ns + span.start_ns);
        // No pause instruction: if this host is itself a VM, its hypervisor would deschedule a vCPU that pauses.
        while now_ns() < epoch_ns + span.end_ns {
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Bursts = Bursts { for_ms: 25, every_ms: 60, jitter_ms: 0, vcpu: None };
    const MS: u64 = MILLISECOND_NS;

    fn spans(bursts: Bursts, index: usize, seed: u64) -> Vec<Span> {
        Spans::new(bursts, index, 2, seed).take(1000).collect()
    }

    #[test]
    fn two_pcpus_are_taken_in_antiphase() {
        let (first, second) = (spans(PLAIN, 0, 1), spans(PLAIN, 1, 1));
        assert_eq!(first[..2], [Span::new(0, 25 * MS), Span::new(60 * MS, 85 * MS)]);
        assert_eq!(second[..2], [Span::new(30 * MS, 55 * MS), Span::new(90 * MS, 115 * MS)]);
        assert_eq!(first, spans(PLAIN, 0, 2), "without jitter the seed has no effect");
    }

    #[test]
    fn a_pcpu_that_is_spared_has_no_bursts() {
        let second = Bursts { vcpu: Some(1), ..PLAIN };
        assert_eq!(spans(second, 0, 1), []);
        assert_eq!(spans(second, 1, 1), spans(PLAIN, 1, 1));
        // The fourth of four vCPUs on two pCPUs runs on the second one, too.
        assert_eq!(spans(Bursts { vcpu: Some(3), ..PLAIN }, 1, 1), spans(PLAIN, 1, 1));
    }

    #[test]
    fn jitter_follows_from_the_seed_and_fills_its_bounds() {
        let bursts = Bursts { jitter_ms: 10, ..PLAIN };
        let of = |index, seed| spans(bursts, index, seed);
        assert_eq!(of(1, 7), of(1, 7));
        assert_ne!(of(1, 7), of(1, 8));
        assert_ne!(of(0, 7)[0].start_ns + 30 * MS, of(1, 7)[0].start_ns, "each pCPU has its own");
        let offsets: Vec<i64> = (0i64..)
            .zip(of(1, 7))
            .map(|(n, span)| span.start_ns as i64 - (40 + 60 * n) * MS as i64)
            .collect();
        let (least, most) = (offsets.iter().min().unwrap(), offsets.iter().max().unwrap());
        assert!(*least >= -10 * MS as i64 && *least < -9 * MS as i64, "{least}");
        assert!(*most <= 10 * MS as i64 && *most > 9 * MS as i64, "{most}");
        assert!(of(0, 7).windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns));
    }

    #[test]
    fn bursts_end_with_their_owner_and_leave_no_thread() {
        if let Err(error) = try_permission() {
            eprintln!("skipped: {error}");
            return;
        }
        let bursts = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names =
                tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
            names.filter(|name| name.starts_with("burst ")).count()
        };
        let pcpu = reprieve_linux::proc::allowed_cpus().unwrap()[0];
        let long = Bursts { for_ms: 900, every_ms: 1000, ..PLAIN };
        let running = Running::start(long, &[pcpu], Timing::from_now(1)).unwrap();
        assert_eq!(bursts(), 1);
        drop(running);
        assert_eq!(bursts(), 0);
    }
}
