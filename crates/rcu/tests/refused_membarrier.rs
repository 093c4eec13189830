//! A seccomp filter that is installed after the first use refuses membarrier. From then on nothing may be freed,
//! nobody may hang, and calls that need a grace period report why there is none. In a process of its own, because
//! filters cannot be removed.

#![cfg(target_os = "linux")]

mod common;

use reprieve_rcu::{AtLimit, Domain, RcuCell, capabilities};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes the kernel answer EPERM to membarrier, in all threads of the process.
fn refuse_membarrier() {
    let nr = libc::SYS_membarrier as u32;
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, nr),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid for the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (set, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        assert_eq!(libc::syscall(libc::SYS_seccomp, set, all, &raw const program), 0);
    }
}

/// Fails if `f` has not ended after a while, or panicked.
fn ends<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::spawn(f);
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(20), "hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().expect("does not panic")
}

/// Run by the test below.
#[test]
#[ignore = "changes its process for good"]
fn with_a_filter() {
    let domain = Domain::new(common::options().limit_objects(50).at_limit(AtLimit::Reclaim));
    let cell = Arc::new(RcuCell::in_domain(&domain, 1u64));
    cell.replace(2);
    assert_eq!(domain.stats().garbage_objects, 0);
    let reclaimed = common::domain();
    let reclaimer = reclaimed.spawn_reclaimer().unwrap();
    refuse_membarrier();

    // Writers on several threads exceed the domain's limits, and none of them hangs or panics.
    for value in 3..100 {
        let cell = cell.clone();
        ends(move || cell.replace(value));
    }
    assert_eq!((cell.get(), domain.stats().garbage_objects), (99, 97), "nothing is freed");
    assert!(!domain.check(domain.start()));

    let awaited = domain.clone();
    let deadline = Instant::now() + Duration::from_millis(50);
    let late = ends(move || awaited.synchronize_until(deadline)).unwrap_err();
    assert!(late.membarrier_refused && late.to_string().contains("seccomp"), "{late}");
    for wait in [Domain::synchronize, Domain::barrier] {
        let awaited = domain.clone();
        let panic = ends(move || catch_unwind(AssertUnwindSafe(|| wait(&awaited))).unwrap_err());
        assert!(panic.downcast_ref::<String>().is_some_and(|words| words.contains("seccomp")), "{panic:?}");
    }
    assert!(domain.stats().membarrier_refused && !capabilities().asymmetric);
    assert!(capabilities().to_string().contains("refused"), "{}", capabilities());

    reclaimed.defer(|| ());
    ends(move || drop(reclaimer));
    // The domain's end needs no grace period.
    ends(move || drop((cell, domain, reclaimed)));
}

#[test]
fn nobody_hangs_and_nothing_is_freed() {
    if !capabilities().asymmetric {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "with_a_filter", "--nocapture"];
    let run = Command::new(program).args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{words}");
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
}
