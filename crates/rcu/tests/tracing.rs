//! The events of the feature `tracing`: which ones come on which occasion, and that a subscriber may use the domain.

mod common;

use common::with_reader_inside;
use reprieve_rcu::{AtLimit, Domain, Fencing, Options, capabilities};
use std::fmt::Write;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// One test at a time. For each place in the code, `tracing` remembers for all threads whether anyone wants its
/// events. A subscriber that another thread adds or removes meanwhile may make it miss one.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps events as text, and retires an object in a domain at the second event.
struct Log {
    seen: Arc<Mutex<Vec<String>>>,
    domain: Domain,
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("reprieve_rcu")
    }
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let second = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(text.0);
            seen.len() == 2
        };
        // Not at the first event: if a subscriber meets an event for the first time within another event, `tracing`
        // ignores it from then on.
        if second {
            // What it retires may reach the limit again.
            self.domain.defer(|| ());
            self.domain.reclaim_now();
        }
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The events of what `f` does with `domain` on this thread.
fn events(domain: &Domain, f: impl FnOnce()) -> Vec<String> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Log { seen: seen.clone(), domain: domain.clone() }, f);
    Arc::into_inner(seen).expect("the subscriber is gone").into_inner().unwrap()
}

#[test]
fn long_grace_periods_and_no_others() {
    let _alone = alone();
    let domain = Domain::new(Options::new().patience_ns(0));
    assert!(events(&domain, || domain.synchronize()).is_empty(), "no limit, no event");
    // A grace period that is held up for longer than any limit below, by a guard without a handle of its own: a
    // thread that drops a handle would free.
    let slow = || {
        let (entered, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|s| {
            let thread = s.spawn(|| {
                let guard = domain.lock();
                entered.wait();
                leave.wait();
                drop(guard);
            });
            entered.wait();
            domain.defer(|| ());
            std::thread::sleep(Duration::from_millis(20));
            leave.wait();
            thread.join().unwrap();
        });
        domain.reclaim_now();
    };
    assert!(events(&domain, slow).is_empty());
    domain.on_late(10_000_000, |_| ());
    let seen = events(&domain, slow);
    assert!(seen.iter().any(|e| e.contains("took long") && e.contains("limit_ns=10000000")), "{seen:?}");
}

#[test]
fn limits_reached() {
    let _alone = alone();
    let domain = Domain::new(Options::new().limit_objects(1).at_limit(AtLimit::NoWait));
    with_reader_inside(&domain, "reader", || {
        let seen = events(&domain, || assert!(domain.try_defer(|| ()).is_ok()));
        assert!(seen.is_empty(), "{seen:?}");
        let seen = events(&domain, || assert!(domain.try_defer(|| ()).is_err()));
        assert!(seen.iter().any(|e| e.contains("is at its limit")), "{seen:?}");
        assert!(!seen.iter().any(|e| e.contains("exceeds")), "refused: {seen:?}");
    });
    let domain = Domain::new(Options::new().limit_objects(1));
    let _guard = domain.lock();
    domain.defer(|| ());
    let seen = events(&domain, || domain.defer(|| ()));
    assert!(seen.iter().any(|e| e.contains("exceeds its limit")), "{seen:?}");
}

/// What a subscriber may do at the end of a grace period, when the caller has nothing in hand.
struct Guest<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Subscriber for Guest<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("reprieve_rcu")
    }
    fn event(&self, _: &Event<'_>) {
        let run = self.0.lock().unwrap().take();
        run.into_iter().for_each(|run| run());
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_may_wait_for_a_barrier_and_may_panic() {
    let _alone = alone();
    for panics in [false, true] {
        let domain = Domain::new(common::options());
        domain.on_late(1, |_| ());
        let (drops, own) = (Arc::default(), domain.clone());
        let late = domain.lock();
        // SAFETY: from a box, and nobody else has it.
        unsafe { domain.retire(common::counted(&drops)) };
        std::thread::sleep(Duration::from_millis(1));
        let guest = Guest(Mutex::new(Some(move || {
            assert!(!panics, "a subscriber");
            own.barrier();
        })));
        let outcome = tracing::subscriber::with_default(guest, || {
            drop(late);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| domain.reclaim_now()))
        });
        assert_eq!(outcome.is_err(), panics);
        assert_eq!((drops.load(std::sync::atomic::Ordering::SeqCst), domain.stats().garbage_objects), (1, 0));
    }
}

/// Run by the test below.
#[test]
#[ignore = "changes its process"]
fn fencing_changes() {
    // Every call takes longer than 0, and none moves the domain back.
    let domain = Domain::new(Options::new().fencing(Fencing::Adaptive).call_limit_ns(1));
    let begun = Instant::now();
    let seen = events(&domain, || {
        while !domain.stats().fenced || domain.stats().switches == 0 {
            domain.defer(|| ());
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not leave membarrier");
        }
    });
    let switches: Vec<_> = seen.iter().filter(|e| e.contains("to_fences=true")).collect();
    assert_eq!(switches.len(), 1, "{seen:?}");
}

#[test]
fn changes_of_fencing() {
    let _alone = alone();
    if !capabilities().asymmetric {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program).args(["--ignored", "--exact", "fencing_changes"]).output().unwrap();
    let words = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && words.contains("1 passed"), "{words}");
}
