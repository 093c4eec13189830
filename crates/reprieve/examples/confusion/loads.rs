//! Loads: a process of its own each, so that it surely ends. In the guest the agent starts them, on the host the injection.
//!
//! `load KIND KEY=VALUE ...`; it says `ready` once it works.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt};
use reprieve_linux::clock::now_ns;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::threads::{self, FifoGuard};
use reprieve_study::statistics;

/// The memory group of the guest.
pub const MEMORY_GROUP: &str = "/tmp/cgroup/small";
/// Files of the guest's module.
pub const MODULE: &str = "/sys/kernel/debug/reprieve_lab";
/// Below the 2 of the beats, above everything else.
const FIFO_PRIORITY: u8 = 1;
/// How often the speed is measured; the best one counts.
const TRIES: usize = 10;
const TRIAL: u64 = 200_000;
const PAGE_BYTES: usize = 4096;

/// The words of a load.
pub struct Words<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Words<'a> {
    /// `KEY=VALUE` each.
    pub fn of(words: impl Iterator<Item = &'a str>) -> Words<'a> {
        Words(words.filter_map(|word| word.split_once('=')).collect())
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        self.0.get(key).copied().ok_or_else(|| format!("the load lacks {key}="))
    }

    fn number(&self, key: &str) -> Result<u64, String> {
        self.text(key)?.parse().map_err(|_| format!("{key} is no number"))
    }

    fn numbers(&self, key: &str) -> Result<Vec<usize>, String> {
        let parse = |word: &str| word.parse().map_err(|_| format!("{key} is no list of numbers"));
        self.text(key)?.split(',').map(parse).collect()
    }
}

/// Does the load until the process is killed.
pub fn run(kind: &str, words: &Words) -> Result<(), String> {
    match kind {
        "busy" => busy(words),
        "fifo" => fifo(words),
        "memory" => memory(words),
        "hold" => hold(words),
        _ => Err(format!("there is no load {kind}")),
    }
}

fn ready() {
    println!("ready");
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Tasks that compute: `tasks`, on the CPUs `cpus`, bound to one each if `pinned`. Each works for `burst_us`, of CPU time, or of
/// wall time with `wall`; then it rests, so that it wants `duty` per cent of a CPU. With a `seed`, bursts vary by half.
fn busy(words: &Words) -> Result<(), String> {
    let (cpus, tasks) = (words.numbers("cpus")?, words.number("tasks")? as usize);
    let (duty, burst_us) = (words.number("duty")?.clamp(1, 100), words.number("burst_us")?.max(1));
    let (pinned, wall, seed) =
        (words.number("pinned")? == 1, words.number("wall")? == 1, words.number("seed")?);
    if cpus.is_empty() {
        return Err("no CPUs".into());
    }
    let per_ms = if wall || duty == 100 { 0 } else { per_ms() };
    let threads: Vec<_> = (0..tasks)
        .map(|task| {
            let on = if pinned { vec![cpus[task % cpus.len()]] } else { cpus.clone() };
            std::thread::spawn(move || -> Result<(), String> {
                threads::set_affinity(threads::own_tid(), &on).map_err(said)?;
                let mut rng = statistics::stream(seed, &format!("bursts {task}"));
                loop {
                    let part = if seed == 0 { 1.0 } else { rng.random_range(0.5..1.5) };
                    let burst = Duration::from_secs_f64(burst_us as f64 / 1e6 * part);
                    match per_ms {
                        0 => until(now_ns() + burst.as_nanos() as u64),
                        _ => compute((burst.as_secs_f64() * 1e3 * per_ms as f64) as u64),
                    }
                    rest(burst, duty, seed != 0, &mut rng);
                }
            })
        })
        .collect();
    ready();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a task ended".to_string())?)
}

/// The rest after a burst; both together have that duty on average.
fn rest(burst: Duration, duty: u64, varies: bool, rng: &mut impl Rng) {
    if duty < 100 {
        let part = if varies { rng.random_range(0.5..1.5) } else { 1.0 };
        std::thread::sleep(burst.mul_f64((100 - duty) as f64 / duty as f64 * part));
    }
}

/// RCU's kthread is bound to `cpu`, and a real-time task takes that for `busy_us` at a time, `duty` per cent of the time.
fn fifo(words: &Words) -> Result<(), String> {
    let (cpu, duty, busy_us) =
        (words.number("cpu")? as usize, words.number("duty")?, words.number("busy_us")?);
    fs::write("/proc/sys/kernel/sched_rt_runtime_us", "-1").map_err(said)?;
    let kthread = kthread(&ProcRoot::default()).ok_or("there is no RCU kthread")?;
    threads::set_affinity(kthread, &[cpu]).map_err(said)?;
    threads::set_affinity(threads::own_tid(), &[cpu]).map_err(said)?;
    let _raised = FifoGuard::raise(FIFO_PRIORITY).map_err(said)?;
    ready();
    let burst = Duration::from_micros(busy_us);
    loop {
        until(now_ns() + burst.as_nanos() as u64);
        std::thread::sleep(burst.mul_f64((100 - duty.clamp(1, 100)) as f64 / duty.max(1) as f64));
    }
}

/// RCU's kthread.
pub fn kthread(root: &ProcRoot) -> Option<i32> {
    let is_it = |pid: &i32| {
        let name = root.read_task(&format!("{pid}/comm")).unwrap_or_default();
        ["rcu_sched", "rcu_preempt"].contains(&name.trim())
    };
    root.process_ids().ok()?.into_iter().find(is_it)
}

/// Joins the memory group, limits it to `limit_mib`, and touches `touched_mib` in turn.
fn memory(words: &Words) -> Result<(), String> {
    let (cpu, limit_mib) = (words.number("cpu")? as usize, words.number("limit_mib")?);
    let bytes = words.number("touched_mib")? as usize * (1 << 20);
    let group = Path::new(MEMORY_GROUP);
    threads::set_affinity(threads::own_tid(), &[cpu]).map_err(said)?;
    fs::write(group.join("memory.max"), (limit_mib << 20).to_string()).map_err(said)?;
    fs::write(group.join("cgroup.procs"), "0").map_err(said)?;
    let mut pages = vec![0_u8; bytes];
    let mut is_first = true;
    loop {
        for at in (0..bytes).step_by(PAGE_BYTES) {
            // Not all alike: a page of zeroes could be kept for free.
            pages[at] = pages[at].wrapping_add(at as u8 | 1);
        }
        black_box(&mut pages);
        if std::mem::take(&mut is_first) {
            ready();
        }
    }
}

/// Stays in the kernel on `cpu` for `length_ms`, rests for `rest_ms`, and so on; `preemptible` as a reader.
fn hold(words: &Words) -> Result<(), String> {
    let (cpu, length_ms) = (words.number("cpu")? as usize, words.number("length_ms")?);
    let rest = Duration::from_millis(words.number("rest_ms")?);
    let name = if words.number("preemptible")? == 1 { "reader" } else { "stay" };
    let file = Path::new(MODULE).join(name);
    threads::set_affinity(threads::own_tid(), &[cpu]).map_err(said)?;
    ready();
    loop {
        fs::write(&file, (length_ms * 1_000_000).to_string()).map_err(said)?;
        std::thread::sleep(rest);
    }
}

/// Steps of [`compute`] in a ms, undisturbed.
fn per_ms() -> u64 {
    let try_once = |_| {
        let began = Instant::now();
        compute(TRIAL);
        began.elapsed()
    };
    let least = (0..TRIES).map(try_once).min().unwrap_or_default();
    (TRIAL as u128 * 1_000_000 / least.as_nanos().max(1)).max(1) as u64
}

fn compute(steps: u64) {
    let mut value = 1_u64;
    for _ in 0..steps {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

fn until(end_ns: u64) {
    while now_ns() < end_ns {
        compute(100);
    }
}
