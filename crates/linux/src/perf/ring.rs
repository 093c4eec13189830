//! A perf ring, which the kernel fills and this process empties.
//!
//! The mapping has one control page, then data whose size is a power of two. The kernel writes records up to
//! `data_head` and never past `data_tail`; both positions only grow. Records are aligned to 8 bytes and may wrap
//! around.
//!
//! Orderings (kernel/events/ring_buffer.c, `perf_output_put_handle`, lists all four):
//! - `data_head` is loaded with acquire. This pairs with the kernel's write barrier between filling records and moving
//!   the head. With anything weaker, records could be read before they are written.
//! - `data_tail` is stored with release. This pairs with the kernel's control dependency from the tail to its next
//!   write. With anything weaker, the kernel could overwrite records that are still being read.
//!
//! On x86 both are plain moves, so no test there can fail without them.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags};

use super::record::{HEADER_BYTES, MAX_RECORD_BYTES, PerfRecord, decode, size_bytes};

/// The most that one write of the kernel takes: a tracepoint's record of about 80 bytes, after a record of losses.
const LARGEST_WRITE_BYTES: usize = 256;

/// The result of draining a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// Number of bytes given up because a record was malformed.
    pub(crate) bad_bytes: u64,
    /// Whether a record may have found no room since the last drain. The kernel reports lost records only together with
    /// the next record that finds room, which may be much later.
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

// SAFETY: only this value uses the mapping, which is not tied to a thread, and all access goes through `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of a perf event; `data_pages` is a power of two.
    pub(crate) fn map(event: impl AsFd, data_pages: usize) -> std::io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        let (data_bytes, mapped_bytes) = (data_pages * page_bytes, (data_pages + 1) * page_bytes);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without a fixed address, the mapping replaces no memory in use.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), mapped_bytes, protection, MapFlags::SHARED, event, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        // Data starts at the second page. `data_offset` in the control page states this only since Linux 4.1.
        Ok(Ring { base, mapped_bytes, data_offset: page_bytes, data_bytes })
    }

    /// Takes all present records, oldest first. After a malformed record it gives up the rest.
    pub(crate) fn drain(&mut self, sink: &mut impl FnMut(PerfRecord)) -> Drained {
        let head = self.head().load(Ordering::Acquire);
        // Relaxed: only this process writes the tail.
        let tail = self.tail().load(Ordering::Relaxed);
        let bad_bytes = walk(head, tail, self.data_bytes, |at, buffer| self.copy(at, buffer), sink);
        self.tail().store(head, Ordering::Release);
        // The fence makes this load follow the store that freed the room. A record that found no room before that store
        // found the ring full up to a head that this load sees, since the head only grows. Relaxed: no record is read
        // through it.
        fence(Ordering::SeqCst);
        let filled = self.head().load(Ordering::Relaxed).wrapping_sub(tail);
        let may_have_lost = filled as usize + LARGEST_WRITE_BYTES > self.data_bytes;
        Drained { bad_bytes, may_have_lost }
    }

    fn head(&self) -> &AtomicU64 {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_head);
        // SAFETY: the first page of the mapping is a perf_event_mmap_page with aligned fields, and kernel and process
        // both access this field atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn tail(&self) -> &AtomicU64 {
        let offset = std::mem::offset_of!(perf_event_mmap_page, data_tail);
        // SAFETY: as in `head`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes of the data area, starting at position `at` (which counts from the ring's creation).
    fn copy(&self, at: u64, buffer: &mut [u8]) {
        let start = (at % self.data_bytes as u64) as usize;
        let first = buffer.len().min(self.data_bytes - start);
        assert!(buffer.len() <= self.data_bytes);
        // SAFETY: both parts lie within the data area (`start` < `data_bytes`, and the rest is at most `data_bytes`).
        // `walk` asks only for bytes between tail and head, which the kernel does not write. `buffer` does not overlap
        // the mapping.
        unsafe {
            let data = self.base.as_ptr().add(self.data_offset);
            std::ptr::copy_nonoverlapping(data.add(start), buffer.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, buffer.as_mut_ptr().add(first), buffer.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this unmaps exactly what `map` mapped, and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// Walks the records between `tail` and `head`, reading bytes through `copy`. Returns the number of bytes it gave up:
/// after a malformed record the next one cannot be found.
fn walk(
    head: u64,
    tail: u64,
    data_bytes: usize,
    copy: impl Fn(u64, &mut [u8]),
    sink: &mut impl FnMut(PerfRecord),
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
        let start = &mut record[..size.min(MAX_RECORD_BYTES)];
        copy(at, start);
        match decode(start) {
            Some(record) => sink(record),
            None => return left,
        }
        at = at.wrapping_add(size as u64);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::record::SwitchKind;
    use super::super::record::tests::record;
    use super::*;
    use perf_event_open_sys::bindings::PERF_RECORD_SWITCH;

    /// Puts records into a ring of `size` bytes, starting at `tail`, and walks it.
    fn walk_over(size: usize, tail: u64, bytes: &[u8]) -> (Vec<PerfRecord>, u64) {
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
            let times = (0..4).map(|time_ns| PerfRecord::Switch { kind: SwitchKind::In, time_ns, cpu: 1 });
            assert!(found.into_iter().eq(times), "tail {tail}");
            assert_eq!(bad, 0);
        }
        assert_eq!(walk_over(128, 8, &[]), (vec![], 0));
    }

    #[test]
    fn a_malformed_record_ends_the_walk_and_is_counted() {
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
    fn a_record_longer_than_any_known_is_skipped() {
        let mut bytes = vec![0u8; 96];
        bytes[0] = 200;
        bytes[6] = 96;
        bytes.extend(switches(1));
        let (found, bad) = walk_over(256, 200, &bytes);
        assert_eq!((found.len(), bad), (2, 0));
        assert_eq!(found[0], PerfRecord::Other);
    }
}
