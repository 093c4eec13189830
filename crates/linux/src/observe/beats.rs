//! Beats without privileges: a thread pinned to each vCPU wakes at a steady rate, and notes when it was late.
//!
//! With the right to real-time priority the guest's own tasks hardly delay it; without, its run delay tells those times from
//! the ones at which the vCPU was off. Steal is not needed. The judgement of single beats is [`reprieve_policy::beat`]'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use reprieve_policy::SECOND_NS;
use reprieve_policy::beat::{Beat, Gap, News, READ_EVERY, Vcpu, Verdict, grain_ns};

use crate::proc::{ProcRoot, SchedStatReader};
use crate::threads::{self, FifoGuard};
use crate::{Error, Result, clock};

/// The real-time priority, if there is the right to it.
const PRIORITY: u8 = 2;
/// Late beats kept of each vCPU: a minute of a vCPU that goes off every 2 ms.
const MOST_GAPS: usize = 32_768;
/// Time between two attempts to return to a CPU that went offline, ns.
const OFFLINE_NS: u64 = SECOND_NS;

/// Late beats of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Late {
    /// Its number.
    pub cpu: usize,
    /// Times without beats, in order.
    pub gaps: Vec<Gap>,
    /// Times without beats that found no room.
    pub lost: u64,
    /// All beats.
    pub beats: u64,
    /// Whether the thread had real-time priority.
    pub real_time: bool,
}

/// Threads that beat until [`Beats::end`]. Dropping them ends them, too.
#[derive(Debug)]
pub struct Beats {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Late>>,
}

impl Beats {
    /// Starts to beat on these CPUs, once in `period_ns`. The threads allocate nothing after their start.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no further thread.
    pub fn begin(root: &ProcRoot, cpus: &[usize], period_ns: u64) -> Result<Beats> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut beats = Beats { stop: stop.clone(), threads: Vec::new() };
        for &cpu in cpus {
            let (root, stop) = (root.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("beat-{cpu}"));
            let thread = thread.spawn(move || run(cpu, &root, period_ns, &stop));
            let way_out = "raise the limit of processes (ulimit -u, or pids.max of the cgroup)";
            beats
                .threads
                .push(thread.map_err(|e| Error::io("start a thread for", root_of(cpu), e, way_out))?);
        }
        Ok(beats)
    }

    /// Ends the threads, and returns what they saw, a vCPU each.
    pub fn end(mut self) -> Vec<Late> {
        self.stop.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.threads).into_iter().filter_map(|thread| thread.join().ok()).collect()
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The CPU's directory, to name it in an error.
fn root_of(cpu: usize) -> std::path::PathBuf {
    format!("/sys/devices/system/cpu/cpu{cpu}").into()
}

/// Beats on one CPU.
fn run(cpu: usize, root: &ProcRoot, period_ns: u64, stop: &AtomicBool) -> Late {
    // Without the right to it beats are later, and the run delay says so.
    let raised = FifoGuard::raise(PRIORITY);
    let _ = threads::set_timer_slack_ns(1);
    let tid = threads::own_tid();
    let delay = SchedStatReader::open(root, std::process::id() as i32, tid).ok();
    let mut late =
        Late { cpu, gaps: Vec::with_capacity(MOST_GAPS), real_time: raised.is_ok(), ..Late::default() };
    let mut vcpu = Vcpu::default();
    let mut pinned = threads::set_affinity(tid, &[cpu]).is_ok();
    let mut due_ns = clock::now_ns() + period_ns;
    while !stop.load(Ordering::Relaxed) {
        clock::sleep_until(due_ns);
        let at_ns = clock::now_ns();
        // If the CPU goes offline, the kernel moves the thread away, and a beat would count for the wrong vCPU.
        if !pinned || rustix::thread::sched_getcpu() != cpu {
            pinned = threads::set_affinity(tid, &[cpu]).is_ok();
            (due_ns, vcpu) = (at_ns + if pinned { period_ns } else { OFFLINE_NS }, Vcpu::default());
            continue;
        }
        let is_read = at_ns.saturating_sub(due_ns) > grain_ns(period_ns)
            || late.beats.is_multiple_of(u64::from(READ_EVERY));
        late.beats += 1;
        let run_delay_ns =
            delay.as_ref().filter(|_| is_read).and_then(|delay| Some(delay.read().ok()?.delay_ns));
        let beat = Beat { vcpu: cpu, due_ns, at_ns, period_ns, steal_ns: None, run_delay_ns };
        let last_beat_ns = due_ns.saturating_sub(period_ns);
        let gap = match vcpu.beat(&beat) {
            News::Back(gap) => Some(gap),
            // Too long for a scheduler: the machine stood still.
            News::ClockFault if at_ns > due_ns => {
                let late_ns = at_ns - due_ns;
                Some(Gap { vcpu: cpu, last_beat_ns, back_ns: at_ns, late_ns, verdict: Verdict::Unknown })
            }
            _ => None,
        };
        if let Some(gap) = gap {
            match late.gaps.len() < MOST_GAPS {
                true => late.gaps.push(gap),
                false => late.lost += 1,
            }
        }
        due_ns = at_ns + period_ns;
    }
    late
}
