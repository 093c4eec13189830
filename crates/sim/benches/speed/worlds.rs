//! Worlds of small guests that do nothing but switch, tick and free through `call_rcu()`, on overcommitted hosts: how
//! many events a second, and what an event costs when there are many guests.

use reprieve_study::scenario::Spinlocks;
use reprieve_study::units::SECOND_NS;

use reprieve_sim::guest::costs::Costs;
use reprieve_sim::guest::env::Env;
use reprieve_sim::guest::ids::Mode;
use reprieve_sim::guest::memory::{self, Cache, Memory, Mobility};
use reprieve_sim::guest::rcu;
use reprieve_sim::guest::task::{Op, Program};
use reprieve_sim::guest::{self, Guest};
use reprieve_sim::host::{Host, HostSpec};
use reprieve_sim::random::Stream;
use reprieve_sim::sched::{self, Spec};
use reprieve_sim::world::World;

use crate::figure::{Bar, Figure, ROUNDS};
use crate::stopwatch::Stopwatch;

/// vCPUs of each guest.
const VCPUS: usize = 2;
/// Tasks bound to each vCPU: two, so that `schedule()` has whom to switch to.
const TASKS: usize = 2;
/// Memory of each guest; its tasks use little of it.
const MEMORY_BYTES: u64 = 128 << 20;
/// Size of the objects that the tasks free.
const OBJECT_BYTES: u32 = 64;
/// Time that a task computes before it gives way: each time drawn anew, or guests would march in step.
const RUN_NS: std::ops::RangeInclusive<u64> = 2_000..=8_000;
/// Speed over the guests of the calibration, in thousandths: that of the paper's workloads.
const SPEED_PERMILLE: u64 = 6000;
/// Ticks a second, of guests and hosts.
const HZ: u64 = 250;

/// CPU time of all pCPUs that a round simulates: about 3.5 million events.
const ROUND_NS: u64 = 10 * SECOND_NS;
/// What is simulated before the first round, so that queues and slabs have grown.
const WARM_UP_NS: u64 = SECOND_NS / 5;

/// Hosts that are alike, each with as many guests as pCPUs: 2 vCPUs on a pCPU.
#[derive(Clone, Copy, Debug)]
struct Shape {
    hosts: usize,
    guests: usize,
}

const SMALL: Shape = Shape { hosts: 1, guests: 2 };
const MANY_HOSTS: Shape = Shape { hosts: 40, guests: 25 };
const LARGE_HOST: Shape = Shape { hosts: 1, guests: 1000 };

/// Events a second of the small world; and what an event costs in the large ones, as a multiple of what it costs in the
/// small one. They take turns, so that what disturbs one disturbs the others.
pub fn figures() -> Vec<Figure> {
    let shapes = [SMALL, MANY_HOSTS, LARGE_HOST];
    let mut fleets = shapes.map(Fleet::new);
    let rounds: Vec<[f64; 3]> =
        (0..ROUNDS).map(|_| fleets.each_mut().map(Fleet::events_per_second)).collect();
    fleets.iter().for_each(Fleet::check);
    let speed = Figure {
        name: format!("scheduler and RCU, {}: events", SMALL.title()),
        unit: "M/s",
        bar: Some(Bar::AtLeast(10.0)),
        rounds: rounds.iter().map(|round| round[0] / 1e6).collect(),
    };
    let growth = |at: usize| Figure {
        name: format!("cost of an event, {}, over {}", shapes[at].title(), SMALL.title()),
        unit: "x",
        bar: Some(Bar::AtMost(1.5)),
        rounds: rounds.iter().map(|round| round[0] / round[at]).collect(),
    };
    vec![speed, growth(1), growth(2)]
}

impl Shape {
    fn title(self) -> String {
        let Shape { hosts, guests } = self;
        format!("{hosts} host{} with {guests} VMs", if hosts == 1 { "" } else { "s" })
    }
}

/// Hosts share nothing, so each is a world of its own, and one goes on for a round after the other: that way what it
/// works on stays in the cache. (In one world, the order of events by time would go from host to host at each event.)
struct Fleet {
    worlds: Vec<World>,
    guests: usize,
    round_ns: u64,
}

impl Fleet {
    fn new(shape: Shape) -> Fleet {
        let mut worlds: Vec<World> = (0..shape.hosts).map(|host| world(shape.guests, host)).collect();
        worlds.iter_mut().for_each(|world| go_on(world, WARM_UP_NS));
        let round_ns = ROUND_NS / (shape.hosts * shape.guests) as u64;
        Fleet { worlds, guests: shape.guests, round_ns }
    }

    fn events(&self) -> u64 {
        self.worlds.iter().map(|world| world.events).sum()
    }

    /// Goes on for a round.
    fn events_per_second(&mut self) -> f64 {
        let before = self.events();
        let stopwatch = Stopwatch::start();
        self.worlds.iter_mut().for_each(|world| go_on(world, self.round_ns));
        let events_per_second = (self.events() - before) as f64 / stopwatch.seconds();
        self.forget_grace_periods();
        events_per_second
    }

    fn forget_grace_periods(&mut self) {
        for world in &mut self.worlds {
            (0..self.guests).for_each(|guest| drop(world.guest_mut(guest).rcu.finished()));
        }
    }

    /// That the worlds are sound, and did what they are for.
    fn check(&self) {
        for world in &self.worlds {
            world.check().expect("the world is sound");
            for guest in 0..self.guests {
                let counters = world.guest(guest).counters();
                let waits = world.vcpu_times(guest).iter().all(|(_, delay_ns)| *delay_ns > 0);
                assert!(waits, "the host of guest {guest} is not overcommitted");
                assert!(
                    counters.operations > 0 && world.guest(guest).rcu.invoked > 0,
                    "guest {guest} did nothing: {counters:?}"
                );
            }
        }
    }
}

fn go_on(world: &mut World, for_ns: u64) {
    assert!(world.run_until(world.now_ns + for_ns, u64::MAX), "there is no limit");
}

/// A started world: a host with that many guests.
fn world(guests: usize, number: usize) -> World {
    let mut world = World::new();
    let host = add_host(&mut world, guests);
    for guest in 0..guests {
        let guest = make_guest(&mut world, (number * guests + guest) as u64);
        world.add_guest(host, guest, |_| Spec::default());
    }
    world.start();
    world
}

fn add_host(world: &mut World, pcpus: usize) -> usize {
    let spec = HostSpec { pcpus, switch_ns: 2_000, cold_cache_ns: 10_000, spare_lock_holders: false };
    let tunables = sched::Tunables::linux(pcpus, HZ);
    let host = Host::new(spec, Box::new(sched::eevdf::eevdf_with(pcpus, &tunables)), world.queue());
    world.add_host(host)
}

fn make_guest(world: &mut World, seed: u64) -> Guest {
    let spec = guest::Spec {
        kernel: guest::Kernel::default(),
        vcpus: VCPUS,
        hz: HZ,
        costs: Costs::at_speed(SPEED_PERMILLE),
        rcu: rcu::Params { hz: HZ, ..rcu::Params::default() },
        locks: 0,
        discipline: Spinlocks::Queued,
        tick_phase_ns: Stream::new(seed, "tick phase", 0).within(0, SECOND_NS / HZ - 1),
        idle: Default::default(),
        remedies: Default::default(),
    };
    let costs = spec.costs.memory.clone();
    let memory = Memory::new(&memory::Spec { bytes: MEMORY_BYTES, cpus: VCPUS, costs });
    let mut guest = Guest::new(&spec, memory, seed, world.queue());
    let cache = guest.memory.add_cache(OBJECT_BYTES, Mobility::Unmovable);
    for task in 0..VCPUS * TASKS {
        guest.add_program(Box::new(Retire { cache, runs: false }), Some(task % VCPUS));
    }
    guest
}

/// Frees an object through `call_rcu()`, computes for a while, gives way; for ever.
struct Retire {
    cache: Cache,
    runs: bool,
}

impl Program for Retire {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        self.runs = !self.runs;
        if !self.runs {
            return Op::Schedule;
        }
        let object = env.alloc(self.cache).expect("the guest has memory for its objects");
        env.free_deferred(object);
        env.counters.operations += 1;
        Op::Run { ns: env.random.within(*RUN_NS.start(), *RUN_NS.end()), mode: Mode::Kernel }
    }
}
