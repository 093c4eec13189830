//! Fits the noise of the simulated host to a record of real guests: how long vCPUs that have a pCPU each were kept from running,
//! and how often. Prints the keys of `[host]`.
//!
//! ```text
//! cargo run --release -p reprieve-study --example fit_noise -- RECORD.json [SCENARIO [COMPONENTS [timers]]]
//! ```
//! The model: each pCPU runs a few kinds of threads of the host's own, each of which sleeps, and runs, for times from an exponential
//! distribution. So the times that vCPUs are off are a mixture of exponential distributions. It is fitted by maximum likelihood,
//! with the expectation-maximisation algorithm (Dempster, Laird, Rubin 1977), to all times of the scenario's baseline. Nothing else
//! of the record is looked at, and nothing is random.
//!
//! With `timers` one component more is QEMU's main thread, which serves the timers of all vCPUs once a tick and takes about as long
//! each time: an Erlang distribution whose rate is known, `hz` over the number of vCPUs. Its mean over that number is the
//! `timer_thread_ns` of `[guest]`. Where the kernel serves the timers (KVM) there is no such thread.

use std::process::ExitCode;

use reprieve_study::{Record, Study, observation};

/// More iterations change nothing that is printed.
const ITERATIONS: usize = 5_000;
const QUANTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0];

/// Stages of the Erlang distribution of the main thread's times: their standard deviation is a quarter of their mean.
const STAGES: u32 = 16;

/// One kind of thread: its share of all times off, and their mean, ns. Their distribution is an Erlang distribution with `stages` stages;
/// with one stage it is exponential.
#[derive(Clone, Copy, Debug)]
struct Component {
    share: f64,
    mean_ns: f64,
    stages: u32,
}

impl Component {
    /// Logarithm of its part of the density at that time.
    fn log_density(&self, ns: f64) -> f64 {
        let (stages, rate) = (f64::from(self.stages), f64::from(self.stages) / self.mean_ns);
        let factorial: f64 = (1..self.stages).map(|stage| f64::from(stage).ln()).sum();
        self.share.ln() + stages * rate.ln() + (stages - 1.0) * ns.max(1.0).ln() - rate * ns - factorial
    }

    /// Share of times longer than `ns` that come from it.
    fn above(&self, ns: f64) -> f64 {
        let x = f64::from(self.stages) * ns / self.mean_ns;
        let mut term = (-x).exp();
        let mut sum = term;
        for stage in 1..self.stages {
            term *= x / f64::from(stage);
            sum += term;
        }
        self.share * sum
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match fit(&words) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("fit_noise: {problem}");
            ExitCode::from(2)
        }
    }
}

fn fit(words: &[String]) -> Result<String, String> {
    let path = words.first().ok_or("name a record of real guests")?;
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let record = Record::from_json(&text).map_err(|error| format!("{path}: {error}"))?;
    let named = |study: &&Study| words.get(1).is_none_or(|name| study.scenario.name == *name);
    let study = record.studies.iter().find(named).ok_or("the record has no such scenario")?;
    let components: Result<usize, _> = words.get(2).map_or(Ok(2), |text| text.parse());
    let components =
        components.ok().filter(|count| (1..=4).contains(count)).ok_or("one to four components")?;
    let off = off(study)?;
    let vcpus = study.scenario.guest.vcpus;
    let timers_per_s = match words.get(3).map(String::as_str) {
        None => None,
        Some("timers") => Some(study.scenario.guest.hz as f64 / vcpus as f64),
        Some(other) => return Err(format!("{other}: after COMPONENTS there may be only \"timers\"")),
    };
    let share = timers_per_s.map_or(0.0, |per_s| per_s / off.per_s());
    if share >= 1.0 {
        return Err("the vCPUs were off less often than their timers are due".into());
    }
    let mixture = mixture(&off.times, components, share);
    Ok(describe(&off, &mixture, vcpus))
}

struct Off {
    /// Lengths in ns, and how often each was seen.
    times: Vec<(f64, f64)>,
    /// Time that vCPUs were watched, all together, s.
    vcpu_seconds: f64,
}

impl Off {
    fn total(&self) -> f64 {
        self.times.iter().map(|(_, count)| count).sum()
    }

    /// How often a vCPU was off.
    fn per_s(&self) -> f64 {
        self.total() / self.vcpu_seconds
    }
}

fn off(study: &Study) -> Result<Off, String> {
    let mut all = reprieve_study::Distribution::default();
    let mut vcpu_seconds = 0.0;
    for run in study.runs_of(study.scenario.baseline()) {
        let Some(times) = run.distributions.get(observation::VCPU_OFF) else { continue };
        all.merge(times);
        vcpu_seconds += run.provenance.vcpus.len() as f64 * run.provenance.window_ns as f64 / 1e9;
    }
    if all.count() < 100 {
        return Err("the baseline has fewer than 100 times during which a vCPU was kept from running".into());
    }
    let (total, mut below) = (all.count() as f64, 0.0);
    let step = |(ns, share): (u64, f64)| (ns as f64, (share - std::mem::replace(&mut below, share)) * total);
    Ok(Off { times: all.cumulative().into_iter().map(step).collect(), vcpu_seconds })
}

/// The mixture of so many exponential distributions, and of one more that has this share of the times (none if it is 0), under which
/// these times are likeliest: that with the shortest mean first, and the one of the timers last.
fn mixture(times: &[(f64, f64)], components: usize, timers: f64) -> Vec<Component> {
    let total: f64 = times.iter().map(|(_, count)| count).sum();
    let mean_ns = times.iter().map(|(ns, count)| ns * count).sum::<f64>() / total;
    // Means a factor of eight apart, around the mean of all.
    let begin = |index: usize| Component {
        share: (1.0 - timers) / components as f64,
        mean_ns: mean_ns * 8_f64.powf(index as f64 - (components as f64 - 1.0) / 2.0),
        stages: 1,
    };
    let known = (timers > 0.0).then_some(Component { share: timers, mean_ns: 2.0 * mean_ns, stages: STAGES });
    let mut mixture: Vec<Component> = (0..components).map(begin).chain(known).collect();
    for _ in 0..ITERATIONS {
        let (mut counts, mut sums_ns) = (vec![0.0; mixture.len()], vec![0.0; mixture.len()]);
        for (ns, count) in times {
            // Relative to the largest, which alone may be too small for a float.
            let logs: Vec<f64> = mixture.iter().map(|of| of.log_density(*ns)).collect();
            let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let likelihoods: Vec<f64> = logs.iter().map(|log| (log - largest).exp()).collect();
            let sum: f64 = likelihoods.iter().sum();
            for (index, likelihood) in likelihoods.iter().enumerate() {
                counts[index] += count * likelihood / sum;
                sums_ns[index] += count * likelihood / sum * ns;
            }
        }
        let own: f64 = counts[..components].iter().sum();
        for (index, of) in mixture.iter_mut().enumerate() {
            of.mean_ns = (sums_ns[index] / counts[index].max(1e-9)).max(1.0);
            if index < components {
                of.share = (1.0 - timers) * counts[index] / own.max(1e-9);
            }
        }
    }
    mixture[..components].sort_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns));
    mixture
}

fn describe(off: &Off, mixture: &[Component], vcpus: usize) -> String {
    let (total, per_s) = (off.total(), off.per_s());
    let mut text = format!(
        "# {total:.0} times off in {:.1} s of vCPUs\n# quantile  recorded  fitted, us\n",
        off.vcpu_seconds
    );
    for quantile in QUANTILES {
        let recorded = quantile_of(&off.times, quantile) / 1e3;
        let fitted = fitted_quantile(mixture, quantile.min(1.0 - 0.5 / total)) / 1e3;
        text += &format!("# {quantile:<8} {recorded:>9.1} {fitted:>9.1}\n");
    }
    let (timers, own): (Vec<Component>, Vec<Component>) = mixture.iter().partition(|of| of.stages > 1);
    for of in timers {
        text += &format!("timer_thread_ns = {:.0}\n", of.mean_ns / vcpus as f64);
    }
    for (index, of) in own.iter().enumerate() {
        let (every_us, for_us) = (1e6 / (per_s * of.share) - of.mean_ns / 1e3, of.mean_ns / 1e3);
        text += &match index {
            0 => format!("noise_per_s = {:.0}\nnoise_ns = {:.0}\nnoise_tail = [", 1e6 / every_us, of.mean_ns),
            _ => format!("{{ every_us = {every_us:.0}, for_us = {for_us:.0} }}, "),
        };
    }
    text.trim_end_matches(", ").to_string() + "]\n"
}

fn quantile_of(times: &[(f64, f64)], quantile: f64) -> f64 {
    let total: f64 = times.iter().map(|(_, count)| count).sum();
    let mut below = 0.0;
    let reached = times.iter().find(|(_, count)| {
        below += count;
        below >= quantile * total - 1e-6
    });
    reached.or(times.last()).map_or(0.0, |(ns, _)| *ns)
}

/// By bisection.
fn fitted_quantile(mixture: &[Component], quantile: f64) -> f64 {
    let above = |ns: f64| mixture.iter().map(|of| of.above(ns)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1e12);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if above(middle) > 1.0 - quantile { low = middle } else { high = middle }
    }
    high
}
