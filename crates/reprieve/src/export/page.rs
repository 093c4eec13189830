//! The totals as text, for Prometheus.
//!
//! Names and units are those of OpenMetrics: base units, `_total` for what only grows, no value for what is not known. Labels
//! join with what people have:
//!
//! - `vcpu` counts as libvirt's exporters do (`libvirt_domain_vcpu_time_seconds_total`), from 0.
//! - `cpu_mode` has the values of OpenTelemetry's attribute `cpu.mode` (metric `system.cpu.time`), whose name becomes this one in
//!   Prometheus. Only `steal` and `idle` are here. Time off that the beats saw is no such mode, and has a metric of its own.
//! - Names of causes are those of `reprieve explain --json`.
//!
//! Causes and states are gauges with a series for each, of 0 or 1. OpenMetrics has a type for that, StateSet, but its label must
//! have the metric's name, prometheus-client does not write it, and the older text form does not know it.
//!
//! Histograms have no label `vcpu`: with it, a VM of 64 vCPUs would have a thousand series of each.
//!
//! Source: the OpenMetrics specification 1.0; OpenTelemetry's semantic conventions for system metrics.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use reprieve_policy::explain::{Cause, Confidence, Finding, State};

use super::totals::{Totals, VcpuTotals, seconds};

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The text format of Prometheus 0.0.4, for everything else.
    Prometheus,
}

impl Form {
    /// The one that a client with this `Accept` header wants.
    pub fn wanted(accept: &str) -> Form {
        match accept.contains("application/openmetrics-text") {
            true => Form::OpenMetrics,
            false => Form::Prometheus,
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Makes the text.
pub struct Pages(Registry);

impl Pages {
    /// Of these totals, as they are whenever it is made.
    pub fn of(totals: Arc<Mutex<Totals>>) -> Pages {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Shared(totals)));
        Pages(registry)
    }

    /// The text now.
    pub fn text(&self, form: Form) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = match form {
            Form::OpenMetrics => text::encode(&mut text, &self.0),
            Form::Prometheus => prometheus_text::encode(&mut text, &self.0),
        };
        text
    }
}

#[derive(Debug)]
struct Shared(Arc<Mutex<Totals>>);

impl Collector for Shared {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Page(encoder);
        page.vcpus(&totals)?;
        page.grace_periods(&totals)?;
        page.waits(&totals)?;
        page.memory(&totals)?;
        page.verdict(&totals)?;
        page.quota(&totals)?;
        page.own(&totals)
    }
}

type Labels = Vec<(&'static str, String)>;

/// A value without labels.
fn alone(value: f64) -> Option<(Labels, f64)> {
    Some((Labels::new(), value))
}

/// A text to be, family by family. A family without values is left out.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn family(
        &mut self,
        kind: MetricType,
        (name, unit): (&str, Option<Unit>),
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in values {
            let mut one = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => one.encode_counter::<NoLabelSet, f64, f64>(&value, None)?,
                _ => one.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    /// Seconds that only grow.
    fn seconds_total(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, (name, Some(Unit::Seconds)), help, values)
    }

    /// A number that only grows.
    fn total(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, (name, None), help, values)
    }

    fn gauge(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.family(MetricType::Gauge, (name, unit), help, values)
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        histogram.encode(self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?)
    }

    fn vcpus(&mut self, totals: &Totals) -> fmt::Result {
        let mode = |mode: &'static str, ns: fn(&VcpuTotals) -> Option<u64>| {
            totals.vcpus.iter().filter_map(move |(number, vcpu)| {
                Some((vec![("vcpu", number.to_string()), ("cpu_mode", mode.into())], seconds(ns(vcpu)?)))
            })
        };
        let times = mode("steal", |vcpu| vcpu.steal_ns).chain(mode("idle", |vcpu| vcpu.idle_ns));
        self.seconds_total(
            "reprieve_vcpu_time",
            "Time of a vCPU as the kernel counts it; no steal if the host has reported none since boot.",
            times,
        )?;
        let each = |value: fn(&VcpuTotals) -> Option<f64>| {
            let one = move |(number, vcpu): (&usize, &VcpuTotals)| {
                Some((vec![("vcpu", number.to_string())], value(vcpu)?))
            };
            totals.vcpus.iter().filter_map(one)
        };
        self.seconds_total(
            "reprieve_vcpu_off",
            "Time that the host did not run a vCPU, by late beats.",
            each(|vcpu| Some(seconds(vcpu.off_ns))),
        )?;
        self.seconds_total(
            "reprieve_vcpu_kept",
            "Time that the VM's own tasks kept the beats of a vCPU waiting.",
            each(|vcpu| Some(seconds(vcpu.kept_ns))),
        )?;
        self.seconds_total(
            "reprieve_vcpu_run_delay",
            "Time that tasks could run on a vCPU and waited, summed over tasks.",
            each(|vcpu| Some(seconds(vcpu.run_delay_ns?))),
        )?;
        self.total("reprieve_vcpu_beats", "Beats of a vCPU.", each(|vcpu| Some(vcpu.beats as f64)))?;
        self.total(
            "reprieve_vcpu_lost_offs",
            "Times off for which there was no room.",
            each(|vcpu| Some(vcpu.lost as f64)),
        )?;
        self.histogram("reprieve_off_duration", "How long vCPUs were off at a time.", &totals.offs)
    }

    fn grace_periods(&mut self, totals: &Totals) -> fmt::Result {
        if totals.is_without_graces {
            return Ok(());
        }
        self.histogram(
            "reprieve_grace_period_wait",
            "How long membarrier() waited for RCU grace periods.",
            &totals.grace_periods,
        )?;
        self.gauge(
            "reprieve_grace_period_open",
            Some(Unit::Seconds),
            "How long the present wait for a grace period has taken.",
            alone(seconds(totals.open_grace_period_ns)),
        )
    }

    fn waits(&mut self, totals: &Totals) -> fmt::Result {
        let resources =
            [("cpu", totals.cpu_wait_ns), ("memory", totals.memory_wait_ns), ("io", totals.io_wait_ns)];
        let waits = resources
            .into_iter()
            .filter_map(|(name, ns)| Some((vec![("resource", name.to_string())], seconds(ns?))));
        self.seconds_total(
            "reprieve_pressure_waiting",
            "Time during which some task waited for a resource (PSI).",
            waits,
        )?;
        self.seconds_total(
            "reprieve_throttled",
            "Time that a CPU quota throttled the exporter's own cgroup.",
            totals.throttled_ns.and_then(|ns| alone(seconds(ns))),
        )?;
        self.seconds_total(
            "reprieve_kthread_wait",
            "Time that RCU's kthread could run and did not.",
            totals.kthread_wait_ns.and_then(|ns| alone(seconds(ns))),
        )?;
        self.seconds_total(
            "reprieve_suspended",
            "Time that the VM was suspended.",
            alone(seconds(totals.suspended_ns)),
        )?;
        self.gauge(
            "reprieve_clock_offset",
            Some(Unit::Seconds),
            "How far the clock of the day has moved against CLOCK_MONOTONIC since the exporter began.",
            alone(totals.moved_ns as f64 / 1e9),
        )
    }

    fn memory(&mut self, totals: &Totals) -> fmt::Result {
        let Some(memory) = &totals.memory else { return Ok(()) };
        let each = [
            ("reprieve_memory_free", "Free memory.", memory.free_bytes),
            ("reprieve_memory_available", "Memory that can be had without swapping.", memory.available_bytes),
            ("reprieve_slab", "Slabs. Memory that waits for grace periods is a part.", memory.slab_bytes),
            ("reprieve_slab_unreclaimable", "Slabs that cannot be reclaimed.", memory.unreclaimable_bytes),
        ];
        each.into_iter().try_for_each(|(name, help, bytes)| {
            self.gauge(name, Some(Unit::Bytes), help, alone(bytes as f64))
        })
    }

    /// A value for each cause, and for each state: alerts need one also while nothing is wrong.
    fn verdict(&mut self, totals: &Totals) -> fmt::Result {
        let now = match &totals.state {
            State::Quiet => "quiet",
            State::Looking { .. } => "looking",
            State::Known(_) => "known",
        };
        let states = ["quiet", "looking", "known"];
        let states = states.map(|state| (vec![("state", state.to_string())], f64::from(state == now)));
        self.gauge("reprieve_state", None, "1 for what is known of now.", states)?;
        let each = |value: fn(&Finding) -> f64| {
            Cause::NAMES.map(|name| {
                let found = findings(totals).iter().find(|finding| finding.cause.name() == name);
                (vec![("cause", name.to_string())], found.map_or(0.0, value))
            })
        };
        self.gauge(
            "reprieve_verdict",
            None,
            "1 for each cause that slows the VM down now, as `reprieve explain` finds it.",
            each(|_| 1.0),
        )?;
        let sure = |finding: &Finding| match finding.confidence {
            Confidence::Possible => 1.0,
            Confidence::Likely => 2.0,
            Confidence::Sure => 3.0,
        };
        self.gauge(
            "reprieve_verdict_confidence",
            None,
            "How sure that is: 1 possible, 2 likely, 3 sure, 0 not found.",
            each(sure),
        )?;
        self.gauge(
            "reprieve_verdict_lost",
            Some(ratio()),
            "Time that a cause took in the last seconds, of the vCPU that lost most.",
            each(|finding| finding.lost_permille as f64 / 1e3),
        )
    }

    /// Quotas, while there are some.
    fn quota(&mut self, totals: &Totals) -> fmt::Result {
        let quotas = || {
            findings(totals).iter().filter_map(|finding| match &finding.cause {
                Cause::Quota { quota, .. } | Cause::OwnQuota { quota: Some(quota), .. } => {
                    Some((vec![("cause", finding.cause.name().to_string())], *quota))
                }
                _ => None,
            })
        };
        self.gauge(
            "reprieve_quota_period",
            Some(Unit::Seconds),
            "Period of the CPU quota that limits this VM, estimated.",
            quotas().map(|(labels, quota)| (labels, seconds(quota.period_ns))),
        )?;
        self.gauge(
            "reprieve_quota_share",
            Some(ratio()),
            "CPU time that the quota leaves a vCPU, as a part of the period, estimated.",
            quotas().map(|(labels, quota)| (labels, quota.on_ns as f64 / quota.period_ns.max(1) as f64)),
        )
    }

    fn own(&mut self, totals: &Totals) -> fmt::Result {
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_string()), ("tier", "T0".to_string())];
        let help = "The exporter's version, and what it looks with.";
        self.0.encode_descriptor("reprieve_build", help, None, MetricType::Info)?.encode_info(&version)?;
        self.seconds_total(
            "reprieve_observed",
            "Time that samples cover.",
            alone(seconds(totals.observed_ns)),
        )?;
        self.gauge(
            "reprieve_beat_period",
            Some(Unit::Seconds),
            "Time between two beats: short while it looks closely.",
            alone(seconds(totals.beat_ns)),
        )?;
        self.gauge(
            "reprieve_real_time",
            None,
            "1 if the beats have real-time priority, so that the VM's own tasks hardly delay them.",
            alone(f64::from(totals.real_time)),
        )?;
        self.seconds_total("process_cpu", "CPU time of the exporter.", alone(seconds(totals.own.cpu_ns)))?;
        self.gauge(
            "process_resident_memory",
            Some(Unit::Bytes),
            "Memory of the exporter in RAM.",
            totals.own.resident_bytes.and_then(|bytes| alone(bytes as f64)),
        )
    }
}

/// What was found, while it is known.
fn findings(totals: &Totals) -> &[Finding] {
    match &totals.state {
        State::Known(verdict) => &verdict.findings,
        _ => &[],
    }
}

/// A part of a whole, from 0 to 1.
fn ratio() -> Unit {
    Unit::Other("ratio".into())
}
