use super::*;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// A ticket that needs this many calls more than one made now.
pub(crate) fn ticket_in(calls: u32) -> Ticket {
    Ticket(Ticket::new().0.wrapping_add(2 * calls))
}

#[test]
fn a_call_under_way_does_not_serve() {
    assert_eq!(served_at(0), 2);
    assert_eq!(served_at(1), 4);
    assert_eq!(served_at(4), 6);
    assert_eq!(served_at(7), 10);
    assert_eq!(served_at(u32::MAX), 2);
}

#[test]
fn concurrent_callers_are_all_served() {
    let true = crate::machine::probe().asymmetric else { return };
    let (calls, before) = (AtomicU64::new(0), latency().count());
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..500 {
                    barrier().unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), 4_000);
    let made = latency().count() - before;
    assert!((1..=4_000).contains(&made), "{made}");
}

/// Whether the thread `tid` sleeps on `SEQUENCE`. The kernel reports its system call: the number, and then the
/// arguments (proc_pid_syscall(5)).
fn sleeps_on_the_sequence(tid: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap();
    call.split(' ').nth(1) == Some(&format!("{:#x}", std::ptr::from_ref(&SEQUENCE).addr()))
}

#[test]
fn a_caller_that_sleeps_is_woken() {
    let true = crate::machine::probe().asymmetric else { return };
    // Pretends that a call of another thread is under way.
    let begin = |now: u32| {
        let free = now.is_multiple_of(2);
        free && SEQUENCE.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    };
    let before = loop {
        let now = SEQUENCE.load(Ordering::SeqCst);
        if begin(now) {
            break now;
        }
        std::thread::yield_now();
    };
    const LIMIT: Duration = Duration::from_secs(20);
    let (send, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        send.send(crate::platform::thread_id()).unwrap();
        barrier().unwrap();
        send.send(0).unwrap();
    });
    let (tid, begun) = (receiver.recv().unwrap(), Instant::now());
    while !sleeps_on_the_sequence(tid) && begun.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    let slept = sleeps_on_the_sequence(tid);
    run(before).unwrap();
    assert!(slept, "the caller did not wait for the call under way");
    assert!(receiver.recv_timeout(LIMIT).is_ok(), "still asleep");
}
