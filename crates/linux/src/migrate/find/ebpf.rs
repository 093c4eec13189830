//! I/O events from the block layer's tracepoints, by eBPF: loads, attaches and reads `io_events.bpf.c`.
//!
//! It needs Linux 5.12 or later, built with its own type information (CONFIG_DEBUG_INFO_BTF), and CAP_BPF and
//! CAP_PERFMON to load. Reading allocates nothing, and wakes no thread.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, RingBuffer, RingBufferBuilder,
};

use super::{Events, IoEvent, IoKind};

/// The compiled program.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/io_events.bpf.o"));
/// Its functions, and the tracepoint of each.
const TRACEPOINTS: [(&str, &str); 3] = [
    ("bio_queue", "block_bio_queue"),
    ("request_complete", "block_rq_complete"),
    ("bio_complete", "block_bio_complete"),
];
/// Most events taken out of the kernel's ring at once.
const AT_ONCE: usize = 64;
const EVENT_BYTES: usize = 32;
const END: u32 = 1;

/// The loaded program.
pub struct Ebpf {
    // Fields drop in order: the program is detached before its ring is freed.
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    taken: Arc<Mutex<VecDeque<IoEvent>>>,
    /// The program's variable `watching`: whether it reports new I/Os.
    watching: MapHandle,
    _object: Object,
}

impl Ebpf {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// The reason and the way out, as text.
    pub fn open() -> Result<Ebpf, String> {
        load()
            .map_err(|e| format!("no I/O events by eBPF ({e}): run as root or with CAP_BPF and CAP_PERFMON"))
    }
}

fn load() -> Result<Ebpf, Box<dyn std::error::Error>> {
    // The library's messages are also in its errors.
    libbpf_rs::set_print(None);
    let mut open = ObjectBuilder::default().open_memory(PROGRAM)?;
    set_namespace(&mut open)?;
    let object = open.load()?;
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let tracepoint = TRACEPOINTS.iter().find(|(function, _)| *function == name);
        let (_, tracepoint) = tracepoint.ok_or("an unknown program")?;
        links.push(program.attach_raw_tracepoint(tracepoint)?);
    }
    let taken = Arc::new(Mutex::new(VecDeque::with_capacity(AT_ONCE)));
    let events = object.maps().find(|map| map.name() == "events").ok_or("no ring")?;
    let mut builder = RingBufferBuilder::new();
    let to = Arc::clone(&taken);
    builder.add(&events, move |bytes| {
        let mut taken = to.lock().unwrap_or_else(PoisonError::into_inner);
        taken.extend(parse(bytes));
        0
    })?;
    let ring = builder.build()?;
    let watching = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
    let watching = MapHandle::try_from(&watching.ok_or("no variable")?)?;
    Ok(Ebpf { _links: links, ring, taken, watching, _object: object })
}

/// Tells the program this process's PID namespace, whose ids it is to report.
fn set_namespace(open: &mut OpenObject) -> Result<(), Box<dyn std::error::Error>> {
    let own = std::fs::metadata("/proc/self/ns/pid")?;
    // The kernel's internal form of a device number: 12 bits and 20 bits.
    let device = u64::from(libc::major(own.dev())) << 20 | u64::from(libc::minor(own.dev()));
    let mut constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let constants = constants.as_mut().ok_or("no constants")?;
    let value: Vec<u8> = [device, own.ino()].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(constants.set_initial_value(&value)?)
}

/// Parses an event of the program: time, duration, process, task, kind, and four unused bytes.
fn parse(bytes: &[u8]) -> Option<IoEvent> {
    let bytes: &[u8; EVENT_BYTES] = bytes.try_into().ok()?;
    let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let kind = if short(24)? == END { IoKind::End { took_ns: long(8)? } } else { IoKind::Begin };
    Some(IoEvent { pid: short(16)? as i32, tid: short(20)? as i32, at_ns: long(0)?, kind })
}

impl Events for Ebpf {
    fn watch(&mut self, on: bool) {
        // This cannot fail, since the variable exists.
        let _ = self.watching.update(&0u32.to_ne_bytes(), &u32::from(on).to_ne_bytes(), MapFlags::ANY);
    }

    fn next(&mut self) -> Option<IoEvent> {
        let taken = || self.taken.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        taken().or_else(|| {
            // After an error nothing was taken.
            let _ = self.ring.consume_raw_n(AT_ONCE);
            taken()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn events_are_read_as_they_are_written() {
        let words = [5u64, 7, 3 | 4 << 32, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let end = IoEvent { pid: 3, tid: 4, at_ns: 5, kind: IoKind::End { took_ns: 7 } };
        assert_eq!(parse(&bytes), Some(end));
        assert_eq!(parse(&bytes[1..]), None);
    }

    #[test]
    fn a_write_to_a_device_is_reported_with_its_task() {
        let mut events = match Ebpf::open() {
            Ok(events) => events,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        // Not in /tmp, which may be a memory file system.
        let folder = tempfile::tempdir_in(env!("OUT_DIR")).unwrap();
        let path = folder.path().join("file");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).write(true).custom_flags(libc::O_DSYNC).open(path).unwrap();
        let (own, before_ns) = (crate::threads::own_tid(), crate::clock::now_ns());
        file.write_all(&[1; 4096]).unwrap();
        let mut seen = || std::iter::from_fn(|| events.next()).filter(|event| event.tid == own).count();
        assert_eq!(seen(), 0, "it does not watch yet");
        events.watch(true);
        file.write_all(&[1; 4096]).unwrap();
        let after_ns = crate::clock::now_ns();
        let seen: Vec<IoEvent> =
            std::iter::from_fn(|| events.next()).filter(|event| event.tid == own).collect();
        if seen.is_empty() {
            return eprintln!("skipped: this folder is on no block device");
        }
        assert!(seen.iter().all(|event| event.pid == std::process::id() as i32));
        assert!(seen.iter().all(|event| (before_ns..=after_ns).contains(&event.at_ns)), "{seen:?}");
        assert_eq!(seen[0].kind, IoKind::Begin);
        assert!(matches!(seen[1].kind, IoKind::End { took_ns } if took_ns == seen[1].at_ns - seen[0].at_ns));
        assert!(seen.is_sorted_by_key(|event| event.at_ns) && seen.len().is_multiple_of(2));
    }
}
