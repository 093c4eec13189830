//! Beats without privileges: a thread pinned to each vCPU wakes at a steady rate, and notes when it was late.
//!
//! With the right to real-time priority the guest's own tasks hardly delay it; without, its run delay tells those times from
//! the ones at which the vCPU was off. Steal is not needed. The judgement of single beats is [`reprieve_policy::beat`]'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use reprieve_policy::SECOND_NS;
use reprieve_policy::beat::{Beat, Gap, News, READ_EVERY, Vcpu, Verdict, grain_ns};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::proc::{ProcRoot, SchedStatReader};
use crate::threads::{self, FifoGuard};
use crate::{Error, Result, clock};

/// The real-time priority, if there is the right to it.
const PRIORITY: u8 = 2;
/// Late beats that wait to be taken, of each vCPU: eight seconds of a vCPU that goes off every 2 ms.
const MOST_GAPS: usize = 4_096;
/// Time between two attempts to return to a CPU that went offline, ns.
const OFFLINE_NS: u64 = SECOND_NS;

/// How often it is looked whether a thread has ended, ns.
const LOOK_NS: u64 = 1_000_000;

/// What a beat thread tells, beside gaps. Each value stands for itself, so all are read and written relaxed.
#[derive(Debug, Default)]
struct Told {
    beats: AtomicU64,
    /// Gaps that found no room.
    lost: AtomicU64,
    real_time: AtomicBool,
    /// The thread; 0 before it has begun.
    tid: AtomicI32,
}

/// Orders to all beat threads.
#[derive(Debug)]
struct Orders {
    stop: AtomicBool,
    period_ns: AtomicU64,
}

/// One vCPU, as the collector sees it.
#[derive(Debug)]
pub(super) struct VcpuBeats {
    /// Its number.
    pub cpu: usize,
    gaps: Consumer<Gap>,
    told: Arc<Told>,
    thread: Option<JoinHandle<()>>,
}

impl VcpuBeats {
    /// Takes the gaps that ended since the last call.
    pub fn gaps(&mut self) -> impl Iterator<Item = Gap> + '_ {
        std::iter::from_fn(|| self.gaps.pop().ok())
    }

    /// Takes the number of beats since the last call.
    pub fn take_beats(&self) -> u64 {
        self.told.beats.swap(0, Ordering::Relaxed)
    }

    /// Takes the number of gaps since the last call that found no room.
    pub fn take_lost(&self) -> u64 {
        self.told.lost.swap(0, Ordering::Relaxed)
    }

    /// Whether the thread has real-time priority.
    pub fn is_real_time(&self) -> bool {
        self.told.real_time.load(Ordering::Relaxed)
    }
}

/// Threads that beat until this is dropped.
#[derive(Debug)]
pub(super) struct Beats {
    orders: Arc<Orders>,
    /// A vCPU each.
    pub vcpus: Vec<VcpuBeats>,
}

impl Beats {
    /// Starts to beat on these CPUs, once in `period_ns`. The threads allocate nothing after their start.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no further thread.
    pub fn begin(root: &ProcRoot, cpus: &[usize], period_ns: u64) -> Result<Beats> {
        let orders = Arc::new(Orders { stop: AtomicBool::new(false), period_ns: AtomicU64::new(period_ns) });
        let mut beats = Beats { orders: orders.clone(), vcpus: Vec::new() };
        for &cpu in cpus {
            let (root, orders) = (root.clone(), orders.clone());
            let (producer, gaps) = RingBuffer::new(MOST_GAPS);
            let told = Arc::new(Told::default());
            let theirs = told.clone();
            let thread = std::thread::Builder::new().name(format!("beat-{cpu}"));
            let thread =
                thread.spawn(move || BeatThread { cpu, orders, told: theirs, gaps: producer }.run(&root));
            let way_out = "raise the limit of processes (ulimit -u, or pids.max of the cgroup)";
            let thread = thread.map_err(|e| Error::io("start a thread for", root_of(cpu), e, way_out))?;
            beats.vcpus.push(VcpuBeats { cpu, gaps, told, thread: Some(thread) });
        }
        Ok(beats)
    }

    /// Beats at another rate from the next beats on.
    pub fn set_period_ns(&self, period_ns: u64) {
        self.orders.period_ns.store(period_ns, Ordering::Relaxed);
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Relaxed);
        for vcpu in &mut self.vcpus {
            let Some(thread) = vcpu.thread.take() else { continue };
            // Where a real-time task has the CPU, the thread there would never run, and not even the process could end. So it is moved
            // to a CPU that surely runs something: this one. Again and again, for it may just be about to pin itself.
            while !thread.is_finished() {
                match vcpu.told.tid.load(Ordering::Relaxed) {
                    0 => {}
                    tid => drop(threads::set_affinity(tid, &[rustix::thread::sched_getcpu()])),
                }
                clock::sleep_until(clock::now_ns() + LOOK_NS);
            }
            drop(thread.join());
        }
    }
}

/// The CPU's directory, to name it in an error.
fn root_of(cpu: usize) -> std::path::PathBuf {
    format!("/sys/devices/system/cpu/cpu{cpu}").into()
}

struct BeatThread {
    cpu: usize,
    orders: Arc<Orders>,
    told: Arc<Told>,
    gaps: Producer<Gap>,
}

impl BeatThread {
    /// Beats until it is told to stop.
    fn run(mut self, root: &ProcRoot) {
        // Without the right to it beats are later, and the run delay says so.
        let raised = FifoGuard::raise(PRIORITY);
        self.told.real_time.store(raised.is_ok(), Ordering::Relaxed);
        let _ = threads::set_timer_slack_ns(1);
        let tid = threads::own_tid();
        self.told.tid.store(tid, Ordering::Relaxed);
        let delay = SchedStatReader::open(root, std::process::id() as i32, tid).ok();
        let (mut vcpu, mut beats) = (Vcpu::default(), 0u64);
        let mut pinned = threads::set_affinity(tid, &[self.cpu]).is_ok();
        let mut period_ns = self.orders.period_ns.load(Ordering::Relaxed);
        let mut due_ns = clock::now_ns() + period_ns;
        while !self.orders.stop.load(Ordering::Relaxed) {
            clock::sleep_until(due_ns);
            // It may run only because it was moved away from its CPU to end: see `Beats::drop`.
            if self.orders.stop.load(Ordering::Relaxed) {
                break;
            }
            let at_ns = clock::now_ns();
            // If the CPU goes offline, the kernel moves the thread away, and a beat would count for the wrong vCPU.
            if !pinned || rustix::thread::sched_getcpu() != self.cpu {
                pinned = threads::set_affinity(tid, &[self.cpu]).is_ok();
                (due_ns, vcpu) = (at_ns + if pinned { period_ns } else { OFFLINE_NS }, Vcpu::default());
                continue;
            }
            let is_read = at_ns.saturating_sub(due_ns) > grain_ns(period_ns)
                || beats.is_multiple_of(u64::from(READ_EVERY));
            beats += 1;
            let run_delay_ns =
                delay.as_ref().filter(|_| is_read).and_then(|delay| Some(delay.read().ok()?.delay_ns));
            let beat = Beat { vcpu: self.cpu, due_ns, at_ns, period_ns, steal_ns: None, run_delay_ns };
            self.tell(vcpu.beat(&beat), &beat);
            let ordered_ns = self.orders.period_ns.load(Ordering::Relaxed);
            if ordered_ns != period_ns {
                // What is usual at one rate is not at another.
                (period_ns, vcpu) = (ordered_ns, Vcpu::default());
            }
            due_ns = at_ns + period_ns;
        }
    }

    fn tell(&mut self, news: News, beat: &Beat) {
        self.told.beats.fetch_add(1, Ordering::Relaxed);
        let gap = match news {
            News::Back(gap) => gap,
            // Too long for a scheduler: the machine stood still.
            News::ClockFault if beat.at_ns > beat.due_ns => Gap {
                vcpu: self.cpu,
                last_beat_ns: beat.due_ns.saturating_sub(beat.period_ns),
                back_ns: beat.at_ns,
                late_ns: beat.lateness_ns(),
                ordinary_late_ns: 0,
                verdict: Verdict::Unknown,
            },
            _ => return,
        };
        if self.gaps.push(gap).is_err() {
            self.told.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::allowed_cpus;
    use std::time::{Duration, Instant};

    #[test]
    fn beats_end_although_a_real_time_task_has_their_cpu() {
        let cpus = allowed_cpus().unwrap();
        // With one CPU alone the thread that ends the beats could not run either.
        if cpus.len() < 2 {
            return eprintln!("skipped: there is one CPU alone");
        }
        let cpu = cpus[0];
        let over = Arc::new(AtomicBool::new(false));
        let theirs = over.clone();
        let hog = std::thread::spawn(move || {
            let began = Instant::now();
            let raised = FifoGuard::raise(PRIORITY + 1);
            let is_alone = raised.is_ok() && threads::set_affinity(threads::own_tid(), &[cpu]).is_ok();
            while is_alone && !theirs.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(5) {}
            is_alone
        });
        std::thread::sleep(Duration::from_millis(20));
        let beats = Beats::begin(&ProcRoot::default(), &cpus[..2], SECOND_NS / 1_000).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        drop(beats);
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        if !hog.join().unwrap() {
            return eprintln!("skipped: no right to real-time priority");
        }
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}
