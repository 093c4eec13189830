//! When each vCPU ran and when it waited for a pCPU, from Xen's changes of run states.
//!
//! The event's number holds the state that was left and the one that was entered (0 running, 1 runnable, 2 blocked, 3
//! offline), two bits each; its word the vCPU (low 16 bits) and the domain.

use std::collections::BTreeMap;

use reprieve_study::Span;

use super::records::Record;

const CHANGE: u32 = 0x21001;
const STATES: u32 = 0x330;
const RUNNING: u32 = 0;
const RUNNABLE: u32 = 1;
/// The domain of the vCPUs that run when no other does.
pub(super) const IDLE_DOMAIN: u16 = 0x7fff;

/// A vCPU of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VcpuId {
    /// Number of the domain; 0 is dom0.
    pub domain: u16,
    /// Which of its vCPUs.
    pub vcpu: u16,
}

/// When a vCPU ran and waited, in the unit of the records' times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VcpuSpans {
    /// On a pCPU.
    pub running: Vec<Span>,
    /// Runnable, and not on one.
    pub waiting: Vec<Span>,
}

/// The vCPUs' spans, as far as they lie within the window; idle vCPUs are left out.
pub fn spans(records: &[Record], window: Span) -> BTreeMap<VcpuId, VcpuSpans> {
    let mut vcpus: BTreeMap<VcpuId, (VcpuSpans, u32, u64)> = BTreeMap::new();
    for record in records {
        let Some((id, left, entered)) = change(record) else { continue };
        let (spans, state, since) = vcpus.entry(id).or_insert((VcpuSpans::default(), left, window.start_ns));
        spans.add(*state, Span::new(*since, record.tsc.max(*since)), window);
        (*state, *since) = (entered, record.tsc);
    }
    let end = |(mut spans, state, since): (VcpuSpans, u32, u64)| {
        spans.add(state, Span::new(since, window.end_ns.max(since)), window);
        spans
    };
    vcpus.into_iter().map(|(id, vcpu)| (id, end(vcpu))).collect()
}

fn change(record: &Record) -> Option<(VcpuId, u32, u32)> {
    let word = *record.words().first()?;
    let id = VcpuId { domain: (word >> 16) as u16, vcpu: word as u16 };
    let is_one = record.event & !STATES == CHANGE && id.domain != IDLE_DOMAIN;
    is_one.then_some((id, record.event >> 8 & 3, record.event >> 4 & 3))
}

impl VcpuSpans {
    fn add(&mut self, state: u32, span: Span, window: Span) {
        let (start, end) = (span.start_ns.max(window.start_ns), span.end_ns.min(window.end_ns));
        let spans = match state {
            RUNNING => &mut self.running,
            RUNNABLE => &mut self.waiting,
            _ => return,
        };
        if start < end {
            spans.push(Span::new(start, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_cut_to_the_window_and_idle_vcpus_left_out() {
        let of = |tsc, states: u32, domain: u32| Record::of(tsc, 1, CHANGE | states, &[domain << 16]);
        let (blocks, wakes, runs, preempted) = (0x020, 0x210, 0x100, 0x010);
        let records = [
            of(5, wakes, 2),
            of(12, runs, 2),
            of(15, blocks, 2),
            of(16, runs, 0x7fff),
            of(17, wakes, 2),
            of(18, runs, 2),
            of(19, preempted, 2),
            of(14, preempted, 1),
        ];
        let all = spans(&records, Span::new(10, 20));
        assert_eq!(all.len(), 2);
        let guest = &all[&VcpuId { domain: 2, vcpu: 0 }];
        assert_eq!(guest.waiting, [Span::new(10, 12), Span::new(17, 18), Span::new(19, 20)]);
        assert_eq!(guest.running, [Span::new(12, 15), Span::new(18, 19)]);
        // What was before its first change is known from what that change left.
        let spinner = &all[&VcpuId { domain: 1, vcpu: 0 }];
        assert_eq!(
            (&spinner.running[..], &spinner.waiting[..]),
            (&[Span::new(10, 14)][..], &[Span::new(14, 20)][..])
        );
    }
}
