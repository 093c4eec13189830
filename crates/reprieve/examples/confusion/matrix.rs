//! The confusion matrix of a record, the answer first.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::causes::{Cause, Judged, MATRIX, STRENGTHS, judge};
use crate::record::{Record, Run};

/// What explain can name, and the heading of its column.
const ANSWERS: [(&str, &str); 11] = [
    ("quota", "quota"),
    ("contention", "cont."),
    ("busy-neighbour", "neigh."),
    ("pause", "pause"),
    ("clock-step", "clock"),
    ("own-cpu", "cpu"),
    ("own-memory", "mem."),
    ("starved-kthread", "kthr."),
    ("long-reader", "reader"),
    ("own-quota", "own-q."),
    ("", "none"),
];
/// Causes outside the guest.
const HOST: [Cause; 5] = [Cause::Quota, Cause::VmQuota, Cause::Contention, Cause::Neighbour, Cause::Pause];
/// Of a normal distribution, two-sided 95 %.
const Z: f64 = 1.959_964;

/// The Wilson interval of a share, in per cent.
pub fn wilson(hits: usize, of: usize) -> (f64, f64) {
    if of == 0 {
        return (0.0, 100.0);
    }
    let (n, p) = (of as f64, hits as f64 / of as f64);
    let centre = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((centre - half).max(0.0) * 100.0, (centre + half).min(1.0) * 100.0)
}

/// Which runs are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Those that count.
    Accepted,
    /// Also those that were rejected because the host was busy: for a trial, never for a claim.
    AlsoBusy,
}

impl Shown {
    fn has(self, run: &Run) -> bool {
        let is_busy = |why: &String| why.starts_with("the host was busy");
        run.verdict.is_some()
            && run.rejected.as_ref().is_none_or(|why| self == Shown::AlsoBusy && is_busy(why))
    }
}

/// The runs of the matrix that are shown.
pub fn runs(record: &Record, shown: Shown) -> Vec<&Run> {
    record.runs.iter().filter(|run| shown.has(run)).collect()
}

fn judged(run: &Run) -> Judged {
    judge(run.cause, run.verdict.as_ref().map_or(&[], |verdict| &verdict.causes))
}

fn count(runs: &[&Run], what: Judged) -> usize {
    runs.iter().filter(|run| judged(run) == what).count()
}

/// All of it.
pub fn text(record: &Record, shown: Shown) -> String {
    let all = runs(record, shown);
    let of_matrix = |run: &&&Run| MATRIX.iter().any(|row| row.cause == run.cause);
    let (quiet, injected): (Vec<&Run>, Vec<&Run>) =
        all.iter().filter(of_matrix).copied().partition(|run| run.cause == Cause::Quiet);
    let mut text = answer(&injected, &quiet);
    text.push_str(&parts(&injected));
    if shown == Shown::AlsoBusy {
        text.push_str("Runs on a busy host are among them: this is a trial.\n");
    }
    text.push('\n');
    table(&mut text, &all);
    text.push('\n');
    by_strength(&mut text, &all);
    split(&mut text, &injected);
    times(&mut text, &injected);
    rejected(&mut text, record);
    text
}

fn answer(injected: &[&Run], quiet: &[&Run]) -> String {
    let right = count(injected, Judged::Right);
    let (low, high) = wilson(right, injected.len());
    let percent = share(right, injected.len());
    let alarms = count(quiet, Judged::Wrong);
    let (alarms_low, alarms_high) = wilson(alarms, quiet.len());
    format!(
        "{right} of {} runs named right: {percent:.1} % [{low:.1}, {high:.1}] (Wilson, 95 %), {alarms} {} of {} when quiet \
         [{alarms_low:.1} %, {alarms_high:.1} %]; unknown {}, right but not first {}, wrong {}.\n",
        injected.len(),
        if alarms == 1 { "false alarm" } else { "false alarms" },
        quiet.len(),
        count(injected, Judged::Unknown),
        count(injected, Judged::NotFirst),
        count(injected, Judged::Wrong),
    )
}

fn share(hits: usize, of: usize) -> f64 {
    hits as f64 / of.max(1) as f64 * 100.0
}

/// The cause that is named right least often, and those of the host alone: most others are read off the kernel's counters.
fn parts(injected: &[&Run]) -> String {
    let counted = |causes: &[Cause]| {
        let runs: Vec<&Run> = injected.iter().copied().filter(|run| causes.contains(&run.cause)).collect();
        (count(&runs, Judged::Right), runs.len())
    };
    let rows = MATRIX.iter().map(|row| (row.name, counted(&[row.cause]))).filter(|(_, (_, runs))| *runs > 0);
    let worst = rows.min_by(|a, b| share(a.1.0, a.1.1).total_cmp(&share(b.1.0, b.1.1)));
    let Some((name, (right, runs))) = worst else { return String::new() };
    let (host_right, host_runs) = counted(&HOST);
    format!(
        "Least often: {name}, {right} of {runs}. Causes of the host (all but what the guest does to itself): {host_right} of \
         {host_runs}, {:.1} %. Right, with further causes behind: {}.\n",
        share(host_right, host_runs),
        injected.iter().filter(|run| judged(run) == Judged::Right && has_further(run)).count(),
    )
}

fn has_further(run: &Run) -> bool {
    run.verdict.as_ref().is_some_and(|verdict| verdict.causes.len() > 1)
}

fn table(text: &mut String, all: &[&Run]) {
    let _ = write!(text, "{:<16}{:>5}", "injected", "runs");
    ANSWERS.iter().for_each(|(_, heading)| text.push_str(&format!("{heading:>8}")));
    text.push_str("   right  [95 %]      not first  effect, %\n");
    for row in &MATRIX {
        let of_cause: Vec<&Run> = all.iter().copied().filter(|run| run.cause == row.cause).collect();
        if of_cause.is_empty() {
            continue;
        }
        let _ = write!(text, "{:<16}{:>5}", row.name, of_cause.len());
        for (name, _) in ANSWERS {
            let says = |run: &&&Run| first(run) == name;
            let cell = match of_cause.iter().filter(says).count() {
                0 => "·".to_string(),
                count => count.to_string(),
            };
            text.push_str(&format!("{cell:>8}"));
        }
        let right = count(&of_cause, Judged::Right);
        let (low, high) = wilson(right, of_cause.len());
        let interval = format!("[{low:.0}, {high:.0}]");
        let (percent, not_first) = (share(right, of_cause.len()), count(&of_cause, Judged::NotFirst));
        let _ = writeln!(text, "{percent:>6.0} %  {interval:<10}{not_first:>11}{:>11}", effects(&of_cause));
    }
}

/// How much of the window the injection took, from the least to the most.
fn effects(runs: &[&Run]) -> String {
    let effects: Vec<f64> = runs.iter().filter_map(|run| run.truth.effect_percent).collect();
    let (least, most) = effects.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
    if effects.is_empty() { "-".into() } else { format!("{least:.0} to {most:.0}") }
}

fn first(run: &Run) -> &str {
    run.verdict.as_ref().and_then(|verdict| verdict.causes.first()).map_or("", String::as_str)
}

fn by_strength(text: &mut String, all: &[&Run]) {
    let _ = writeln!(text, "Right by strength, and with a busy or a half-idle guest");
    let _ = writeln!(
        text,
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "mild", "middle", "strong", "busy", "half"
    );
    for row in &MATRIX {
        if all.iter().all(|run| run.cause != row.cause) {
            continue;
        }
        let share = |is_in: &dyn Fn(&Run) -> bool| {
            let of: Vec<&Run> =
                all.iter().copied().filter(|run| run.cause == row.cause && is_in(run)).collect();
            format!("{}/{}", count(&of, Judged::Right), of.len())
        };
        let _ = write!(text, "{:<16}", row.name);
        (0..STRENGTHS).for_each(|strength| {
            text.push_str(&format!("{:>10}", share(&|run: &Run| run.strength == strength)));
        });
        // The load of these does not depend on it.
        let (busy, half) = match row.cause {
            Cause::Quiet | Cause::OwnCpu => ("-".into(), "-".into()),
            _ => (share(&|run: &Run| run.is_busy), share(&|run: &Run| !run.is_busy)),
        };
        let _ = writeln!(text, "{busy:>10}{half:>10}");
    }
}

fn split(text: &mut String, injected: &[&Run]) {
    let mut guests: Vec<(&str, usize)> =
        injected.iter().map(|run| (run.kernel.as_str(), run.vcpus)).collect();
    guests.sort_unstable();
    guests.dedup();
    for (kernel, vcpus) in guests {
        let of: Vec<&Run> =
            injected.iter().copied().filter(|run| run.kernel == kernel && run.vcpus == vcpus).collect();
        let _ =
            writeln!(text, "{kernel}, {vcpus} vCPUs: {} right of {}", count(&of, Judged::Right), of.len());
    }
}

fn times(text: &mut String, injected: &[&Run]) {
    let mut times: Vec<f64> = injected.iter().filter_map(|run| run.to_verdict_s).collect();
    times.sort_by(f64::total_cmp);
    if let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) {
        let _ = writeln!(text, "From the injection to the verdict: {median:.1} s, at most {longest:.1} s.");
    }
}

fn rejected(text: &mut String, record: &Record) {
    let of = |begin: &str| {
        let is_one = |run: &&Run| run.rejected.as_ref().is_some_and(|why| why.starts_with(begin));
        record.runs.iter().filter(is_one).count()
    };
    let _ = writeln!(
        text,
        "Rejected: {} on a busy host, {} not in effect, {} failed; {} of {} planned runs were done, repeated ones included.",
        of("the host was busy"),
        of("not in effect"),
        of("failed"),
        record.runs.len(),
        record.planned
    );
    let case = |run: &Run| (run.kernel.clone(), run.vcpus, run.cause, run.strength, run.repetition);
    let counted: BTreeSet<_> = runs(record, Shown::Accepted).into_iter().map(case).collect();
    let without: BTreeSet<_> = record.runs.iter().map(case).filter(|case| !counted.contains(case)).collect();
    for row in &MATRIX {
        let cases = without.iter().filter(|(_, _, cause, ..)| *cause == row.cause).count();
        if cases > 0 {
            let _ = writeln!(text, "Cases of {} of which no try counts: {cases}.", row.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Background, Drawn, Injection};
    use crate::record::{Truth, VERSION, Verdict};

    fn run(cause: Cause, causes: &[&str], rejected: Option<&str>) -> Run {
        let background = Background { vcpus: Vec::new(), duty_percent: 0, burst_us: 0 };
        Run {
            kernel: "6.1.0".into(),
            vcpus: 2,
            cause,
            strength: 0,
            repetition: 0,
            is_busy: true,
            drawn: Drawn { injection: Injection::Nothing, background, pinned: true },
            verdict: Some(Verdict {
                causes: causes.iter().map(|cause| cause.to_string()).collect(),
                ..Verdict::default()
            }),
            to_verdict_s: Some(9.0),
            foreign_cpus: 0.0,
            truth: Truth::default(),
            rejected: rejected.map(str::to_string),
        }
    }

    fn record(runs: Vec<Run>) -> Record {
        Record {
            confusion_version: VERSION,
            command: String::new(),
            seed: 1,
            watch_s: 8,
            accelerator: String::new(),
            host_kernel: String::new(),
            host_pcpus: 2,
            rule: String::new(),
            planned: runs.len(),
            runs,
        }
    }

    #[test]
    fn the_interval_is_wilsons() {
        // 15 of 20: Newcombe, Statistics in Medicine 17, 1998, and by hand.
        let (low, high) = wilson(15, 20);
        assert!((low - 53.1).abs() < 0.1 && (high - 88.8).abs() < 0.1, "{low} {high}");
        assert_eq!(wilson(0, 0), (0.0, 100.0));
    }

    #[test]
    fn the_answer_counts_what_counts() {
        let record = record(vec![
            run(Cause::Quota, &["quota"], None),
            run(Cause::Pause, &["own-cpu", "pause"], None),
            run(Cause::OwnCpu, &[], None),
            run(Cause::Quiet, &["contention"], None),
            run(Cause::Quota, &["contention"], Some("the host was busy: others used 0.50 CPUs")),
            run(Cause::FingerprintQuota, &["quota"], None),
        ]);
        let said = text(&record, Shown::Accepted);
        assert!(said.starts_with("1 of 3 runs named right: 33.3 % [6.1, 79.2]"), "{said}");
        assert!(said.contains("1 false alarm of 1 when quiet"), "{said}");
        assert!(said.contains("unknown 1, right but not first 1, wrong 0."), "{said}");
        assert!(said.contains("Rejected: 1 on a busy host"), "{said}");
        assert!(said.contains("Least often: pause, 0 of 1. Causes of the host"), "{said}");
        assert!(text(&record, Shown::AlsoBusy).starts_with("1 of 4 runs"), "{said}");
    }
}
