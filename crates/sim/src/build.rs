//! Builds the world of a run from a condition of its scenario: host, guests, neighbours and stimuli.

mod io;
mod remedies;
mod xen;

use std::borrow::Cow;
use std::collections::BTreeSet;

use reprieve_study::Scenario;
use reprieve_study::scenario::{
    BadScenario, Cause, Condition, HostModel, Remedy, Requests, SchedulerKind, SliceGrant, Workload,
};
use reprieve_study::units::{MIB, MILLISECOND_NS, SECOND_NS};

use crate::cpu_share::CpuShare;
use crate::guest::costs::Costs;
use crate::guest::memory::{self, Memory};
use crate::guest::rcu;
use crate::guest::{self, Guest};
use crate::host::{Body, Emulator, Host, HostSpec};
use crate::observe::Others;
use crate::random::Stream;
use crate::sched::xen::DomainSpec;
use crate::sched::{self, Cpu, Entity, Quota, Scheduler, Spec};
use crate::workload::{self, Spread};
use crate::world::World;
use crate::world::client::{Client, Loop};

/// Memory that the simulator needs for each page frame of a guest: the buddy allocator's state.
const BYTES_PER_FRAME: u64 = 16;
/// The largest guest that [`Memory`] can hold.
const MOST_MEMORY_MIB: u64 = 256 << 10;

/// A world ready to start, and the threads that the run controls.
pub struct Built {
    /// Guest 0 of this world is the one under test.
    pub world: World,
    /// Its host.
    pub host: usize,
    /// The threads of each spike of the condition.
    pub spikes: Vec<Vec<Entity>>,
    /// Threads of other VMs.
    pub others: Others,
}

/// Builds the world for one run. `made_up` is the share of CPU time for which the guest's speed compensates (a share above 1 slows it down);
/// [`CpuShare::ALL`] leaves the speed as the scenario has it.
///
/// # Errors
/// A scenario that exceeds its limits, with the key at fault.
pub fn build(
    scenario: &Scenario,
    condition: &Condition,
    seed: u64,
    made_up: CpuShare,
) -> Result<Built, BadScenario> {
    check_memory(scenario)?;
    check_speed(scenario)?;
    let mut world = World::new();
    let pcpus = scenario.pcpus_under(condition);
    let host = add_host(&mut world, scenario, pcpus, condition, seed);
    let guest = make_guest(&mut world, scenario, condition, seed, made_up, 0)?;
    let mut phases = Stream::new(seed, "quota phase", 0);
    let phases: Vec<u64> = (0..scenario.guest.vcpus).map(|_| phases.within(0, 999_999)).collect();
    let model = &scenario.host;
    let guest = world.add_guest(host, guest, |v| xen::guest(model, vcpu_spec(condition, v, phases[v])));
    remedies::add(&mut world, guest, model, condition, seed);
    add_emulator(&mut world, guest, scenario, seed, 0);
    add_client(&mut world, guest, scenario, seed);
    if let Some(io) = scenario.workload.io() {
        let mut guests = vec![guest];
        for rival in 1..=u64::from(io.rivals) {
            let made = make_guest(&mut world, scenario, condition, seed, made_up, rival)?;
            let spec = |v| Spec { weight: io.rival_weight, ..vcpu_spec(condition, v, phases[v]) };
            guests.push(world.add_guest(host, made, spec));
            add_emulator(&mut world, guests[rival as usize], scenario, seed, rival);
        }
        io::add(&mut world, scenario, condition, io, &guests);
    }
    // A recording already contains the noise of its host.
    if condition.replay.is_empty() {
        add_noise(&mut world, host, scenario, pcpus, seed);
    }
    let neighbours = add_busy(&mut world, host, scenario, condition, pcpus);
    if let Some(io) = scenario.workload.io() {
        io::stagger(&mut world, host, &neighbours, io, seed);
    }
    let spikes = condition.spikes.iter().enumerate().map(|(number, spike)| {
        let spec = xen::thread(model, xen::spike(number), Spec::default());
        let thread = |_| world.add_thread(host, Body::Spike { until_ns: 0 }, &spec);
        (0..spike.vcpus).map(thread).collect()
    });
    let spikes = spikes.collect();
    let spinners = add_spinners(&mut world, host, model, condition);
    Ok(Built { world, host, spikes, others: Others { spinners, neighbours } })
}

fn check_memory(scenario: &Scenario) -> Result<(), BadScenario> {
    if scenario.guest.memory_mib > MOST_MEMORY_MIB {
        let problem =
            format!("{} is more than the {MOST_MEMORY_MIB} that can be simulated", scenario.guest.memory_mib);
        return Err(BadScenario::new("guest.memory_mib", problem));
    }
    let guests = 1 + u64::from(scenario.workload.io().map_or(0, |io| io.rivals));
    let need_mib = guests * scenario.guest.memory_mib * BYTES_PER_FRAME / 4096;
    if need_mib > scenario.limits.memory_mib {
        let (guests, take) =
            if guests == 1 { ("a guest".into(), "takes") } else { (format!("{guests} guests"), "take") };
        let problem = format!(
            "{guests} of {} MiB {take} {need_mib} MiB to simulate, and limits.memory_mib is {}; raise that or lower this",
            scenario.guest.memory_mib, scenario.limits.memory_mib
        );
        return Err(BadScenario::new("guest.memory_mib", problem));
    }
    Ok(())
}

/// Refuses a guest so slow that its own ticks keep it busy: a run would show nothing else.
fn check_speed(scenario: &Scenario) -> Result<(), BadScenario> {
    let costs = Costs::at_speed(workload::speed_permille(scenario));
    let ticks_ns = (costs.tick_ns + costs.interrupt_ns) * scenario.guest.hz;
    if ticks_ns > SECOND_NS / 2 {
        let percent = ticks_ns * 100 / SECOND_NS;
        let problem = format!(
            "at {} the timer ticks of {} Hz take {percent} % of a vCPU; raise it, or lower guest.hz",
            scenario.guest.speed, scenario.guest.hz
        );
        return Err(BadScenario::new("guest.speed", problem));
    }
    Ok(())
}

fn host_spec(scenario: &Scenario, pcpus: usize, condition: &Condition) -> HostSpec {
    let model = &scenario.host;
    let free = condition.without.contains(&Cause::ContextSwitches);
    HostSpec {
        pcpus,
        switch_ns: if free { 0 } else { model.switch_ns },
        cold_cache_ns: if free { 0 } else { model.cold_cache_ns },
        spare_lock_holders: condition.without.contains(&Cause::LockHolderPreemption),
    }
}

/// Ticks a second, and the length of a slice; 0 for the scheduler's own. Slices end at ticks, so short ones need more.
fn ticks_and_slice(model: &HostModel, condition: &Condition) -> (u64, u64) {
    if !condition.remedies.contains(&Remedy::ShortSlices) {
        return (model.hz, model.slice_us);
    }
    let slice_us = model.short_slices.slice_us;
    (model.hz.max(1_000_000_u64.div_ceil(slice_us)), slice_us)
}

fn add_host(world: &mut World, scenario: &Scenario, pcpus: usize, condition: &Condition, seed: u64) -> usize {
    let model = &scenario.host;
    let (hz, slice_us) = ticks_and_slice(model, condition);
    let mut tunables = sched::Tunables::linux(pcpus, hz);
    if slice_us > 0 {
        tunables.base_slice_ns = slice_us * 1000;
        tunables.min_granularity_ns = slice_us * 1000;
    }
    if condition.remedies.contains(&Remedy::ShortSlices) {
        // CFS divides its latency among those that run: two of them shall have such a slice each.
        tunables.latency_ns = 2 * slice_us * 1000;
    }
    let scheduler: Box<dyn Scheduler> = match model.scheduler {
        SchedulerKind::Eevdf => Box::new(sched::eevdf::eevdf_with(pcpus, &tunables)),
        SchedulerKind::Cfs => Box::new(sched::cfs::cfs_with(pcpus, &tunables)),
        SchedulerKind::Credit | SchedulerKind::Credit2 | SchedulerKind::Rtds => {
            xen::scheduler(model, pcpus, seed)
        }
    };
    let host = Host::new(host_spec(scenario, pcpus, condition), scheduler, world.queue());
    world.add_host(host)
}

fn guest_costs(scenario: &Scenario, condition: &Condition, speed_permille: u64) -> Costs {
    let mut costs = Costs::at_speed(speed_permille);
    // The spin limit is a time, whatever the guest's speed; but it is CPU time, so a compensated guest spins for less.
    costs.spin_ns = costs.spin_ns * workload::speed_permille(scenario) / speed_permille;
    if condition.remedies.contains(&Remedy::SliceGrant) {
        let SliceGrant { readers_per_ms, mark_ns, .. } = scenario.host.slice_grant;
        costs.marks_per_million = readers_per_ms * 2 * mark_ns;
    }
    if condition.without.contains(&Cause::MemoryPressure) {
        costs.memory = costs.memory.without_pressure();
    }
    costs
}

/// The scenario; for the counterfactual without memory pressure, with a workload that never pauses for memory.
fn throttled_or_not<'a>(scenario: &'a Scenario, condition: &Condition) -> Cow<'a, Scenario> {
    if !condition.without.contains(&Cause::MemoryPressure) {
        return Cow::Borrowed(scenario);
    }
    Cow::Owned(Scenario { workload: workload::unthrottled(scenario), ..scenario.clone() })
}

fn make_guest(
    world: &mut World,
    scenario: &Scenario,
    condition: &Condition,
    seed: u64,
    made_up: CpuShare,
    number: u64,
) -> Result<Guest, BadScenario> {
    // Each VM draws its own random numbers.
    let seed = seed ^ number << 48;
    let scenario = &*throttled_or_not(scenario, condition);
    let speed_permille = made_up.speed_that_makes_up(workload::speed_permille(scenario));
    let costs = guest_costs(scenario, condition, speed_permille);
    let tick_ns = SECOND_NS / scenario.guest.hz;
    let spec = guest::Spec {
        kernel: guest::Kernel::named(&scenario.guest.kernel),
        vcpus: scenario.guest.vcpus,
        hz: scenario.guest.hz,
        costs: costs.clone(),
        rcu: rcu_params(scenario, condition),
        remedies: remedies::of_guest(scenario, condition),
        locks: workload::locks(&scenario.workload),
        discipline: scenario.guest.spinlocks,
        tick_phase_ns: Stream::new(seed, "tick phase", 0).within(0, tick_ns - 1),
        idle: match scenario.workload {
            // The workload that we also run on real Xen.
            Workload::Wakeup { .. } if scenario.host.scheduler.is_xen() => guest::Idle::XEN_PV,
            _ => guest::Idle::default(),
        },
    };
    let bytes = scenario.guest.memory_mib * MIB;
    let mut memory = Memory::new(&memory::Spec { bytes, cpus: spec.vcpus, costs: costs.memory });
    let boot_bytes = workload::boot_bytes(bytes);
    memory.occupy(boot_bytes, &mut Stream::new(seed, "boot", 0)).map_err(|_| {
        let problem = format!("a booted kernel takes {} MiB already", boot_bytes >> 20);
        BadScenario::new("guest.memory_mib", problem)
    })?;
    let mut guest = Guest::new(&spec, memory, seed, world.queue());
    workload::add(&mut guest, scenario, speed_permille, number)?;
    Ok(guest)
}

fn descheduled_is_quiescent(condition: &Condition) -> bool {
    condition.without.contains(&Cause::ReaderPreemption) || condition.remedies.contains(&Remedy::Oracle)
}

/// RCU's parameters. A value below 0 means the kernel's default rule.
fn rcu_params(scenario: &Scenario, condition: &Condition) -> rcu::Params {
    let descheduled_is_quiescent = descheduled_is_quiescent(condition);
    let given = &scenario.guest.rcu;
    let own_rule = |value: i64| u64::try_from(value).ok();
    rcu::Params {
        hz: scenario.guest.hz,
        blimit: given.blimit.max(1) as u64,
        qhimark: given.qhimark.max(0) as u64,
        qlowmark: given.qlowmark.max(0) as u64,
        jiffies_till_first_fqs: own_rule(given.jiffies_till_first_fqs),
        jiffies_till_next_fqs: own_rule(given.jiffies_till_next_fqs),
        asks: remedies::ask(scenario, condition),
        offloads: condition.remedies.contains(&Remedy::Offload),
        descheduled_is_quiescent,
        ..rcu::Params::default()
    }
}

/// The number of busy vCPUs of neighbour VMs. With an even share none runs: the guest is slower instead.
fn busy_vcpus(scenario: &Scenario, condition: &Condition, pcpus: u64) -> u64 {
    if condition.remedies.contains(&Remedy::EvenShare) {
        return 0;
    }
    let vcpus = scenario.guest.vcpus as u64;
    let wanted = (condition.overcommit * pcpus as f64).round() as u64;
    u64::from(condition.neighbours) * vcpus + wanted.saturating_sub(vcpus)
}

fn vcpu_spec(condition: &Condition, v: usize, phase_permillion: u64) -> Spec {
    let allowed = match condition.pcpus.len() {
        // In a replay each vCPU has a pCPU of its own.
        _ if !condition.replay.is_empty() => vec![Cpu(v as u32)],
        0 => Vec::new(),
        _ if condition.remedies.contains(&Remedy::Unpin) => shared_pcpus(condition),
        pcpus => vec![Cpu(condition.pcpus[v % pcpus] as u32)],
    };
    let quota = condition.quota.iter().find(|quota| quota.vcpu == v).map(|quota| {
        let period_ns = quota.period_ms * MILLISECOND_NS;
        let quota_ns = (period_ns as f64 * quota.percent / 100.0).round() as u64;
        let phase_ns = period_ns * phase_permillion / 1_000_000;
        Quota { quota_ns, period_ns, phase_ns, burst_ns: quota.burst_ms * MILLISECOND_NS }
    });
    Spec { allowed, quota, domain: DomainSpec::numbered(xen::GUEST), ..Spec::default() }
}

/// Adds the thread that serves the timers of the guest's vCPUs, if the scenario has one. It is not pinned.
fn add_emulator(world: &mut World, guest: usize, scenario: &Scenario, seed: u64, number: u64) {
    let serve_ns = scenario.guest.timer_thread_ns;
    if serve_ns > 0 {
        let spec = xen::thread(&scenario.host, xen::DOM0, Spec::default());
        let stream = Stream::new(seed, "timers", number);
        world.add_emulator(guest, Body::Emulator(Emulator::new(guest, serve_ns, stream)), &spec);
    }
}

/// Adds the host's own threads, one of each kind per pCPU.
fn add_noise(world: &mut World, host: usize, scenario: &Scenario, pcpus: usize, seed: u64) {
    let model = &scenario.host;
    let usual = (model.noise_per_s > 0 && model.noise_ns > 0)
        .then(|| ("noise".to_string(), SECOND_NS / model.noise_per_s, model.noise_ns));
    let tails = model.noise_tail.iter().enumerate();
    let tails = tails
        .map(|(number, tail)| (format!("noise tail {number}"), tail.every_us * 1000, tail.for_us * 1000));
    for (stream, sleep_ns, burst_ns) in usual.into_iter().chain(tails) {
        for pcpu in 0..pcpus {
            let stream = Stream::new(seed, &stream, pcpu as u64);
            let body = Body::Noise { sleep_ns, burst_ns, stream };
            let is_bound = model.noise_bound || model.scheduler.is_xen();
            let allowed = if is_bound { vec![Cpu(pcpu as u32)] } else { Vec::new() };
            let spec = xen::thread(model, xen::DOM0, Spec { allowed, ..Spec::default() });
            world.add_thread(host, body, &spec);
        }
    }
}

fn shared_pcpus(condition: &Condition) -> Vec<Cpu> {
    let shared: BTreeSet<usize> = condition.pcpus.iter().copied().collect();
    shared.into_iter().map(|pcpu| Cpu(pcpu as u32)).collect()
}

/// Adds the VMs that compute forever, on the guest's pCPUs.
fn add_spinners(world: &mut World, host: usize, model: &HostModel, condition: &Condition) -> Vec<Entity> {
    let spec = Spec { allowed: shared_pcpus(condition), ..Spec::default() };
    let spinner = |number| world.add_thread(host, Body::Busy, &xen::spinner(model, number, spec.clone()));
    (0..condition.spinners).map(spinner).collect()
}

/// Adds the client of a guest that serves requests.
fn add_client(world: &mut World, guest: usize, scenario: &Scenario, seed: u64) {
    let Workload::Requests(requests) = &scenario.workload else { return };
    let Requests { gap_us, rate_per_s, gap_spread, network_us, .. } = *requests;
    let sends = match rate_per_s {
        0 => Loop::Closed(Spread::of_us(gap_us, gap_spread)),
        rate => Loop::Open(Spread::of_ns(SECOND_NS / rate, gap_spread)),
    };
    let stream = Stream::new(seed, "client", 0);
    let client = Client::new(guest, sends, network_us * 1000, stream, world.queue());
    world.add_client(client);
}

/// Adds neighbours and hogs, on the guest's pCPUs.
fn add_busy(
    world: &mut World,
    host: usize,
    scenario: &Scenario,
    condition: &Condition,
    pcpus: usize,
) -> Vec<Entity> {
    let shared = shared_pcpus(condition);
    let pcpus = if shared.is_empty() { pcpus } else { shared.len() };
    let neighbour = |number| {
        let domain = xen::neighbour(number, scenario.guest.vcpus);
        let spec = Spec { allowed: shared.clone(), ..Spec::default() };
        world.add_thread(host, Body::Busy, &xen::thread(&scenario.host, domain, spec))
    };
    let neighbours = (0..busy_vcpus(scenario, condition, pcpus as u64)).map(neighbour).collect();
    let own: Vec<Cpu> = (0..pcpus as u32).map(Cpu).collect();
    let hogged = if shared.is_empty() { own } else { shared };
    for cpu in hogged {
        for _ in 0..condition.hogs {
            let spec = Spec { allowed: vec![cpu], ..Spec::default() };
            world.add_thread(host, Body::Busy, &xen::thread(&scenario.host, xen::DOM0, spec));
        }
    }
    neighbours
}

#[cfg(test)]
mod tests;
