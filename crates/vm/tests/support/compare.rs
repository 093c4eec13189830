//! What the host reads in a guest's memory against what the guest says of itself, in the same run.
//!
//! No comparison speaks of speed or luck. A guest's word is fetched between two looks from outside: where the
//! looks are equal it must say the same; where a counter only grows it must lie between them. What is allowed
//! beyond that is said, with its reason, where it is allowed. An error says what disagrees.

use std::fmt::Debug;
use std::time::Duration;

use reprieve_linux::proc::ProcRoot;
use reprieve_study::grace_period::union_ns;
use reprieve_vm::introspect::{Reader, unusable_index_printed};
use reprieve_vm::lab::Booted;
use reprieve_vm::watch::{Sampler, Watcher};

use super::{fields, text};

/// How often a comparison that needs a guest standing still is tried.
const ATTEMPTS: usize = 200;
/// The kernel's USER_HZ: what one count of /proc/stat stands for.
const USER_TICK_NS: u64 = 10_000_000;

fn disagree(what: impl Into<String>) -> Result<(), String> {
    Err(what.into())
}

/// What `tell` makes the guest say while `look` sees the same before and after.
fn settled<S: PartialEq + Debug, T>(
    booted: &mut Booted,
    look: impl Fn() -> S,
    tell: impl Fn(&mut Booted) -> T,
) -> Result<(S, T), String> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let before = look();
        let told = tell(booted);
        let after = look();
        if before == after {
            return Ok((after, told));
        }
        last = Some((before, after));
    }
    Err(format!("the guest did not stand still: {last:?}"))
}

// Memory.

/// Lines `Node 0, zone NAME VALUE...` of a file.
fn by_zone(file: &str) -> Vec<(String, Vec<String>)> {
    let zone = |line: &str| {
        let mut words = line.split_once(" zone ")?.1.split_ascii_whitespace().map(String::from);
        Some((words.next()?, words.collect()))
    };
    file.lines().filter_map(zone).collect()
}

fn zones(reader: &Reader) -> Vec<(String, Vec<u64>)> {
    reader.zones().into_iter().map(|(name, free)| (name.to_string(), free)).collect()
}

/// Names of the zones and their free blocks, exactly as /proc/buddyinfo has them. For a quiet guest.
pub fn buddy(booted: &mut Booted, reader: &Reader) -> Result<(), String> {
    let tell = |booted: &mut Booted| by_zone(&text(booted, "/proc/buddyinfo"));
    let (seen, told) = settled(booted, || zones(reader), tell)?;
    let printed = |(name, free): (String, Vec<u64>)| (name, free.iter().map(u64::to_string).collect());
    let seen: Vec<(String, Vec<String>)> = seen.into_iter().map(printed).collect();
    if seen.is_empty() || seen != told {
        return disagree(format!("free blocks: host {seen:?}, guest {told:?}"));
    }
    Ok(())
}

/// The unusable free space index of every zone and order, to the digit that debugfs prints. For a quiet guest.
pub fn unusable_index(booted: &mut Booted, reader: &Reader) -> Result<(), String> {
    let tell = |booted: &mut Booted| by_zone(&text(booted, "/sys/kernel/debug/extfrag/unusable_index"));
    let (seen, told) = settled(booted, || zones(reader), tell)?;
    let printed = |(name, free): (String, Vec<u64>)| {
        let thousandths = (0..free.len()).map(|order| unusable_index_printed(&free, order));
        (name, thousandths.map(|index| format!("{}.{:03}", index / 1000, index % 1000)).collect())
    };
    let seen: Vec<(String, Vec<String>)> = seen.into_iter().map(printed).collect();
    if seen.is_empty() || seen != told {
        return disagree(format!("unusable index: host {seen:?}, guest {told:?}"));
    }
    Ok(())
}

/// Pages in use, and with them those that the zones manage: /proc/zoneinfo has both parts. For a quiet guest.
pub fn footprint(booted: &mut Booted, reader: &Reader) -> Result<(), String> {
    let managed = |booted: &mut Booted| -> u64 {
        let file = text(booted, "/proc/zoneinfo");
        let pages = file.lines().filter_map(|line| line.trim().strip_prefix("managed "));
        pages.map(|pages| pages.trim().parse::<u64>().unwrap()).sum()
    };
    let look = || (reader.memory().used_bytes, zones(reader));
    let ((used_bytes, zones), managed_pages) = settled(booted, look, managed)?;
    let blocks = zones.iter().flat_map(|(_, free)| free.iter().enumerate());
    let free_pages: u64 = blocks.map(|(order, blocks)| blocks << order).sum();
    if used_bytes != managed_pages.saturating_sub(free_pages) * 4096 {
        return disagree(format!("host {used_bytes} in use, guest {managed_pages} - {free_pages} pages"));
    }
    Ok(())
}

/// Slab pages, as /proc/vmstat has them: it prints the very counters, without the parts that CPUs still hold
/// back, so nothing is allowed beyond. For a quiet guest.
pub fn slab(booted: &mut Booted, reader: &Reader) -> Result<(), String> {
    let tell = |booted: &mut Booted| -> u64 {
        let file = text(booted, "/proc/vmstat");
        let pages = file.lines().filter_map(|line| line.strip_prefix("nr_slab_")?.split_once(' '));
        pages.map(|(_, pages)| pages.parse::<u64>().unwrap()).sum()
    };
    let (seen, told) = settled(booted, || reader.memory().slab_bytes, tell)?;
    if seen != told * 4096 {
        return disagree(format!("slab: host {seen} bytes, guest {told} pages"));
    }
    Ok(())
}

// CPU time.

/// User and kernel time against /proc/stat, between two looks. The file cuts each of its numbers to whole
/// ticks of 10 ms, so it may be behind by as many ticks as numbers are added up.
pub fn cpu_time(booted: &mut Booted, reader: &Reader) -> Result<(), String> {
    let before = reader.cpu();
    let file = text(booted, "/proc/stat");
    let after = reader.cpu();
    let ticks: Vec<u64> =
        file.lines().next().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        return disagree(file);
    };
    let within = |what: &str, (before, after): (u64, u64), numbers: &[u64]| {
        let told = numbers.iter().sum::<u64>() * USER_TICK_NS;
        let behind = numbers.len() as u64 * USER_TICK_NS;
        match told <= after && told + behind > before {
            true => Ok(()),
            false => disagree(format!("{what} time: host {before} to {after} ns, guest {told} ns")),
        }
    };
    within("user", (before.user_ns, after.user_ns), &[user, nice])?;
    within("kernel", (before.kernel_ns, after.kernel_ns), &[system, irq, softirq])
}

/// Idle time from one moment to another, on both sides. A vCPU's sleep is booked when it wakes up, so it must
/// be busy at both.
pub struct IdleTime {
    host_ns: u64,
    guest_ns: u64,
}

impl IdleTime {
    pub fn now(booted: &mut Booted, reader: &Reader) -> IdleTime {
        let file = text(booted, "/proc/stat");
        let ticks: Vec<u64> =
            file.lines().next().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect();
        IdleTime { host_ns: reader.cpu().idle_ns, guest_ns: (ticks[3] + ticks[4]) * USER_TICK_NS }
    }

    /// Time since, by the host and by the guest.
    pub fn since(&self, earlier: &IdleTime) -> (u64, u64) {
        (self.host_ns - earlier.host_ns, self.guest_ns - earlier.guest_ns)
    }
}

// Grace periods.

const GP: &str = "/sys/kernel/debug/reprieve_lab/gp";
const GP_DURATIONS: &str = "/sys/kernel/debug/reprieve_lab/gp_durations";

/// What both sides say about the grace periods of the same stretch of time.
#[derive(Debug)]
pub struct GpFigures {
    /// Ended, by `gp_seq`: at least, at most.
    pub host_count: (u64, u64),
    /// Ended, by the module's poll.
    pub guest_count: u64,
    /// Polls that found whole grace periods behind them.
    pub guest_missed: u64,
    /// Longest time between two polls since polling began.
    pub max_poll_gap_ns: u64,
    /// Grace periods that came and went between two of the host's looks.
    pub host_missed: u64,
    /// Grace periods whose durations both have.
    pub paired: usize,
    /// Their mean, by the host and by the guest.
    pub mean_ns: (u64, u64),
    /// The largest difference of one duration.
    pub worst_ns: u64,
    /// Share of the time that the host kept the vCPU off its pCPU that was hit hardest.
    pub descheduled: f64,
}

/// Watches the grace periods of a guest whose module polls for them, from both sides, for so long. The two
/// readers are of this guest: one gives counts, the other is sampled.
pub fn watch_grace_periods(booted: &mut Booted, readers: [Reader; 2], length: Duration) -> GpFigures {
    let [counting, sampled] = readers;
    let ended = || counting.gp_seq() >> 2;
    let watcher = Watcher::delays(&ProcRoot::default(), booted.machine.pid(), &booted.machine.vcpu_tids);
    let first = (ended(), fields(&text(booted, GP)), ended());
    let sampler = Sampler::start(sampled, watcher.unwrap(), 2000, 1).unwrap();
    booted.link.let_work(length).unwrap_or_else(|error| panic!("{}", booted.machine.explain(error)));
    let recording = sampler.finish();
    let last = (ended(), fields(&text(booted, GP)), ended());
    let durations = text(booted, GP_DURATIONS);

    let delta = |key: &str| last.1[key] - first.1[key];
    // A young kernel's counter wraps.
    let steps = |from: u64, to: u64| to.wrapping_sub(from) & (u64::MAX >> 2);
    let guest: Vec<u64> = durations.lines().map(|line| line.parse().unwrap()).collect();
    let guest = &guest[first.1["count"] as usize..last.1["count"] as usize];
    let host: Vec<u64> = recording.grace_periods.iter().map(|gp| gp.span.length_ns()).collect();
    let pairs = pair(&host, guest);
    let mean = |side: fn(&(u64, u64)) -> u64| pairs.iter().map(side).sum::<u64>() / pairs.len().max(1) as u64;
    let off = recording.scheduling.descheduled.iter().map(|spans| union_ns(spans.clone()));
    GpFigures {
        host_count: (steps(first.2, last.0), steps(first.0, last.2)),
        guest_count: delta("count"),
        guest_missed: delta("missed"),
        max_poll_gap_ns: last.1["max_poll_gap_ns"],
        host_missed: recording.missed_gps,
        paired: pairs.len(),
        mean_ns: (mean(|pair| pair.0), mean(|pair| pair.1)),
        worst_ns: worst(&pairs),
        descheduled: off.max().unwrap_or(0) as f64 / recording.window.length_ns() as f64,
    }
}

/// The recording lies within what the guest polled, so the guest's list has a few more grace periods at both
/// ends. Lays the host's along it where they differ least.
fn pair(host: &[u64], guest: &[u64]) -> Vec<(u64, u64)> {
    let laid = |shift: usize| host.iter().copied().zip(guest[shift..].iter().copied()).collect::<Vec<_>>();
    (0..guest.len().min(16)).map(laid).min_by_key(|pairs| worst(pairs)).unwrap_or_default()
}

fn worst(pairs: &[(u64, u64)]) -> u64 {
    pairs.iter().map(|(host, guest)| host.abs_diff(*guest)).max().unwrap_or(0)
}

impl GpFigures {
    /// The counts: exactly, but for one that ends between a look and a poll on either side. A poll that finds
    /// whole grace periods behind it does not say how many: no more than fit at the time between two polls, 0.1 ms, each.
    /// (Those of an idle guest may be that short: the host's looks, 0.5 ms apart, miss some.)
    pub fn counts_agree(&self) -> Result<(), String> {
        let (least, most) = self.host_count;
        let hidden = self.guest_missed * (1 + self.max_poll_gap_ns / 100_000);
        let too_many = self.guest_count + self.guest_missed > most + 1;
        let too_few = self.guest_count + hidden + 1 < least;
        if most == 0 || too_many || too_few {
            return disagree(format!("numbers of grace periods: {self:?}"));
        }
        Ok(())
    }

    /// Whether the host mostly left the vCPUs alone, with which the guest's poll is descheduled too.
    pub fn is_undisturbed(&self) -> bool {
        self.descheduled < 0.2
    }

    /// The mean durations of the same grace periods, within 10 %. From one that only one side saw on, the lists
    /// lie one apart; the means stay those of nearly the same ones.
    pub fn means_agree(&self) -> Result<(), String> {
        let (host_ns, guest_ns) = self.mean_ns;
        if self.paired == 0 || host_ns.abs_diff(guest_ns) * 10 > guest_ns {
            return disagree(format!("mean durations: {self:?}"));
        }
        Ok(())
    }
}

// Callbacks.

/// More callbacks than the kernel has of its own while nothing but the module runs: closed files, each look
/// at the counters among them.
const OTHERS: u64 = 256;

/// The memory workload, in long bursts each of which goes beyond the limit: the workers then stand still until
/// a grace period has passed.
pub fn stalling(burst: u32) -> String {
    format!("memory burst={burst} max_backlog_bytes=1024")
}

/// The backlog against the module's count of objects that are allocated and not yet freed, under the memory
/// workload. The counters are the same before and after each look, so nothing was queued or invoked meanwhile.
///
/// A worker counts an object before it queues it, so the host may see one less for each vCPU. It may see more
/// while a vCPU is descheduled in the middle of invoking callbacks: their number leaves the queue's length
/// only when all are done (`rcu_do_batch`, kernel/rcu/tree.c). So the lower bound holds at every look, the upper
/// one at some.
pub fn backlog(booted: &mut Booted, reader: &Reader) -> Result<(u64, u64), String> {
    let mut seen = Vec::new();
    let mut before = counters(booted);
    for _ in 0..10 * ATTEMPTS {
        let host = reader.backlog();
        let after = counters(booted);
        let (allocs, frees) = after;
        if before == after && allocs - frees > 4 * OTHERS {
            let guest = allocs - frees;
            seen.push((host, guest));
            if host + (reader.cpus() as u64) < guest {
                break;
            }
            if host <= guest + OTHERS {
                return Ok((host, guest));
            }
        }
        before = after;
    }
    Err(format!("backlog, host and guest, in {} looks: {:?}", seen.len(), seen.last()))
}

/// The backlog when the workload has stopped and all is freed.
pub fn drained_backlog(reader: &Reader) -> Result<u64, String> {
    let seen = reader.backlog();
    if seen <= OTHERS { Ok(seen) } else { Err(format!("{seen} callbacks wait in an idle guest")) }
}

fn counters(booted: &mut Booted) -> (u64, u64) {
    let mark = booted.link.mark().unwrap_or_else(|error| panic!("{}", booted.machine.explain(error)));
    (mark["allocs"], mark["frees"])
}
