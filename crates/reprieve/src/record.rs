//! `reprieve record`: when the host keeps the vCPUs of a virtual machine from running, or any other threads, into a file that
//! the simulator can replay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprieve_linux::clock::now_ns;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_study::{Span, Tape, shown, tape, units};
use reprieve_vm::attach::vcpu;
use reprieve_vm::watch::Watcher;

use crate::cli::RecordArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};
use crate::{hindsight, progress, tapes};

/// Between two looks. A thread's buffer holds 8,192 switches (64 pages of 128), which no thread has in that time.
const LOOK: Duration = Duration::from_millis(20);
/// Whether threads are still there is asked so often.
const THERE_EVERY: u64 = 50;

/// Runs the verb.
pub fn record(arguments: &RecordArguments) -> Result<(), Failure> {
    if let Some(folder) = &arguments.hindsight.folder {
        return hindsight::record(&arguments.hindsight, folder);
    }
    let root = ProcRoot::default();
    // The command line has both, or a folder for hindsight.
    let (Some(pid), Some(output)) = (arguments.pid, &arguments.output) else { return Ok(()) };
    let threads = threads(&root, arguments, pid)?;
    tapes::permit()?;
    let file = Promised::open(output)?;
    let interrupt = Interrupt::install()?;
    let tids: Vec<i32> = threads.iter().map(|thread| thread.tid).collect();
    let (mut watcher, coarse) = Watcher::open(&root, pid, &tids)?;
    if let Some(problem) = coarse {
        return Err(Failure::Missing(problem));
    }
    let names = threads.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>().join(", ");
    let count = if tids.len() == 1 { "1 thread".into() } else { format!("{} threads", tids.len()) };
    output::say(&format!("records {count} for {} s: {}", arguments.for_s, shown::line(&names)));
    let (window, ended_early) = watch(&root, arguments.for_s, pid, &tids, &mut watcher, &interrupt);
    let scheduling = watcher.finish(window);
    let tape = Tape::new(window, &scheduling.descheduled);
    let mut notes = Vec::from_iter(ended_early.map(|why| format!("{why} after {}", time(tape.length_ns))));
    if tape.length_ns == 0 {
        return Err(Failure::Failed(format!("nothing was recorded: {}", notes.join(", "))));
    }
    if scheduling.lost > 0 {
        notes.push(format!(
            "{} records of the kernel were lost: times around them are missing",
            scheduling.lost
        ));
    }
    notes.iter().for_each(|note| output::say(&format!("reprieve: {note}")));
    let host = rustix::system::uname().release().to_string_lossy().into_owned();
    let about = [format!("process {pid}, {names}"), scheduling.source.into(), format!("host kernel {host}")];
    let source = about.into_iter().chain(notes).collect::<Vec<String>>().join("; ");
    let tape = tape.described(&source, &BTreeMap::new());
    file.write(tape.to_json().as_bytes())?;
    output::print(&told(&tape, &threads))
}

/// Watches until the time is over; says for how long, and why it ended early if it did.
fn watch(
    root: &ProcRoot,
    for_s: u64,
    pid: i32,
    tids: &[i32],
    watcher: &mut Watcher,
    interrupt: &Interrupt,
) -> (Span, Option<&'static str>) {
    let bar = progress::seconds(for_s);
    let start_ns = now_ns();
    let end_ns = start_ns + for_s * units::SECOND_NS;
    let mut t_ns = start_ns;
    let mut why = None;
    for looks in 0.. {
        let is_due = u64::is_multiple_of(looks, THERE_EVERY);
        let there = !is_due || are_there(root, pid, tids);
        why = match () {
            () if t_ns >= end_ns => None,
            () if interrupt.is_raised() => Some("a signal ended it"),
            () if !there => Some("a thread has ended"),
            () if watcher.is_full() => Some("no more switches can be kept"),
            () => {
                std::thread::sleep(LOOK.min(Duration::from_nanos(end_ns - t_ns)));
                t_ns = now_ns();
                // At look 0 it collects what has come.
                watcher.look(t_ns, 0);
                bar.set_position((t_ns - start_ns) / units::SECOND_NS);
                continue;
            }
        };
        break;
    }
    bar.finish_and_clear();
    (Span::new(start_ns, t_ns.min(end_ns)), why)
}

/// Whether all of these threads are. One that is a process's first, and that nobody has waited for, is a zombie.
fn are_there(root: &ProcRoot, pid: i32, tids: &[i32]) -> bool {
    tids.iter().all(|tid| root.schedstat(pid, *tid).is_ok()) && !root.is_zombie(pid).unwrap_or(true)
}

/// A line for each thread.
fn told(tape: &Tape, threads: &[Thread]) -> String {
    let mut text = String::new();
    for (vcpu, thread) in threads.iter().enumerate() {
        let times: Vec<u64> = tape.off(vcpu).map(Span::length_ns).collect();
        let (all_ns, longest_ns) = (times.iter().sum::<u64>(), times.iter().max().copied().unwrap_or(0));
        let percent = 100.0 * all_ns as f64 / tape.length_ns as f64;
        text.push_str(&format!(
            "{}: kept from running {} times, {percent:.1} % of the time, at most {}\n",
            shown::line(&thread.name),
            times.len(),
            time(longest_ns)
        ));
    }
    text
}

fn time(ns: u64) -> String {
    units::duration(ns as f64)
}

struct Thread {
    tid: i32,
    name: String,
}

/// The threads that were named, or those that QEMU calls its vCPUs.
fn threads(root: &ProcRoot, arguments: &RecordArguments, pid: i32) -> Result<Vec<Thread>, Failure> {
    let there = root.thread_ids(pid).map_err(|error| Failure::Usage(format!("process {pid}: {error}")))?;
    let named = |tid: i32| Thread {
        tid,
        name: root.task_identity(pid, tid).map_or_else(|_| tid.to_string(), |task| task.comm),
    };
    let mut seen = BTreeSet::new();
    for tid in &arguments.tids {
        if !there.contains(tid) {
            return Err(Failure::Usage(format!("process {pid} has no thread {tid}")));
        }
        if !seen.insert(tid) {
            return Err(Failure::Usage(format!("--tid {tid} is given twice")));
        }
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
        count if count > tape::VCPUS => {
            Err(Failure::Usage(format!("{count} threads are more than {}", tape::VCPUS)))
        }
        _ => Ok(chosen),
    }
}
