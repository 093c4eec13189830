//! What the collector costs: CPU time of its own, memory, and what a busy workload beside it loses.
//!
//!     cargo run -p reprieve-linux --release --features ebpf --example observe_cost -- ROUNDS FILE [COLLECTOR ...]
//!
//! Each round visits all conditions, or those of the named collectors and the two without a collector, in another order, each idle and
//! beside a workload that does a fixed amount of system calls and allocations on every CPU. The collector is a process of its own. `none-again` is the control: nothing, once more. A loss
//! is the logarithm of the workload's time over that under `none` in the same round. eBPF programs run in the context of other
//! tasks, so their time is not in `cpu_share`. With the sysctl `kernel.bpf_stats_enabled=1` the kernel times them, and `ebpf_share`
//! is their time as a share of one CPU, without what it takes to enter them. Intervals are 95 % by bootstrap over rounds. Run it as
//! root, on a machine that does nothing else; where its kernel permits no eBPF, `make cost-in-guest` runs it in a guest.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use reprieve_linux::observe::{Collector, Pace};
use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_linux::{child, clock, threads};
use reprieve_policy::sample::{Sample, Tier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, TimerfdClockId, TimerfdFlags, clock_gettime, timerfd_create};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// The collectors that are compared, beside none.
const COLLECTORS: [(&str, Tier, Pace); 6] = [
    ("t0-frugal", Tier::T0, Pace::Frugal),
    ("t0-close", Tier::T0, Pace::Close),
    ("t1-frugal", Tier::T1, Pace::Frugal),
    ("t1-close", Tier::T1, Pace::Close),
    ("t2-frugal", Tier::T2, Pace::Frugal),
    ("t2-close", Tier::T2, Pace::Close),
];
/// Conditions without a collector: the baseline, and the control.
const NONE: [&str; 2] = ["none", "none-again"];
/// How long a collector is watched without a workload.
const IDLE: Duration = Duration::from_secs(5);
/// About how long the workload takes.
const BUSY: Duration = Duration::from_secs(3);
/// Resamples of a bootstrap.
const RESAMPLES: usize = 10_000;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [word, name] if word == "collect" => collect(name),
        [rounds, file, wanted @ ..] => measure(rounds.parse()?, file, wanted),
        _ => Err("usage: observe_cost ROUNDS FILE [COLLECTOR ...]".into()),
    }
}

/// The collector's process: makes samples until its standard input ends, then says what that cost.
fn collect(name: &str) -> Result<(), Failure> {
    let (_, tier, pace) =
        COLLECTORS.into_iter().find(|(known, ..)| *known == name).ok_or("no such collector")?;
    let mut collector = Collector::begin_in(&ProcRoot::default(), &allowed_cpus()?, pace, tier)?;
    if tier == Tier::T2 {
        collector.arm();
    }
    let mut sample = Sample::default();
    collector.sample(&mut sample);
    println!("ready");
    let cpu_ns = || {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
    };
    let ebpf_before = ebpf_spent()?;
    let (since_ns, cpu_before_ns, stdin) = (clock::now_ns(), cpu_ns(), std::io::stdin());
    let (mut due_ns, mut samples) = (since_ns, 0);
    loop {
        due_ns += 1_000_000_000;
        let left_ns = due_ns.saturating_sub(clock::now_ns()) as i64;
        let timeout = Timespec { tv_sec: left_ns / 1_000_000_000, tv_nsec: left_ns % 1_000_000_000 };
        if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout))? > 0 {
            break;
        }
        collector.sample(&mut sample);
        samples += 1;
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let ebpf = ebpf_spent()?;
    let share = |spent_ns: u64| spent_ns as f64 / (clock::now_ns() - since_ns) as f64;
    let cost = json!({
        "cpu_share": share(cpu_ns() - cpu_before_ns),
        "ebpf_share": share(ebpf.0 - ebpf_before.0),
        "ebpf_runs": ebpf.1 - ebpf_before.1,
        "samples": samples,
        "resident_bytes": bytes("VmRSS:"),
        "most_resident_bytes": bytes("VmHWM:"),
        "tier": sample.tier.name(),
        "armed": collector.armed().map(|by| format!("{by:?}")),
        "refusal": collector.refusal(),
    });
    println!("{cost}");
    Ok(())
}

/// How long eBPF programs of this process have run, ns, and how often; 0 where the kernel does not time them.
fn ebpf_spent() -> Result<(u64, u64), Failure> {
    let mut spent = (0, 0);
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        // The directory's own descriptor is gone by now.
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        let sum = |field: &str| -> u64 {
            let values = text.lines().filter_map(|line| line.strip_prefix(field));
            values.filter_map(|value| value.trim().parse::<u64>().ok()).sum()
        };
        spent = (spent.0 + sum("run_time_ns:"), spent.1 + sum("run_cnt:"));
    }
    Ok(spent)
}

/// A collector that runs.
struct Collecting {
    child: Child,
    stdin: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Collecting {
    fn begin(name: &str) -> Result<Collecting, Failure> {
        // In a guest, the executable is the host's dynamic loader.
        let own = std::env::var_os("REPRIEVE_TEST_SELF")
            .map_or_else(std::env::current_exe, |own| Ok(own.into()))?;
        let mut command = Command::new(own);
        command.args(["collect", name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        child::die_with_parent(&mut command);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let said = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut collecting = Collecting { child, stdin, said };
        match &collecting.line()?[..] {
            "ready" => Ok(collecting),
            other => Err(format!("{name}: {other}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim().to_string())
    }

    fn end(mut self) -> Result<Value, Failure> {
        self.stdin = None;
        let cost = serde_json::from_str(&self.line()?)?;
        self.child.wait()?;
        Ok(cost)
    }
}

/// System calls, allocations and deferred frees: so many turns on each CPU. Gives the time until the last has ended, ns.
fn work(turns: u64) -> Result<u64, Failure> {
    let cpus = allowed_cpus()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for cpu in cpus {
            scope.spawn(move || {
                let _ = threads::set_affinity(threads::own_tid(), &[cpu]);
                for turn in 0..turns {
                    black_box(rustix::process::getppid());
                    black_box(vec![turn as u8; 100 + (turn % 5000) as usize]);
                    if turn % 16 == 0 {
                        drop(black_box(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty())));
                    }
                }
            });
        }
    });
    Ok(began.elapsed().as_nanos() as u64)
}

/// The number of turns that takes about [`BUSY`].
fn turns() -> Result<u64, Failure> {
    let trial = 100_000;
    let took_ns = (0..3).map(|_| work(trial)).collect::<Result<Vec<_>, _>>()?.into_iter().min().unwrap_or(1);
    Ok((trial as u128 * BUSY.as_nanos() / u128::from(took_ns.max(1))).max(1) as u64)
}

/// What was seen in one condition of one round.
fn visit(name: &str, turns: u64) -> Result<Value, Failure> {
    if NONE.contains(&name) {
        return Ok(json!({ "condition": name, "work_ns": work(turns)? }));
    }
    let idle = Collecting::begin(name)?;
    std::thread::sleep(IDLE);
    let idle = idle.end()?;
    let busy = Collecting::begin(name)?;
    let work_ns = work(turns)?;
    Ok(json!({ "condition": name, "work_ns": work_ns, "idle": idle, "busy": busy.end()? }))
}

/// A number without meaning, from the one before (xorshift64).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn measure(rounds: usize, file: &str, wanted: &[String]) -> Result<(), Failure> {
    if let Some(bad) = wanted.iter().find(|name| !COLLECTORS.iter().any(|(known, ..)| known == name)) {
        return Err(
            format!("{bad}: no such collector; there are {:?}", COLLECTORS.map(|(name, ..)| name)).into()
        );
    }
    let (turns, mut state) = (turns()?, 0x9e37_79b9_7f4a_7c15);
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    // If T2 is refused, its rows would only repeat those of T1, so they are left out.
    let refusal = match is_wanted("t2-frugal") || is_wanted("t2-close") {
        true => Collecting::begin("t2-close")?.end()?["refusal"].clone(),
        false => "not asked for".into(),
    };
    if let (false, Some(asked), Some(why)) =
        (wanted.is_empty(), wanted.iter().find(|name| name.starts_with("t2")), refusal.as_str())
    {
        return Err(format!("{asked} cannot be measured here: {why}").into());
    }
    // Opened before the work, so that nothing is measured in vain.
    let mut to = std::fs::File::create(file)?;
    let is_there = |name: &&str| is_wanted(name) && (refusal.is_null() || !name.starts_with("t2"));
    let collectors = COLLECTORS.into_iter().map(|(name, ..)| name).filter(is_there);
    let names: Vec<&str> = NONE.into_iter().chain(collectors).collect();
    let mut visits = Vec::new();
    for round in 0..rounds {
        let mut order = names.clone();
        (1..order.len()).rev().for_each(|last| order.swap(last, next(&mut state) as usize % (last + 1)));
        eprintln!("round {} of {rounds}", round + 1);
        visits.push(order.iter().map(|name| visit(name, turns)).collect::<Result<Vec<_>, _>>()?);
    }
    let summary: Vec<Value> = names.iter().map(|name| summarise(name, &visits, &mut state)).collect();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let record = json!({
        "observe_cost_version": 1, "kernel": kernel.trim(), "cpus": allowed_cpus()?.len(), "rounds": rounds,
        "turns_per_cpu": turns, "t2_refused": refusal, "summary": summary, "visits": visits,
    });
    writeln!(to, "{}", serde_json::to_string_pretty(&record)?)?;
    summary.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Mean and 95 % interval of each figure of a condition.
fn summarise(name: &str, rounds: &[Vec<Value>], state: &mut u64) -> Value {
    let of = |round: &[Value], name: &str, path: &str| {
        round.iter().find(|visit| visit["condition"] == *name)?.pointer(path)?.as_f64()
    };
    let values =
        |path: &str| -> Vec<f64> { rounds.iter().filter_map(|round| of(round, name, path)).collect() };
    let pairs = rounds
        .iter()
        .filter_map(|round| Some((of(round, name, "/work_ns")? / of(round, NONE[0], "/work_ns")?).ln()));
    let losses: Vec<f64> = pairs.collect();
    let most = |path: &str| values(path).into_iter().fold(0.0, f64::max);
    json!({
        "condition": name,
        "loss_log_ratio": interval(&losses, state),
        "idle_cpu_share": interval(&values("/idle/cpu_share"), state),
        "busy_cpu_share": interval(&values("/busy/cpu_share"), state),
        "idle_ebpf_share": interval(&values("/idle/ebpf_share"), state),
        "busy_ebpf_share": interval(&values("/busy/ebpf_share"), state),
        "resident_bytes": most("/busy/resident_bytes"),
        "most_resident_bytes": most("/busy/most_resident_bytes"),
    })
}

fn interval(values: &[f64], state: &mut u64) -> Value {
    if values.is_empty() {
        return Value::Null;
    }
    let mean = |values: &mut dyn Iterator<Item = f64>, count: usize| values.sum::<f64>() / count as f64;
    let count = values.len();
    let mut resample = |_| mean(&mut (0..count).map(|_| values[next(state) as usize % count]), count);
    let mut means: Vec<f64> = (0..RESAMPLES).map(&mut resample).collect();
    means.sort_by(f64::total_cmp);
    let low = means[RESAMPLES * 25 / 1000];
    let high = means[RESAMPLES * 975 / 1000];
    json!({ "mean": mean(&mut values.iter().copied(), count), "low": low, "high": high })
}
