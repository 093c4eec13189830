//! A trace for the Perfetto viewer: each run a process, each [`Track`] of it a child track, in the order in
//! which the run gives them. Timestamps are nanoseconds from the start of the run's window.
//!
//! Invariants: track identifiers are unique in the file; packets are in order of time; on one track a slice
//! ends before the next begins, also when both happen at the same time.

mod proto;

use prost::Message;
use reprieve_study::Trace;
use reprieve_study::timeline::{Events, Track};

use proto::{
    ChildTracksOrdering, CounterDescriptor, EventType, ProcessDescriptor, TracePacket, TrackDescriptor,
    TrackEvent,
};

/// All packets are of one writer; the format wants it to have a number.
const SEQUENCE: u32 = 1;

/// The bytes of a `.pftrace` file. Each pair is the heading of a run and what happened in it.
pub fn encode(runs: &[(&str, &Trace)]) -> Vec<u8> {
    let mut writer = Writer::default();
    for (process_name, trace) in runs {
        writer.run(process_name, trace);
    }
    writer.finish()
}

/// Descriptors come first in the file, then the events of all tracks by time.
#[derive(Default)]
struct Writer {
    descriptors: Vec<TracePacket>,
    events: Vec<TracePacket>,
    runs: i32,
}

impl Writer {
    fn run(&mut self, process_name: &str, trace: &Trace) {
        self.runs += 1;
        let process_uuid = self.describe(TrackDescriptor {
            name: Some(process_name.into()),
            process: Some(ProcessDescriptor {
                pid: Some(self.runs),
                process_name: Some(process_name.into()),
            }),
            child_ordering: Some(ChildTracksOrdering::Explicit.into()),
            ..Default::default()
        });
        for (rank, track) in trace.tracks.iter().enumerate() {
            self.track(process_uuid, rank as i32, track);
        }
    }

    fn track(&mut self, parent_uuid: u64, rank: i32, track: &Track) {
        let uuid = self.describe(TrackDescriptor {
            name: Some(track.name.clone()),
            parent_uuid: Some(parent_uuid),
            counter: matches!(track.events, Events::Counter(_)).then_some(CounterDescriptor {}),
            sibling_order_rank: Some(rank),
            ..Default::default()
        });
        match &track.events {
            Events::Slices(slices) => {
                for (span, label) in slices {
                    self.event(span.start_ns, uuid, EventType::SliceBegin, Some(label.clone()), None);
                    self.event(span.end_ns, uuid, EventType::SliceEnd, None, None);
                }
            }
            Events::Counter(timeline) => {
                for (t_ns, value) in timeline.t_ns.iter().zip(&timeline.values) {
                    self.event(*t_ns, uuid, EventType::Counter, None, Some(*value));
                }
            }
        }
    }

    /// Adds the descriptor under the next identifier, which it returns.
    fn describe(&mut self, descriptor: TrackDescriptor) -> u64 {
        let uuid = self.descriptors.len() as u64 + 1;
        self.descriptors.push(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(TrackDescriptor { uuid: Some(uuid), ..descriptor }),
            ..Default::default()
        });
        uuid
    }

    fn event(&mut self, t_ns: u64, uuid: u64, kind: EventType, name: Option<String>, value: Option<f64>) {
        self.events.push(TracePacket {
            timestamp: Some(t_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(TrackEvent {
                r#type: Some(kind.into()),
                track_uuid: Some(uuid),
                name,
                double_counter_value: value,
            }),
            ..Default::default()
        });
    }

    fn finish(mut self) -> Vec<u8> {
        // Stable, so that a slice's end stays before the beginning of the next one at the same time.
        self.events.sort_by_key(|packet| packet.timestamp);
        let mut packet = self.descriptors;
        packet.append(&mut self.events);
        proto::Trace { packet }.encode_to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use reprieve_study::{Span, Timeline};

    use super::*;

    fn trace() -> Trace {
        let slice = |start_ns, end_ns, name: &str| (Span::new(start_ns, end_ns), name.to_string());
        let mut backlog = Timeline::default();
        backlog.push(5, 1.5);
        backlog.push(25, 7.0);
        let track = |name: &str, events| Track { name: name.into(), events };
        Trace {
            tracks: vec![
                track("vCPU 0", Events::Slices(vec![slice(20, 30, "run"), slice(30, 45, "descheduled")])),
                track("GP", Events::Slices(vec![slice(0, 40, "GP 7"), slice(40, 40, "GP 8")])),
                track("backlog", Events::Counter(backlog)),
            ],
        }
    }

    fn decoded() -> Vec<TracePacket> {
        let trace = trace();
        let bytes = encode(&[("baseline 1", &trace), ("overcommitted 1", &trace)]);
        proto::Trace::decode(bytes.as_slice()).unwrap().packet
    }

    #[test]
    fn tracks_are_unique_declared_before_use_and_children_of_their_run() {
        let mut declared: BTreeMap<u64, TrackDescriptor> = BTreeMap::new();
        for packet in decoded() {
            if let Some(descriptor) = packet.track_descriptor {
                if let Some(parent) = descriptor.parent_uuid {
                    assert!(declared[&parent].process.is_some());
                }
                assert!(descriptor.uuid() != 0);
                assert_eq!(declared.insert(descriptor.uuid(), descriptor), None, "identifier used twice");
            }
            if let Some(event) = packet.track_event {
                let track = &declared[&event.track_uuid()];
                assert_eq!(track.counter.is_some(), event.r#type() == EventType::Counter);
            }
        }
        let pids: Vec<i32> = declared.values().filter_map(|d| Some(d.process.as_ref()?.pid())).collect();
        assert_eq!((declared.len(), pids), (8, vec![1, 2]));
    }

    #[test]
    fn events_are_in_order_of_time_and_slices_do_not_overlap() {
        let mut open: BTreeMap<u64, String> = BTreeMap::new();
        let (mut last_ns, mut slices) = (0, 0);
        for packet in decoded() {
            let Some(event) = &packet.track_event else { continue };
            assert!(packet.timestamp() >= last_ns);
            last_ns = packet.timestamp();
            match event.r#type() {
                EventType::SliceBegin => {
                    assert_eq!(open.insert(event.track_uuid(), event.name().into()), None);
                    slices += 1;
                }
                EventType::SliceEnd => assert!(open.remove(&event.track_uuid()).is_some()),
                _ => {}
            }
        }
        assert!(open.is_empty());
        assert_eq!((slices, last_ns), (8, 45));
    }

    #[test]
    fn counters_keep_their_values() {
        let values: Vec<f64> =
            decoded().iter().filter_map(|packet| packet.track_event.as_ref()?.double_counter_value).collect();
        assert_eq!(values, [1.5, 1.5, 7.0, 7.0]);
    }
}
