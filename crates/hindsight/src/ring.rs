//! Writes samples into segments, and forgets the oldest segment when there is more than is wanted, or no room.
//!
//! *More than is wanted* is counted in recorded time, not by the clock of the day: what a writer left an hour ago is still there
//! after a new one has begun, until as much new time is recorded.
//!
//! If the disk is full, the oldest segment is removed, and the write tried again. If that does not help, somebody else has taken the
//! room, and the rest of the ring stays: it may hold what filled the disk. Writes go on to be tried, at each sample.
//!
//! Invariants: a sample is written whole or not at all, unless the process is killed right then; after the first samples,
//! [`Ring::push`] allocates nothing but at the start of a segment, unless a sample is longer than any before.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::Path;

use reprieve_policy::sample::Sample;

use crate::disk::{self, Disk, Folder, segment_name};
use crate::line::{self, Header, MOST_LINE_BYTES, Trigger};
use crate::read;

/// The recorded time after which a new segment begins, ns.
const SEGMENT_NS: u64 = 60_000_000_000;
/// A segment is at most this part of the ring, and of the room there is when it begins.
const PART: u64 = 8;
/// But at least so long, bytes.
const LEAST_SEGMENT_BYTES: u64 = 16 << 10;
/// The highest number of a segment.
const HIGHEST: u64 = 999_999_999_999;
/// Names that may be taken by others until it is given up.
const TRIES: usize = 16;

/// What a ring keeps; whatever is reached first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Recorded time, ns. Up to a minute more is kept.
    pub keep_ns: u64,
    /// Bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    span_ns: u64,
}

#[derive(Debug)]
struct Current<F> {
    file: F,
    segment: Segment,
    /// A new one begins when it is so long.
    most_bytes: u64,
}

/// A ring that is written.
#[derive(Debug)]
pub struct Ring<D: Disk> {
    disk: D,
    limits: Limits,
    header: Header,
    older: VecDeque<Segment>,
    current: Option<Current<D::File>>,
    next: u64,
    line: Vec<u8>,
    /// The last write failed, and removing a segment did not help.
    is_without: bool,
}

impl Ring<Folder> {
    /// Goes on with the ring in a folder, or begins one there.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another process writes into it; a newer program has written there; the kernel's.
    pub fn open(path: &Path, header: Header, limits: Limits) -> io::Result<Ring<Folder>> {
        let mut folder = Folder::lock(path)?;
        let mut older = VecDeque::new();
        let mut next = 1;
        for found in disk::segments(path)? {
            next = found.number + 1;
            let held = read::held(&found.path).map_err(io::Error::other)?;
            if held.is_nothing {
                folder.remove(&segment_name(found.number))?;
                continue;
            }
            let bytes = std::fs::metadata(&found.path)?.len();
            older.push_back(Segment { number: found.number, bytes, span_ns: held.span_ns });
        }
        Ok(Ring { older, next, ..Ring::new(folder, header, limits) })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.disk.path()
    }
}

impl<D: Disk> Ring<D> {
    /// An empty ring.
    pub fn new(disk: D, header: Header, limits: Limits) -> Ring<D> {
        let older = VecDeque::new();
        Ring { disk, limits, header, older, current: None, next: 1, line: Vec::new(), is_without: false }
    }

    /// Appends a sample.
    ///
    /// # Errors
    /// It could not be written, and is not in the ring. The ring is as it was, or without its oldest segment.
    pub fn push(&mut self, sample: &Sample) -> io::Result<()> {
        line::write_sample(sample, &mut self.line);
        self.put(sample.span_ns)
    }

    /// Appends that a threshold was crossed.
    ///
    /// # Errors
    /// As of [`Ring::push`].
    pub fn push_trigger(&mut self, trigger: &Trigger) -> io::Result<()> {
        line::write_trigger(trigger, &mut self.line);
        self.put(0)
    }

    /// The disk.
    pub fn disk(&mut self) -> &mut D {
        &mut self.disk
    }

    fn put(&mut self, span_ns: u64) -> io::Result<()> {
        if self.line.len() > MOST_LINE_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut done = self.append(span_ns);
        let is_full =
            |error: &io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        if done.as_ref().is_err_and(is_full) && !self.is_without && self.make_room() {
            done = self.append(span_ns);
        }
        self.is_without = done.is_err();
        self.forget();
        done
    }

    /// Appends the line to the current segment, or to a new one.
    fn append(&mut self, span_ns: u64) -> io::Result<()> {
        let is_over = |current: &mut Current<D::File>| {
            current.segment.span_ns >= SEGMENT_NS || current.segment.bytes >= current.most_bytes
        };
        self.older.extend(self.current.take_if(is_over).map(|current| current.segment));
        if self.current.is_none() {
            self.current = Some(self.begin()?);
        }
        let current = self.current.as_mut().expect("it has begun");
        let segment = &mut current.segment;
        let done = self.disk.append(&mut current.file, &self.line);
        if done.is_ok() {
            segment.bytes += self.line.len() as u64;
            segment.span_ns = segment.span_ns.saturating_add(span_ns);
        } else {
            // Nothing may follow half a line. Whatever is wrong with this file need not be with the next one.
            let _ = self.disk.cut(&mut current.file, segment.bytes);
            let over = self.current.take().map(|current| current.segment);
            match over {
                Some(empty) if empty.span_ns == 0 => drop(self.disk.remove(&segment_name(empty.number))),
                over => self.older.extend(over),
            }
        }
        done
    }

    /// Begins a segment.
    fn begin(&mut self) -> io::Result<Current<D::File>> {
        let room = self.disk.room().unwrap_or(u64::MAX);
        let most_bytes = (self.limits.bytes.min(room) / PART).max(LEAST_SEGMENT_BYTES);
        let mut header = Vec::new();
        line::write_header(&self.header, &mut header);
        for _ in 0..TRIES {
            let number = self.next;
            if number > HIGHEST {
                return Err(io::Error::other("no higher number for a segment; move the segments away"));
            }
            let name = segment_name(number);
            let mut file = match self.disk.create(&name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.next += 1;
                    continue;
                }
                created => created?,
            };
            if let Err(error) = self.disk.append(&mut file, &header) {
                let _ = self.disk.remove(&name);
                return Err(error);
            }
            self.next += 1;
            let segment = Segment { number, bytes: header.len() as u64, span_ns: 0 };
            return Ok(Current { file, segment, most_bytes });
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Forgets what is more than is wanted.
    fn forget(&mut self) {
        let current = self.current.iter().map(|current| &current.segment);
        let all = || self.older.iter().chain(current.clone());
        let mut bytes = all().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
        let mut span_ns = all().fold(0, |sum: u64, segment| sum.saturating_add(segment.span_ns));
        while let Some(oldest) = self.older.front() {
            let rest_ns = span_ns.saturating_sub(oldest.span_ns);
            if rest_ns < self.limits.keep_ns && bytes <= self.limits.bytes {
                return;
            }
            (span_ns, bytes) = (rest_ns, bytes.saturating_sub(oldest.bytes));
            self.forget_oldest();
        }
    }

    /// Removes the oldest segments, usually one, until a new one has room for this line; whether there were any. The newest
    /// stays: it is worth more than the next second.
    fn make_room(&mut self) -> bool {
        let wanted = 2 * self.line.len() as u64 + LEAST_SEGMENT_BYTES;
        let mut freed = 0;
        while freed < wanted && self.older.len() + usize::from(self.current.is_some()) > 1 {
            let bytes = self.older.front().map_or(0, |oldest| oldest.bytes);
            freed += if self.forget_oldest() { bytes } else { 0 };
        }
        freed > 0
    }

    /// Removes the oldest segment beside the current; whether there was one.
    fn forget_oldest(&mut self) -> bool {
        // One that cannot be removed is not ours to count any longer.
        self.older.pop_front().is_some_and(|oldest| self.disk.remove(&segment_name(oldest.number)).is_ok())
    }
}
