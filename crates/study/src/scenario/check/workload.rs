//! The limits of workloads.

use super::{bad, refuse_if, within};
use crate::scenario::{Clones, Memory, Postmark, Requests, Result, Scenario, Workload};

impl Scenario {
    pub(super) fn check_workload(&self) -> Result {
        match &self.workload {
            Workload::Memory(memory) => self.check_memory(memory),
            Workload::Clone(clones) => self.check_clones(clones),
            Workload::Postmark(postmark) => self.check_postmark(postmark),
            Workload::Wakeup(_) => Ok(()),
            Workload::Requests(requests) => check_requests(requests),
            Workload::Tasks(tasks) => self.check_tasks(tasks),
            Workload::Io(io) => self.check_io(io),
            Workload::Fio(fio) => self.check_fio(fio),
            Workload::DeleteFree(asked) => self.check_delete_free(asked),
        }
    }

    fn check_memory(&self, memory: &Memory) -> Result {
        let vcpus = self.guest.vcpus as u64;
        within("workload.workers", memory.workers.into(), 0, vcpus)?;
        let workers = u64::from(memory.workers.max(1));
        within("workload.computing", memory.computing.into(), 0, vcpus - workers)?;
        within("workload.backlog_limit_mib", memory.backlog_limit_mib, 0, self.guest.memory_mib)
    }

    /// Workers have a vCPU each, 0 of them all vCPUs; processes that compute have the rest.
    fn check_workers(&self, workers: u32, computing: u32) -> Result {
        let vcpus = self.guest.vcpus as u64;
        within("workload.workers", workers.into(), 0, vcpus)?;
        let others = if workers == 0 { 0 } else { vcpus - u64::from(workers) };
        within("workload.computing", computing.into(), 0, others)
    }

    fn check_clones(&self, clones: &Clones) -> Result {
        self.check_workers(clones.workers, clones.computing)?;
        let known = Clones::NAMESPACES;
        if let Some(other) = clones.namespaces.iter().find(|name| !known.contains(&name.as_str())) {
            return bad("workload.namespaces", format!("{other:?} is none of {}", known.join(", ")));
        }
        within("workload.stop_below_mib", clones.stop_below_mib, 0, self.guest.memory_mib)
    }

    fn check_postmark(&self, postmark: &Postmark) -> Result {
        let Postmark { processes, files, transactions, size_min_bytes, size_max_bytes, .. } = *postmark;
        let memory_mib = self.guest.memory_mib;
        within("workload.files", files, processes.into(), 10_000_000)?;
        within("workload.transactions", transactions, processes.into(), 100_000_000)?;
        within("workload.size_min_bytes", size_min_bytes, 1, size_max_bytes)?;
        // A file takes whole pages, and an inode and a dentry of about 1 KiB together.
        let file_bytes = (size_min_bytes + size_max_bytes).div_ceil(2).next_multiple_of(4096) + 1024;
        let need_mib = files.saturating_mul(file_bytes) >> 20;
        let problem = format!(
            "the files take about {need_mib} MiB of a guest with {memory_mib} MiB; \
             lower it or raise guest.memory_mib"
        );
        refuse_if(need_mib * 4 > memory_mib * 3, "workload.files", problem)
    }
}

fn check_requests(served: &Requests) -> Result {
    let is_both = served.gap_us > 0 && served.rate_per_s > 0;
    let problem = "makes a closed loop, and workload.rate_per_s an open one; remove one of them";
    refuse_if(is_both, "workload.gap_us", problem)
}
