//! What the host does to the guest under a condition, in words.

use reprieve_study::Condition;
use reprieve_study::scenario::Bursts;

/// What the host does to the guest, in the words of the scenario and in numbers.
pub fn described(condition: &Condition) -> String {
    match condition.label.as_str() {
        "" => disturbance(condition),
        label if condition.is_undisturbed() => label.to_string(),
        label => format!("{label} ({})", disturbance(condition)),
    }
}

/// What the host does to the guest, in numbers.
pub fn disturbance(condition: &Condition) -> String {
    let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let mut parts: Vec<String> = condition
        .quota
        .iter()
        .map(|quota| {
            format!("vCPU {} at most {} % of a pCPU per {} ms", quota.vcpu, quota.percent, quota.period_ms)
        })
        .collect();
    if !condition.pcpus.is_empty() {
        parts.push(format!("pinned to pCPUs {}", list(&condition.pcpus)));
    }
    if condition.neighbours > 0 {
        parts.push(format!("neighbour VMs: {}", condition.neighbours));
    }
    if condition.hogs > 0 {
        parts.push(format!("busy processes per pCPU: {}", condition.hogs));
    }
    if let Some(Bursts { for_ms, every_ms, jitter_ms, vcpu }) = condition.bursts {
        let jitter = match jitter_ms {
            0 => String::new(),
            ms => format!(", up to {ms} ms earlier or later"),
        };
        let (whose, in_turn) = match vcpu {
            None => ("each pCPU".into(), ", in turn"),
            Some(vcpu) => (format!("the pCPU of vCPU {vcpu}"), ""),
        };
        parts.push(format!("{whose} taken for {for_ms} of every {every_ms} ms{in_turn}{jitter}"));
    }
    if !condition.replay.is_empty() {
        parts.push(format!("vCPUs off as in the recording {}", condition.replay));
    }
    if condition.spinners > 0 {
        parts.push(format!("VMs that compute for ever: {}", condition.spinners));
    }
    if condition.overcommit > 0.0 {
        parts.push(format!("{} busy vCPUs per pCPU", condition.overcommit));
    }
    parts.extend(condition.pauses.iter().map(|pause| {
        format!("vCPU {} descheduled for {} ms at {} ms", pause.vcpu, pause.for_ms, pause.at_ms)
    }));
    parts.extend(condition.spikes.iter().map(|spike| {
        format!(
            "a neighbour VM with {} busy vCPUs for {} ms at {} ms",
            spike.vcpus, spike.for_ms, spike.at_ms
        )
    }));
    if !condition.without.is_empty() {
        let causes: Vec<&str> = condition.without.iter().map(|cause| cause.label()).collect();
        parts.push(format!("without {}", causes.join(" and ")));
    }
    parts.extend(condition.remedies.iter().map(|remedy| remedy.label().to_string()));
    parts.extend(condition.set.iter().map(|(key, value)| format!("{key} = {value}")));
    if condition.unobserved {
        parts.push("not observed".into());
    }
    if parts.is_empty() { "undisturbed".into() } else { parts.join("; ") }
}
