//! The verdict on a kernel's log in words, and as JSON.

use reprieve_policy::explain::log::{LogCause, LogFinding, LogVerdict, Stall};
use reprieve_study::units;
use serde_json::{Value, json};

use super::{VERSION, word};

/// The most CPUs or tasks that are named.
const MOST_NAMED: usize = 4;

/// The verdict on a log.
pub fn of_log(verdict: &LogVerdict, as_json: bool) -> String {
    if as_json {
        return format!("{}\n", log_json(verdict));
    }
    let mut text = String::new();
    if verdict.findings.is_empty() {
        text.push_str("The log has no RCU stall.\n");
    }
    for finding in &verdict.findings {
        text.push_str(&format!("{}.\n", says(finding, verdict.is_virtual)));
        let settle = settle(finding.cause, verdict.is_virtual);
        text.push_str(&format!("  To settle it: {settle}.\n"));
        if finding.is_near_clock && finding.cause != LogCause::Clock {
            text.push_str("  Near it, the kernel distrusts its clock, too.\n");
        }
    }
    also(verdict).into_iter().for_each(|line| text.push_str(&format!("Also in the log: {line}.\n")));
    text
}

/// The answer: how many stalls, what was seen, what that means, and how sure it is.
fn says(finding: &LogFinding, is_virtual: bool) -> String {
    let stalls = match (finding.stalls, finding.longest.reports) {
        (1, ..=1) => "1 stall".into(),
        (1, reports) => format!("1 stall, reported {reports} times"),
        (stalls, _) => format!("{stalls} stalls, in the longest"),
    };
    let means = means(finding, is_virtual);
    format!("{stalls}: {}: {means} ({})", seen(finding), word(finding.confidence))
}

/// What the log says of the longest stall.
fn seen(finding: &LogFinding) -> String {
    let stall = &finding.longest;
    let age = match stall.jiffies {
        Some(jiffies) => format!("{jiffies} jiffies"),
        None => "some time".into(),
    };
    match finding.cause {
        LogCause::LateTimer if stall.is_asleep == Some(true) || stall.overdue_jiffies.is_some() => {
            let slept =
                stall.inactive_jiffies.or(stall.overdue_jiffies).map(|jiffies| format!("{jiffies} jiffies"));
            format!("RCU's kthread slept through {}, far beyond its timer", slept.unwrap_or(age))
        }
        LogCause::LateTimer => format!("{} idled, and for {age} nobody looked", cpus(stall, |_| true)),
        LogCause::StarvedKthread if stall.is_asleep == Some(false) => {
            format!("RCU's kthread was ready for {age} and did not run")
        }
        LogCause::StarvedKthread => format!("RCU's kthread was not active for {age}"),
        LogCause::Reader if stall.readers.is_empty() => {
            format!("some task kept a read section open for {age}")
        }
        LogCause::Reader => format!("{} kept a read section open for {age}", tasks(&stall.readers)),
        LogCause::ShortLimit => format!("the kernel complained after {age}"),
        LogCause::NoTicks => ticks(stall, &age, true),
        _ if stall.holdouts.is_empty() => format!("no CPU is named in {age}"),
        _ => ticks(stall, &age, false),
    }
}

/// What the CPUs did that RCU waited for.
fn ticks(stall: &Stall, age: &str, only_absent: bool) -> String {
    let is_meant = |index: usize| !only_absent || stall.is_absent(&stall.holdouts[index]);
    let meant: Vec<usize> = (0..stall.holdouts.len()).filter(|index| is_meant(*index)).collect();
    let names = cpus(stall, is_meant);
    if stall.is_expedited {
        return format!("{names} did not answer for {age}");
    }
    let counts: Option<Vec<u64>> = meant.iter().map(|index| stall.holdouts[*index].ticks).collect();
    match counts {
        Some(counts) => {
            let (fewest, most) = (counts.iter().min().copied(), counts.iter().max().copied());
            let (fewest, most) = (fewest.unwrap_or(0), most.unwrap_or(0));
            let range = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
            let tick = if most == 1 { "tick" } else { "ticks" };
            format!("{names} took {range} timer {tick} in {age}")
        }
        // Old kernels tell nothing but the CPU.
        None if meant.iter().all(|index| stall.holdouts[*index].scans.is_none()) => {
            format!("{names} passed no quiescent state for {age}")
        }
        None if stall.is_own => format!("{names} took ticks for {age}, but ran no RCU softirq"),
        None => format!("{names} did not notice the grace period for {age}"),
    }
}

/// The CPUs of these holdouts.
fn cpus(stall: &Stall, is_meant: impl Fn(usize) -> bool) -> String {
    let meant = stall.holdouts.iter().enumerate().filter(|(index, _)| is_meant(*index));
    let names: Vec<u64> = meant.map(|(_, holdout)| holdout.cpu).collect();
    format!("{} {}", if names.len() == 1 { "CPU" } else { "CPUs" }, list(&names))
}

fn tasks(pids: &[u64]) -> String {
    format!("{} {}", if pids.len() == 1 { "the task with PID" } else { "the tasks with PIDs" }, list(pids))
}

/// The first few of these numbers, and how many more there are.
fn list(numbers: &[u64]) -> String {
    let named: Vec<String> = numbers.iter().take(MOST_NAMED).map(u64::to_string).collect();
    let more = match numbers.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

/// Whether a CPU took at least half of its ticks.
fn is_busy(stall: &Stall) -> bool {
    let is_most = |ticks: u64| stall.jiffies.is_some_and(|jiffies| ticks >= jiffies / 2);
    stall.holdouts.iter().any(|holdout| holdout.ticks.is_some_and(is_most))
}

/// What that means.
fn means(finding: &LogFinding, is_virtual: bool) -> &'static str {
    match finding.cause {
        LogCause::Pause => "the machine had stood still just before, and the kernel counted that time",
        LogCause::Clock => "the kernel distrusts its clock, so the stall may be the clock's",
        LogCause::LateTimer if is_virtual => {
            "time leapt (a pause, a snapshot, a migration), or the VM's timers did not fire"
        }
        LogCause::LateTimer => {
            "time leapt (a VM's pause, snapshot or migration; a host that slept), or timers did not fire"
        }
        LogCause::RealTime => "real-time tasks had taken all CPU time",
        LogCause::NoTicks if is_virtual => "the host did not run the vCPU, or interrupts were off",
        LogCause::NoTicks => {
            "interrupts were off, or firmware ran; if this is a VM, the host may not have run the vCPU"
        }
        LogCause::StarvedKthread if finding.longest.is_asleep.is_none() => {
            "other tasks had its CPU, the host did not run that vCPU, or time leapt: the log does not say whether it slept"
        }
        LogCause::StarvedKthread => "other tasks had its CPU, or the host did not run that vCPU",
        // Its first tick after a time off looks the same as one of a CPU that does not come to its softirqs.
        LogCause::LongReader if !is_busy(&finding.longest) => {
            "the kernel looped there, as in a softirq; or the vCPU was off and has just come back"
        }
        LogCause::LongReader => "the kernel ran there for long",
        LogCause::Reader => "it was preempted there and not run, or it loops or never leaves",
        LogCause::ShortLimit => {
            "no stall, but a short limit of this kernel (CONFIG_RCU_EXP_CPU_STALL_TIMEOUT, often 20 ms)"
        }
        LogCause::Unknown => "the log does not say why",
    }
}

/// What would settle it.
fn settle(cause: LogCause, is_virtual: bool) -> &'static str {
    match cause {
        LogCause::Pause => "see the host's log for a pause, a snapshot or a migration",
        LogCause::Clock => "see the clocksource lines near it",
        LogCause::LateTimer => {
            "see whether the clock of the day leapt there, and the host's log; if it comes back while nothing is paused, timer interrupts are lost"
        }
        LogCause::RealTime => "see which tasks are real-time (ps -eo pid,cls,rtprio,comm)",
        LogCause::NoTicks if is_virtual => {
            "run `reprieve explain --for 30` in the VM while it is slow, and see its steal"
        }
        LogCause::NoTicks => "see the backtrace of that CPU; in a VM, its steal",
        LogCause::StarvedKthread => "run `reprieve explain --for 30` while it is slow",
        LogCause::LongReader => {
            "see the backtrace of that CPU: the loop is in it, unless the whole VM is very slow"
        }
        LogCause::Reader => "see the backtrace of that task; CONFIG_PROVE_LOCKING finds sections left open",
        LogCause::ShortLimit => "see /sys/module/rcupdate/parameters/rcu_exp_cpu_stall_timeout; 0 means 21 s",
        LogCause::Unknown => "keep the lines that follow the stall, too",
    }
}

/// What else the log complains of.
fn also(verdict: &LogVerdict) -> Vec<String> {
    let plural = |count: usize, one: &str, more: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {more}"),
    };
    let mut lines = vec![];
    if let Some((count, longest_s)) = verdict.lockups {
        lines.push(format!(
            "{}, the longest of {longest_s} s",
            plural(count, "report of a soft lockup", "reports of soft lockups")
        ));
    }
    if let Some((count, task, seconds)) = &verdict.blocked {
        let reports = plural(*count, "report of a blocked task", "reports of blocked tasks");
        lines.push(format!("{reports}, first {task} for more than {seconds} s"));
    }
    if let Some(ns) = verdict.slow_timer_ns {
        lines.push(format!("a timer's interrupt took {}", units::duration(ns as f64)));
    }
    if verdict.out_of_memory > 0 {
        lines.push(plural(verdict.out_of_memory, "time out of memory", "times out of memory"));
    }
    if verdict.other_boots > 0 {
        lines.push(format!(
            "{} with stalls; the last one is judged here",
            plural(verdict.other_boots, "other boot", "other boots")
        ));
    }
    lines
}

fn log_json(verdict: &LogVerdict) -> Value {
    let finding = |finding: &LogFinding| {
        let stall = &finding.longest;
        let cpu = |holdout: &reprieve_policy::explain::log::Holdout| json!({ "cpu": holdout.cpu, "ticks": holdout.ticks, "idle": holdout.is_idle });
        json!({
            "cause": name(finding.cause),
            "stalls": finding.stalls,
            "confidence": word(finding.confidence),
            "says": says(finding, verdict.is_virtual),
            "near_distrusted_clock": finding.is_near_clock,
            "longest": {
                "reports": stall.reports,
                "jiffies": stall.jiffies,
                "cpus": stall.holdouts.iter().map(cpu).collect::<Vec<_>>(),
                "readers": stall.readers,
                "kthread_inactive_jiffies": stall.inactive_jiffies,
            },
        })
    };
    json!({
        "explain_version": VERSION,
        "tier": "log",
        "findings": verdict.findings.iter().map(finding).collect::<Vec<_>>(),
        // A log that does not say so may still be that of a VM.
        "virtual": verdict.is_virtual.then_some(true),
        "other_boots": verdict.other_boots,
        "soft_lockups": verdict.lockups.map_or(0, |(count, _)| count),
        "blocked_tasks": verdict.blocked.as_ref().map_or(0, |(count, ..)| *count),
        "slow_timer_ns": verdict.slow_timer_ns,
        "out_of_memory": verdict.out_of_memory,
    })
}

fn name(cause: LogCause) -> &'static str {
    match cause {
        LogCause::Pause => "pause",
        LogCause::Clock => "clock",
        LogCause::LateTimer => "late-timer",
        LogCause::RealTime => "real-time",
        LogCause::NoTicks => "no-ticks",
        LogCause::StarvedKthread => "starved-kthread",
        LogCause::LongReader => "long-reader",
        LogCause::Reader => "reader",
        LogCause::ShortLimit => "short-limit",
        LogCause::Unknown => "unknown",
    }
}
