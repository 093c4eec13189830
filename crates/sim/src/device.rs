//! A host's disk: requests of VMs wait in the host's I/O scheduler, are served by a drive, and return as interrupts.
//!
//! | part | what it is |
//! |---|---|
//! | [`drive`] | how long a request takes: flash with a link, or a disk with seeks |
//! | [`fair`] | which request comes next: slices of service, by weight |
//! | [`delay`] | a fixed delay on the way |
//!
//! Invariants: a submitted request is in exactly one place until it is done; the drive never holds more requests than
//! its queue depth; each VM's completed and pending requests add up to those it submitted.

pub mod delay;
pub mod drive;
pub mod fair;
#[cfg(test)]
mod tests;

use crate::queue::{Class, Queue, Timer};
use delay::Delay;
use drive::Drive;
use fair::Fair;

/// A request to a VM's virtual disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// The guest that made it.
    pub guest: usize,
    /// The guest's number for it.
    pub id: u32,
    /// The vCPU that submitted it and gets the interrupt.
    pub vcpu: usize,
    /// First byte on the disk.
    pub start: u64,
    /// Length.
    pub bytes: u64,
    /// Whether it writes.
    pub writes: bool,
}

/// The parameters of a disk.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// The drive.
    pub drive: Drive,
    /// Requests that the drive works on at the same time.
    pub depth: usize,
    /// The host's I/O scheduler.
    pub fair: fair::Params,
    /// Time from the guest's submission to the host's I/O scheduler.
    pub entry_ns: u64,
    /// Time from the drive's completion to the guest's interrupt.
    pub exit_ns: u64,
}

/// A request that the drive works on.
#[derive(Clone, Copy, Debug)]
struct Served {
    done_ns: u64,
    request: DiskRequest,
}

/// A disk.
#[derive(Debug)]
pub struct Disk {
    /// Expires when the disk should act next.
    pub timer: Timer,
    drive: Drive,
    depth: usize,
    entering: Delay<DiskRequest>,
    fair: Fair,
    /// Earliest completion last.
    served: Vec<Served>,
    leaving: Delay<DiskRequest>,
    /// Time that the drive was busy, up to `booked_ns`.
    busy_ns: u64,
    booked_ns: u64,
}

impl Disk {
    /// An idle disk.
    pub fn new(spec: DiskSpec, guests: usize, queue: &mut Queue) -> Disk {
        Disk {
            timer: queue.add(Class::Work),
            drive: spec.drive,
            depth: spec.depth.max(1),
            entering: Delay::new(spec.entry_ns),
            fair: Fair::new(spec.fair, guests),
            served: Vec::new(),
            leaving: Delay::new(spec.exit_ns),
            busy_ns: 0,
            booked_ns: 0,
        }
    }

    /// A guest submits a request.
    pub fn submit(&mut self, now_ns: u64, request: DiskRequest, queue: &mut Queue) {
        self.entering.push(now_ns, request);
        self.arm(now_ns, queue);
    }

    /// The timer has expired. Adds the requests whose interrupt is due to `done`.
    pub fn work(&mut self, now_ns: u64, done: &mut Vec<DiskRequest>, queue: &mut Queue) {
        self.book(now_ns);
        while let Some(request) = self.entering.pop(now_ns) {
            self.fair.push(request);
        }
        while let Some(served) = self.served.pop_if(|served| served.done_ns <= now_ns) {
            self.fair.ended(now_ns, served.request.guest);
            self.leaving.push(now_ns, served.request);
        }
        while self.served.len() < self.depth
            && let Some(request) = self.fair.next(now_ns)
        {
            let service = self.drive.serve(now_ns, &request);
            self.fair.charge(request.guest, service.cost_ns);
            let done_ns = service.done_ns;
            let place = self.served.partition_point(|other| other.done_ns > done_ns);
            self.served.insert(place, Served { done_ns, request });
        }
        while let Some(request) = self.leaving.pop(now_ns) {
            done.push(request);
        }
        self.arm(now_ns, queue);
    }

    fn arm(&mut self, now_ns: u64, queue: &mut Queue) {
        let served = self.served.last().map(|served| served.done_ns);
        let idle = self.fair.decides_ns().filter(|_| self.served.len() < self.depth);
        let next = [self.entering.next(), served, idle, self.leaving.next()];
        match next.into_iter().flatten().min() {
            Some(at_ns) => queue.arm(self.timer, at_ns.max(now_ns)),
            None => queue.disarm(self.timer),
        }
    }

    fn book(&mut self, now_ns: u64) {
        if !self.served.is_empty() {
            self.busy_ns += now_ns - self.booked_ns;
        }
        self.booked_ns = now_ns;
    }

    /// Time that the drive was busy.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        self.busy_ns + if self.served.is_empty() { 0 } else { now_ns - self.booked_ns }
    }
}
