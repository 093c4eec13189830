//! The fence thread, with a CPU that pretends to be away (`membarrier::away`). Each test runs in a process of its
//! own, because the fence thread concerns all domains.

use super::*;
use crate::map::Decision;
use crate::platform::membarrier::away;
use crate::{AtLimit, Domain, Fencing, Options, RcuCell, RcuMap};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two calls that the caller makes itself, and that wait for the CPU.
fn wait_twice(domain: &Domain) {
    for _ in 0..2 {
        away::begin();
        let returns = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            away::end();
        });
        domain.defer(|| ());
        returns.join().unwrap();
    }
}

/// Whether the thread is bound to this CPU alone.
fn thread_is_on(cpu: usize) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |id: &str| std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap_or_default();
    let ids = tasks.flatten().map(|t| t.file_name().into_string().unwrap());
    let id = ids.filter(|id| name(id) == "rcu-fence\n").map(|id| id.parse().unwrap()).next();
    cpus::of_thread(id.expect("there is the thread")).is_just(cpu)
}

const LATE: usize = 0;
const RETIRED: usize = 50;

/// Run by the test below.
#[test]
#[ignore = "changes its process"]
fn with_a_cpu_that_is_away() {
    away::CPU.store(LATE, Ordering::SeqCst);
    // The test's first thread may still use all CPUs, and so the fence thread may use them.
    std::thread::spawn(|| {
        cpus::bind(&cpus::Set::of(1));
        let domain = Domain::new(Options::new().limit_objects(RETIRED).at_limit(AtLimit::NoWait));
        let adaptive = Domain::new(Options::new().fencing(Fencing::Adaptive));
        let cell = RcuCell::in_domain(&adaptive, 1u64);
        assert!(!calls());
        wait_twice(&domain);
        assert!(calls() && away::mine() == 2, "{}", away::mine());
        nobody_waits_while_it_is_away(&domain, &adaptive, &cell);
        a_domain_ends_whose_last_handle_waits();
        a_forked_child_makes_its_own_calls(&domain);
        calls_return(&adaptive, &cell);
    })
    .join()
    .unwrap();
}

fn nobody_waits_while_it_is_away(domain: &Domain, adaptive: &Domain, cell: &RcuCell<u64>) {
    // The adaptive domain stops using membarrier before the CPU goes away again.
    until("the adaptive domain leaves", || {
        cell.replace(cell.get() + 1);
        !adaptive.core().modes.writers_need_barrier()
    });
    away::begin();
    let freed = domain.stats().freed_objects;
    (0..RETIRED).for_each(|_| domain.try_defer(|| ()).map_err(drop).unwrap());
    assert!(domain.try_defer(|| ()).is_err(), "the limit holds");
    assert_eq!(domain.stats().freed_objects, freed, "nothing is freed without a fence");
    let late = domain.synchronize_until(Instant::now() + Duration::from_millis(30)).unwrap_err();
    assert_eq!(late.cpu.map(|c| c.cpu), Some(LATE), "{late}");
    assert!(late.to_string().contains("CPU 0 has not answered membarrier for"), "{late}");
    assert!(thread_is_on(LATE), "where nobody else stands still");
    // A domain whose readers execute fences waits for nobody.
    (0..RETIRED as u64).for_each(|n| cell.replace(n));
    assert_eq!(adaptive.stats().garbage_objects, 0);
    assert_eq!(away::mine(), 2, "the caller's own calls");
    // A thread that waits sleeps until the CPU returns.
    let waiting = domain.clone();
    let waiter = std::thread::spawn(move || waiting.synchronize());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiter.is_finished());
    // So does a thread that retires in a domain without a limit. Then it frees.
    let patient = Domain::new(Options::new().call_limit_ns(u64::MAX));
    let retiring = patient.clone();
    let writer = std::thread::spawn(move || {
        retiring.defer(|| ());
        (away::mine(), retiring.stats().garbage_objects)
    });
    std::thread::sleep(Duration::from_millis(20));
    assert!(!writer.is_finished());
    away::end();
    waiter.join().unwrap();
    assert_eq!(writer.join().unwrap(), (0, 0));
    until("everything is freed", || {
        domain.reclaim_now();
        domain.stats().garbage_objects == 0
    });
    let late = domain.stats().late_cpu.unwrap();
    assert!(late.cpu == LATE && late.times > 0, "{late:?}");
}

/// What waits owns the last handle, and still everything is freed.
fn a_domain_ends_whose_last_handle_waits() {
    let (alone, ended) = (Domain::default(), Arc::new(()));
    let (own, note) = (alone.clone(), ended.clone());
    alone.defer(move || drop((own, note)));
    drop(alone);
    until("the domain ends", || Arc::strong_count(&ended) == 1);
}

fn a_forked_child_makes_its_own_calls(domain: &Domain) {
    domain.defer(|| ());
    // SAFETY: the child has only this thread, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        domain.defer(|| ());
        domain.barrier();
        let fine = !calls() && domain.stats().garbage_objects == 0;
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

/// After a second without a slow round, which a busy machine may not have: `latency.rs` decides that.
fn calls_return(adaptive: &Domain, cell: &RcuCell<u64>) {
    let begun = Instant::now();
    while calls() && begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(10));
    }
    CALLS.store(false, Ordering::SeqCst);
    // A request that comes at that moment is served, too.
    let ticket = super::super::ask();
    until("a request is lost", || ticket.is_served());
    cell.replace(0);
    assert!(adaptive.core().modes.writers_need_barrier() && adaptive.stats().garbage_objects == 0);
}

/// Run by the test below.
#[test]
#[ignore = "changes its process"]
fn with_a_cpu_that_is_away_from_the_first_call() {
    let domain = Domain::new(Options::new().call_limit_ns(0));
    away::CPU.store(0, Ordering::SeqCst);
    away::begin();
    (0..50).for_each(|_| domain.defer(|| ()));
    assert_eq!((away::mine(), domain.stats().garbage_objects), (0, 50));
    away::end();
    domain.barrier();
    assert_eq!((away::mine(), domain.stats().garbage_objects), (0, 0));
}

/// Run by the test below.
#[test]
#[ignore = "changes its process"]
fn with_a_barrier_while_a_cpu_is_away() {
    let domain = Domain::new(Options::new().call_limit_ns(0));
    away::CPU.store(0, Ordering::SeqCst);
    away::begin();
    let freed = Arc::new(());
    let note = freed.clone();
    domain.defer(move || drop(note));
    let (waiting, before) = (domain.clone(), domain.core().clock.now());
    let barrier = std::thread::spawn(move || waiting.barrier());
    until("the barrier has its token", || domain.core().clock.now() > before);
    // What is retired next is held up. What the barrier waits for is not.
    let guard = domain.lock();
    domain.defer(|| ());
    away::end();
    barrier.join().unwrap();
    assert_eq!((Arc::strong_count(&freed), domain.stats().garbage_objects), (1, 1));
    drop(guard);
}

/// Run by the test below.
#[test]
#[ignore = "changes its process"]
fn with_a_barrier_of_what_a_bag_holds() {
    let domain = Domain::new(Options::new().call_limit_ns(0));
    let map = RcuMap::<u32, u32>::new(&domain);
    away::CPU.store(0, Ordering::SeqCst);
    away::begin();
    let freed = Arc::new(());
    // What a closure of a map retires is put into a bag.
    map.compute(1, |_| {
        domain.defer_drop(freed.clone());
        Decision::Keep
    });
    let (waiting, before) = (domain.clone(), domain.core().clock.now());
    let barrier = std::thread::spawn(move || waiting.barrier());
    until("the barrier has its token", || domain.core().clock.now() > before);
    until("its batch is queued", || domain.reclaim().oldest_ns().is_some());
    // This is held up. It must not become part of the barrier's batch, or that would be held up, too.
    let guard = domain.lock();
    domain.defer(|| ());
    away::end();
    barrier.join().unwrap();
    assert_eq!(Arc::strong_count(&freed), 1);
    drop(guard);
}

#[test]
fn a_barrier_is_not_held_up_by_what_is_retired_later() {
    in_its_own_process("with_a_barrier_while_a_cpu_is_away");
}

#[test]
fn a_barrier_s_own_batch_takes_nothing_that_is_retired_later() {
    in_its_own_process("with_a_barrier_of_what_a_bag_holds");
}

#[test]
fn nobody_waits_for_a_cpu_that_is_away() {
    in_its_own_process("with_a_cpu_that_is_away");
}

#[test]
fn not_even_the_first_caller_waits_where_the_limit_is_zero() {
    in_its_own_process("with_a_cpu_that_is_away_from_the_first_call");
}

fn in_its_own_process(test: &str) {
    if !crate::machine::probe().asymmetric || !cpus::of_process().has(1) {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("fence::thread::tests::{test}");
    let run = Command::new(program).args(["--ignored", "--exact", &name, "--nocapture"]).output().unwrap();
    let words = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{words}");
    assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
}
