//! Tests the recorder on live threads of this process; skipped with a message if perf is not permitted.

use super::super::{IntervalBuilder, State};
use super::*;
use crate::threads::{affinity, own_tid, set_affinity};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs `body` in a thread under a recorder and returns what was recorded.
fn record(ring_pages: usize, body: impl FnOnce() + Send + 'static) -> Option<(Vec<SwitchEvent>, u64)> {
    let (send_tid, tid) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send_tid.send(own_tid()).unwrap();
        wait.recv().unwrap();
        body();
    });
    let recorder = SwitchRecorder::open(&[tid.recv().unwrap()], ring_pages);
    go.send(()).unwrap();
    thread.join().unwrap();
    let mut recorder = match recorder {
        Err(e @ (Error::NotPermitted { .. } | Error::Missing { .. })) => {
            eprintln!("skipped: {e}");
            return None;
        }
        recorder => recorder.unwrap(),
    };
    let mut events = Vec::new();
    recorder.drain(&mut |event| events.push(event));
    Some((events, recorder.lost()))
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * reprieve_policy::SECOND_NS + now.tv_nsec as u64
}

#[test]
fn a_sleeper_goes_in_and_out() {
    let before_ns = monotonic_ns();
    let sleep = || (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(2)));
    let Some((events, lost)) = record(8, sleep) else { return };
    let after_ns = monotonic_ns();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    assert!(count(SwitchKind::In) >= 5 && count(SwitchKind::OutVoluntary) >= 5, "{events:?}");
    assert_eq!(lost, 0);
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    assert!(events.iter().all(|event| (before_ns..=after_ns).contains(&event.time_ns)));
    assert!(events.iter().all(|event| event.thread_index == 0 && event.cpu.is_some_and(|cpu| cpu < 4096)));

    let mut builder = IntervalBuilder::new(before_ns, None);
    events.iter().for_each(|event| builder.push(event));
    let blocked_ns: u64 = builder
        .finish(after_ns)
        .iter()
        .filter(|interval| interval.state == State::Blocked)
        .map(|interval| interval.end_ns - interval.start_ns)
        .sum();
    assert!(blocked_ns >= 10_000_000, "{blocked_ns}");
}

#[test]
fn two_that_spin_on_one_cpu_preempt_each_other() {
    let spin_on = |cpu| {
        set_affinity(own_tid(), &[cpu]).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
    };
    let cpu = affinity(own_tid()).unwrap()[0];
    let contended = move || {
        let rival = std::thread::spawn(move || spin_on(cpu));
        spin_on(cpu);
        rival.join().unwrap();
    };
    let Some((events, _)) = record(8, contended) else { return };
    assert!(events.iter().any(|event| event.kind == SwitchKind::OutPreempted), "{events:?}");
}

#[test]
fn a_full_ring_loses_and_says_so() {
    let (send_tid, tid) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (done, rounds) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send_tid.send(own_tid()).unwrap();
        while wait.recv().is_ok() {
            (0..300).for_each(|_| std::thread::sleep(Duration::from_micros(1)));
            done.send(()).unwrap();
        }
    });
    let recorder = SwitchRecorder::open(&[tid.recv().unwrap()], 1);
    let Ok(mut recorder) = recorder else { return eprintln!("skipped: {}", recorder.unwrap_err()) };
    let mut kinds = Vec::new();
    for _ in 0..2 {
        go.send(()).unwrap();
        rounds.recv().unwrap();
        // The kernel reports the loss with the first record that fits again.
        recorder.drain(&mut |event| kinds.push(event.kind));
    }
    assert!(recorder.lost() > 0);
    assert!(kinds.contains(&SwitchKind::Lost));
    drop(go);
    thread.join().unwrap();
}

#[test]
fn limits_and_dead_threads() {
    for pages in [0, 3, MAX_RING_PAGES * 2] {
        assert!(matches!(SwitchRecorder::open(&[own_tid()], pages), Err(Error::Invalid { .. })));
    }
    assert!(matches!(SwitchRecorder::open(&[0], 1), Err(Error::Invalid { .. })));
    assert!(matches!(SwitchRecorder::open(&[1; MAX_RECORDED_THREADS + 1], 1), Err(Error::Invalid { .. })));
    let error = SwitchRecorder::open(&[i32::MAX], 1).unwrap_err();
    assert!(error.is_gone() || error.is_not_permitted(), "{error}");
}
