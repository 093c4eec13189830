//! Measures the time that a sweep takes beside its runs: planning, a shard in one process, `status`, and `merge`.
//!
//!     cargo run --release -p reprieve --example sweep_cost -- RUNS FILE
//!
//! Sweeps a small simulated VM over its overcommitment, once with the simulator, whose CPU time in the runs is summed apart, and once
//! with runs that take no time. Writes a record. CPU times are of all threads together; memory is the most that was held so far.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use reprieve_sim::VERSION;
use reprieve_sim::ground::{Tapes, simulate};
use reprieve_study::scenario::PlannedRun;
use reprieve_study::{Observation, overrides};
use reprieve_sweep::merge::merge;
use reprieve_sweep::shard::{self, Runner};
use reprieve_sweep::status::Status;
use reprieve_sweep::{Plan, Shard, plan};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// CPU time of one of these clocks, ns.
fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

/// Runs the simulator, or nothing, and sums what that takes.
struct Timed {
    is_real: bool,
    tapes: Tapes,
    own_ns: AtomicU64,
}

impl Runner for Timed {
    fn run(&self, run: &PlannedRun, stop: &(dyn Fn() -> bool + Sync)) -> Option<Result<Observation, String>> {
        let began_ns = cpu_ns(ClockId::ThreadCPUTime);
        let observed = match self.is_real {
            true => simulate(run, &self.tapes, &stop).map_err(|error| error.to_string()),
            false => {
                let mut nothing = Observation::default();
                nothing.metrics.insert("gp_p99_ns".into(), 1.0);
                Ok(nothing)
            }
        };
        self.own_ns.fetch_add(cpu_ns(ClockId::ThreadCPUTime) - began_ns, Ordering::Relaxed);
        Some(observed)
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Does a step, and gives its times and memory with its result.
fn timed<T>(name: &str, step: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Value), Failure> {
    let (began, began_ns) = (Instant::now(), cpu_ns(ClockId::ProcessCPUTime));
    let done = step()?;
    let cpu_s = (cpu_ns(ClockId::ProcessCPUTime) - began_ns) as f64 / 1e9;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let held = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let held_kib: u64 = held.trim().trim_end_matches(" kB").parse()?;
    let told = json!({ "step": name, "wall_s": began.elapsed().as_secs_f64(), "cpu_s": cpu_s, "held_mib": held_kib >> 10 });
    eprintln!("{told}");
    Ok((done, told))
}

fn sweep(folder: &Path, runs: u64, is_real: bool) -> Result<Value, Failure> {
    let text = format!(
        "name = 'cost'\ntitle = 'what a sweep costs'\nrun = {{ repeat = 1, warmup_ms = 0, window_ms = 500 }}\n\
         guest = {{ vcpus = 2, memory_mib = 512 }}\nworkload = {{ kind = 'memory', pause_us = 1_000 }}\n[conditions.a]\novercommit = 2.0\n\
         [space]\nsampling = 'random'\npoints = {runs}\n[space.axes.overcommit]\nkey = 'conditions.a.overcommit'\n\
         range = {{ from = 1.0, to = 3.0 }}\n"
    );
    let scenario = overrides::read(&text, None, &[])?;
    let jobs = std::thread::available_parallelism()?.get();
    let (planned, plan_told) =
        timed("plan", || Ok(plan::write(folder, &scenario, "sweep_cost", VERSION, &mut |_| Ok(()))?))?;
    let runner = Timed { is_real, tapes: Tapes::new(), own_ns: AtomicU64::new(0) };
    let (_, run_told) = timed("run", || Ok(shard::run(&planned, Shard::ALL, jobs, &runner, &mut |_| {})?))?;
    let own_s = runner.own_ns.load(Ordering::Relaxed) as f64 / 1e9;
    let beyond_s = run_told["cpu_s"].as_f64().unwrap_or(f64::NAN) - own_s;
    let (_, again_told) = timed("run again, with nothing left to do", || {
        Ok(shard::run(&Plan::open(folder, VERSION)?, Shard::ALL, jobs, &runner, &mut |_| {})?)
    })?;
    let (_, status_told) =
        timed("status", || Ok(Status::read(&Plan::open(folder, VERSION)?, SystemTime::now(), &|| Ok(()))?))?;
    let (_, merge_told) = timed("merge", || Ok(merge(&Plan::open(folder, VERSION)?, &mut |_| Ok(()))?))?;
    Ok(json!({
        "simulated": is_real, "runs": runs, "runs_own_cpu_s": own_s, "beyond_them_ms_per_run": beyond_s * 1e3 / runs as f64,
        "beyond_them_percent": 100.0 * beyond_s / own_s, "steps": [plan_told, run_told, again_told, status_told, merge_told],
    }))
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [runs, file] = words.as_slice() else {
        return Err("RUNS FILE: how many runs, and where the record goes".into());
    };
    let mut to = std::fs::File::create(file)?;
    let mut sweeps = Vec::new();
    for is_real in [true, false] {
        let folder = tempfile::tempdir()?;
        sweeps.push(sweep(folder.path(), runs.parse()?, is_real)?);
    }
    let record = json!({
        "command": format!("cargo run --release -p reprieve --example sweep_cost -- {runs} {file}"),
        "simulator": VERSION, "cpus": std::thread::available_parallelism()?.get(), "sweeps": sweeps,
    });
    writeln!(to, "{}", serde_json::to_string_pretty(&record)?)?;
    Ok(())
}
