//! What an application that does I/O runs on, in a line.

use reprieve_study::scenario::io::{Access, DiskKind};
use reprieve_study::scenario::{Fio, Io};

/// The workload in a line.
pub fn workload(io: &Io) -> String {
    let disk = &io.disk;
    let disk = match disk.kind {
        DiskKind::Ssd => format!("SSD of {} MB/s, access {} us", disk.mb_per_s, disk.access_us),
        DiskKind::Hdd => format!("disk of {} rotations a minute", disk.rpm),
    };
    let application = match io.applications.len() {
        1 => &io.running().label,
        _ => "see the conditions",
    };
    format!("I/O: {application}; beside {} tasks that compute; {disk}", io.computing)
}

/// fio in a line.
pub fn fio(fio: &Fio) -> String {
    let Fio { access, block_kib, jobs, latency_us, .. } = fio;
    let access = match access {
        Access::Random => "random",
        Access::Sequential => "sequential",
    };
    format!(
        "fio: {jobs} jobs, {access} reads of {block_kib} KiB, past the page cache; a disk of {latency_us} us; beside a task \
         that computes on every vCPU, nice 19"
    )
}
