//! The scenarios that are built in: their names and texts, for whoever runs them.

use reprieve_study::overrides;

/// Names and texts, in the order in which they are listed.
pub const BUILT_IN: [(&str, &str); 46] = [
    ("rcu-memory", include_str!("../../../scenarios/rcu-memory.toml")),
    ("rcu-clone", include_str!("../../../scenarios/rcu-clone.toml")),
    ("rcu-postmark", include_str!("../../../scenarios/rcu-postmark.toml")),
    ("rcu-stimuli", include_str!("../../../scenarios/rcu-stimuli.toml")),
    ("rcu-control", include_str!("../../../scenarios/rcu-control.toml")),
    ("rcu-observer", include_str!("../../../scenarios/rcu-observer.toml")),
    ("rcu-sweeps", include_str!("../../../scenarios/rcu-sweeps.toml")),
    ("rcu-space", include_str!("../../../scenarios/rcu-space.toml")),
    ("rcu-remedies", include_str!("../../../scenarios/rcu-remedies.toml")),
    ("rcu-remedies-sensitivity", include_str!("../../../scenarios/rcu-remedies-sensitivity.toml")),
    ("rcu-remedies-quota", include_str!("../../../scenarios/rcu-remedies-quota.toml")),
    ("rcu-parameters", include_str!("../../../scenarios/rcu-parameters.toml")),
    ("rcu-boost", include_str!("../../../scenarios/rcu-boost.toml")),
    ("rcu-boost-clone", include_str!("../../../scenarios/rcu-boost-clone.toml")),
    ("rcu-boost-postmark", include_str!("../../../scenarios/rcu-boost-postmark.toml")),
    ("rcu-spikes", include_str!("../../../scenarios/rcu-spikes.toml")),
    ("rcu-kernel-share", include_str!("../../../scenarios/rcu-kernel-share.toml")),
    ("rcu-conformance", include_str!("../../../scenarios/rcu-conformance.toml")),
    ("rcu-conformance-clone", include_str!("../../../scenarios/rcu-conformance-clone.toml")),
    ("rcu-conformance-postmark", include_str!("../../../scenarios/rcu-conformance-postmark.toml")),
    ("rcu-plan", include_str!("../../../scenarios/rcu-plan.toml")),
    ("rcu-plan-clone", include_str!("../../../scenarios/rcu-plan-clone.toml")),
    ("rcu-plan-postmark", include_str!("../../../scenarios/rcu-plan-postmark.toml")),
    ("xen-tail-latency", include_str!("../../../scenarios/xen-tail-latency.toml")),
    ("xen-wakeup", include_str!("../../../scenarios/xen-wakeup.toml")),
    ("xen-stalls", include_str!("../../../scenarios/xen-stalls.toml")),
    ("xen-sensitivity", include_str!("../../../scenarios/xen-sensitivity.toml")),
    ("xen-fairness", include_str!("../../../scenarios/xen-fairness.toml")),
    ("io-inactivity", include_str!("../../../scenarios/io-inactivity.toml")),
    ("io-calibration", include_str!("../../../scenarios/io-calibration.toml")),
    ("io-fairness", include_str!("../../../scenarios/io-fairness.toml")),
    ("io-sweeps", include_str!("../../../scenarios/io-sweeps.toml")),
    ("io-migrate", include_str!("../../../scenarios/io-migrate.toml")),
    ("io-migrate-seq", include_str!("../../../scenarios/io-migrate-seq.toml")),
    ("io-migrate-4", include_str!("../../../scenarios/io-migrate-4.toml")),
    ("io-migrate-seq-4", include_str!("../../../scenarios/io-migrate-seq-4.toml")),
    ("io-migrate-jitter", include_str!("../../../scenarios/io-migrate-jitter.toml")),
    ("io-migrate-jitter-4", include_str!("../../../scenarios/io-migrate-jitter-4.toml")),
    ("delete-free-delay", include_str!("../../../scenarios/delete-free-delay.toml")),
    ("delete-free-shared", include_str!("../../../scenarios/delete-free-shared.toml")),
    ("delete-free-spread", include_str!("../../../scenarios/delete-free-spread.toml")),
    ("delete-free-alone", include_str!("../../../scenarios/delete-free-alone.toml")),
    ("delete-free-stalled", include_str!("../../../scenarios/delete-free-stalled.toml")),
    ("delete-free-cost", include_str!("../../../scenarios/delete-free-cost.toml")),
    ("delete-free-writer", include_str!("../../../scenarios/delete-free-writer.toml")),
    ("delete-free-vm", include_str!("../../../scenarios/delete-free-vm.toml")),
];

/// The text of the scenario of that name. `or` is what else could be named, for the error.
///
/// # Errors
/// There is none of that name.
pub fn text(name: &str, or: &str) -> Result<&'static str, String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok(text);
    }
    let hint = match overrides::nearest(name, BUILT_IN.iter().map(|(known, _)| *known)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("`reprieve list` shows those that are built in; or name {or}"),
    };
    Err(format!("there is no scenario {name:?}; {hint}"))
}
