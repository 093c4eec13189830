//! Tests which objects are handed out and returned to their slabs, and when.

use super::*;

const CACHE: Cache = Cache(0);

fn settings() -> Settings {
    Settings { keep_jiffies: 5, short_percent: 50, expedite: false }
}

/// Two moments one grace period apart, made by RCU itself.
fn moments() -> [Cookie; 2] {
    use crate::guest::rcu::{Effects, Params, Rcu, Wakeup};
    let (mut rcu, mut effects) = (Rcu::new(&Params::default(), 1), Effects::default());
    let first = rcu.cookie();
    rcu.ask_for(0, first, &mut effects);
    rcu.kthread(0, 0, 0, Wakeup::Woken, &mut effects);
    [first, rcu.cookie()]
}

fn never(_: Cookie) -> bool {
    false
}

fn always(_: Cookie) -> bool {
    true
}

fn with(objects: u64, cpus: usize) -> Latent {
    let mut latent = Latent::new(settings(), cpus);
    let [now, _] = moments();
    (0..objects).for_each(|n| assert_eq!(latent.put(0, CACHE, Object(n << 1), now), n == 0));
    latent
}

#[test]
fn an_object_is_handed_out_once_and_after_its_own_grace_period() {
    let [first, second] = moments();
    assert_ne!(first, second, "the grace period in progress does not count for the second");
    let mut latent = Latent::new(settings(), 1);
    assert!(latent.put(0, CACHE, Object(2), first));
    assert!(!latent.put(0, CACHE, Object(4), first));
    assert!(latent.put(0, CACHE, Object(6), second));
    let passed = |cookie| cookie == first;
    assert_eq!(latent.take(0, CACHE, never), None);
    assert_eq!((latent.waiting(never), latent.waiting(passed)), (3, 1));
    assert_eq!(latent.take(0, CACHE, passed), Some(Object(4)), "the warmest");
    assert_eq!(latent.take(0, CACHE, passed), Some(Object(2)));
    assert_eq!(latent.take(0, CACHE, passed), None, "the third waits on");
    assert_eq!(latent.take(0, CACHE, always), Some(Object(6)));
    assert_eq!((latent.take(0, CACHE, always), latent.held(), latent.check()), (None, 0, Ok(())));
}

#[test]
fn a_cpu_borrows_half_of_what_another_has_ready_and_no_more_than_a_batch() {
    let mut latent = with(10, 2);
    assert_eq!(latent.borrow(1, CACHE, never), 0);
    assert_eq!(latent.borrow(1, CACHE, always), 5);
    assert!(latent.take(1, CACHE, always).is_some());
    assert_eq!(with(1, 2).borrow(1, CACHE, always), 1);
    assert_eq!(with(1_000, 2).borrow(1, CACHE, always), MOVED_AT_ONCE);
    assert_eq!(latent.check(), Ok(()));
}

#[test]
fn what_was_not_needed_for_a_period_goes_back_and_the_rest_stays() {
    let mut latent = with(100, 1);
    let tick = |latent: &mut Latent, jiffies| {
        let mut surplus = Vec::new();
        latent.tick(0, jiffies, always, &mut surplus);
        surplus.len()
    };
    assert_eq!(tick(&mut latent, 0), 0, "nothing lay ready before");
    (0..30).for_each(|_| assert!(latent.take(0, CACHE, always).is_some()));
    assert_eq!((1..5).map(|jiffies| tick(&mut latent, jiffies)).sum::<usize>(), 0);
    // At least 70 objects were ready all the time.
    assert_eq!(tick(&mut latent, 5), 70);
    assert_eq!((tick(&mut latent, 10), latent.held(), latent.has_any(0)), (0, 0, false));
    let mut latent = with(2_500, 1);
    let given: Vec<usize> = (0..10).map(|jiffies| tick(&mut latent, jiffies)).collect();
    assert_eq!(given, [0, 0, 0, 0, 0, 1_000, 1_000, 500, 0, 0], "at most {RETURNED_AT_ONCE} in a tick");
    assert_eq!(latent.check(), Ok(()));
}

#[test]
fn a_cache_asks_once_for_a_grace_period_and_only_if_much_of_it_is_latent() {
    let [first, second] = moments();
    let mut latent = with(10, 1);
    assert!(!latent.must_ask(CACHE, 21, first, never));
    assert!(latent.must_ask(CACHE, 20, first, never));
    assert!(!latent.must_ask(CACHE, 20, first, never), "it has asked");
    assert!(!latent.must_ask(CACHE, 20, second, always), "nothing waits");
    assert!(latent.must_ask(CACHE, 20, second, never));
}

#[test]
fn short_memory_takes_everything_that_is_ready() {
    let (mut latent, mut objects) = (with(10, 2), Vec::new());
    latent.take_all(never, &mut objects);
    assert!(objects.is_empty());
    latent.take_all(always, &mut objects);
    assert_eq!((objects.len(), latent.held(), latent.check()), (10, 0, Ok(())));
}
