//! `reprieve record`: when the host keeps the vCPUs of a virtual machine from running, or any other threads, into a file that
//! the simulator can replay.

use std::time::Duration;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_study::{Span, Tape, units};
use reprieve_vm::watch::{Watcher, now_ns};

use crate::cli::RecordArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};

/// Between two looks: the kernel's buffers hold far more than comes meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// Most threads.
const THREADS: usize = 1_024;

/// Runs the verb.
pub fn record(arguments: &RecordArguments) -> Result<(), Failure> {
    let root = ProcRoot::default();
    let threads = threads(&root, arguments)?;
    let file = Promised::open(&arguments.output)?;
    let interrupt = Interrupt::install()?;
    let tids: Vec<i32> = threads.iter().map(|thread| thread.tid).collect();
    let (mut watcher, coarse) = Watcher::open(&root, arguments.pid, &tids).map_err(Failure::from)?;
    if let Some(note) = coarse {
        output::say(&format!("reprieve: {note}"));
    }
    let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
    output::say(&format!(
        "records {} for {} s: {}",
        if tids.len() == 1 { "1 thread".into() } else { format!("{} threads", tids.len()) },
        arguments.for_s,
        names.join(", ")
    ));
    let start_ns = now_ns();
    let end_ns = start_ns + arguments.for_s * units::SECOND_NS;
    let mut t_ns = start_ns;
    while t_ns < end_ns && !interrupt.is_raised() {
        std::thread::sleep(LOOK.min(Duration::from_nanos(end_ns - t_ns)));
        t_ns = now_ns();
        // Collected at every look.
        watcher.look(t_ns, 0);
    }
    let window = Span::new(start_ns, t_ns.min(end_ns));
    let scheduling = watcher.finish(window);
    if scheduling.lost > 0 {
        output::say(&format!(
            "reprieve: {} records were lost; times around them are missing",
            scheduling.lost
        ));
    }
    let host = rustix::system::uname().release().to_string_lossy().into_owned();
    let source =
        format!("process {}, {}; {}; host kernel {host}", arguments.pid, names.join(", "), scheduling.source);
    let tape = Tape::new(&source, window, &scheduling.descheduled);
    file.write(tape.to_json().as_bytes())?;
    output::print(&told(&tape, &names))
}

/// A line for each thread.
fn told(tape: &Tape, names: &[&str]) -> String {
    let mut text = String::new();
    for (vcpu, name) in names.iter().enumerate() {
        let times: Vec<u64> = tape.off(vcpu).map(Span::length_ns).collect();
        let (all_ns, longest_ns) = (times.iter().sum::<u64>(), times.iter().max().copied().unwrap_or(0));
        let percent = 100.0 * all_ns as f64 / tape.length_ns as f64;
        text.push_str(&format!(
            "{name}: kept from running {} times, {percent:.1} % of the time, at most {}\n",
            times.len(),
            units::duration(longest_ns as f64)
        ));
    }
    text
}

struct Thread {
    tid: i32,
    name: String,
}

/// The threads that were named, or those that QEMU calls its vCPUs.
fn threads(root: &ProcRoot, arguments: &RecordArguments) -> Result<Vec<Thread>, Failure> {
    let pid = arguments.pid;
    let there = root.thread_ids(pid).map_err(|error| Failure::Usage(format!("process {pid}: {error}")))?;
    let named = |tid: i32| Thread {
        tid,
        name: root.task_identity(pid, tid).map_or_else(|_| tid.to_string(), |task| task.comm),
    };
    if let Some(other) = arguments.tids.iter().find(|tid| !there.contains(tid)) {
        return Err(Failure::Usage(format!("process {pid} has no thread {other}")));
    }
    let chosen: Vec<Thread> = match arguments.tids.is_empty() {
        false => arguments.tids.iter().copied().map(named).collect(),
        true => {
            let all = there.iter().copied().map(named);
            let mut vcpus: Vec<(u32, Thread)> =
                all.filter_map(|thread| Some((vcpu(&thread.name)?, thread))).collect();
            vcpus.sort_by_key(|(number, _)| *number);
            vcpus.into_iter().map(|(_, thread)| thread).collect()
        }
    };
    match chosen.len() {
        0 => Err(Failure::Usage(format!(
            "process {pid} has no thread named \"CPU 0/KVM\", as QEMU names those of its vCPUs (with \
             -name debug-threads=on); name threads with --tid"
        ))),
        count if count > THREADS => Err(Failure::Usage(format!("{count} threads are more than {THREADS}"))),
        _ => Ok(chosen),
    }
}

/// Which vCPU a thread is by QEMU's name for it: `CPU 3/KVM`.
fn vcpu(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_s_names_of_vcpus_are_known() {
        assert_eq!([vcpu("CPU 0/KVM"), vcpu("CPU 13/TCG")], [Some(0), Some(13)]);
        assert_eq!([vcpu("qemu-system-x86"), vcpu("CPU x/KVM"), vcpu("CPU 1")], [None; 3]);
    }
}
