//! What this kernel frees after grace periods is counted, and is found to be what this process has made it free. Skipped with a
//! message where perf events at the kernel's functions are not permitted.

use std::path::Path;
use std::time::Duration;

use reprieve_linux::observe::{Deferred, Symbols, Watch};
use reprieve_linux::proc::{ProcRoot, SysCpus};

const OBJECTS: usize = 20_000;

fn watch() -> Option<Watch> {
    let symbols = Symbols::read(&ProcRoot::default());
    let begun =
        symbols.and_then(|symbols| Watch::begin(Path::new("/sys"), symbols, &SysCpus::default().online()));
    begun.map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn objects(seen: &Deferred, function: &str) -> f64 {
    seen.frees.iter().filter(|frees| frees.function == function).map(|frees| frees.objects).sum()
}

#[test]
fn what_a_process_lets_the_kernel_free_is_counted() {
    let Some(mut watch) = watch() else { return };
    // A file system in memory forgets the names of files that are gone; others keep them.
    let shared = Path::new("/dev/shm");
    let folder = tempfile::tempdir_in(if shared.is_dir() { shared } else { Path::new("/tmp") }).unwrap();
    let path = folder.path().join("file");
    for _ in 0..OBJECTS {
        // Each frees a dentry and an inode.
        std::fs::write(&path, "").unwrap();
        std::fs::remove_file(&path).unwrap();
        // Its context is freed without a callback.
        drop(rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Monotonic,
            rustix::time::TimerfdFlags::empty(),
        ));
        watch.look();
    }
    // The last grace period ends.
    std::thread::sleep(Duration::from_millis(500));
    let seen = watch.end().unwrap();
    eprintln!("{:?}, {} grace periods", seen.frees, seen.grace_periods_ns.len());
    // One call in 61 says whose it is. Others' objects come on top.
    let enough = 0.7 * OBJECTS as f64;
    for function in ["__d_free", "i_callback", "timerfd_release"] {
        assert!(objects(&seen, function) > enough, "{function}: {}", objects(&seen, function));
    }
    assert!(!seen.grace_periods_ns.is_empty() && seen.grace_periods_ns.iter().all(|ns| *ns > 0));
}
