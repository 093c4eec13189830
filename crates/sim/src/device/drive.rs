//! How long a drive takes for a request.
//!
//! *SSD*: each request has an access time, and these overlap; the data of all requests share one link. So small
//! requests at a queue depth of 1 are bound by the access time, and large or many requests by the link.
//!
//! *HDD*: one request at a time. The arm seeks, for a time that grows with the square root of the distance (Ruemmler
//! and Wilkes, "An Introduction to Disk Drive Modeling", 1994). The platter turns until the first byte is under the
//! head, and then the data pass. After a request the drive reads ahead until its buffer is full. A read that continues
//! there needs no seek, and gets the buffered data at once. If the drive had stopped, it goes on when the platter has
//! turned to that place. The angle of the platter follows simulated time, so nothing is random.

use reprieve_study::units::SECOND_NS;

use super::DiskRequest;

/// What serving a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// When it is done.
    pub done_ns: u64,
    /// Time during which the drive could not serve others.
    pub cost_ns: u64,
}

/// A drive.
#[derive(Clone, Debug)]
pub enum Drive {
    /// Flash.
    Ssd(Ssd),
    /// A disk.
    Hdd(Hdd),
}

impl Drive {
    /// Begins to serve a request.
    pub fn serve(&mut self, now_ns: u64, request: &DiskRequest) -> Service {
        match self {
            Drive::Ssd(ssd) => ssd.serve(now_ns, request),
            Drive::Hdd(hdd) => hdd.serve(now_ns, request),
        }
    }
}

/// The time to transfer so many bytes.
fn passing_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * u128::from(SECOND_NS) / u128::from(bytes_per_s.max(1))) as u64
}

/// An SSD.
#[derive(Clone, Debug)]
pub struct Ssd {
    /// Time until the data of a request flow.
    access_ns: u64,
    bytes_per_s: u64,
    /// When its link is free again.
    link_ns: u64,
}

impl Ssd {
    /// An SSD with that access time and link.
    pub fn new(access_ns: u64, bytes_per_s: u64) -> Ssd {
        Ssd { access_ns, bytes_per_s, link_ns: 0 }
    }

    fn serve(&mut self, now_ns: u64, request: &DiskRequest) -> Service {
        let passing_ns = passing_ns(request.bytes, self.bytes_per_s);
        let begin_ns = (now_ns + self.access_ns).max(self.link_ns);
        self.link_ns = begin_ns + passing_ns;
        Service { done_ns: self.link_ns, cost_ns: passing_ns }
    }
}

/// Geometry and speed of a disk.
#[derive(Clone, Copy, Debug)]
pub struct HddSpec {
    /// Seek to the next track.
    pub seek_min_ns: u64,
    /// Seek over the whole disk.
    pub seek_max_ns: u64,
    /// Time of a rotation.
    pub rotation_ns: u64,
    /// Bytes of a track, which pass in one rotation.
    pub track_bytes: u64,
    /// Most bytes that it reads ahead.
    pub buffer_bytes: u64,
    /// Bytes a second of its interface.
    pub interface_per_s: u64,
    /// Its size.
    pub bytes: u64,
}

/// An HDD.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: HddSpec,
    /// The byte after the last request.
    end: u64,
    /// Bytes read ahead of `end` by `ahead_ns`, when the drive continues from there.
    ahead: u64,
    ahead_ns: u64,
    /// Whether the last request was a read.
    reads_ahead: bool,
}

impl Hdd {
    /// An HDD whose head is at the first byte.
    pub fn new(spec: HddSpec) -> Hdd {
        Hdd { spec, end: 0, ahead: 0, ahead_ns: 0, reads_ahead: false }
    }

    fn serve(&mut self, now_ns: u64, request: &DiskRequest) -> Service {
        let continues = request.start == self.end && !request.writes && self.reads_ahead;
        let done_ns =
            if continues { self.buffered_ns(now_ns, request) } else { self.fetched_ns(now_ns, request) };
        if !continues {
            (self.ahead, self.ahead_ns) = (0, done_ns);
        }
        self.end = request.start + request.bytes;
        self.reads_ahead = !request.writes;
        Service { done_ns, cost_ns: done_ns - now_ns }
    }

    /// The time of a read that begins where the last one ended.
    fn buffered_ns(&mut self, now_ns: u64, request: &DiskRequest) -> u64 {
        let passed = self.passed(now_ns.saturating_sub(self.ahead_ns));
        let was_full = self.ahead + passed >= self.spec.buffer_bytes;
        let ahead = (self.ahead + passed).min(self.spec.buffer_bytes);
        let head = request.start + ahead;
        let goes_on_ns = now_ns + if was_full { self.turn_ns(now_ns, head) } else { 0 };
        let missing = request.bytes.saturating_sub(ahead);
        let interface_ns = now_ns + passing_ns(request.bytes, self.spec.interface_per_s);
        self.ahead = ahead.saturating_sub(request.bytes);
        if missing == 0 {
            self.ahead_ns = goes_on_ns;
            return interface_ns;
        }
        self.ahead_ns = goes_on_ns + self.medium_ns(missing);
        self.ahead_ns.max(interface_ns)
    }

    fn fetched_ns(&self, now_ns: u64, request: &DiskRequest) -> u64 {
        let there_ns = now_ns + self.seek_ns(self.end.abs_diff(request.start));
        there_ns + self.turn_ns(there_ns, request.start) + self.medium_ns(request.bytes)
    }

    /// Time of a seek over that many bytes: 0 within the track, else `min + (max - min) sqrt(distance / size)`.
    pub fn seek_ns(&self, distance: u64) -> u64 {
        let HddSpec { seek_min_ns, seek_max_ns, track_bytes, bytes, .. } = self.spec;
        if distance < track_bytes {
            return 0;
        }
        // The root in units of 2^-16.
        let part = (u128::from(distance) << 32) / u128::from(bytes.max(1));
        let root = part.min(1 << 32).isqrt() as u64;
        seek_min_ns + ((seek_max_ns.saturating_sub(seek_min_ns) * root) >> 16)
    }

    /// Time until that byte is under the head.
    fn turn_ns(&self, now_ns: u64, byte: u64) -> u64 {
        let HddSpec { rotation_ns, track_bytes, .. } = self.spec;
        let wanted_ns =
            (u128::from(byte % track_bytes) * u128::from(rotation_ns) / u128::from(track_bytes)) as u64;
        (wanted_ns + rotation_ns - now_ns % rotation_ns) % rotation_ns
    }

    /// Time for so many bytes to pass the head.
    fn medium_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.spec.rotation_ns) / u128::from(self.spec.track_bytes)) as u64
    }

    /// Bytes that pass the head in that time.
    fn passed(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.spec.track_bytes) / u128::from(self.spec.rotation_ns)) as u64
    }
}
