//! The command lines of what runs in the guest: fio, the daemon beside it, and what an oracle is told.

use reprieve_study::Span;
use reprieve_study::scenario::io::Access;
use reprieve_study::scenario::{Fio, Placement};
use reprieve_study::units::MIB;

use crate::qemu::Disk;

/// The disk's size; each job has its part of it.
const DISK_MIB: u64 = 1024;
/// Where the guest has it.
const DEVICE: &str = "/dev/vda";
/// fio is ended by the runner.
const FOR_EVER_S: u32 = 1_000_000;
/// Where the daemon writes its record.
pub const RECORD: &str = "/tmp/record";
/// Where the guest keeps what the daemon said (`guest/fio.c`).
pub const SAID: &str = "/tmp/beside.out";
/// What an oracle is told.
pub const OFF_TIMES: &str = "/tmp/off-times";
/// Where it saves masks: the guest has no /run.
const STATE: &str = "/tmp/migrate.state";
/// Most of a line that goes to the guest, whose limit is 4096 bytes.
const LINE_BYTES: usize = 3_500;

/// The disk of a guest that runs it.
pub fn disk(fio: &Fio) -> Disk {
    Disk { bytes: DISK_MIB * MIB, latency_ns: fio.latency_us * 1_000 }
}

/// The line that starts fio in a guest with so many vCPUs. Reads are synchronous, one a job, and go past the page cache.
pub fn start(fio: &Fio, vcpus: usize) -> String {
    let access = match fio.access {
        Access::Random => "randread",
        Access::Sequential => "read",
    };
    let part_mib = DISK_MIB / u64::from(fio.jobs);
    // Job processes would be sessions of their own, and outlive fio when it is killed: so threads.
    let mut arguments = format!(
        "--name=reads --filename={DEVICE} --ioengine=psync --direct=1 --rw={access} --bs={}k --numjobs={} --thread \
         --size={part_mib}m --offset_increment={part_mib}m --norandommap --time_based --runtime={FOR_EVER_S} \
         --clocksource=clock_gettime --eta=never",
        fio.block_kib, fio.jobs
    );
    match fio.placement {
        // Each job has one of them, in turn.
        Placement::Pinned => {
            arguments += &format!(" --cpus_allowed=0-{} --cpus_allowed_policy=split", vcpus - 1);
        }
        Placement::Gathered => arguments += " --cpus_allowed=0",
        _ => {}
    }
    words("fio", &arguments)
}

/// The line that starts the daemon beside fio, if it is to run: the program `name` of the host's.
pub fn daemon(fio: &Fio, name: &str) -> Option<String> {
    let policy = fio.placement.policy()?;
    let mut arguments = format!("migrate --apply --json --state {STATE}");
    if fio.record {
        arguments += &format!(" --record {RECORD}");
    }
    if !policy.is_empty() {
        // What is compared is the policy; the guard would end the one that does harm.
        arguments += &format!(" --no-guard --policy {policy}");
    }
    if fio.placement == Placement::Oracle {
        arguments += &format!(" --off-times {OFF_TIMES}");
    }
    Some(words(&format!("name={name}"), &arguments))
}

fn words(first: &str, arguments: &str) -> String {
    format!("{first} argument={}", arguments.replace(' ', " argument="))
}

/// When each vCPU goes off and comes back, by the guest's clock, for the oracle: lines that the guest takes. `;` ends
/// a line of the file.
pub fn off_times(off: &[(usize, Span)]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (vcpu, span) in off {
        let entry = format!("told {} {vcpu} {}", span.start_ns, span.end_ns);
        let last = lines.last_mut().expect("there is one");
        if last.len() + entry.len() >= LINE_BYTES {
            lines.push(entry);
        } else {
            let end = if last.is_empty() { "" } else { ";" };
            last.push_str(&format!("{end}{entry}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fio(placement: Placement) -> Fio {
        Fio { access: Access::Random, block_kib: 4, jobs: 4, latency_us: 500, placement, record: true }
    }

    #[test]
    fn fio_s_line_is_one_that_the_guest_takes() {
        let line = start(&fio(Placement::Free), 2);
        assert!(line.starts_with("fio argument=--name=reads argument=--filename=/dev/vda "), "{line}");
        assert!(line.contains(" argument=--rw=randread ") && line.contains(" argument=--size=256m "));
        assert!(!line.contains("cpus_allowed"));
        let pinned = start(&fio(Placement::Pinned), 2);
        assert!(pinned.ends_with("argument=--cpus_allowed=0-1 argument=--cpus_allowed_policy=split"));
        assert!(start(&fio(Placement::Gathered), 2).ends_with(" argument=--cpus_allowed=0"));
        // Limits of guest/lab.h.
        assert!(pinned.len() < 4096 && pinned.matches(" argument=").count() <= 32);
        assert_eq!(disk(&fio(Placement::Free)), Disk { bytes: 1 << 30, latency_ns: 500_000 });
    }

    #[test]
    fn the_daemon_runs_as_users_run_it_or_with_a_policy_and_no_guard() {
        let of = |placement| daemon(&fio(placement), "reprieve");
        assert_eq!((of(Placement::Free), of(Placement::Pinned)), (None, None));
        let plain = of(Placement::Migrate).unwrap();
        assert!(plain.starts_with("name=reprieve argument=migrate argument=--apply"), "{plain}");
        assert!(!plain.contains("guard") && !plain.contains("policy"), "{plain}");
        let react = of(Placement::React).unwrap();
        assert!(react.ends_with("argument=--no-guard argument=--policy argument=react"), "{react}");
        let oracle = of(Placement::Oracle).unwrap();
        assert!(oracle.ends_with("argument=oracle argument=--off-times argument=/tmp/off-times"), "{oracle}");
        let unrecorded = daemon(&Fio { record: false, ..fio(Placement::Pull) }, "reprieve").unwrap();
        assert!(!unrecorded.contains("record"));
    }

    #[test]
    fn all_off_times_fit_into_lines() {
        let off: Vec<(usize, Span)> =
            (0..1000u64).map(|n| (n as usize % 2, Span::new(n << 32, (n << 32) + 25))).collect();
        let lines = off_times(&off);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() < LINE_BYTES));
        let file = lines.join("\n").replace(';', "\n");
        let read = reprieve_linux::migrate::OffTimes::read(file.as_bytes(), 2);
        assert!(read.is_ok() && file.lines().count() == 1000);
        assert_eq!(file.lines().nth(3), Some("told 12884901888 1 12884901913"));
    }
}
