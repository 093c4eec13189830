//! The ring that the kernel fills and this process empties.
//!
//! One page of administration, then a power of two of data bytes. The kernel writes records up to
//! `data_head` and never beyond `data_tail`; both only grow. Records are 8-byte aligned and may wrap.
//!
//! Orderings (kernel/events/ring_buffer.c, `perf_output_put_handle`, lists the four):
//! - `data_head` is loaded with acquire; it pairs with the kernel's write barrier between filling records
//!   and moving the head. Weaker, records could be read before they are written.
//! - `data_tail` is stored with release; it pairs with the kernel's control dependency from the tail to its
//!   next write. Weaker, the kernel could overwrite records that are still being read.
//!
//! On x86 both are plain moves, no test there can fail without them.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags};

use super::record::{HEADER_BYTES, MAX_RECORD_BYTES, Record, decode, size_bytes};

/// No record that is asked for here is larger: that of a tracepoint has about 80 bytes, one of losses goes before it.
const LARGEST_RECORD_BYTES: usize = 256;

/// What came of draining a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// Bytes that made no sense.
    pub(crate) bad_bytes: u64,
    /// A record may have found no room since the last drain. The kernel tells of records that it has lost only with the next
    /// one that finds room, which may be long after.
    pub(crate) may_have_lost: bool,
}

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    mapped_bytes: usize,
    data_offset: usize,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread; all access goes through
// `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of a perf event; `data_pages` is a power of two.
    pub(crate) fn map(event: impl AsFd, data_pages: usize) -> std::io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        let (data_bytes, mapped_bytes) = (data_pages * page_bytes, (data_pages + 1) * page_bytes);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no memory in use is replaced.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), mapped_bytes, protection, MapFlags::SHARED, event, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        // Data starts at the second page; `data_offset` in the page says so only since Linux 4.1.
        Ok(Ring { base, mapped_bytes, data_offset: page_bytes, data_bytes })
    }

    /// Takes all records that are there now, oldest first. If bytes make no sense the ring continues at the newest record.
    pub(crate) fn drain(&mut self, sink: &mut impl FnMut(Record)) -> Drained {
        let head = self.head().load(Ordering::Acquire);
        // Relaxed: only this process writes the tail.
        let tail = self.tail().load(Ordering::Relaxed);
        let bad_bytes = walk(head, tail, self.data_bytes, |at, buffer| self.copy(at, buffer), sink);
        self.tail().store(head, Ordering::Release);
        // Only after the room has been given back, hence the fence: a record that found no room before that found the ring full,
        // and the head only grows. Relaxed, since no record is read by this.
        fence(Ordering::SeqCst);
        let filled = self.head().load(Ordering::Relaxed).wrapping_sub(tail);
        let may_have_lost = filled as usize + LARGEST_RECORD_BYTES > self.data_bytes;
        Drained { bad_bytes, may_have_lost }
    }

    fn head(&self) -> &AtomicU64 {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_head);
        // SAFETY: the first page of the mapping is a perf_event_mmap_page, its fields are aligned, and
        // kernel and process access this one atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn tail(&self) -> &AtomicU64 {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_tail);
        // SAFETY: as in `head`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes of the data area from position `at` (counted since the beginning of time) on.
    fn copy(&self, at: u64, buffer: &mut [u8]) {
        let start = (at % self.data_bytes as u64) as usize;
        let first = buffer.len().min(self.data_bytes - start);
        assert!(buffer.len() <= self.data_bytes);
        // SAFETY: both parts lie within the data area of the mapping (`start` < `data_bytes`, and the rest
        // is at most `data_bytes`). `walk` asks only for bytes between tail and head, which the kernel
        // does not write. `buffer` is memory of this process and does not overlap.
        unsafe {
            let data = self.base.as_ptr().add(self.data_offset);
            std::ptr::copy_nonoverlapping(data.add(start), buffer.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, buffer.as_mut_ptr().add(first), buffer.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// Walks the records between `tail` and `head`, reading bytes through `copy`. Returns how many bytes it
/// had to give up because a size made no sense: nothing after them can be found.
fn walk(
    head: u64,
    tail: u64,
    data_bytes: usize,
    copy: impl Fn(u64, &mut [u8]),
    sink: &mut impl FnMut(Record),
) -> u64 {
    let available = head.wrapping_sub(tail);
    if available > data_bytes as u64 {
        return available;
    }
    let mut at = tail;
    while at != head {
        let left = head.wrapping_sub(at);
        let mut header = [0u8; HEADER_BYTES];
        if left < HEADER_BYTES as u64 {
            return left;
        }
        copy(at, &mut header);
        let size = size_bytes(header);
        if size < HEADER_BYTES || size as u64 > left {
            return left;
        }
        let mut record = [0u8; MAX_RECORD_BYTES];
        let looked_at = &mut record[..size.min(MAX_RECORD_BYTES)];
        copy(at, looked_at);
        match decode(looked_at) {
            Some(record) => sink(record),
            None => return left,
        }
        at = at.wrapping_add(size as u64);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::SwitchKind;
    use super::super::record::tests::record;
    use super::*;
    use perf_event_open_sys::bindings::PERF_RECORD_SWITCH;

    /// Lays records into a ring of `size` bytes from `tail` on, and walks it.
    fn walk_over(size: usize, tail: u64, bytes: &[u8]) -> (Vec<Record>, u64) {
        let mut ring = vec![0xaa; size];
        for (i, byte) in bytes.iter().enumerate() {
            ring[(tail as usize).wrapping_add(i) % size] = *byte;
        }
        let copy = |at: u64, buffer: &mut [u8]| {
            buffer.iter_mut().enumerate().for_each(|(i, b)| *b = ring[(at as usize).wrapping_add(i) % size]);
        };
        let mut found = Vec::new();
        let head = tail.wrapping_add(bytes.len() as u64);
        let bad = walk(head, tail, size, copy, &mut |record| found.push(record));
        (found, bad)
    }

    fn switches(count: u64) -> Vec<u8> {
        (0..count).flat_map(|time| record(PERF_RECORD_SWITCH, 0, &[], time, 1)).collect()
    }

    #[test]
    fn records_are_found_wherever_the_ring_wraps() {
        for tail in (0..256).step_by(8).chain([u64::MAX - 15]) {
            let (found, bad) = walk_over(128, tail, &switches(4));
            let times = (0..4).map(|time_ns| Record::Switch { kind: SwitchKind::In, time_ns, cpu: 1 });
            assert!(found.into_iter().eq(times), "tail {tail}");
            assert_eq!(bad, 0);
        }
        assert_eq!(walk_over(128, 8, &[]), (vec![], 0));
    }

    #[test]
    fn nonsense_ends_the_walk_and_is_told() {
        let mut bytes = switches(3);
        for size in [0u16, 7, 1000, 65_535] {
            bytes[32 + 6..32 + 8].copy_from_slice(&size.to_ne_bytes());
            let (found, bad) = walk_over(128, 0, &bytes);
            assert_eq!((found.len(), bad), (1, 64), "size {size}");
        }
        assert_eq!(walk_over(128, 0, &switches(5)).1, 160);
        assert_eq!(walk_over(128, 0, &switches(1)[..4]).1, 4);
    }

    #[test]
    fn a_record_longer_than_any_known_is_stepped_over() {
        let mut bytes = vec![0u8; 96];
        bytes[0] = 200;
        bytes[6] = 96;
        bytes.extend(switches(1));
        let (found, bad) = walk_over(256, 200, &bytes);
        assert_eq!((found.len(), bad), (2, 0));
        assert_eq!(found[0], Record::Other);
    }
}
