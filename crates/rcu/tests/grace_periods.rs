//! Grace periods: tokens, waiting, deadlines, and late readers.

mod common;

use common::with_reader_inside;
use reprieve_rcu::{Domain, Fencing, Help, Reader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

fn domains() -> Vec<Domain> {
    let options = [Fencing::Asymmetric, Fencing::Fenced, Fencing::Adaptive];
    options.map(|f| Domain::new(common::options().fencing(f))).into()
}

#[test]
fn without_readers_a_token_passes_at_once() {
    for domain in domains() {
        let first = domain.start();
        let second = domain.start();
        assert!(first < second);
        assert!(domain.check(first) && domain.check(second));
        domain.synchronize();
    }
}

#[test]
fn a_section_holds_up_tokens_taken_after_it_began() {
    for domain in domains() {
        let before = domain.start();
        with_reader_inside(&domain, "slow", || {
            let token = domain.start();
            assert!(domain.check(before));
            assert!(!domain.check(token));
            assert!(domain.synchronize_until(soon()).is_err());
        });
        let token = domain.start();
        assert!(domain.check(token));
        assert_eq!(domain.synchronize_until(soon()), Ok(()));
    }
}

#[test]
fn a_slow_reader_delays_its_own_domain_only() {
    let (slow, quick) = (common::domain(), common::domain());
    with_reader_inside(&slow, "slow", || {
        quick.synchronize();
        let token = quick.start();
        assert!(quick.check(token));
    });
}

#[test]
fn late_readers_are_named() {
    let domain = common::domain();
    with_reader_inside(&domain, "the slow one", || {
        let late = domain.synchronize_until(soon()).unwrap_err();
        assert_eq!(late.readers.len(), 1);
        let reader = &late.readers[0];
        assert_eq!(reader.name, "the slow one");
        assert!(reader.in_section && reader.tid > 0);
        assert!(reader.late_ns >= 10_000_000, "{reader}");
        assert!(late.to_string().contains("the slow one"));
        assert_eq!(domain.stats().late[0].name, "the slow one");
    });
    assert!(domain.stats().late.is_empty());
}

#[test]
fn the_hook_fires_once_per_section() {
    let domain = common::domain();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    assert!(domain.on_late(1_000_000, move |r| log.lock().unwrap().push(r.clone())));
    assert!(!domain.on_late(1, |_| ()), "one hook");
    for _ in 0..2 {
        with_reader_inside(&domain, "hooked", || {
            domain.synchronize_until(soon()).unwrap_err();
            domain.synchronize_until(soon()).unwrap_err();
        });
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|r| r.name == "hooked" && r.late_ns >= 1_000_000));
}

/// Waits for a reader that is in a section and leaves it after a while.
fn is_woken_by(domain: &Domain, section: impl FnOnce(&mut Reader, &dyn Fn()) + Send) {
    let left = AtomicUsize::new(0);
    std::thread::scope(|s| {
        let (inside, tell) = std::sync::mpsc::channel();
        let left = &left;
        s.spawn(move || {
            let mut reader = domain.register("sleeper").unwrap();
            section(&mut reader, &|| {
                inside.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(30));
                left.store(1, Ordering::SeqCst);
            });
        });
        tell.recv().unwrap();
        domain.synchronize();
        assert_eq!(left.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn synchronize_is_woken_by_the_last_reader() {
    for domain in domains() {
        is_woken_by(&domain, |reader, meanwhile| {
            let _guard = reader.lock();
            meanwhile();
        });
        is_woken_by(&domain, |reader, meanwhile| {
            let _entered = reader.enter();
            meanwhile();
        });
    }
}

#[test]
fn a_reader_that_entered_alone_holds_up() {
    for domain in domains() {
        let mut reader = domain.register("alone").unwrap();
        let entered = reader.enter();
        let token = domain.start();
        assert!(!domain.check(token));
        drop(entered);
        assert!(domain.check(token));
    }
}

/// A leaked guard, and a guard that ends after it, are one section.
#[test]
fn entering_ends_what_was_leaked() {
    let domain = common::domain();
    let mut reader = domain.register("leaky").unwrap();
    std::mem::forget(reader.lock());
    assert!(!domain.check(domain.start()));
    drop(reader.enter());
    assert!(domain.check(domain.start()));
    std::mem::forget(reader.enter());
    drop(reader.lock());
    assert!(!domain.check(domain.start()), "nested in what was leaked");
    drop(reader);
    assert!(domain.check(domain.start()));
}

#[test]
#[should_panic(expected = "deadlock")]
fn synchronize_within_a_section_is_refused() {
    let domain = common::domain();
    let _guard = domain.lock();
    domain.synchronize();
}

#[test]
fn an_online_reader_passes_at_its_quiescent_states() {
    let domain = common::domain();
    let reader = domain.register("loop").unwrap();
    let mut online = reader.online();
    let token = domain.start();
    assert!(!domain.check(token));
    online.quiescent();
    assert!(domain.check(token));
    let token = domain.start();
    online.offline(|| assert!(domain.check(token), "offline readers hold nothing up"));
    let token = domain.start();
    assert!(!domain.check(token), "online again");
    let guard = reader.lock();
    online.quiescent();
    assert!(!domain.check(token), "a guard exists");
    drop(guard);
    online.quiescent();
    assert!(domain.check(token));
}

#[test]
fn a_panic_in_offline_leaves_the_reader_online() {
    let domain = common::domain();
    let reader = domain.register("loop").unwrap();
    let mut online = reader.online();
    let panic =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| online.offline(|| panic!("expected"))));
    assert!(panic.is_err());
    let token = domain.start();
    assert!(!domain.check(token));
    online.quiescent();
    assert!(domain.check(token));
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let domain = common::domain();
    let (outer, inner) = (domain.lock(), domain.lock());
    let token = domain.start();
    drop(outer);
    assert!(!domain.check(token));
    drop(inner);
    assert!(domain.check(token));
}

#[test]
fn a_panic_leaves_the_section() {
    let domain = common::domain();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = domain.lock();
        panic!("expected");
    }));
    assert!(panic.is_err());
    domain.synchronize();
}

/// Readers record the newest value that they have seen. After a grace period that began when a newer value was
/// written, no reader may see an older one.
#[test]
fn grace_periods_hold_under_load() {
    for options in
        [common::options(), common::options().help(Help::None), common::options().fencing(Fencing::Fenced)]
    {
        let domain = Domain::new(options);
        // A slot is poisoned after the grace period that follows its unlink, so readers must never see poison.
        let slots: Vec<AtomicUsize> = (0..64).map(|_| AtomicUsize::new(1)).collect();
        let (current, stop) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            let readers: Vec<_> =
                (0..3).map(|_| s.spawn(|| read_slots(&domain, &slots, &current, &stop))).collect();
            for i in 1..3_000 {
                let (next, old) = (i % 64, (i - 1) % 64);
                slots[next].store(1, Ordering::Relaxed);
                current.store(next, Ordering::Release);
                domain.synchronize();
                slots[old].store(0, Ordering::Relaxed);
            }
            stop.store(1, Ordering::SeqCst);
            let poisoned: usize = readers.into_iter().map(|r| r.join().unwrap()).sum();
            assert_eq!(poisoned, 0);
        });
    }
}

fn read_slots(domain: &Domain, slots: &[AtomicUsize], current: &AtomicUsize, stop: &AtomicUsize) -> usize {
    let reader = domain.register("load").unwrap();
    let mut poisoned = 0;
    while stop.load(Ordering::Relaxed) == 0 {
        let _guard = reader.lock();
        let slot = current.load(Ordering::Acquire);
        poisoned += (0..20).filter(|_| slots[slot].load(Ordering::Relaxed) == 0).count();
    }
    poisoned
}
