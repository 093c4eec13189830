//! In the guest: threads that see by the clock when they run and when not.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Barrier};

use reprieve_linux::clock::now_ns;
use reprieve_sim::sched::machine::spread;
use reprieve_study::units::SECOND_NS;
use rustix::thread::{ClockId, Timespec};

use crate::mixes::{Kind, LEAST_OFF_NS, MIXES, Seen, WARM_UP_NS, WINDOW_NS, Work};

const CGROUPS: &str = "/tmp/cgroups";

/// Runs a mix, and prints what each of its threads saw.
pub fn run(number: usize) -> Result<(), String> {
    let mix = MIXES.get(number).ok_or("no such mix")?;
    prepare().map_err(|error| format!("preparing cgroups: {error}"))?;
    let kinds: Vec<Kind> = mix.kinds.iter().flat_map(|kind| vec![*kind; kind.count]).collect();
    let barrier = Arc::new(Barrier::new(kinds.len()));
    let threads: Vec<_> = kinds
        .into_iter()
        .enumerate()
        .map(|(number, kind)| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || -> io::Result<Seen> {
                become_one(number, kind)?;
                barrier.wait();
                Ok(watch(kind.work, number as u64))
            })
        })
        .collect();
    let seen: io::Result<Vec<Seen>> = threads
        .into_iter()
        .map(|thread| thread.join().expect("a thread that watches does not panic"))
        .collect();
    let seen = seen.map_err(|error| error.to_string())?;
    println!("{}", serde_json::to_string(&seen).map_err(|error| error.to_string())?);
    Ok(())
}

/// A cgroup for this process in which each limited thread gets one of its own, so that all are scheduled side by side.
fn prepare() -> io::Result<()> {
    // One session, so one group of its own: not what is compared.
    let _ = fs::write("/proc/sys/kernel/sched_autogroup_enabled", "0");
    let root = Path::new(CGROUPS);
    if !root.join("cgroup.procs").exists() {
        fs::create_dir_all(root)?;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("cgroup2", CGROUPS, "cgroup2", flags, None)?;
        fs::write(root.join("cgroup.subtree_control"), "+cpu")?;
        fs::create_dir(root.join("mix"))?;
    }
    fs::write(root.join("mix/cgroup.procs"), std::process::id().to_string())
}

fn become_one(number: usize, kind: Kind) -> io::Result<()> {
    let thread = rustix::thread::gettid();
    rustix::process::setpriority_process(Some(thread), kind.nice)?;
    // A timer may be as late as 50 us, so that several come together; not here.
    reprieve_linux::threads::set_timer_slack_ns(1).map_err(io::Error::other)?;
    let Some((percent, period_ms)) = kind.quota else { return Ok(()) };
    let group = Path::new(CGROUPS).join(format!("mix/limited-{number}"));
    if !group.exists() {
        fs::create_dir(&group)?;
        fs::write(group.join("cgroup.type"), "threaded")?;
        fs::write(Path::new(CGROUPS).join("mix/cgroup.subtree_control"), "+cpu")?;
    }
    let period_us = period_ms * 1000;
    fs::write(group.join("cpu.max"), format!("{} {period_us}", period_us * percent / 100))?;
    fs::write(group.join("cgroup.threads"), thread.as_raw_nonzero().to_string())
}

struct Watch {
    seen: Seen,
    /// When it last was seen to run.
    last_ns: u64,
    from_ns: u64,
    to_ns: u64,
}

impl Watch {
    /// Runs for so much CPU time, or to the end; says whether that is not reached.
    fn run(&mut self, mut left_ns: u64) -> bool {
        loop {
            let now_ns = now_ns();
            let gap_ns = now_ns - self.last_ns;
            let counts = self.last_ns >= self.from_ns;
            if gap_ns >= LEAST_OFF_NS {
                if counts {
                    self.seen.off_ns.push(gap_ns);
                }
            } else {
                left_ns = left_ns.saturating_sub(gap_ns);
                self.seen.run_ns += if counts { gap_ns } else { 0 };
            }
            self.last_ns = now_ns;
            if now_ns >= self.to_ns {
                return false;
            }
            if left_ns == 0 {
                return true;
            }
        }
    }
}

fn watch(work: Work, mut random: u64) -> Seen {
    let start_ns = now_ns();
    let from_ns = start_ns + WARM_UP_NS;
    let mut watch = Watch { seen: Seen::default(), last_ns: start_ns, from_ns, to_ns: from_ns + WINDOW_NS };
    match work {
        Work::Spin => while watch.run(u64::MAX) {},
        Work::Sleeps { sleep_us, work_us } => {
            while watch.run(work_us * 1000) {
                let due_ns = now_ns() + spread(sleep_us * 1000, &mut random);
                let due =
                    Timespec { tv_sec: (due_ns / SECOND_NS) as i64, tv_nsec: (due_ns % SECOND_NS) as i64 };
                let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &due);
                let now_ns = now_ns();
                if due_ns >= from_ns && now_ns < watch.to_ns {
                    watch.seen.late_ns.push(now_ns.saturating_sub(due_ns));
                }
                watch.last_ns = now_ns;
            }
        }
    }
    watch.seen
}
