//! A world's disk, and what the host does for guests with block I/O: micro-slices (vSlicer) and accounting of paused
//! vCPUs (xBalloon).

use super::{Source, World, register};
use crate::device::{Disk, DiskRequest};
use crate::host::{MicroSlice, State};
use crate::queue::{Class, Timer};
use crate::sched::{Cpu, Entity};

/// The world's part of block I/O.
#[derive(Debug, Default)]
pub(super) struct IoWorld {
    disk: Option<Disk>,
    /// Guests that do block I/O.
    guests: Vec<usize>,
    done: Vec<DiskRequest>,
    accounting: Option<Accounting>,
}

/// The period of accounting for paused vCPUs.
#[derive(Clone, Copy, Debug)]
struct Accounting {
    timer: Timer,
    period_ns: u64,
}

impl IoWorld {
    /// How far a pausing vCPU may fall behind the others and still keep its claim: one accounting period. `None` if no
    /// guest pauses vCPUs.
    pub fn pause_keeps_ns(&self) -> Option<u64> {
        self.accounting.map(|accounting| accounting.period_ns)
    }
}

impl World {
    /// Adds the disk that all guests share. Its timer is in this world's queue.
    pub fn set_disk(&mut self, disk: Disk) {
        register(&mut self.sources, disk.timer, Source::Disk);
        self.io.disk = Some(disk);
    }

    /// The disk.
    pub fn disk(&self) -> Option<&Disk> {
        self.io.disk.as_ref()
    }

    /// Tracks the inactivity of a guest that does block I/O.
    pub fn add_io_guest(&mut self, guest: usize) {
        self.io.guests.push(guest);
    }

    /// Accounts for paused vCPUs in this period.
    pub fn account_pauses_every(&mut self, period_ns: u64) {
        let timer = self.queue.add(Class::HostClock);
        register(&mut self.sources, timer, Source::Accounting);
        self.queue.arm(timer, self.now_ns + period_ns);
        self.io.accounting = Some(Accounting { timer, period_ns });
    }

    /// Cuts the slices of a guest's vCPUs to `run_ns`, one begun every `every_ns`. After each the scheduler decides
    /// again. When the next one is due, the vCPU preempts others if its share allows. The share itself does not change.
    pub fn cut_slices(&mut self, guest: usize, run_ns: u64, every_ns: u64) {
        let placement = &self.placements[guest];
        for entity in &placement.threads {
            let timer = self.queue.add(Class::HostClock);
            let source = Source::SliceEnd { host: placement.host as u32, entity: entity.0 };
            register(&mut self.sources, timer, source);
            let slice = MicroSlice { timer, run_ns, every_ns };
            self.hosts[placement.host].threads[entity.0 as usize].micro_slice = Some(slice);
        }
    }

    /// Passes a guest's requests to the disk.
    pub(super) fn take_disk_requests(&mut self, guest: usize) {
        let Some(disk) = &mut self.io.disk else { return };
        let Some(io) = self.guests[guest].io_mut() else { return };
        while let Some(request) = io.block.leave(guest) {
            disk.submit(self.now_ns, request, &mut self.queue);
        }
    }

    /// The disk's timer expires.
    pub(super) fn disk_event(&mut self) {
        let Some(disk) = &mut self.io.disk else { return };
        disk.work(self.now_ns, &mut self.io.done, &mut self.queue);
        for request in self.io.done.drain(..) {
            self.guests[request.guest].disk_done(request.id);
            self.talking.push(request.guest);
        }
    }

    /// A micro-slice ends, or the next one is due.
    pub(super) fn slice_end(&mut self, host: usize, entity: Entity) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[host];
        let thread = &host.threads[entity.0 as usize];
        let Some(slice) = thread.micro_slice else { return };
        match thread.state {
            State::Running => {
                let cpu = Cpu(thread.pcpu as u32);
                host.scheduler.yield_now(now_ns, cpu, &mut host.orders);
                host.orders.resched.push(cpu);
                // It may continue if no other thread wants the pCPU.
                self.queue.arm(slice.timer, now_ns + slice.run_ns);
            }
            State::Runnable => {
                host.favour_if_owed(now_ns, entity);
                self.queue.arm(slice.timer, now_ns + slice.run_ns);
            }
            // The timer is armed again when it runs.
            State::Blocked => {}
        }
    }

    /// The host's accounting: ends pauses that have lasted since the last one.
    pub(super) fn account_pauses(&mut self) {
        let Some(Accounting { timer, period_ns }) = self.io.accounting else { return };
        self.queue.arm(timer, self.now_ns + period_ns);
        let mut unpaused = Vec::new();
        for index in 0..self.io.guests.len() {
            let guest = self.io.guests[index];
            self.arm_pausing(guest);
            self.guests[guest].account_pauses(self.now_ns, &mut unpaused);
            for v in unpaused.drain(..) {
                self.unpause(guest, v);
            }
        }
    }

    /// Allows a pause to vCPUs that are owed CPU time, and to no others.
    fn arm_pausing(&mut self, guest: usize) {
        let placement = &self.placements[guest];
        let host = &mut self.hosts[placement.host];
        for (v, entity) in placement.threads.iter().enumerate() {
            self.guests[guest].arm_pausing(v, host.is_owed(self.now_ns, *entity));
        }
    }

    /// A paused vCPU competes for a pCPU again, and runs next if it is owed CPU time.
    pub(super) fn unpause(&mut self, guest: usize, v: usize) {
        let placement = &self.placements[guest];
        let (number, entity) = (placement.host, placement.threads[v]);
        let mut clock =
            crate::guest::Clock { now_ns: self.now_ns, queue: &mut self.queue, work: &mut self.work };
        self.guests[guest].unhalt(&mut clock, v);
        self.talking.push(guest);
        let host = &mut self.hosts[number];
        host.wake(self.now_ns, entity, None);
        host.favour_if_owed(self.now_ns, entity);
        self.deciding.push(number);
    }

    /// Updates the inactivity of all guests with block I/O.
    pub(super) fn book_inactivity(&mut self) {
        for guest in &self.io.guests {
            self.work += self.guests[*guest].book_inactivity(self.now_ns);
        }
    }
}

#[cfg(test)]
mod tests;
