//! `reprieve explain --pid`: on the host, who keeps a guest's vCPUs off.

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_policy::SECOND_NS;
use reprieve_policy::explain::outside::{self, Blame, Culprit, OutsideVerdict, Taker, Whose};
use reprieve_study::{shown, units};
use reprieve_vm::VmError;
use reprieve_vm::attach::{self, Given, Qemu, Seen};
use reprieve_vm::outside::Watch;
use serde_json::{Value, json};

use super::words::{VERSION, percent, time, word};
use crate::failure::Failure;
use crate::{output, progress};

/// Watches the guest of this QEMU process, and says who keeps its vCPUs off.
pub fn explain(pid: i32, for_s: u64, as_json: bool) -> Result<(), Failure> {
    let root = ProcRoot::default();
    let qemu = attach::of(&root, pid).map_err(|error| match error {
        VmError::Host(error) if error.is_gone() => Failure::Usage(error.to_string()),
        VmError::Introspect(problem) => Failure::Usage(format!("--pid {pid}: {problem}")),
        other => other.into(),
    })?;
    let interrupt = Interrupt::install()?;
    let bar = progress::seconds(for_s);
    let mut is_over = |ns: u64| {
        bar.set_position(ns / SECOND_NS);
        interrupt.is_raised() || ns >= for_s * SECOND_NS
    };
    let seen = reprieve_vm::outside::watch(&root, &qemu, &Given::default(), &mut is_over)?;
    bar.finish_and_clear();
    let verdict = outside::judge(&seen.outside);
    output::print(&if as_json { json_of(&qemu, &seen, &verdict) } else { text_of(&qemu, &seen, &verdict) })
}

fn text_of(qemu: &Qemu, seen: &Watch, verdict: &OutsideVerdict) -> String {
    let name = format!("guest {} (process {})", shown::line(&qemu.name), qemu.pid);
    let span = time(seen.outside.span_ns);
    let mut text = match verdict.blames.first() {
        None => format!("Nothing kept the vCPUs of {name} off in {span}.\n"),
        Some(_) => {
            let waited = percent(verdict.waited_permille);
            format!("A vCPU of {name} waited for a pCPU for {waited} of {span}.\n")
        }
    };
    for blame in &verdict.blames {
        let said = said(&blame.culprit);
        text.push_str(&format!("{} ({}).\n", said.answer, word(blame.confidence)));
        let of = if blame.culprit == Culprit::HostBelow { "this host's time" } else { "the waits" };
        text.push_str(&format!("  Its part: {} of {of}.\n", percent(blame.share_permille)));
        text.push_str(&format!("  What to do: {}.\n", said.way_out));
    }
    text.push_str("Seen:\n");
    for (vcpu, ns) in seen.outside.waited_ns.iter().enumerate() {
        let permille = ns.saturating_mul(1000) / seen.outside.span_ns.max(1);
        text.push_str(&format!(
            "  vCPU {vcpu}: could run and did not for {} of the time\n",
            percent(permille)
        ));
    }
    if let Some(grace_periods) = &seen.grace_periods {
        text.push_str(&format!("  {}\n", of_grace_periods(grace_periods)));
    }
    seen.notes.iter().for_each(|note| text.push_str(&format!("  {}\n", shown::line(note))));
    text
}

fn of_grace_periods(seen: &Seen) -> String {
    let durations = &seen.durations;
    if durations.is_empty() {
        return "grace periods: none ended".into();
    }
    format!(
        "grace periods: {} at the median, {} at the longest, of {}; they waited {} for vCPUs that were off",
        units::duration(durations.value_at_quantile(0.5) as f64),
        units::duration(durations.max() as f64),
        durations.len(),
        time(seen.waited_ns)
    )
}

/// What is said of a culprit.
struct Said {
    answer: String,
    way_out: &'static str,
}

fn said(culprit: &Culprit) -> Said {
    match culprit {
        Culprit::Quota(throttle) => Said {
            answer: format!(
                "A CPU quota throttles it: {} of every {}, for all of {}",
                time(throttle.quota_ns),
                time(throttle.period_ns),
                shown::line(&throttle.cgroup)
            ),
            way_out: "a larger quota, a shorter period with the same share, a burst (cpu.max.burst), or `reprieve boost`",
        },
        Culprit::Own(takers) => Said {
            answer: format!("Threads of its own process run on its vCPUs' pCPUs: {}", names(takers)),
            way_out: "give emulator and I/O threads pCPUs of their own (libvirt: emulatorpin, iothreadpin), or pin vCPUs apart",
        },
        Culprit::Others(takers) => Said {
            answer: format!("Other tasks of this host run on its vCPUs' pCPUs: {}", names(takers)),
            way_out: "move them, give this VM more weight (cpu.weight), or pin its vCPUs elsewhere; `reprieve plan` says what neighbours cost",
        },
        Culprit::HostBelow => Said {
            answer: "This host is a VM itself, and its own host keeps its CPUs off (steal)".into(),
            way_out: "run `reprieve explain` here without --pid, and ask those who run the host below",
        },
        Culprit::Unseen => Said {
            answer: "Other tasks of this host were in the way; which ones, this user may not see".into(),
            way_out: "run this as root",
        },
        Culprit::Nobody => Said {
            answer: "Its vCPUs waited while the pCPU on which they ran next was idle".into(),
            way_out: "see whether the vCPUs are moved between pCPUs (pin them), or limited in another way (real-time throttling, a pause)",
        },
    }
}

fn names(takers: &[Taker]) -> String {
    let name = |taker: &Taker| {
        let owner = match &taker.whose {
            Whose::Vm(name) => format!(" of guest {}", shown::line(name)),
            Whose::Own | Whose::Other => String::new(),
        };
        format!("{}{owner} ({})", shown::line(&taker.name), time(taker.ns))
    };
    takers.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn json_of(qemu: &Qemu, seen: &Watch, verdict: &OutsideVerdict) -> String {
    let takers = |takers: &[Taker]| -> Value {
        let taker = |taker: &Taker| {
            let (whose, vm) = match &taker.whose {
                Whose::Own => ("own", None),
                Whose::Vm(name) => ("vm", Some(name)),
                Whose::Other => ("other", None),
            };
            json!({ "whose": whose, "vm": vm, "name": taker.name, "ns": taker.ns })
        };
        takers.iter().map(taker).collect()
    };
    let blame = |blame: &Blame| {
        let mut value = match &blame.culprit {
            Culprit::Quota(throttle) => json!({
                "cause": "quota", "cgroup": throttle.cgroup, "throttled_ns": throttle.throttled_ns,
                "quota": { "on_ns": throttle.quota_ns, "period_ns": throttle.period_ns },
            }),
            Culprit::Own(own) => json!({ "cause": "own-threads", "tasks": takers(own) }),
            Culprit::Others(others) => json!({ "cause": "other-tasks", "tasks": takers(others) }),
            Culprit::HostBelow => json!({ "cause": "host-below" }),
            Culprit::Unseen => json!({ "cause": "unseen" }),
            Culprit::Nobody => json!({ "cause": "nobody" }),
        };
        value["confidence"] = word(blame.confidence).into();
        value["share_permille"] = blame.share_permille.into();
        value["says"] = said(&blame.culprit).answer.into();
        value
    };
    let grace_periods = seen.grace_periods.as_ref().map(|seen| {
        let (median_ns, longest_ns) = (seen.durations.value_at_quantile(0.5), seen.durations.max());
        json!({ "count": seen.durations.len(), "median_ns": median_ns, "longest_ns": longest_ns, "waited_ns": seen.waited_ns })
    });
    let value = json!({
        "explain_version": VERSION,
        "tier": "host",
        "guest": qemu.name,
        "pid": qemu.pid,
        "span_ns": seen.outside.span_ns,
        "waited_permille": verdict.waited_permille,
        "findings": verdict.blames.iter().map(blame).collect::<Vec<_>>(),
        "waited_ns": seen.outside.waited_ns,
        "grace_periods": grace_periods,
        "notes": seen.notes,
    });
    format!("{}\n", shown::json(&value.to_string()))
}
