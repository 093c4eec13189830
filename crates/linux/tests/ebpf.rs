//! The collector's highest tier by eBPF, against what is known: waits for grace periods, planted frees, tasks that wait for each
//! other; and the same by perf events, which see less. Skipped with a message where eBPF is not permitted.
#![cfg(feature = "ebpf")]

use std::path::Path;
use std::sync::OnceLock;

use reprieve_linux::observe::{Ebpf, Grace, Symbols, Watch};
use reprieve_linux::proc::{ProcRoot, SysCpus, allowed_cpus};
use reprieve_linux::{clock, threads};
use reprieve_policy::sample::Deferred;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

/// Those of the running kernel, read once: in an emulated guest that takes seconds.
fn symbols() -> Result<Symbols, String> {
    static READ: OnceLock<Result<Symbols, String>> = OnceLock::new();
    READ.get_or_init(|| Symbols::read(&ProcRoot::default()).map_err(|error| error.to_string())).clone()
}

fn armed() -> Option<Ebpf> {
    symbols().and_then(Ebpf::arm).map_err(|error| eprintln!("skipped: {error}")).ok()
}

/// Waits for a grace period so many times, and says when each wait began and ended; none if there is no `membarrier`.
fn waits(count: usize) -> Option<Vec<(u64, u64)>> {
    let wait = |_| {
        let since_ns = clock::now_ns();
        // SAFETY: the call takes three numbers and touches no memory of ours.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
        (result == 0).then(|| (since_ns, clock::now_ns()))
    };
    let all: Option<Vec<_>> = (0..count).map(wait).collect();
    if all.is_none() {
        eprintln!("skipped: no membarrier here");
    }
    all
}

fn take(ebpf: &mut Ebpf) -> (Deferred, Vec<(String, u64)>) {
    let (mut deferred, mut in_the_way) = (Deferred::default(), Vec::new());
    ebpf.take(&mut deferred, &mut in_the_way);
    (deferred, in_the_way)
}

fn sum(of: &[(String, u64)], name: &str) -> u64 {
    of.iter().find(|(known, _)| known == name).map_or(0, |(_, sum)| *sum)
}

#[test]
fn each_wait_of_membarrier_has_a_whole_grace_period_in_it() {
    let Some(mut ebpf) = armed() else { return };
    if std::fs::read_to_string("/sys/kernel/rcu_expedited").is_ok_and(|text| text.trim() == "1") {
        return eprintln!("skipped: grace periods are expedited here");
    }
    let Some(waits) = waits(20) else { return };
    let graces = ebpf.take_graces();
    assert!(graces.iter().all(|grace| grace.begin_ns <= grace.begun_ns && grace.begun_ns <= grace.end_ns));
    assert!(graces.is_sorted_by_key(|grace| grace.end_ns));
    for (since_ns, until_ns) in waits {
        let is_in = |grace: &Grace| grace.begun_ns > since_ns && grace.end_ns < until_ns;
        assert!(graces.iter().any(is_in), "{since_ns}..{until_ns}: {graces:?}");
    }
    let newest_ns = graces.last().map(|grace| grace.end_ns);
    assert!(ebpf.take_graces().iter().all(|grace| Some(grace.end_ns) > newest_ns), "taken twice");
}

// Not while eBPF is at the same functions: nothing of ours uses both at once.
#[test]
fn perf_events_see_the_grace_periods_too() {
    let watch = symbols().and_then(|symbols| {
        Watch::begin(Path::new("/sys"), symbols, &SysCpus::default().online())
            .map_err(|error| error.to_string())
    });
    let mut watch = match watch {
        Ok(watch) => watch,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let Some(waits) = waits(20) else { return };
    let longest_ns = waits.iter().map(|(since_ns, until_ns)| until_ns - since_ns).max().unwrap();
    let lengths_ns = watch.take().unwrap().grace_periods_ns;
    eprintln!("{} grace periods, of at most {longest_ns} ns: {lengths_ns:?}", lengths_ns.len());
    // Each wait had a whole one in it. Others may have come before and after.
    assert!(lengths_ns.iter().filter(|ns| **ns < longest_ns).count() >= 20);
}

#[test]
fn what_this_process_lets_the_kernel_free_is_counted() {
    let Some(mut ebpf) = armed() else { return };
    threads::set_affinity(threads::own_tid(), &[allowed_cpus().unwrap()[0]]).unwrap();
    let shared = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(if shared.is_dir() { shared } else { Path::new("/tmp") }).unwrap();
    let path = folder.path().join("file");
    let quiet = take(&mut ebpf).0;
    // Frees without a callback are traced each to their caller only up to 1,024 a second; then each 16th stands for all.
    for (objects, least) in [(500, 500), (5_000, 5_000 - 64)] {
        for _ in 0..objects {
            drop(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).unwrap());
            std::fs::write(&path, "").unwrap();
            std::fs::remove_file(&path).unwrap();
        }
        let seen = take(&mut ebpf).0;
        eprintln!("{objects} planted: {:?}", seen.queued);
        // Another process may have freed a few, too.
        let most = objects + objects / 10;
        let plain = sum(&seen.queued, "timerfd_release");
        assert!((least..most).contains(&plain), "{plain} of {objects}");
        let by_callback = sum(&seen.queued, "__d_free");
        assert!((objects..most).contains(&by_callback), "{by_callback} of {objects}");
    }
    assert!(sum(&quiet.queued, "timerfd_release") < 50);
    assert!(sum(&take(&mut ebpf).0.queued, "timerfd_release") < 50, "taken twice");
}

#[test]
fn a_task_that_has_the_cpu_is_in_the_way_of_one_that_waits_for_it() {
    let Some(mut ebpf) = armed() else { return };
    let cpu = allowed_cpus().unwrap()[0];
    let spin = |name: &'static str| {
        let thread = std::thread::Builder::new().name(name.into());
        let spin = move || {
            threads::set_affinity(threads::own_tid(), &[cpu]).unwrap();
            let delay_ns = || {
                ProcRoot::default().schedstat(std::process::id() as i32, threads::own_tid()).unwrap().delay_ns
            };
            let (until_ns, before_ns) = (clock::now_ns() + 500_000_000, delay_ns());
            while clock::now_ns() < until_ns {}
            delay_ns() - before_ns
        };
        thread.spawn(spin).unwrap()
    };
    let (one, two) = (spin("in-the-way-1"), spin("in-the-way-2"));
    let waited_ns = one.join().unwrap() + two.join().unwrap();
    let in_the_way = take(&mut ebpf).1;
    eprintln!("{in_the_way:?}; the two waited for {waited_ns} ns");
    // Each had to wait for the other.
    assert!(sum(&in_the_way, "in-the-way-1") > 0 && sum(&in_the_way, "in-the-way-2") > 0);
    assert_eq!(sum(&in_the_way, "swapper/0"), 0, "idle is in nobody's way");
}
