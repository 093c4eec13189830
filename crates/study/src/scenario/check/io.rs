//! The limits of the workload `io`.

use super::{bad, within};
use crate::scenario::io::{BlockLayer, Disk, IoTask, Step};
use crate::scenario::{BadScenario, Io, IoSystem, Scenario, SchedulerKind};

/// Threads of an application at most, all tasks together: what the accounting of inactivity looks at in each event.
const THREADS: u64 = 256;
/// Pages of all files that a run may simulate: each takes a byte, and a place in the cache.
const PAGES: u64 = 1 << 26;
/// Pages of one step: what one read looks at each time that it goes on.
const STEP_PAGES: u64 = 1 << 18;
/// A page of the guest's memory.
const LEAST_PAGE_KIB: u64 = 4;

impl Scenario {
    pub(super) fn check_io(&self, io: &Io) -> Result<(), BadScenario> {
        if !io.applications.contains_key(&io.application) {
            let known: Vec<&str> = io.applications.keys().map(String::as_str).collect();
            let problem =
                format!("there is no application {:?}; there are {}", io.application, known.join(", "));
            return bad("workload.application", problem);
        }
        within("workload.clients", io.clients.into(), 0, THREADS)?;
        within("workload.join_every_ms", io.join_every_ms, 0, 60_000)?;
        within("workload.work_mib", io.work_mib, 0, 1 << 24)?;
        within("workload.computing", io.computing.into(), 0, self.guest.vcpus as u64)?;
        within("workload.computing_weight", io.computing_weight.into(), 2, 1 << 18)?;
        within("workload.stagger_ms", io.stagger_ms, 0, 10_000)?;
        within("workload.rivals", io.rivals.into(), 0, 16)?;
        within("workload.rival_weight", io.rival_weight.into(), 2, 1 << 18)?;
        self.check_systems(io)?;
        check_block(&io.block)?;
        check_disk(&io.disk)?;
        within("workload.disk.weights", io.disk.weights.len() as u64, 0, u64::from(io.rivals) + 1)?;
        let running = io.running();
        let threads: u64 = running.tasks.iter().map(|task| u64::from(io.threads(task))).sum();
        within("workload.clients", threads, 1, THREADS)?;
        let page_kib = io.block.page_kib;
        // A file to read and one to write.
        let pages = |task: &IoTask| {
            (2 * u64::from(io.threads(task))).saturating_mul(task.file_mib).saturating_mul(1_024) / page_kib
        };
        let all = running.tasks.iter().map(pages).fold(0, u64::saturating_add);
        let all = all.saturating_mul(u64::from(io.rivals) + 1);
        if all > PAGES {
            let problem =
                format!("the files have {all} pages of {page_kib} KiB, more than {PAGES}; enlarge it");
            return bad("workload.block.page_kib", problem);
        }
        io.applications.iter().try_for_each(|(name, application)| {
            let key = format!("workload.applications.{name}.tasks");
            within(&key, application.tasks.len() as u64, 1, 16)?;
            // Pages may be of a size for the one that runs.
            let page_kib = if *name == io.application { page_kib } else { LEAST_PAGE_KIB };
            application.tasks.iter().try_for_each(|task| {
                check_task(&key, task, page_kib)?;
                check_steps(&key, task, &BlockLayer { page_kib, ..io.block.clone() })
            })
        })
    }

    fn check_systems(&self, io: &Io) -> Result<(), BadScenario> {
        let systems = &io.systems;
        within("workload.systems.micro_slices", systems.micro_slices.into(), 1, 64)?;
        within("workload.systems.accounting_ms", systems.accounting_ms, 1, 1_000)?;
        within("workload.systems.cpu_bound_us", systems.cpu_bound_us, 1, 1_000_000)?;
        within("workload.systems.beat_us", systems.beat_us, 100, 10_000)?;
        within("workload.systems.calm_beat_us", systems.calm_beat_us, systems.beat_us, 100_000)?;
        within("workload.systems.beat_ns", systems.beat_ns, 1, 100_000)?;
        within("workload.systems.steal_grain_us", systems.steal_grain_us, 1, 1_000_000)?;
        within("workload.systems.trace_ns", systems.trace_ns, 0, 100_000)?;
        let of_the_host = matches!(io.system, IoSystem::Vslicer | IoSystem::Xballoon);
        if of_the_host && self.host.scheduler != SchedulerKind::Cfs {
            return bad("workload.system", "is modelled on hosts with host.scheduler cfs alone");
        }
        Ok(())
    }
}

fn check_block(block: &BlockLayer) -> Result<(), BadScenario> {
    let key = |name: &str| format!("workload.block.{name}");
    within(&key("cache_mib"), block.cache_mib, 1, 1 << 20)?;
    within(&key("page_kib"), block.page_kib, LEAST_PAGE_KIB, 1 << 10)?;
    within(&key("read_ahead_kib"), block.read_ahead_kib, 0, 1 << 15)?;
    within(&key("request_kib"), block.request_kib, block.page_kib, 1 << 15)?;
    within(&key("ring"), block.ring.into(), 1, 1_024)?;
    for (name, ns) in [
        ("submit_ns", block.submit_ns),
        ("complete_ns", block.complete_ns),
        ("copy_ns_per_kib", block.copy_ns_per_kib),
        ("call_ns", block.call_ns),
        ("virtual_ns", block.virtual_ns),
    ] {
        within(&key(name), ns, 0, 10_000_000)?;
    }
    Ok(())
}

fn check_disk(disk: &Disk) -> Result<(), BadScenario> {
    let key = |name: &str| format!("workload.disk.{name}");
    within(&key("queue_depth"), disk.queue_depth.into(), 1, 1_024)?;
    within(&key("mb_per_s"), disk.mb_per_s, 1, 100_000)?;
    within(&key("access_us"), disk.access_us, 0, 1_000_000)?;
    within(&key("seek_min_us"), disk.seek_min_us, 0, disk.seek_max_us)?;
    within(&key("seek_max_us"), disk.seek_max_us, 0, 1_000_000)?;
    within(&key("rpm"), disk.rpm, 1_000, 30_000)?;
    within(&key("track_kib"), disk.track_kib, 16, 1 << 16)?;
    within(&key("buffer_kib"), disk.buffer_kib, 0, 1 << 20)?;
    within(&key("interface_mb_per_s"), disk.interface_mb_per_s, 1, 100_000)?;
    within(&key("gib"), disk.gib, 1, 1 << 17)?;
    within(&key("slice_ms"), disk.slice_ms, 0, 10_000)?;
    within(&key("idle_us"), disk.idle_us, 0, 1_000_000)?;
    disk.weights.iter().try_for_each(|weight| within(&key("weights"), *weight, 1, 10_000))
}

/// All pages of a step are in the page cache at once: one that has more never ends.
fn check_steps(key: &str, task: &IoTask, block: &BlockLayer) -> Result<(), BadScenario> {
    let cache_kib = block.cache_mib << 10;
    let sizes = task.steps.iter().filter_map(|step| match step {
        Step::Read { kib, .. } | Step::Write { kib, .. } => Some(*kib),
        Step::Compute { .. } => None,
    });
    let Some(kib) = sizes.max() else { return Ok(()) };
    if kib > cache_kib {
        let problem = format!(
            "a step of {kib} KiB is larger than the page cache of {cache_kib} KiB; make it smaller, or raise \
             workload.block.cache_mib"
        );
        return bad(key, problem);
    }
    let (pages, page_kib) = (kib / block.page_kib, block.page_kib);
    if pages > STEP_PAGES {
        let problem = format!(
            "a step of {kib} KiB has {pages} pages of {page_kib} KiB, more than {STEP_PAGES}; make it smaller, or \
             raise workload.block.page_kib"
        );
        return bad(key, problem);
    }
    Ok(())
}

fn check_task(key: &str, task: &IoTask, page_kib: u64) -> Result<(), BadScenario> {
    within(key, task.threads.into(), 1, THREADS)?;
    within(key, task.file_mib, 1, 1 << 20)?;
    within(key, task.working_set_kib, 0, 1 << 20)?;
    within(key, task.steps.len() as u64, 1, 64)?;
    for step in &task.steps {
        match step {
            Step::Compute { us, spread_percent } => {
                within(key, *us, 1, 10_000_000)?;
                within(key, *spread_percent, 0, 100)?;
            }
            Step::Read { kib, .. } | Step::Write { kib, .. } => {
                within(key, *kib, page_kib, task.file_mib << 10)?;
                if kib % page_kib != 0 {
                    let problem = format!("{kib} KiB are not whole pages of {page_kib} KiB");
                    return bad(key, problem);
                }
            }
        }
    }
    Ok(())
}
