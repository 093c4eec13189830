//! Records how the first guest's vCPUs were scheduled, if the observer asks: when they were descheduled, why vCPU 0
//! waited, and the decisions of Xen's schedulers.

use reprieve_study::grace_period::Span;

use super::World;
use crate::host::State;
use crate::sched::xen::{Event, Log};
use crate::sched::{Cpu, Entity, Scheduler};
use crate::stall::Waits;

/// Most events of a scheduler to keep.
const MOST_EVENTS: usize = 1_000_000;

/// The records. Each is `None` unless the observer asked for it.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// By vCPU: the stretches during which it was preempted or throttled.
    descheduled: Option<Vec<Vec<Span>>>,
    /// Why vCPU 0 waited.
    waits: Option<Waits>,
    events: Option<Vec<Event>>,
}

impl Recording {
    /// A vCPU of the first guest gets a pCPU after it was preempted or throttled.
    pub fn was_descheduled(&mut self, vcpu: usize, span: Span) {
        if let Some(descheduled) = &mut self.descheduled {
            add_span(&mut descheduled[vcpu], span);
        }
    }

    /// vCPU 0 gets a pCPU.
    pub fn end_wait(&mut self, scheduler: &mut dyn Scheduler, wait: Span, preempted: bool, cpu: Cpu) {
        let Some(waits) = &mut self.waits else { return };
        let events = scheduler.log().map_or_else(Vec::new, Log::take);
        waits.end(&events, wait, preempted, cpu);
        if let Some(kept) = &mut self.events {
            kept.extend(events.into_iter().take(MOST_EVENTS.saturating_sub(kept.len())));
        }
    }

    /// The thread of a vCPU has nothing to do.
    pub fn idle(&mut self, now_ns: u64, entity: Entity) {
        if let Some(waits) = self.waits.as_mut().filter(|waits| waits.entity == entity) {
            waits.idle(now_ns);
        }
    }

    /// Memory of the records.
    pub fn held_bytes(&self) -> u64 {
        let spans = self.descheduled.iter().flatten().map(Vec::len).sum::<usize>();
        let events = self.events.as_ref().map_or(0, Vec::len);
        let waits = self.waits.as_ref().map_or(0, Waits::held_bytes);
        (spans * size_of::<Span>() + events * size_of::<Event>() + waits) as u64
    }
}

impl World {
    /// Records from now on when the vCPUs of the first guest are preempted or throttled.
    pub fn record_descheduling(&mut self) {
        self.recording.descheduled = Some(vec![Vec::new(); self.guests[0].vcpus().len()]);
    }

    /// Records from now on why vCPU 0 of the first guest waits, under a scheduler with slices of that length.
    pub fn record_waits(&mut self, slice_ns: u64) {
        let placement = &self.placements[0];
        self.recording.waits = Some(Waits::of(placement.threads[0], slice_ns));
        if let Some(log) = self.hosts[placement.host].scheduler.log() {
            log.start();
        }
    }

    /// Keeps from now on the scheduler's events that [`World::record_waits`] reads.
    pub fn keep_events(&mut self) {
        self.recording.events = Some(Vec::new());
    }

    /// Why vCPU 0 waited, if it was recorded.
    pub fn waits(&self) -> Option<&Waits> {
        self.recording.waits.as_ref()
    }

    /// Takes the scheduler's events, if they were kept.
    pub fn take_events(&mut self) -> Option<Vec<Event>> {
        self.recording.events.take()
    }

    /// Takes the stretches of descheduling; those that still last end now.
    pub fn descheduled(&mut self) -> Vec<Vec<Span>> {
        let mut recorded = self.recording.descheduled.take().unwrap_or_default();
        let placement = &self.placements[0];
        for (v, entity) in placement.threads.iter().enumerate().take(recorded.len()) {
            let thread = &self.hosts[placement.host].threads[entity.0 as usize];
            if thread.preempted && thread.state != State::Running {
                add_span(&mut recorded[v], Span::new(thread.since_ns, self.now_ns));
            }
        }
        recorded
    }
}

/// A pause that begins while the vCPU waits for a pCPU extends the stretch.
fn add_span(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.end_ns == span.start_ns => last.end_ns = span.end_ns,
        _ => spans.push(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_stretches_are_one() {
        let mut spans = Vec::new();
        for (start_ns, end_ns) in [(10, 20), (20, 25), (30, 40)] {
            add_span(&mut spans, Span::new(start_ns, end_ns));
        }
        assert_eq!(spans, [Span::new(10, 25), Span::new(30, 40)]);
    }
}
