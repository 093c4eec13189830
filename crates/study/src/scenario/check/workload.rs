//! The limits of workloads.

use super::{bad, within, within_f64};
use crate::scenario::workload::all_namespaces;
use crate::scenario::{BadScenario, Scenario, Workload};

impl Scenario {
    pub(super) fn check_workload(&self) -> Result<(), BadScenario> {
        let memory_mib = self.guest.memory_mib;
        match &self.workload {
            Workload::Memory { object_bytes, burst, pause_us, backlog_limit_mib, .. } => {
                within("workload.object_bytes", *object_bytes, 16, 1 << 16)?;
                within("workload.burst", (*burst).into(), 1, 100_000)?;
                within("workload.pause_us", *pause_us, 0, 1_000_000)?;
                within("workload.backlog_limit_mib", *backlog_limit_mib, 0, memory_mib)
            }
            Workload::Clone { workers, namespaces, stop_below_mib, computing } => {
                let vcpus = self.guest.vcpus as u64;
                within("workload.workers", (*workers).into(), 0, vcpus)?;
                let others = if *workers == 0 { 0 } else { vcpus - u64::from(*workers) };
                within("workload.computing", (*computing).into(), 0, others)?;
                let known = all_namespaces();
                if let Some(other) = namespaces.iter().find(|name| !known.contains(name)) {
                    let problem = format!("{other:?} is none of {}", known.join(", "));
                    return Err(BadScenario { key: "workload.namespaces".into(), problem });
                }
                within("workload.stop_below_mib", *stop_below_mib, 0, memory_mib)
            }
            Workload::DeleteFree { .. } => self.check_delete_free(),
            Workload::Io(io) => self.check_io(io),
            Workload::Fio(fio) => self.check_fio(fio),
            Workload::Wakeup { .. } | Workload::Requests { .. } => self.check_latency(),
            Workload::Postmark { .. } => self.check_postmark(),
        }
    }

    fn check_latency(&self) -> Result<(), BadScenario> {
        match &self.workload {
            Workload::Wakeup { sleep_us, sleep_spread, work_us, samples } => {
                within("workload.sleep_us", *sleep_us, 1, 10_000_000)?;
                within_f64("workload.sleep_spread", *sleep_spread, 0.0, 1.0)?;
                within("workload.work_us", *work_us, 1, 1_000_000)?;
                within("workload.samples", *samples, 0, 100_000_000)
            }
            Workload::Requests { gap_us, rate_per_s, gap_spread, service_us, network_us, requests } => {
                within("workload.gap_us", *gap_us, 0, 10_000_000)?;
                within("workload.rate_per_s", *rate_per_s, 0, 1_000_000)?;
                if *gap_us > 0 && *rate_per_s > 0 {
                    let problem = "is of a closed loop, and rate_per_s of an open one; remove one of them";
                    return bad("workload.gap_us", problem);
                }
                within_f64("workload.gap_spread", *gap_spread, 0.0, 1.0)?;
                within("workload.service_us", *service_us, 1, 1_000_000)?;
                within("workload.network_us", *network_us, 1, 1_000_000)?;
                within("workload.requests", *requests, 0, 100_000_000)
            }
            _ => Ok(()),
        }
    }

    fn check_postmark(&self) -> Result<(), BadScenario> {
        let Workload::Postmark { processes, files, transactions, size_min_bytes, size_max_bytes, think_us } =
            &self.workload
        else {
            return Ok(());
        };
        let memory_mib = self.guest.memory_mib;
        within("workload.think_us", *think_us, 0, 1_000_000)?;
        within("workload.processes", (*processes).into(), 1, 64)?;
        within("workload.files", *files, (*processes).into(), 10_000_000)?;
        within("workload.transactions", *transactions, (*processes).into(), 100_000_000)?;
        within("workload.size_min_bytes", *size_min_bytes, 1, *size_max_bytes)?;
        within("workload.size_max_bytes", *size_max_bytes, *size_min_bytes, 1 << 20)?;
        // A file takes whole pages, and an inode and a dentry of about 1 KiB together.
        let file_bytes = (size_min_bytes + size_max_bytes).div_ceil(2).next_multiple_of(4096) + 1024;
        let need_mib = files.saturating_mul(file_bytes) >> 20;
        if need_mib * 4 > memory_mib * 3 {
            let problem = format!(
                "the files take about {need_mib} MiB of a guest with {memory_mib} MiB; \
                 lower it or raise guest.memory_mib"
            );
            return Err(BadScenario { key: "workload.files".into(), problem });
        }
        Ok(())
    }
}
