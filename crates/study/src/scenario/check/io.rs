//! The limits of the workload `io`.

use super::{bad, refuse_if, within};
use crate::scenario::io::{BlockLayer, IoTask, Step};
use crate::scenario::{Io, IoSystem, Result, Scenario, SchedulerKind};

/// Most threads of an application, over all tasks: the accounting of inactivity looks at each of them in each event.
const THREADS: u64 = 256;
/// Most pages of all files of a run: each takes a byte, and a place in the cache.
const PAGES: u64 = 1 << 26;
/// Most pages of one step: a read looks at all of them each time it continues.
const STEP_PAGES: u64 = 1 << 18;
/// A page of the guest's memory.
const LEAST_PAGE_KIB: u64 = 4;

impl Scenario {
    pub(super) fn check_io(&self, io: &Io) -> Result {
        if !io.applications.contains_key(&io.application) {
            let known: Vec<&str> = io.applications.keys().map(String::as_str).collect();
            let problem =
                format!("there is no application {:?}; there are {}", io.application, known.join(", "));
            return bad("workload.application", problem);
        }
        within("workload.computing", io.computing.into(), 0, self.guest.vcpus as u64)?;
        self.check_systems(io)?;
        within("workload.block.request_kib", io.block.request_kib, io.block.page_kib, 1 << 15)?;
        within("workload.disk.seek_min_us", io.disk.seek_min_us, 0, io.disk.seek_max_us)?;
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
        let problem = format!("the files have {all} pages of {page_kib} KiB, more than {PAGES}; enlarge it");
        refuse_if(all > PAGES, "workload.block.page_kib", problem)?;
        io.applications.iter().try_for_each(|(name, application)| {
            let key = format!("workload.applications.{name}.tasks");
            within(&key, application.tasks.len(), 1, 16)?;
            // The size of pages may suit only the application that runs.
            let page_kib = if *name == io.application { page_kib } else { LEAST_PAGE_KIB };
            application.tasks.iter().try_for_each(|task| {
                check_task(&key, task, page_kib)?;
                check_steps(&key, task, &BlockLayer { page_kib, ..io.block.clone() })
            })
        })
    }

    fn check_systems(&self, io: &Io) -> Result {
        let systems = &io.systems;
        within("workload.systems.calm_beat_us", systems.calm_beat_us, systems.beat_us, 100_000)?;
        let of_the_host = matches!(io.system, IoSystem::Vslicer | IoSystem::Xballoon);
        let problem = "this system is modelled only on hosts with cfs; set host.scheduler to cfs";
        refuse_if(of_the_host && self.host.scheduler != SchedulerKind::Cfs, "workload.system", problem)
    }
}

/// All pages of a step are in the page cache at once, so a step that is larger than the cache would never end.
fn check_steps(key: &str, task: &IoTask, block: &BlockLayer) -> Result {
    let cache_kib = block.cache_mib << 10;
    let sizes = task.steps.iter().filter_map(|step| match step {
        Step::Read { kib, .. } | Step::Write { kib, .. } => Some(*kib),
        Step::Compute { .. } => None,
    });
    let Some(kib) = sizes.max() else { return Ok(()) };
    let problem = format!(
        "a step of {kib} KiB is larger than the page cache of {cache_kib} KiB; make it smaller, or raise \
         workload.block.cache_mib"
    );
    refuse_if(kib > cache_kib, key, problem)?;
    let (pages, page_kib) = (kib / block.page_kib, block.page_kib);
    let problem = format!(
        "a step of {kib} KiB has {pages} pages of {page_kib} KiB, more than {STEP_PAGES}; make it smaller, or \
         raise workload.block.page_kib"
    );
    refuse_if(pages > STEP_PAGES, key, problem)
}

fn check_task(key: &str, task: &IoTask, page_kib: u64) -> Result {
    within(key, task.steps.len(), 1, 64)?;
    for step in &task.steps {
        let (Step::Read { kib, .. } | Step::Write { kib, .. }) = step else { continue };
        within(key, *kib, page_kib, task.file_mib << 10)?;
        let problem = format!("{kib} KiB are not whole pages of {page_kib} KiB");
        refuse_if(kib % page_kib != 0, key, problem)?;
    }
    Ok(())
}
