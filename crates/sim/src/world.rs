//! Everything in a run (hosts, guests, the queue), and the event loop.
//!
//! An event changes one entity, which may leave requests and orders. `dispatch` carries them all out before time goes
//! on.

mod boosting;
pub mod client;
mod coscheduling;
mod dispatch;
mod emulator;
mod granting;
mod io;
mod oracle;
mod recording;
mod steadying;

use crate::digest::mixed;
use crate::guest::{Clock, Guest, Request};
use crate::host::{Body, Host, State};
use crate::queue::{Queue, Timer};
use crate::sched::{Cpu, Entity};
pub use boosting::{Given, Times};
use client::Client;
pub use granting::Granted;
use recording::Recording;

/// Steps of a loop that cost as much as a usual event (estimated at 3 ns and 100 ns). Scenarios can make some loops
/// long, such as the one over the pages of a read.
const WORK_PER_EVENT: u64 = 32;

/// What a timer belongs to.
#[derive(Clone, Copy, Debug)]
enum Source {
    VcpuWork { guest: u32, vcpu: u32 },
    VcpuClock { guest: u32, vcpu: u32 },
    Tick { host: u32, pcpu: u32 },
    Scheduler { host: u32, number: u32 },
    Thread { host: u32, entity: u32 },
    Client { client: u32 },
    SliceEnd { host: u32, entity: u32 },
    Disk,
    Accounting,
    Coscheduling,
    Steadying,
    Granted { guest: u32, vcpu: u32 },
}

/// Where a guest's vCPUs run.
#[derive(Clone, Debug, Default)]
struct Placement {
    host: usize,
    threads: Vec<Entity>,
    /// The thread that serves its vCPUs' timers, if the scenario has one.
    emulator: Option<Entity>,
}

/// A run's state.
#[derive(Default)]
pub struct World {
    /// The current time.
    pub now_ns: u64,
    /// The number of events.
    pub events: u64,
    /// A digest of all events: their times and timers.
    pub digest: u64,
    /// Steps of long loops ([`WORK_PER_EVENT`]).
    work: u64,
    queue: Queue,
    sources: Vec<Source>,
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    placements: Vec<Placement>,
    /// Guests that may have left requests.
    talking: Vec<usize>,
    /// Hosts whose scheduler may have left orders.
    deciding: Vec<usize>,
    requests: Vec<Request>,
    clients: Vec<Client>,
    io: io::IoWorld,
    recording: Recording,
    boosting: Option<boosting::Daemon>,
    granting: Option<granting::Granting>,
    coscheduling: Option<coscheduling::Coscheduling>,
    steadying: Option<steadying::Steadying>,
    oracle: Option<oracle::Oracle>,
}

impl World {
    /// An empty world.
    pub fn new() -> World {
        World::default()
    }

    /// The queue for the timers of hosts and guests to be added.
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Adds a host whose timers are in this world's queue.
    pub fn add_host(&mut self, host: Host) -> usize {
        let number = self.hosts.len();
        for (pcpu, state) in host.pcpus.iter().enumerate() {
            let source = Source::Tick { host: number as u32, pcpu: pcpu as u32 };
            register(&mut self.sources, state.tick, source);
        }
        self.hosts.push(host);
        number
    }

    /// Adds a thread to a host.
    pub fn add_thread(&mut self, host: usize, body: Body, spec: &crate::sched::Spec) -> Entity {
        let entity = self.hosts[host].add_thread(body, spec, &mut self.queue);
        let timer = self.hosts[host].threads[entity.0 as usize].timer;
        register(&mut self.sources, timer, Source::Thread { host: host as u32, entity: entity.0 });
        entity
    }

    /// Adds a guest whose timers are in this world's queue. Each vCPU becomes a thread of the host, with that spec.
    pub fn add_guest(
        &mut self,
        host: usize,
        guest: Guest,
        spec: impl Fn(usize) -> crate::sched::Spec,
    ) -> usize {
        let number = self.guests.len();
        let mut placement = Placement { host, threads: Vec::new(), emulator: None };
        for (v, vcpu) in guest.vcpus().iter().enumerate() {
            let (guest, vcpu_number) = (number as u32, v as u32);
            register(&mut self.sources, vcpu.work, Source::VcpuWork { guest, vcpu: vcpu_number });
            register(&mut self.sources, vcpu.clock, Source::VcpuClock { guest, vcpu: vcpu_number });
            placement.threads.push(self.add_thread(host, Body::Vcpu { guest: number, vcpu: v }, &spec(v)));
        }
        self.guests.push(guest);
        self.placements.push(placement);
        number
    }

    /// Adds a client whose timer is in this world's queue. A guest has one at most.
    pub fn add_client(&mut self, client: Client) {
        let source = Source::Client { client: self.clients.len() as u32 };
        register(&mut self.sources, client.timer, source);
        self.clients.push(client);
    }

    /// Boots all guests and starts all other threads.
    pub fn start(&mut self) {
        for guest in 0..self.guests.len() {
            let mut clock = Clock { now_ns: self.now_ns, queue: &mut self.queue, work: &mut self.work };
            self.guests[guest].boot(&mut clock);
            self.talking.push(guest);
        }
        for host in 0..self.hosts.len() {
            self.deciding.push(host);
            for entity in 0..self.hosts[host].threads.len() {
                self.start_thread(host, Entity(entity as u32));
            }
        }
        for client in &mut self.clients {
            client.start(self.now_ns, &mut self.queue);
        }
        self.settle();
    }

    fn start_thread(&mut self, host: usize, entity: Entity) {
        let now_ns = self.now_ns;
        let thread = &mut self.hosts[host].threads[entity.0 as usize];
        match &mut thread.body {
            Body::Vcpu { .. } => {}
            Body::Busy if thread.begins_ns > now_ns => {
                let begins_ns = thread.begins_ns;
                self.queue.arm(thread.timer, begins_ns);
            }
            Body::Busy => self.hosts[host].wake(now_ns, entity, None),
            Body::Noise { sleep_ns, stream, .. } => {
                let at_ns = now_ns + stream.exponential(*sleep_ns);
                self.queue.arm(thread.timer, at_ns);
            }
            Body::Booster => {
                let timer = thread.timer;
                self.queue.arm(timer, now_ns + 1);
            }
            Body::Emulator(_) | Body::Spike { .. } => {}
        }
    }

    /// Lets a busy thread begin at that time instead of at the start.
    pub fn begin_at(&mut self, host: usize, entity: Entity, at_ns: u64) {
        self.hosts[host].threads[entity.0 as usize].begins_ns = at_ns;
    }

    /// Keeps a vCPU off its pCPU for a while.
    pub fn pause(&mut self, guest: usize, v: usize, for_ns: u64) {
        let placement = &self.placements[guest];
        let (host, entity) = (placement.host, placement.threads[v]);
        let thread = &mut self.hosts[host].threads[entity.0 as usize];
        // Of overlapping pauses the later end counts.
        let until_ns = thread.paused_until_ns.unwrap_or(0).max(self.now_ns + for_ns);
        thread.paused_until_ns = Some(until_ns);
        let pcpu = thread.pcpu;
        self.queue.arm(thread.timer, until_ns);
        if thread.state == State::Running {
            self.hosts[host].orders.resched.push(Cpu(pcpu as u32));
        }
        self.deciding.push(host);
        self.settle();
    }

    /// Makes a [`Body::Spike`] busy for a while.
    pub fn spike(&mut self, host: usize, entity: Entity, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        let thread = &mut self.hosts[host].threads[entity.0 as usize];
        let Body::Spike { until_ns } = &mut thread.body else {
            return;
        };
        *until_ns = end_ns;
        self.queue.arm(thread.timer, end_ns);
        if thread.state == State::Blocked {
            self.hosts[host].wake(self.now_ns, entity, None);
        }
        self.deciding.push(host);
        self.settle();
    }

    /// The cost of the run so far, in events of usual size.
    #[inline]
    pub fn spent(&self) -> u64 {
        self.events + self.work / WORK_PER_EVENT
    }

    /// Advances to `until_ns`, inclusive, or until the run has cost `limit` events. Returns whether it reached the
    /// time.
    pub fn run_until(&mut self, until_ns: u64, limit: u64) -> bool {
        while self.spent() < limit {
            let Some((at_ns, timer)) = self.queue.pop_until(until_ns) else {
                self.now_ns = until_ns;
                return true;
            };
            debug_assert!(at_ns >= self.now_ns);
            self.now_ns = at_ns;
            self.events += 1;
            self.digest = mixed(self.digest, at_ns ^ (timer.index() as u64) << 40);
            self.happen(self.sources[timer.index()]);
            self.settle();
            self.foresee();
            self.book_inactivity();
        }
        false
    }

    fn happen(&mut self, source: Source) {
        let mut clock = Clock { now_ns: self.now_ns, queue: &mut self.queue, work: &mut self.work };
        match source {
            Source::VcpuWork { guest, vcpu } => {
                let number = guest as usize;
                let guest = &mut self.guests[number];
                guest.go_on(&mut clock, vcpu as usize);
                // Most stretches of work end without a request.
                if guest.has_requests() {
                    self.talking.push(number);
                }
            }
            Source::VcpuClock { guest, vcpu } => self.timer_expired(guest as usize, vcpu as usize),
            Source::Tick { host, pcpu } => {
                self.deciding.push(host as usize);
                let host = &mut self.hosts[host as usize];
                host.pcpus[pcpu as usize].ticking = false;
                host.scheduler.tick(self.now_ns, Cpu(pcpu), &mut host.orders);
                host.keep_tick(self.now_ns, pcpu as usize, &mut self.queue);
            }
            Source::Scheduler { host, number } => {
                self.deciding.push(host as usize);
                let host = &mut self.hosts[host as usize];
                host.scheduler.timer(self.now_ns, number, &mut host.orders);
            }
            Source::Thread { host, entity } => {
                self.deciding.push(host as usize);
                self.thread_timer(host as usize, Entity(entity));
            }
            Source::Client { client } => {
                let client = &mut self.clients[client as usize];
                let packet = client.arrived(self.now_ns, &mut self.queue);
                self.guests[client.guest].deliver(packet);
                self.talking.push(client.guest);
            }
            Source::SliceEnd { host, entity } => {
                self.deciding.push(host as usize);
                self.slice_end(host as usize, Entity(entity));
            }
            Source::Disk => self.disk_event(),
            Source::Accounting => self.account_pauses(),
            Source::Coscheduling => self.look_and_gather(),
            Source::Steadying => self.look_for_steady(),
            Source::Granted { guest, vcpu } => self.end_granted(guest as usize, vcpu as usize),
        }
    }

    /// A thread's own timer expires.
    fn thread_timer(&mut self, number: usize, entity: Entity) {
        let now_ns = self.now_ns;
        let queue = &mut self.queue;
        let host = &mut self.hosts[number];
        let thread = &mut host.threads[entity.0 as usize];
        let (state, pcpu) = (thread.state, thread.pcpu);
        match &mut thread.body {
            Body::Vcpu { .. } => {
                thread.paused_until_ns = None;
                // The scheduler saw it as blocked during the pause. If it has work, it is now runnable.
                if state == State::Runnable {
                    host.scheduler.wake(now_ns, entity, None, &mut host.orders);
                }
            }
            Body::Busy => host.wake(now_ns, entity, None),
            Body::Noise { sleep_ns, burst_ns, stream } => match state {
                State::Blocked => {
                    thread.left_ns = stream.exponential(*burst_ns);
                    host.wake(now_ns, entity, Some(Cpu(pcpu as u32)));
                }
                _ => {
                    let at_ns = now_ns + stream.exponential(*sleep_ns);
                    queue.arm(thread.timer, at_ns);
                    host.block_running(now_ns, pcpu);
                }
            },
            Body::Emulator(_) => self.emulator_timer(number, entity),
            Body::Booster => self.booster_timer(number, entity),
            // If it is waiting for a pCPU, it blocks as soon as it runs.
            Body::Spike { .. } => {
                if state == State::Running {
                    host.block_running(now_ns, pcpu);
                }
            }
        }
    }

    /// Run time of a thread of a host.
    pub fn thread_run_ns(&self, host: usize, entity: Entity) -> u64 {
        self.hosts[host].threads[entity.0 as usize].times_at(self.now_ns).0
    }

    /// Memory that grows during a run: records, and what waits for grace periods.
    pub fn held_bytes(&self) -> u64 {
        self.guests.iter().map(Guest::held_bytes).sum::<u64>() + self.recording.held_bytes()
    }

    /// The number of guests.
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// A guest.
    pub fn guest(&self, guest: usize) -> &Guest {
        &self.guests[guest]
    }

    /// A guest, to collect its records.
    pub fn guest_mut(&mut self, guest: usize) -> &mut Guest {
        &mut self.guests[guest]
    }

    /// Run time and delay of each of a guest's vCPUs.
    pub fn vcpu_times(&self, guest: usize) -> Vec<(u64, u64)> {
        let placement = &self.placements[guest];
        let threads = &self.hosts[placement.host].threads;
        placement.threads.iter().map(|entity| threads[entity.0 as usize].times_at(self.now_ns)).collect()
    }

    /// Checks the invariants between events: no page, callback or CPU time is lost.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        for host in &self.hosts {
            host.check(self.now_ns)?;
        }
        self.guests.iter().try_for_each(Guest::check)?;
        (0..self.guests.len()).try_for_each(|guest| self.check_times(guest))
    }

    /// Checks that a guest accounted for exactly the CPU time that its host gave.
    fn check_times(&self, guest: usize) -> Result<(), String> {
        let used = self.guests[guest].vcpus().iter().map(|vcpu| vcpu.on_pcpu_ns(self.now_ns));
        let given = self.vcpu_times(guest).into_iter().map(|(run_ns, _)| run_ns);
        for (v, (used_ns, given_ns)) in used.zip(given).enumerate() {
            if used_ns != given_ns {
                return Err(format!("vCPU {v} used {used_ns} ns and was given {given_ns} ns"));
            }
        }
        Ok(())
    }
}

fn register(sources: &mut Vec<Source>, timer: Timer, source: Source) {
    if sources.len() <= timer.index() {
        sources.resize(timer.index() + 1, source);
    }
    sources[timer.index()] = source;
}

#[cfg(test)]
mod tests;
