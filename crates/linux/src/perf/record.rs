//! Decodes one record of a perf ring, without I/O.
//!
//! Layout, in the host's byte order: a header (type u32, misc u16, size u16), a body, and the sample id (pid u32, tid
//! u32, time u64, cpu u32, reserved u32). The body depends on the type:
//!
//! | type | body |
//! |---|---|
//! | switch | none |
//! | switch of a CPU | the other thread: pid u32, tid u32 |
//! | lost | id u64, number u64 |
//! | lost samples | number u64 |
//! | fork | pid, parent's pid, tid, parent's tid, u32 each; time u64 |
//! | sample | none before the sample id; after it, the tracepoint's data |
//!
//! Source: include/uapi/linux/perf_event.h, `enum perf_event_type`.

use perf_event_open_sys::bindings as perf;

/// What happened to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchKind {
    /// It started to run on a CPU.
    In,
    /// It was taken off its CPU while runnable: preempted, or throttled by its CPU quota.
    OutPreempted,
    /// It gave up its CPU: it sleeps, waits, or has ended.
    OutVoluntary,
    /// The ring was full: an unknown number of events before `time_ns` is missing.
    Lost,
}

/// The header of every record.
pub(crate) const HEADER_BYTES: usize = 8;
/// The most that is read of a record. The longest record other than samples is a fork of 56 bytes; the longest sample that is
/// read whole has a call chain of five words.
pub(crate) const MAX_RECORD_BYTES: usize = 80;

const SAMPLE_ID_BYTES: usize = 24;
/// The most that is kept of a sample's data after the sample id, bytes.
pub(crate) const SAMPLE_REST_BYTES: usize = MAX_RECORD_BYTES - HEADER_BYTES - SAMPLE_ID_BYTES;
const RECORD_LOST_SAMPLES: u32 = 13;

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfRecord {
    /// A switch of the thread.
    Switch { kind: SwitchKind, time_ns: u64, cpu: u32 },
    /// Task `tid` of process `pid` started to run on that CPU; both are 0 if the CPU idles.
    CpuSwitch { pid: i32, tid: i32, time_ns: u64, cpu: u32 },
    /// `count` records did not fit into the ring.
    Lost { count: u64, time_ns: u64, cpu: u32 },
    /// Task `parent_tid` forked task `tid` of process `pid`, on that CPU.
    Fork { parent_tid: i32, pid: i32, tid: i32, time_ns: u64, cpu: u32 },
    /// Task `tid` of process `pid` hit a tracepoint. `rest` is the tracepoint's data, truncated or padded with zeros.
    Sample { pid: i32, tid: i32, time_ns: u64, rest: [u8; SAMPLE_REST_BYTES] },
    /// A record of any other type.
    Other,
}

/// The size of a record, from its header. The kernel's sizes are multiples of 8.
pub(crate) fn size_bytes(header: [u8; HEADER_BYTES]) -> usize {
    u16::from_ne_bytes([header[6], header[7]]).into()
}

/// Decodes one record, whole or truncated to [`MAX_RECORD_BYTES`]. `None` if it is too short for its type.
pub(crate) fn decode(record: &[u8]) -> Option<PerfRecord> {
    let kind = u32::from_ne_bytes(bytes_at(record, 0)?);
    let misc = u16::from_ne_bytes(bytes_at(record, 4)?);
    let number = |index: usize| Some(u32::from_ne_bytes(bytes_at(record, HEADER_BYTES + 4 * index)?) as i32);
    let lost = |count_at: usize| {
        let (time_ns, cpu) = sample_id(record, count_at + 8)?;
        Some(PerfRecord::Lost { count: u64::from_ne_bytes(bytes_at(record, count_at)?), time_ns, cpu })
    };
    match kind {
        perf::PERF_RECORD_SWITCH => {
            let (time_ns, cpu) = sample_id(record, HEADER_BYTES)?;
            Some(PerfRecord::Switch { kind: switch_kind(misc.into()), time_ns, cpu })
        }
        perf::PERF_RECORD_SWITCH_CPU_WIDE if switch_kind(misc.into()) == SwitchKind::In => {
            let (time_ns, cpu) = sample_id(record, HEADER_BYTES + 8)?;
            Some(PerfRecord::CpuSwitch { pid: number(2)?, tid: number(3)?, time_ns, cpu })
        }
        perf::PERF_RECORD_FORK => {
            let (time_ns, cpu) = sample_id(record, HEADER_BYTES + 24)?;
            Some(PerfRecord::Fork { pid: number(0)?, tid: number(2)?, parent_tid: number(3)?, time_ns, cpu })
        }
        perf::PERF_RECORD_SAMPLE => {
            let (time_ns, _) = sample_id(record, HEADER_BYTES)?;
            let mut rest = [0; SAMPLE_REST_BYTES];
            let after = &record[HEADER_BYTES + SAMPLE_ID_BYTES..];
            let kept = after.len().min(SAMPLE_REST_BYTES);
            rest[..kept].copy_from_slice(&after[..kept]);
            Some(PerfRecord::Sample { pid: number(0)?, tid: number(1)?, time_ns, rest })
        }
        perf::PERF_RECORD_LOST => lost(HEADER_BYTES + 8),
        RECORD_LOST_SAMPLES => lost(HEADER_BYTES),
        _ => Some(PerfRecord::Other),
    }
}

fn switch_kind(misc: u32) -> SwitchKind {
    if misc & perf::PERF_RECORD_MISC_SWITCH_OUT == 0 {
        SwitchKind::In
    } else if misc & perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0 {
        SwitchKind::OutPreempted
    } else {
        SwitchKind::OutVoluntary
    }
}

/// Time and CPU of the sample id at `offset`.
fn sample_id(record: &[u8], offset: usize) -> Option<(u64, u32)> {
    let id = record.get(offset..offset + SAMPLE_ID_BYTES)?;
    Some((u64::from_ne_bytes(bytes_at(id, 8)?), u32::from_ne_bytes(bytes_at(id, 16)?)))
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a record as the kernel does.
    pub(crate) fn record(kind: u32, misc: u32, body: &[u64], time_ns: u64, cpu: u32) -> Vec<u8> {
        let size = (HEADER_BYTES + 8 * body.len() + SAMPLE_ID_BYTES) as u16;
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((misc as u16).to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        body.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(100u32.to_ne_bytes());
        bytes.extend(101u32.to_ne_bytes());
        bytes.extend(time_ns.to_ne_bytes());
        bytes.extend(cpu.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn switches_of_all_kinds() {
        let out = perf::PERF_RECORD_MISC_SWITCH_OUT;
        let preempt = perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        for (misc, kind) in [
            (2, SwitchKind::In),
            (out | 2, SwitchKind::OutVoluntary),
            (out | preempt | 2, SwitchKind::OutPreempted),
        ] {
            let bytes = record(perf::PERF_RECORD_SWITCH, misc, &[], 5_000, 3);
            assert_eq!(size_bytes(bytes[..8].try_into().unwrap()), bytes.len());
            assert_eq!(decode(&bytes), Some(PerfRecord::Switch { kind, time_ns: 5_000, cpu: 3 }));
        }
    }

    #[test]
    fn a_switch_of_a_cpu_names_the_task_that_starts_to_run() {
        let kind = perf::PERF_RECORD_SWITCH_CPU_WIDE;
        let expected = PerfRecord::CpuSwitch { pid: 100, tid: 101, time_ns: 5_000, cpu: 3 };
        assert_eq!(decode(&record(kind, 2, &[7 | 8 << 32], 5_000, 3)), Some(expected));
        let out = perf::PERF_RECORD_MISC_SWITCH_OUT;
        assert_eq!(decode(&record(kind, out, &[7], 5_000, 3)), Some(PerfRecord::Other));
    }

    #[test]
    fn forks_name_parent_and_child() {
        // pid 7, parent's pid 5, tid 9, parent's tid 6.
        let body = [7 | 5 << 32, 9 | 6 << 32, 77];
        let expected = PerfRecord::Fork { parent_tid: 6, pid: 7, tid: 9, time_ns: 78, cpu: 1 };
        assert_eq!(decode(&record(perf::PERF_RECORD_FORK, 0, &body, 78, 1)), Some(expected));
    }

    #[test]
    fn samples_name_task_and_time_and_keep_the_data() {
        let mut bytes = record(perf::PERF_RECORD_SAMPLE, 0, &[], 9, 1);
        bytes.extend(5u64.to_ne_bytes());
        let mut rest = [0; SAMPLE_REST_BYTES];
        rest[..8].copy_from_slice(&5u64.to_ne_bytes());
        assert_eq!(decode(&bytes), Some(PerfRecord::Sample { pid: 100, tid: 101, time_ns: 9, rest }));
        bytes.extend([7; SAMPLE_REST_BYTES]);
        rest[8..].fill(7);
        assert_eq!(decode(&bytes), Some(PerfRecord::Sample { pid: 100, tid: 101, time_ns: 9, rest }));
    }

    #[test]
    fn losses_are_counted() {
        let expected = Some(PerfRecord::Lost { count: 9, time_ns: 7, cpu: 1 });
        assert_eq!(decode(&record(perf::PERF_RECORD_LOST, 0, &[77, 9], 7, 1)), expected);
        assert_eq!(decode(&record(RECORD_LOST_SAMPLES, 0, &[9], 7, 1)), expected);
    }

    #[test]
    fn no_prefix_of_a_record_decodes() {
        let bytes = record(perf::PERF_RECORD_SWITCH, 0, &[], 5_000, 3);
        assert!((0..bytes.len()).all(|length| decode(&bytes[..length]).is_none()));
        assert_eq!(decode(&record(perf::PERF_RECORD_SWITCH + 90, 0, &[], 0, 0)), Some(PerfRecord::Other));
    }
}
