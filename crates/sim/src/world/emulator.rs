//! Timers of vCPUs: they interrupt at once, or after a thread of the emulator has served them
//! ([`crate::host::Emulator`]).

use super::{Placement, World};
use crate::host::{Body, State};
use crate::sched::{Cpu, Entity, Spec};

/// Time for QEMU's lock to pass from one vCPU to the next: mean of an exponential distribution. In eight traces of
/// emulated guests of Linux 6.1, ticks of two vCPUs due at the same time came 17 to 19 us apart at the median, and 78
/// us at p95.
const LOCK_HANDOVER_NS: u64 = 27_000;

impl World {
    /// Adds the thread that serves the timers of a guest's vCPUs, a [`Body::Emulator`].
    pub fn add_emulator(&mut self, guest: usize, body: Body, spec: &Spec) {
        let entity = self.add_thread(self.placements[guest].host, body, spec);
        self.placements[guest].emulator = Some(entity);
    }

    /// A vCPU's timer expires. Without an emulator its interrupt comes at once.
    pub(super) fn timer_expired(&mut self, guest: usize, v: usize) {
        let Placement { host: number, emulator, .. } = self.placements[guest];
        let Some(entity) = emulator else { return self.timer_interrupt(guest, v) };
        let host = &mut self.hosts[number];
        let thread = &mut host.threads[entity.0 as usize];
        let Body::Emulator(emulator) = &mut thread.body else { return };
        // A vCPU that has not taken its last interrupt will take both together.
        if !emulator.due.contains(&v) && !emulator.served.contains(&v) {
            emulator.due.push(v);
        }
        if thread.state == State::Blocked {
            thread.left_ns = emulator.serve_ns;
            let pcpu = Cpu(thread.pcpu as u32);
            host.wake(self.now_ns, entity, Some(pcpu));
            self.deciding.push(number);
        }
    }

    /// The thread has served a timer, or the lock has passed to the next vCPU.
    pub(super) fn emulator_timer(&mut self, number: usize, entity: Entity) {
        let now_ns = self.now_ns;
        let host = &mut self.hosts[number];
        let thread = &mut host.threads[entity.0 as usize];
        let (runs, pcpu) = (thread.state == State::Running, thread.pcpu);
        let Body::Emulator(emulator) = &mut thread.body else { return };
        if runs {
            emulator.served.extend(emulator.due.pop());
            if !emulator.due.is_empty() {
                thread.left_ns = emulator.serve_ns;
                return self.queue.arm(thread.timer, now_ns + thread.left_ns);
            }
        }
        let (guest, next) = (emulator.guest, emulator.take_served());
        if !emulator.served.is_empty() {
            self.queue.arm(thread.timer, now_ns + emulator.stream.exponential(LOCK_HANDOVER_NS));
        }
        if runs {
            host.block_running(now_ns, pcpu);
        }
        if let Some(v) = next {
            self.timer_interrupt(guest, v);
        }
    }

    fn timer_interrupt(&mut self, guest: usize, v: usize) {
        self.guests[guest].clock_event(v);
        self.talking.push(guest);
    }
}
