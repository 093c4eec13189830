//! Observes a run that measures latency: the distribution, the stalls by mechanism, and the spinners' CPU time.

use reprieve_study::derive::{self, put};
use reprieve_study::observation::Observation;
use reprieve_study::stalls::{self, Stall};
use reprieve_study::timeline::{Events, Trace, Track};
use reprieve_study::units::MILLISECOND_NS;
use reprieve_study::{Scenario, Span, Workload, metric};

use super::GUEST;
use super::decisions::decision;
use crate::latency::Latencies;
use crate::sched::Entity;
use crate::sched::xen::Event;
use crate::stall::Mechanism;
use crate::world::World;

/// Most slices on a track of a trace. More would not help a person who looks at it.
const MOST_SLICES: usize = 100_000;

/// The state at the window's start.
pub(super) struct Watched {
    spinners: Vec<(Entity, u64)>,
    host: usize,
    start_ns: u64,
    lost: u64,
    /// Whether the guest serves requests.
    serves: bool,
}

/// Call it before the world starts: a wait may begin before the window does.
pub fn prepare(world: &mut World, scenario: &Scenario) {
    if scenario.workload.is_latency() && scenario.host.scheduler.is_xen() {
        world.record_waits(scenario.host.xen.slice_ms * MILLISECOND_NS);
    }
}

impl Watched {
    /// Starts the window.
    pub(super) fn begin(world: &mut World, scenario: &Scenario, spinners: &[Entity]) -> Watched {
        if scenario.host.xen.trace {
            world.keep_events();
        }
        let most = scenario.workload.latencies().unwrap_or(u64::MAX);
        world.guest_mut(GUEST).measure_latencies(most);
        // A scenario's world has one host.
        let host = 0;
        let ran = |entity: &Entity| (*entity, world.thread_run_ns(host, *entity));
        let lost = world.guest(GUEST).lost_requests();
        let serves = matches!(scenario.workload, Workload::Requests { .. });
        Watched { spinners: spinners.iter().map(ran).collect(), host, start_ns: world.now_ns, lost, serves }
    }

    /// Ends the window.
    pub(super) fn observe(self, out: &mut Observation, world: &mut World) {
        let latencies = std::mem::take(world.guest_mut(GUEST).latencies_mut());
        let Latencies { all, stalls, .. } = latencies;
        derive::latencies(out, all);
        put(out, metric::LATE, stalls.len() as f64);
        let named = self.stalls_by_mechanism(out, world, stalls);
        self.spinners(out, world);
        let lost = world.guest(GUEST).lost_requests() - self.lost;
        if self.serves {
            put(out, metric::LOST, lost as f64);
        }
        let events = world.take_events();
        out.stalls = self.explained(world, &named, events.as_deref().unwrap_or_default());
        out.trace = Some(self.trace(world, named, events));
    }

    /// Counts the stalls of each mechanism, and labels every stall.
    fn stalls_by_mechanism(
        &self,
        out: &mut Observation,
        world: &World,
        stalls: Vec<Span>,
    ) -> Vec<(Span, String)> {
        let Some(waits) = world.waits() else {
            return stalls.into_iter().map(|stall| (stall, "stall".into())).collect();
        };
        let named: Vec<(Span, Mechanism)> =
            stalls.into_iter().map(|stall| (stall, waits.why(stall))).collect();
        for mechanism in Mechanism::ALL {
            let count = named.iter().filter(|(_, why)| *why == mechanism).count();
            put(out, mechanism.metric_and_label().0, count as f64);
        }
        named.into_iter().map(|(stall, why)| (stall, why.metric_and_label().1.into())).collect()
    }

    fn spinners(&self, out: &mut Observation, world: &World) {
        let whole_ns = (out.provenance.window_ns * self.spinners.len() as u64) as f64;
        let ran = |(entity, before_ns): &(Entity, u64)| world.thread_run_ns(self.host, *entity) - before_ns;
        let ran_ns: u64 = self.spinners.iter().map(ran).sum();
        if whole_ns > 0.0 {
            put(out, metric::SPINNER_CPU, ran_ns as f64 / whole_ns);
        }
    }

    /// A few stalls with the scheduler's decisions around them, if its events were recorded.
    fn explained(&self, world: &World, stalls: &[(Span, String)], events: &[Event]) -> Vec<Stall> {
        let Some(guest) = world.waits().map(|waits| waits.entity).filter(|_| !events.is_empty()) else {
            return Vec::new();
        };
        let spinners: Vec<Entity> = self.spinners.iter().map(|(entity, _)| *entity).collect();
        let decisions: Vec<_> = events.iter().map(|event| decision(event, guest, &spinners)).collect();
        stalls::select(stalls, &decisions)
    }

    /// A trace of descheduling and stalls, and of the scheduler's events if they were kept.
    fn trace(&self, world: &mut World, stalls: Vec<(Span, String)>, events: Option<Vec<Event>>) -> Trace {
        let since = |span: Span| {
            let from = |t_ns: u64| t_ns.saturating_sub(self.start_ns);
            Span::new(from(span.start_ns), from(span.end_ns))
        };
        let track = |name: String, slices: Vec<(Span, String)>| {
            let slices = slices.into_iter().take(MOST_SLICES).map(|(span, what)| (since(span), what));
            Track { name, events: Events::Slices(slices.collect()) }
        };
        let descheduled = world.descheduled().into_iter().enumerate().map(|(vcpu, spans)| {
            track(
                format!("vCPU {vcpu}"),
                spans.into_iter().map(|span| (span, "descheduled".into())).collect(),
            )
        });
        let mut tracks: Vec<Track> = descheduled.collect();
        tracks.push(track("stalls".into(), stalls));
        if let Some(events) = events {
            let named = |event: &Event| {
                let what = format!("thread {}: {:?}", event.entity.0, event.kind);
                (Span::new(event.at_ns, event.at_ns), what)
            };
            tracks.push(track("scheduler".into(), events.iter().map(named).collect()));
        }
        Trace { tracks }
    }
}
