//! Safe programs that once reached freed memory, hung, or lost what they retired.
#![forbid(unsafe_code)]

mod common;

use common::{Counted, with_reader_inside};
use reprieve_rcu::map::MapOptions;
use reprieve_rcu::{Domain, RcuCell, RcuMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

fn drops() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Fails if `f` has not ended after a while.
fn ends(f: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(f);
    let begun = std::time::Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(20), "hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().expect("does not panic");
}

/// What a hook owns may use domains when it is dropped. That happens at its domain's end, and not when a thread
/// forgets the domain, whose address a new domain may then have.
#[test]
fn what_a_hook_owns_is_dropped_as_its_domain_ends() {
    struct Uses;
    impl Drop for Uses {
        fn drop(&mut self) {
            let domains: Vec<_> = (0..4).map(|_| common::domain()).collect();
            for domain in &domains {
                let (cell, guard) = (RcuCell::in_domain(domain, [7u64; 4]), domain.lock());
                let seen = cell.load(&guard);
                cell.replace([8; 4]);
                let _reuse: Vec<Box<[u64; 4]>> = (0..16).map(|n| Box::new([n; 4])).collect();
                assert_eq!(*seen, [7; 4]);
            }
        }
    }
    for _ in 0..200 {
        let [one, other, later] = [(); 3].map(|()| common::domain());
        let (uses, alive) = (Uses, Arc::new(()));
        let owns = (uses, alive.clone());
        other.on_late(1, move |_| _ = &owns);
        [&one, &other, &one].iter().for_each(|domain| drop(domain.lock()));
        drop((one, other));
        assert_eq!(Arc::strong_count(&alive), 1, "not when a thread forgets the domain");
        drop(later.lock());
    }
}

#[test]
fn an_online_reader_that_could_not_go_back_renews_nobody_elses_section() {
    let (domain, drops) = (common::domain(), drops());
    let cell = RcuCell::in_domain(&domain, Counted(drops.clone()));
    let reader = domain.register("reader").unwrap();
    let mut online = reader.online();
    let mut guards = Vec::new();
    // So deep that going online again cannot nest another section.
    assert!(panics(|| online.offline(|| (0..4_095).for_each(|_| guards.push(reader.lock())))));
    guards.truncate(1);
    cell.load(&guards[0]);
    cell.replace(Counted(drops.clone()));
    online.quiescent();
    domain.reclaim_now();
    assert_eq!(drops.load(Ordering::SeqCst), 0);
}

/// As many leaked guards as sections may nest, and then a panic: the reader cannot go online again, and must not
/// panic again.
#[test]
fn an_online_reader_that_cannot_go_back_while_it_unwinds_stays_offline() {
    let domain = common::domain();
    let reader = domain.register("loop").unwrap();
    let mut online = reader.online();
    let offline = || {
        online.offline(|| {
            (0..4_095).for_each(|_| std::mem::forget(reader.lock()));
            panic!("a user's");
        })
    };
    assert!(panics(offline));
}

#[test]
fn a_domain_that_ends_in_a_panic_is_forgotten_before_the_next_fork() {
    use std::os::unix::{fs::MetadataExt, process::CommandExt};
    let domain = Domain::new(common::options().batch(64));
    // A leaked section, so that the callback waits for the domain's end.
    std::mem::forget(domain.lock());
    domain.defer(|| panic!("expected"));
    assert!(panics(|| drop(domain)));
    // Makes the thread forget closed domains.
    drop(common::domain().lock());
    let words: Vec<Vec<u64>> = (1..600).flat_map(|n| [(); 4].map(|()| vec![!0; n])).collect();
    // With a user, `std` forks instead of spawning.
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    assert!(std::process::Command::new("true").uid(user).status().unwrap().success());
    assert!(words.iter().flatten().all(|&word| word == !0));
}

#[test]
fn a_reclaimer_s_handle_can_be_dropped_within_a_section() {
    ends(|| {
        let domain = common::domain();
        let reclaimer = domain.spawn_reclaimer().unwrap();
        let guard = domain.lock();
        domain.defer(|| ());
        // Gives it time to begin to wait.
        std::thread::sleep(Duration::from_millis(20));
        drop(reclaimer);
        drop(guard);
        domain.barrier();
    });
}

#[test]
fn closures_of_a_map_may_retire_at_the_limit() {
    ends(|| {
        let domain = Domain::new(common::options().limit_objects(1));
        let (map, cell) = (RcuMap::new(&domain), RcuCell::in_domain(&domain, 0));
        map.set(1, 1);
        let replace = |value: &u32| {
            cell.replace(*value);
            value + 1
        };
        assert!(map.update(&1, replace));
        assert_eq!((map.copied(&1), cell.get()), (Some(2), 1));
    });
}

#[test]
fn nothing_is_dropped_under_a_map_s_lock() {
    static MAP: OnceLock<RcuMap<u32, Value>> = OnceLock::new();
    #[derive(Clone)]
    struct Value(u32);
    impl Drop for Value {
        fn drop(&mut self) {
            if self.0 == 7 {
                MAP.get().expect("set below").discard(&3);
            }
        }
    }
    ends(|| {
        let domain = common::domain();
        let options = MapOptions::new().shards(1);
        let map = MAP.get_or_init(|| RcuMap::with_options(&domain, options, Default::default()));
        let cell = RcuCell::in_domain(&domain, 0);
        [(1, 7), (2, 2), (3, 3)].iter().for_each(|&(key, value)| _ = map.set(key, Value(value)));
        let view = map.pin();
        map.discard(&1);
        drop(view);
        // Without the lock, this call of the closure would free what waits.
        let replace = |value: &Value| {
            cell.replace(value.0);
            Value(value.0 + 1)
        };
        map.update(&2, replace);
        domain.barrier();
        assert!(!map.pin().contains_key(&3), "dropped after the lock was released");
    });
}

#[test]
fn a_hook_that_panics_loses_nothing() {
    let (domain, drops) = (common::domain(), drops());
    domain.on_late(0, |_| panic!("expected"));
    with_reader_inside(&domain, "late", || {
        let counted = Counted(drops.clone());
        domain.defer(move || drop(counted));
    });
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    // A reclaimer thread survives such a panic.
    let reclaimer = domain.spawn_reclaimer().unwrap();
    with_reader_inside(&domain, "late again", || {
        let counted = Counted(drops.clone());
        domain.defer(move || drop(counted));
        std::thread::sleep(Duration::from_millis(20));
    });
    domain.barrier();
    assert_eq!(drops.load(Ordering::SeqCst), 2);
    drop(reclaimer);
}

#[test]
fn a_hook_that_waits_for_a_barrier_is_refused() {
    ends(|| {
        let domain = common::domain();
        let own = domain.clone();
        domain.on_late(0, move |_| own.barrier());
        with_reader_inside(&domain, "late", || domain.defer(|| ()));
        domain.barrier();
    });
}

/// The last handle outside of the garbage is dropped while a panic unwinds. A thread of the process then frees what
/// is left.
#[test]
fn a_panic_loses_nothing_that_owns_the_last_handle() {
    let alive = Arc::new(());
    let note = alive.clone();
    let panics = std::thread::spawn(move || {
        let domain = Domain::default();
        let own = domain.clone();
        let _guard = domain.lock();
        domain.defer(move || drop((own, note)));
        panic!("planned");
    });
    assert!(panics.join().is_err());
    let begun = std::time::Instant::now();
    while Arc::strong_count(&alive) > 1 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "lost");
        std::thread::yield_now();
    }
}

#[test]
fn an_entry_s_destructor_that_panics_keeps_no_other_from_being_dropped() {
    struct Bomb(#[expect(dead_code, reason = "it is dropped")] Counted, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.1, "expected");
        }
    }
    type Map = RcuMap<u64, Arc<Bomb>>;
    let filled = |drops: &Arc<AtomicUsize>| {
        let map = Map::new(&common::domain());
        (0..1_000).for_each(|n| _ = map.set(n, Arc::new(Bomb(Counted(drops.clone()), n % 10 == 0))));
        map
    };
    let drops = [(); 3].map(|()| drops());
    let map = filled(&drops[0]);
    assert!(panics(|| drop(map)));
    // One call per shard, because each panic ends the call.
    let map = filled(&drops[1]);
    while !map.is_empty() {
        panics(|| map.retain(|_, _| false));
    }
    let map = filled(&drops[2]);
    while !map.is_empty() {
        panics(|| map.clear());
    }
    assert_eq!(drops.map(|drops| drops.load(Ordering::SeqCst)), [1_000; 3]);
}

#[test]
fn a_panic_whose_payload_panics_keeps_no_other_callback_from_being_run() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("expected, by a payload");
        }
    }
    let (domain, drops) = (Domain::new(common::options().batch(100)), drops());
    for _ in 0..3 {
        domain.defer(|| std::panic::panic_any(Payload));
        let counted = Counted(drops.clone());
        domain.defer(move || drop(counted));
    }
    let panic = catch_unwind(AssertUnwindSafe(|| domain.barrier())).unwrap_err();
    std::mem::forget(panic);
    assert_eq!(drops.load(Ordering::SeqCst), 3);
}

/// While a panic unwinds, no other callback runs, because a second panic would end the process.
#[test]
fn a_cell_that_a_panic_drops_runs_nobody_s_callback() {
    let domain = Domain::new(common::options().batch(2).deadline_ns(u64::MAX));
    let (sender, receiver) = std::sync::mpsc::channel();
    domain.defer(move || sender.send(std::thread::panicking()).unwrap());
    let unwind = || {
        let _cell = RcuCell::in_domain(&domain, 1);
        panic!("expected");
    };
    assert!(panics(unwind));
    domain.barrier();
    assert_eq!(receiver.recv(), Ok(false), "later, or by another thread");
}

#[test]
fn a_pinned_object_without_size_holds_up_no_callback() {
    let (domain, drops) = (common::domain(), drops());
    let cell = RcuCell::in_domain(&domain, ());
    let held = cell.hold();
    domain.defer(|| ());
    domain.barrier();
    assert_eq!(domain.stats().garbage_objects, 0);
    drop((held, drops));
}

#[test]
fn extreme_options_do_not_overflow() {
    let options = common::options().patience_ns(u64::MAX).deadline_ns(u64::MAX).limit_bytes(usize::MAX);
    let domain = Domain::new(options.at_limit(reprieve_rcu::AtLimit::Wait { timeout_ns: u64::MAX }));
    domain.on_late(u64::MAX, |_| ());
    domain.defer_sized(usize::MAX, || ());
    with_reader_inside(&domain, "late", || {
        let soon = std::time::Instant::now() + Duration::from_millis(1);
        assert!(domain.synchronize_until(soon).is_err());
    });
    domain.barrier();
    assert_eq!((domain.stats().garbage_objects, domain.stats().garbage_bytes), (0, 0));
}
