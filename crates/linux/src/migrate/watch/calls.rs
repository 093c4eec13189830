//! Records who calls sched_setaffinity(2), for which task, and whether the call succeeds: with perf probes where the
//! call begins and ends.
//!
//! A mask alone does not show who set it: a child that inherited the daemon's binding to CPU 1 looks the same as one
//! that its user pinned to CPU 1. These records distinguish the two.
//!
//! | probe | needs | cost |
//! |---|---|---|
//! | kernel function `sched_setaffinity` and its return (perf's kprobe events) | CONFIG_KPROBE_EVENTS, CAP_PERFMON | only in these calls |
//! | tracepoints of the system call | CONFIG_FTRACE_SYSCALLS, root | slows every system call of every task a little |
//!
//! The first is used if it works, else the second, which does not see calls of 32-bit programs. Invariant: a probe is
//! trusted only after it has seen a call of this process. Source: perf_event_open(2); the kernel's
//! Documentation/trace/kprobetrace.rst and Documentation/trace/events.rst; fsopen(2).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use perf_event_open_sys::bindings as perf;
use reprieve_policy::cpus::CpuSet;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::perf::event::attributes;
use crate::perf::kprobe::{Kprobes, Register, with_register};
use crate::perf::per_cpu::{EventSpec, PerCpu};
use crate::perf::record::{PerfRecord, SAMPLE_REST_BYTES};
use crate::{Error, Result, threads};

/// Pages of a ring: room for some 800 calls on one CPU between two looks.
const RING_PAGES: usize = 16;
/// The descriptor becomes readable when the ring holds this many bytes: a quarter of it.
const WATERMARK_BYTES: u32 = 16 << 10;
/// The function of the kernel that sets a task's mask on a user's behalf: `long sched_setaffinity(pid_t, const struct
/// cpumask *)`.
const FUNCTION: &CStr = c"sched_setaffinity";
/// An id that no task has: the kernel's ids stay below 2^22.
const NO_TASK: i32 = i32::MAX;
const WAY_OUT: &str = "use a kernel with CONFIG_KPROBE_EVENTS or CONFIG_FTRACE_SYSCALLS";

/// The begin or end of a call by this process and thread, at a time of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub caller_pid: i32,
    pub caller_tid: i32,
    pub at_ns: u64,
    pub phase: Phase,
}

/// Begin or end, with what is known only then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The call begins, for the task with this id in the caller's PID namespace; 0 means the caller itself.
    Begin { target: i32 },
    /// The call ends.
    End { succeeded: bool },
}

/// How a sample holds the value of interest, which is an argument or the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// As a register: its ABI, u64, then the register.
    Function,
    /// In a tracepoint's raw record: its size, u32; type, flags and pid, 8 bytes; the number of the system call, u32
    /// and padding; the value.
    Tracepoint,
}

/// Watches calls on all CPUs.
pub struct Calls {
    probe: Probe,
    begins: PerCpu,
    ends: PerCpu,
    drained: Vec<Call>,
}

impl Calls {
    /// Watches these CPUs; `sys` is the `/sys` to use.
    pub fn open(sys: &Path, online: &CpuSet) -> Result<Calls> {
        let function = of_function(sys).and_then(|specs| Calls::open_tested(Probe::Function, specs, online));
        match function {
            Err(Error::Missing { .. }) => Calls::open_tested(Probe::Tracepoint, of_tracepoints(sys)?, online),
            opened => opened,
        }
    }

    /// Opens the probes, and tests them with a call of this process.
    fn open_tested(probe: Probe, (begins, ends): (EventSpec, EventSpec), online: &CpuSet) -> Result<Calls> {
        let (begins, ends) = (PerCpu::open(begins, online)?, PerCpu::open(ends, online)?);
        let mut calls = Calls { probe, begins, ends, drained: Vec::new() };
        // There is no such task, so this call changes nothing.
        let _ = threads::set_affinity_set(NO_TASK, &CpuSet::of(0));
        let own = threads::own_tid();
        let (seen, _) = calls.drain();
        let seen: Vec<Phase> =
            seen.iter().filter(|call| call.caller_tid == own).map(|call| call.phase).collect();
        if seen == [Phase::Begin { target: NO_TASK }, Phase::End { succeeded: false }] {
            return Ok(calls);
        }
        Err(Error::Missing {
            what: "working probe of sched_setaffinity",
            path: "perf_event_open".into(),
            way_out: WAY_OUT,
        })
    }

    /// Follows CPUs that come online or go offline.
    pub fn follow(&mut self, online: &CpuSet) {
        self.begins.follow(online);
        self.ends.follow(online);
    }

    /// All begins and ends since the last drain, in the order of time, and whether some are missing. An end never comes
    /// without the begin of its call.
    pub fn drain(&mut self) -> (&[Call], bool) {
        self.drained.clear();
        let (probe, drained) = (self.probe, &mut self.drained);
        // Ends first: when an end is in a ring, the begin of its call is already in one, and the second pass finds it.
        let mut missed = false;
        let mut bad = false;
        for (of, is_end) in [(&mut self.ends, true), (&mut self.begins, false)] {
            missed |= of.drain(&mut |record| {
                let PerfRecord::Sample { pid, tid, time_ns, rest } = record else { return };
                match probe.value(&rest) {
                    Some(value) => {
                        let end = Phase::End { succeeded: value as i64 >= 0 };
                        let phase = if is_end { end } else { Phase::Begin { target: value as i32 } };
                        drained.push(Call { caller_pid: pid, caller_tid: tid, at_ns: time_ns, phase });
                    }
                    None => bad = true,
                }
            });
        }
        // At equal times, begins go before ends.
        drained.sort_by_key(|call| (call.at_ns, matches!(call.phase, Phase::End { .. })));
        (&self.drained, missed || bad)
    }

    /// Descriptors that become readable when rings fill.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.begins.readable().chain(self.ends.readable())
    }

    /// Whether watching slows every system call of every task.
    pub fn slows_all(&self) -> bool {
        self.probe == Probe::Tracepoint
    }
}

impl Probe {
    /// The argument or result in a sample; `None` if it has none.
    fn value(self, rest: &[u8; SAMPLE_REST_BYTES]) -> Option<u64> {
        let word = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().expect("eight bytes"));
        match self {
            Probe::Function => (word(0) != u64::from(perf::PERF_SAMPLE_REGS_ABI_NONE)).then(|| word(8)),
            Probe::Tracepoint => Some(word(20)),
        }
    }
}

fn spec(mut attributes: perf::perf_event_attr) -> EventSpec {
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_watermark(1);
    attributes.__bindgen_anon_2.wakeup_watermark = WATERMARK_BYTES;
    EventSpec { attributes, ring_pages: RING_PAGES, what: "calls of sched_setaffinity" }
}

/// The probes at the kernel function and at its return.
fn of_function(sys: &Path) -> Result<(EventSpec, EventSpec)> {
    let probes = Kprobes::find(sys)?;
    let begin = with_register(probes.begin(FUNCTION), Register::First);
    let end = with_register(probes.end(FUNCTION), Register::Result);
    Ok((spec(begin), spec(end)))
}

/// The tracepoints at the entry and exit of the system call.
fn of_tracepoints(sys: &Path) -> Result<(EventSpec, EventSpec)> {
    let of = |id: u64| {
        let mut attributes = attributes();
        attributes.type_ = perf::PERF_TYPE_TRACEPOINT;
        attributes.config = id;
        attributes.sample_type |= u64::from(perf::PERF_SAMPLE_RAW);
        spec(attributes)
    };
    let (enter, exit) = ("sys_enter_sched_setaffinity/id", "sys_exit_sched_setaffinity/id");
    let mounted = sys.join("kernel/tracing/events/syscalls");
    if let (Ok(enter), Ok(exit)) = (number_in(&mounted.join(enter)), number_in(&mounted.join(exit))) {
        return Ok((of(enter), of(exit)));
    }
    // tracefs is not mounted there, or not readable. A detached mount is visible to nobody else, and ends with its
    // descriptor.
    let refused = |e: rustix::io::Errno| Error::io("mount", "tracefs", e, WAY_OUT);
    let tracefs = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|e| match e {
        rustix::io::Errno::NODEV | rustix::io::Errno::NOSYS => {
            Error::Missing { what: "tracefs", path: mounted.clone(), way_out: WAY_OUT }
        }
        e => refused(e),
    })?;
    fsconfig_create(tracefs.as_fd()).map_err(refused)?;
    let mount =
        fsmount(tracefs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map_err(refused)?;
    let events = Path::new("/proc/self/fd").join(mount.as_raw_fd().to_string()).join("events/syscalls");
    Ok((of(number_in(&events.join(enter))?), of(number_in(&events.join(exit))?)))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::Missing { what: "probe of sched_setaffinity", path: path.into(), way_out: WAY_OUT }
        }
        _ => Error::io("read", path, e, "run as root"),
    })
}

fn number_in(path: &Path) -> Result<u64> {
    let text = read(path)?;
    text.trim().parse().map_err(|_| Error::malformed(path, "a number", &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> Option<Calls> {
        let opened = Calls::open(Path::new("/sys"), &crate::proc::SysCpus::default().online());
        opened.map_err(|e| eprintln!("skipped: {e}")).ok()
    }

    fn own_phases(calls: &mut Calls) -> Vec<Phase> {
        let own = threads::own_tid();
        calls.drain().0.iter().filter(|call| call.caller_tid == own).map(|call| call.phase).collect()
    }

    #[test]
    fn a_call_is_recorded_with_its_target_and_outcome() {
        let _turn = crate::migrate::testing::Turn::of_a_call_watch();
        let Some(mut calls) = watched() else { return };
        let (own, mask) = (threads::own_tid(), threads::affinity_set(threads::own_tid()).unwrap());
        threads::set_affinity_set(own, &mask).unwrap();
        let nowhere = CpuSet::of(reprieve_policy::cpus::MAX_CPUS - 1);
        threads::set_affinity_set(own, &nowhere).unwrap_err();
        let expected = [
            Phase::Begin { target: own },
            Phase::End { succeeded: true },
            Phase::Begin { target: own },
            Phase::End { succeeded: false },
        ];
        assert_eq!(own_phases(&mut calls), expected);
        assert_eq!(own_phases(&mut calls), []);
        threads::affinity_set(own).unwrap();
        assert_eq!(own_phases(&mut calls), [], "reading a mask is not recorded");
    }

    #[test]
    fn values_are_where_the_kernel_writes_them() {
        let mut rest = [0; SAMPLE_REST_BYTES];
        rest[8..16].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(Probe::Function.value(&rest), None, "a sample without registers");
        rest[0] = 2;
        assert_eq!(Probe::Function.value(&rest), Some(7));
        rest[20..28].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(Probe::Tracepoint.value(&rest), Some(u64::MAX));
    }
}
