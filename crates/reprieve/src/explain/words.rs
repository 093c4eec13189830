//! The verdict in words: first the answer, then what it rests on, then what would settle it, and the way out. Or as JSON.

mod log;

use reprieve_policy::explain::{Cause, Confidence, ENOUGH_NS, Evidence, Finding, OFF_PERMILLE, Verdict};
use reprieve_policy::fingerprint::{Quota, Turns};
use reprieve_study::{shown, units};
use serde_json::{Value, json};

pub use log::of_log;

/// The version of the JSON.
pub(super) const VERSION: u32 = 1;

pub(crate) fn time(ns: u64) -> String {
    units::duration(ns as f64)
}

pub(crate) fn percent(permille: u64) -> String {
    format!("{} %", units::significant(permille as f64 / 10.0))
}

/// A part of a time, which is not 0 if it is not nothing.
fn part(ns: u64, of_ns: u64) -> String {
    match ns.saturating_mul(1000) / of_ns.max(1) {
        0 if ns > 0 => "less than 0.1 %".into(),
        permille => percent(permille),
    }
}

pub(super) fn word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Possible => "possible",
        Confidence::Likely => "likely",
        Confidence::Sure => "sure",
    }
}

/// The verdict on what was seen.
pub fn of(seen: &Evidence, verdict: &Verdict, as_json: bool) -> String {
    if as_json {
        return format!("{}\n", shown::json(&json_of(seen, verdict).to_string()));
    }
    let mut text = String::new();
    // In a shorter time none may have been due.
    let has_silent = !seen.silent.is_empty() && seen.span_ns >= ENOUGH_NS;
    if has_silent {
        text.push_str(&format!("Nothing is known of {}: no beat ran there.\n", names(&seen.silent)));
        text.push_str(&format!("  {SILENT}\n"));
    }
    if verdict.is_quiet() && !(has_silent && seen.vcpus.is_empty()) {
        let neither = if has_silent { "Of the others: neither" } else { "Neither" };
        text.push_str(&format!(
            "{neither} CPU, memory nor clock slowed this VM down in {}.\n",
            time(seen.span_ns)
        ));
        if seen.span_ns < ENOUGH_NS {
            text.push_str(&format!("  That is too short to tell: {} are needed.\n", time(ENOUGH_NS)));
        }
        text.push_str(NOT_SEEN);
    }
    for finding in &verdict.findings {
        let said = said(&finding.cause);
        text.push_str(&format!("{}.\n", answer(finding, seen)));
        if finding.lost_permille > 0 {
            text.push_str(&format!(
                "  {}: {} of {}.\n",
                lost(&finding.cause),
                percent(finding.lost_permille),
                time(seen.span_ns)
            ));
        }
        if finding.confidence < Confidence::Sure {
            text.push_str(&format!("  To settle it: {}.\n", said.settle));
        }
        text.push_str(&format!("  What to do: {}.\n", said.way_out));
    }
    text.push_str("Seen:\n");
    seen_lines(seen).into_iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

/// A vCPU was idle while tasks waited if both together take more than this part of the time; a tenth is left for what is counted late.
const SURELY_BOTH: f64 = 1.1;
/// Why beats may not run.
pub(crate) const SILENT: &str =
    "A real-time task has it (ps -eLo pid,cls,rtprio,psr,comm), the host has not run it, or it went offline.";
/// What a quiet verdict does not mean.
const NOT_SEEN: &str = "  Not looked at: disk, network, limits of other cgroups.\n";

/// Whose time a cause took.
pub(crate) fn lost(cause: &Cause) -> &'static str {
    match cause {
        Cause::OwnCpu | Cause::OwnMemory | Cause::StarvedKthread => "Tasks waited",
        Cause::OwnQuota { .. } => "Throttled",
        Cause::Contention { .. } => "vCPUs lost",
        _ => "Worst vCPU lost",
    }
}

/// What is said of a cause.
pub(crate) struct Said {
    /// The cause.
    pub(crate) answer: String,
    /// What would make it sure.
    pub(crate) settle: &'static str,
    /// What to do.
    pub(crate) way_out: &'static str,
}

fn plain(answer: &str, settle: &'static str, way_out: &'static str) -> Said {
    Said { answer: answer.into(), settle, way_out }
}

pub(crate) fn said(cause: &Cause) -> Said {
    match cause {
        Cause::Pause { longest_ns } => Said {
            answer: format!(
                "The whole VM stood still, for up to {}: a pause, a snapshot or a migration",
                time(*longest_ns)
            ),
            settle: "look for a pause, snapshot or migration in the host's log (virsh, QMP, the cloud's events); if reprieve itself was stopped (Ctrl-Z), it was that",
            way_out: "nothing in the VM; RCU stalls and time-outs right after a pause come from it",
        },
        Cause::ClockStep { by_ns } => Said {
            answer: format!(
                "The system clock stepped by {}{}",
                if *by_ns < 0 { "-" } else { "" },
                time(by_ns.unsigned_abs())
            ),
            settle: "see the log of chronyd or ntpd",
            way_out: "measure latencies by CLOCK_MONOTONIC; let chronyd step the clock at start-up alone (makestep 1 3)",
        },
        Cause::OwnQuota { throttled_ns, quota } => Said {
            answer: match quota {
                Some(quota) => {
                    format!(
                        "The cgroup that reprieve runs in has a CPU quota and uses it up: {}",
                        of_quota(quota)
                    )
                }
                None => format!(
                    "The cgroup that reprieve runs in has a CPU quota, and was throttled for {}",
                    time(*throttled_ns)
                ),
            },
            settle: "see cpu.stat and cpu.max of the cgroup",
            way_out: "raise cpu.max of the cgroup (the CPU limit of the container), or shorten its period",
        },
        Cause::Quota { quota, vcpus, is_of_vm } => said_of_quota(quota, vcpus, *is_of_vm),
        Cause::BusyNeighbour { vcpu, turns } => Said {
            answer: format!(
                "A busy thread of the host shares the pCPU of vCPU {vcpu}{}",
                of_turns(turns.as_ref())
            ),
            settle: "on the host: `sudo reprieve explain --pid PID` names that thread; see virsh vcpupin",
            way_out: "on the host: move that thread or the vCPU, or do not pin it; in a cloud: ask for this VM to be moved",
        },
        Cause::Contention { turns } => Said {
            answer: format!("The host has more to run than pCPUs{}", of_turns(turns.as_ref())),
            settle: "on the host: `sudo reprieve explain --pid PID`, or the vCPUs' run delay in /proc/PID/task/*/schedstat",
            way_out: "on the host: fewer busy VMs; in a cloud: ask for this VM to be moved, or for CPUs of its own",
        },
        Cause::OwnCpu | Cause::OwnMemory | Cause::StarvedKthread | Cause::LongReader => said_of_vm(cause),
    }
}

fn said_of_quota(quota: &Quota, vcpus: &[usize], is_of_vm: bool) -> Said {
    if quota.is_ambiguous {
        return Said {
            answer: format!(
                "A CPU quota, or a task that the host runs every {}, limits {}: {}",
                time(quota.period_ns),
                names(vcpus),
                of_quota(quota)
            ),
            settle: "on the host: cpu.max of the VM's cgroup, virsh schedinfo, and what else runs on these pCPUs",
            way_out: "on the host: raise the quota, or move that task",
        };
    }
    Said {
        answer: match is_of_vm {
            true => format!("The host limits this VM's CPU time: each vCPU may run {}", of_quota(quota)),
            false => format!("The host limits the CPU time of {}: {}", names(vcpus), of_quota(quota)),
        },
        settle: "watch for longer (--for 30s), or ask for the quota on the host (cpu.max of the VM's cgroup, virsh schedinfo)",
        way_out: "on the host: raise cpu.max (virsh schedinfo); in a cloud: ask about the CPU limit",
    }
}

/// What is said of what a VM does to itself.
fn said_of_vm(cause: &Cause) -> Said {
    match cause {
        Cause::OwnCpu => plain(
            "This VM has more to run than vCPUs",
            "see the run queue (vmstat 1, column r); a limit of a cgroup looks alike, and then one of these numbers grows: `grep -r --include=cpu.stat nr_throttled /sys/fs/cgroup`",
            "find the busy tasks (top): fewer of them, more vCPUs, or more CPUs for those that are pinned or limited (taskset -p, cpu.max)",
        ),
        Cause::OwnMemory => plain(
            "Tasks of this VM wait for memory",
            "see /proc/pressure/memory, and vmstat 1 (columns si and so)",
            "more memory, or less load; if MemTotal is below the VM's size, the host's balloon took the rest",
        ),
        Cause::StarvedKthread => plain(
            "Other tasks of this VM keep RCU's kthread from running, so freed memory piles up",
            "see its run delay in /proc/PID/schedstat, and the real-time tasks: ps -eLo pid,cls,rtprio,psr,comm",
            "lower that task's priority or take it off that CPU; or boot with rcutree.kthread_prio= above its priority",
        ),
        _ => plain(
            "RCU grace periods are long: a task stays in the kernel for long",
            "sudo perf record -a -g sleep 10, then perf report",
            "find the loop in the kernel (a driver?), and report it",
        ),
    }
}

fn of_quota(quota: &Quota) -> String {
    format!("{} of every {}", time(quota.on_ns), time(quota.period_ns))
}

fn of_turns(turns: Option<&Turns>) -> String {
    let Some(Turns { on_ns, off_ns, competitors }) = turns else { return String::new() };
    let others =
        if *competitors == 1 { "one other thread".into() } else { format!("{competitors} other threads") };
    format!(": a vCPU runs for {}, then waits for {}, beside about {others}", time(*on_ns), time(*off_ns))
}

pub(crate) fn names(vcpus: &[usize]) -> String {
    let numbers: Vec<String> = vcpus.iter().map(usize::to_string).collect();
    format!("{} {}", if vcpus.len() == 1 { "vCPU" } else { "vCPUs" }, numbers.join(", "))
}

/// The tasks that others of the VM wait for, where that is the answer.
fn tasks_in_the_way(cause: &Cause, seen: &Evidence) -> String {
    let all_ns = seen.in_the_way.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
    // A part that does not matter is not worth a name.
    let worth = seen.in_the_way.iter().filter(|(_, ns)| *ns >= all_ns / 10).take(3);
    let names: Vec<String> = worth.map(|(name, _)| shown::line(name).into_owned()).collect();
    match cause {
        Cause::OwnCpu | Cause::StarvedKthread if !names.is_empty() => {
            format!("; others wait while these run: {}", names.join(", "))
        }
        _ => String::new(),
    }
}

/// What the verdict rests on.
fn seen_lines(seen: &Evidence) -> Vec<String> {
    let permille = |ns: u64| ns.saturating_mul(1000) / seen.span_ns.max(1);
    let vcpu = |vcpu: &reprieve_policy::explain::Vcpu| {
        let longest_ns = vcpu.offs.iter().map(|off| off.length_ns()).max();
        let longest = longest_ns.map_or(String::new(), |ns| format!(", {} at the longest", time(ns)));
        format!(
            "vCPU {}: did not run (off) for {} of the time, {}{longest}; its beats waited for other tasks of this VM for {}",
            vcpu.vcpu,
            part(vcpu.off_ns(), seen.span_ns),
            if vcpu.offs.len() == 1 { "once".into() } else { format!("{} times", vcpu.offs.len()) },
            percent(permille(vcpu.kept_ns))
        )
    };
    let mut lines: Vec<String> = seen.vcpus.iter().map(vcpu).collect();
    let shared = permille(seen.shared_ns());
    if shared >= OFF_PERMILLE {
        lines.push(format!(
            "for {} of the time vCPUs were off and then came back at the same moment: late timers of the hypervisor, or stops of the whole VM",
            percent(shared)
        ));
    }
    let vcpus = seen.vcpus.len().max(1) as u64;
    lines.push(match seen.steal_ns {
        Some(steal_ns) => format!("steal: {} of the vCPUs' time", percent(permille(steal_ns / vcpus))),
        None => "steal: none since this VM booted; many hosts report none, whatever they take".into(),
    });
    let gps = &seen.grace_periods_ns;
    if let (Some(longest_ns), Some(median_ns)) = (gps.last(), gps.get(gps.len() / 2)) {
        lines.push(format!(
            "waits for grace periods (membarrier): {} at the median, {} at the longest, of {}",
            time(*median_ns),
            time(*longest_ns),
            gps.len()
        ));
    }
    let waited = match seen.silent.is_empty() {
        true => "some task waited for a CPU",
        false => "some task waited for a CPU, reprieve's own on a vCPU without beats included",
    };
    let optional = [
        ("throttled in its own cgroup, all CPUs together", seen.throttled_ns),
        (waited, seen.cpu_wait_ns),
        ("some task waited for memory", seen.memory_wait_ns),
        ("RCU's kthread waited for a CPU", seen.kthread_wait_ns),
    ];
    let told =
        |(what, ns): (&str, Option<u64>)| Some(format!("{what}: {} of the time", percent(permille(ns?))));
    lines.extend(optional.into_iter().filter_map(told));
    lines.extend(deep_lines(seen));
    lines
}

/// What tiers above T0 saw.
fn deep_lines(seen: &Evidence) -> Vec<String> {
    let mut lines = Vec::new();
    let graces = &seen.exact_grace_periods_ns;
    if let (Some(longest_ns), Some(median_ns)) = (graces.last(), graces.get(graces.len() / 2)) {
        lines.push(format!(
            "grace periods, by the kernel itself: {} at the median, {} at the longest, of {}",
            time(*median_ns),
            time(*longest_ns),
            graces.len()
        ));
    }
    let first = |sums: &[(String, u64)], shown: fn(u64) -> String| {
        let each = sums.iter().take(3).map(|(name, sum)| format!("{} {}", shown::line(name), shown(*sum)));
        each.collect::<Vec<_>>().join(", ")
    };
    if !seen.queued.is_empty() {
        lines
            .push(format!("queued to be freed, by function: {}", first(&seen.queued, |sum| sum.to_string())));
    }
    if !seen.in_the_way.is_empty() {
        lines.push(format!("waited for by other tasks: {}", first(&seen.in_the_way, time)));
    }
    if let Some(logged) = seen.logged.filter(|logged| *logged > 0) {
        lines.push(format!("stalls and lockups in the kernel's log meanwhile: {logged}"));
    }
    if !seen.real_time {
        lines.push(
            "without real-time priority: the VM's own load may hide what the host does (`reprieve doctor` says how to get it)"
                .into(),
        );
    }
    lines.push(format!("seen by tier {} (`reprieve doctor` says what opens more)", seen.tier.name()));
    lines
}

fn json_of(seen: &Evidence, verdict: &Verdict) -> Value {
    let vcpu = |vcpu: &reprieve_policy::explain::Vcpu| {
        json!({
            "vcpu": vcpu.vcpu, "off_ns": vcpu.off_ns(), "offs": vcpu.offs.len(), "kept_ns": vcpu.kept_ns,
            "idle_share": vcpu.idle,
        })
    };
    json!({
        "explain_version": VERSION,
        "tier": seen.tier.name(),
        "real_time_beats": seen.real_time,
        "cpu_wait_ns": seen.cpu_wait_ns,
        "span_ns": seen.span_ns,
        "findings": verdict.findings.iter().map(|finding| finding_json(finding, seen)).collect::<Vec<_>>(),
        "vcpus": seen.vcpus.iter().map(vcpu).collect::<Vec<_>>(),
        "silent_vcpus": seen.silent,
        "shared_off_ns": seen.shared_ns(),
        "steal_ns": seen.steal_ns,
        "throttled_ns": seen.throttled_ns,
        "clock_step_ns": seen.stepped_ns,
        "suspended_ns": seen.suspended_ns,
        "memory_wait_ns": seen.memory_wait_ns,
        "kthread_wait_ns": seen.kthread_wait_ns,
        "membarrier_ns": seen.grace_periods_ns,
        "grace_periods_ns": seen.exact_grace_periods_ns,
        "queued": seen.queued,
        "in_the_way_ns": seen.in_the_way,
        "logged": seen.logged,
    })
}

/// A finding in a line.
pub fn answer(finding: &Finding, seen: &Evidence) -> String {
    format!("{} ({})", says(finding, seen), word(finding.confidence))
}

/// A finding for machines.
pub fn finding_json(finding: &Finding, seen: &Evidence) -> Value {
    let mut value = cause_json(&finding.cause);
    value["confidence"] = word(finding.confidence).into();
    value["lost_permille"] = finding.lost_permille.into();
    value["says"] = says(finding, seen).into();
    value
}

fn says(finding: &Finding, seen: &Evidence) -> String {
    let in_the_way = tasks_in_the_way(&finding.cause, seen);
    let idle = idle_beside_waits(seen);
    if finding.cause != Cause::OwnCpu || idle.is_empty() {
        return format!("{}{in_the_way}", said(&finding.cause).answer);
    }
    let is_or_are = if idle.len() == 1 { "is" } else { "are" };
    let pinned = if idle.len() < seen.vcpus.len() { "pinned to others, " } else { "" };
    format!(
        "Tasks of this VM wait for a CPU while {} {is_or_are} idle: {pinned}limited by a cgroup, or too short to be moved{in_the_way}",
        names(&idle)
    )
}

/// vCPUs that were idle at times at which tasks waited for a CPU: both together took more than the whole time. None while the host
/// keeps vCPUs off, for then tasks wait on these.
fn idle_beside_waits(seen: &Evidence) -> Vec<usize> {
    if seen.vcpus.iter().any(|vcpu| vcpu.off_ns().saturating_mul(1000) / seen.span_ns.max(1) >= OFF_PERMILLE)
    {
        return Vec::new();
    }
    let waited = seen.waits_of_tasks_ns().unwrap_or(0) as f64 / seen.span_ns.max(1) as f64;
    let idle = seen.vcpus.iter().filter(|vcpu| vcpu.idle + waited > SURELY_BOTH);
    idle.map(|vcpu| vcpu.vcpu).collect()
}

/// A cause, with what is known of it.
fn cause_json(cause: &Cause) -> Value {
    let quota_json = |quota: &Quota| json!({ "period_ns": quota.period_ns, "on_ns": quota.on_ns, "regularity": quota.regularity, "ambiguous": quota.is_ambiguous });
    let turns_json = |turns: &Turns| json!({ "on_ns": turns.on_ns, "off_ns": turns.off_ns, "competitors": turns.competitors });
    let mut value = match cause {
        Cause::Pause { longest_ns } => json!({ "longest_ns": longest_ns }),
        Cause::ClockStep { by_ns } => json!({ "by_ns": by_ns }),
        Cause::OwnQuota { throttled_ns, quota } => {
            json!({ "throttled_ns": throttled_ns, "quota": quota.as_ref().map(quota_json) })
        }
        Cause::Quota { quota, vcpus, is_of_vm } => {
            json!({ "quota": quota_json(quota), "vcpus": vcpus, "of_vm": is_of_vm })
        }
        Cause::BusyNeighbour { vcpu, turns } => {
            json!({ "vcpu": vcpu, "turns": turns.as_ref().map(turns_json) })
        }
        Cause::Contention { turns } => json!({ "turns": turns.as_ref().map(turns_json) }),
        Cause::OwnCpu | Cause::OwnMemory | Cause::StarvedKthread | Cause::LongReader => json!({}),
    };
    value["cause"] = cause.name().into();
    value
}
