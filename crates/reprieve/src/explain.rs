//! `reprieve explain`: who slowed this VM down: the host, the VM itself, or the clock. By a look at the VM from inside, or by
//! its kernel's log alone.

mod words;

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use reprieve_linux::observe::{Beats, Counters, GracePeriods, Late, Standing};
use reprieve_linux::proc::{self, ProcRoot};
use reprieve_linux::signals::Interrupt;
use reprieve_policy::beat::{Gap, Verdict};
use reprieve_policy::explain::{self, Evidence, Vcpu, log};
use reprieve_policy::fingerprint::Off;
use reprieve_policy::kernel_log;

use crate::cli::ExplainArguments;
use crate::failure::Failure;
use crate::{input, output, progress};

/// Time between two beats, ns.
const BEAT_NS: u64 = 1_000_000;
/// Time between two looks at whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The most of a log that is read, in bytes.
const MOST_LOG_BYTES: u64 = 64 << 20;

/// Runs the verb.
pub fn explain(arguments: &ExplainArguments) -> Result<(), Failure> {
    if let Some(path) = &arguments.dmesg {
        let text = read_log(path)?;
        let events = kernel_log::events(&text);
        if events.is_empty() && !kernel_log::is_one(&text) {
            let way_out = "is it a kernel's log? dmesg may need root; or try journalctl -k";
            let path = path.display();
            return Err(Failure::Usage(format!("{path}: no line with a time; {way_out}")));
        }
        let verdict = log::judge(&events);
        return output::print(&words::of_log(&verdict, arguments.json));
    }
    let seen = watch(arguments.for_s)?;
    output::print(&words::of(&seen, &explain::judge(&seen), arguments.json))
}

/// Looks at this VM from inside.
fn watch(for_s: u64) -> Result<Evidence, Failure> {
    let root = ProcRoot::default();
    let interrupt = Interrupt::install()?;
    let counters = Counters::new(&root);
    let (grace_periods, before) = (GracePeriods::begin(), counters.read());
    let beats = Beats::begin(&root, &proc::allowed_cpus()?, BEAT_NS)?;
    let (began, bar) = (Instant::now(), progress::seconds(for_s));
    while !interrupt.is_raised() && began.elapsed() < Duration::from_secs(for_s) {
        std::thread::sleep(LOOK_EVERY);
        bar.set_position(began.elapsed().as_secs());
    }
    bar.finish_and_clear();
    let (late, after) = (beats.end(), counters.read());
    let durations_ns = grace_periods.map_or_else(Vec::new, |timed| timed.durations_ns());
    Ok(evidence(&late, &before, &after, durations_ns))
}

/// What two counts and the beats between them say.
fn evidence(late: &[Late], before: &Standing, after: &Standing, grace_periods_ns: Vec<u64>) -> Evidence {
    let grown = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    let span_ns = after.at_ns.saturating_sub(before.at_ns);
    let throttled_ns = after.throttled_since(before);
    // The kernel counts throttling of our cgroup as waiting for the guest's tasks. It is a time off all the same.
    let is_throttled = throttled_ns.is_some_and(|ns| ns > span_ns / 1000 * explain::OFF_PERMILLE);
    let vcpu = |late: &Late| {
        let (kept, off): (Vec<&Gap>, Vec<&Gap>) =
            late.gaps.iter().partition(|gap| gap.verdict == Verdict::Guest && !is_throttled);
        let offs: Vec<Off> = off.into_iter().map(off_of).collect();
        let idle_ns = grown(after.idle_ns.get(&late.cpu).copied(), before.idle_ns.get(&late.cpu).copied());
        let on_ns = span_ns.saturating_sub(offs.iter().map(Off::length_ns).sum());
        Vcpu {
            vcpu: late.cpu,
            offs,
            kept_ns: kept.iter().map(|gap| gap.late_ns).sum(),
            idle: idle_ns.map_or(0.0, |idle_ns| (idle_ns as f64 / on_ns.max(1) as f64).min(1.0)),
        }
    };
    let suspended_ns = after.suspended_ns.saturating_sub(before.suspended_ns);
    // A host that has booked none since boot books none at all, as under emulation.
    let books_steal = after.steal_ns.values().any(|ns| *ns > 0);
    let is_watched = |cpu: &usize| late.iter().any(|late| late.cpu == *cpu);
    let steal = |standing: &Standing| -> u64 {
        standing.steal_ns.iter().filter(|(cpu, _)| is_watched(cpu)).map(|(_, ns)| ns).sum()
    };
    Evidence {
        span_ns,
        vcpus: late.iter().filter(|late| late.beats > 0).map(vcpu).collect(),
        steal_ns: books_steal.then(|| steal(after).saturating_sub(steal(before))),
        throttled_ns,
        // The clock of the day goes on while the machine is suspended, and CLOCK_MONOTONIC does not.
        stepped_ns: after.day_ns - before.day_ns - suspended_ns as i64,
        suspended_ns,
        real_time: late.iter().all(|late| late.real_time),
        cpu_wait_ns: grown(after.cpu_wait_ns, before.cpu_wait_ns),
        memory_wait_ns: grown(after.memory_wait_ns, before.memory_wait_ns),
        grace_periods_ns,
        kthread_wait_ns: grown(after.kthread_wait_ns, before.kthread_wait_ns),
    }
}

/// The vCPU went off between its last beat and the next one due: halfway is the best guess.
fn off_of(gap: &Gap) -> Off {
    let due_ns = gap.back_ns - gap.late_ns.min(gap.back_ns);
    Off { since_ns: gap.last_beat_ns + due_ns.saturating_sub(gap.last_beat_ns) / 2, back_ns: gap.back_ns }
}

/// A log, from a file or from standard input.
fn read_log(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let opened = if path.as_os_str() == "-" { input::standard() } else { input::open(path) };
    let read = opened.and_then(|input| input.take(MOST_LOG_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| {
        let way_out = "name a file with a kernel's log, or: dmesg | reprieve explain --dmesg -";
        Failure::Usage(format!("{}: {error}; {way_out}", path.display()))
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_the_guest_are_no_times_off_unless_its_cgroup_is_throttled() {
        let gap = |last_ms: u64, back_ms: u64, verdict| Gap {
            vcpu: 0,
            last_beat_ns: last_ms * BEAT_NS,
            back_ns: back_ms * BEAT_NS,
            late_ns: (back_ms - last_ms - 1) * BEAT_NS,
            verdict,
        };
        let late = Late {
            cpu: 0,
            gaps: vec![gap(10, 21, Verdict::Unknown), gap(30, 36, Verdict::Guest)],
            beats: 90,
            ..Late::default()
        };
        let at = |ms: u64, throttled_ms: u64| Standing {
            at_ns: ms * BEAT_NS,
            throttled_ns: [("/own".into(), throttled_ms * BEAT_NS), ("/".into(), 1000 * BEAT_NS)].into(),
            ..Standing::default()
        };
        let free = evidence(std::slice::from_ref(&late), &at(0, 5), &at(100, 6), vec![]);
        assert_eq!(
            (free.span_ns, free.vcpus[0].off_ns(), free.vcpus[0].kept_ns),
            (100 * BEAT_NS, 10_500_000, 5 * BEAT_NS)
        );
        assert_eq!(free.steal_ns, None);
        let throttled = evidence(&[late], &at(0, 5), &at(100, 9), vec![]);
        assert_eq!((throttled.vcpus[0].offs.len(), throttled.vcpus[0].kept_ns), (2, 0));
    }
}
