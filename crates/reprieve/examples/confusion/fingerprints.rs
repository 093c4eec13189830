//! How exact the fingerprint's figures are: period and quota, and the slice.

use std::fmt::Write;

use serde_json::Value;

use crate::causes::Cause;
use crate::draw::{Injection, SETTINGS};
use crate::matrix::{Shown, runs};
use crate::record::{Record, Run};

/// The bars: period, quota and slice, in per cent.
const BARS: (f64, f64, f64) = (5.0, 10.0, 20.0);

/// Errors of a quantity over some runs, in per cent; `None` for a run that gave no figure.
struct Errors(Vec<Option<f64>>);

impl Errors {
    fn said(&self, bar: f64) -> String {
        let mut known: Vec<f64> = self.0.iter().flatten().map(|error| error.abs()).collect();
        known.sort_by(f64::total_cmp);
        let within = known.iter().filter(|error| **error <= bar).count();
        match (known.get(known.len() / 2), known.last()) {
            (Some(median), Some(most)) => {
                let mean = self.0.iter().flatten().sum::<f64>() / known.len() as f64;
                format!(
                    "{within}/{} within {bar} %, median {median:.1} %, at most {most:.1} %, mean with its sign {mean:+.1} %",
                    self.0.len()
                )
            }
            _ => format!("0/{} gave one", self.0.len()),
        }
    }
}

/// In words; empty if there are no such runs.
pub fn text(record: &Record, shown: Shown) -> String {
    let all = runs(record, shown);
    let of = |cause: Cause| all.iter().copied().filter(move |run| run.cause == cause);
    let mut text = String::new();
    if of(Cause::FingerprintQuota).next().is_some() {
        text.push_str("\nThe quota's fingerprint, errors of its period and of its time on\n");
    }
    for (number, (period_us, percent)) in SETTINGS.iter().enumerate() {
        let of_setting: Vec<&Run> =
            of(Cause::FingerprintQuota).filter(|run| run.strength == number).collect();
        if of_setting.is_empty() {
            continue;
        }
        let errors = |of: fn(&Run) -> Option<f64>| Errors(of_setting.iter().map(|run| of(run)).collect());
        let (period, quota) = (errors(period_error).said(BARS.0), errors(quota_error).said(BARS.1));
        let period_ms = *period_us as f64 / 1000.0;
        let _ = writeln!(text, "{percent:>3} % of {period_ms:>3} ms: period {period}; quota {quota}");
    }
    drawn_quotas(&mut text, &of(Cause::Quota).collect::<Vec<_>>());
    let slices: Vec<&Run> = of(Cause::FingerprintSlice).collect();
    if !slices.is_empty() {
        let errors = Errors(slices.iter().map(|run| slice_error(run)).collect()).said(BARS.2);
        let _ = writeln!(
            text,
            "\nThe slice, against the switch records of the host ({}): {errors}",
            record.host_kernel
        );
    }
    text
}

/// The quotas of the matrix: their values follow from the seed, and the guest is half idle in some.
fn drawn_quotas(text: &mut String, quotas: &[&Run]) {
    if quotas.is_empty() {
        return;
    }
    let errors = |of: fn(&Run) -> Option<f64>| Errors(quotas.iter().map(|run| of(run)).collect());
    let (period, quota) = (errors(period_error).said(BARS.0), errors(quota_error).said(BARS.1));
    let strict = quotas.iter().filter(|run| is_strictly_right(run)).count();
    let _ = writeln!(
        text,
        "\nQuotas of the matrix, 10 to 200 ms: period {period}; quota {quota}. Named first, on the right vCPUs, with the period \
         within {} %, and not called ambiguous: {strict} of {}",
        BARS.0,
        quotas.len()
    );
}

fn is_strictly_right(run: &Run) -> bool {
    let Injection::Quota { vcpus, .. } = &run.drawn.injection else { return false };
    let Some(verdict) = &run.verdict else { return false };
    let is_sure = verdict.quota.as_ref().is_some_and(|quota| quota["ambiguous"] == Value::Bool(false));
    verdict.causes.first().is_some_and(|first| first == "quota")
        && verdict.on_vcpus.as_ref().is_some_and(|on| *on == serde_json::json!(vcpus))
        && period_error(run).is_some_and(|error| error.abs() <= BARS.0)
        && is_sure
}

fn error_percent(found: f64, truth: f64) -> Option<f64> {
    (truth > 0.0).then(|| (found - truth) / truth * 100.0)
}

fn of_quota(run: &Run, key: &str) -> Option<f64> {
    run.verdict.as_ref()?.quota.as_ref()?.get(key).and_then(Value::as_f64)
}

fn period_error(run: &Run) -> Option<f64> {
    let Injection::Quota { period_us, .. } = &run.drawn.injection else { return None };
    error_percent(of_quota(run, "period_ns")?, *period_us as f64 * 1000.0)
}

/// Of the time on in a period. If the period found is another one, that is an error of it, too.
fn quota_error(run: &Run) -> Option<f64> {
    let Injection::Quota { period_us, percent, .. } = &run.drawn.injection else { return None };
    error_percent(of_quota(run, "on_ns")?, *period_us as f64 * 10.0 * percent)
}

fn slice_error(run: &Run) -> Option<f64> {
    let found = run.verdict.as_ref()?.turns.as_ref()?.get("on_ns").and_then(Value::as_f64)?;
    error_percent(found, run.truth.slices?.on_p50_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_a_figure_are_not_within_the_bar() {
        let errors = Errors(vec![Some(-2.0), None, Some(6.0)]);
        assert_eq!(
            errors.said(5.0),
            "1/3 within 5 %, median 6.0 %, at most 6.0 %, mean with its sign +2.0 %"
        );
        assert_eq!(Errors(vec![None]).said(5.0), "0/1 gave one");
    }
}
