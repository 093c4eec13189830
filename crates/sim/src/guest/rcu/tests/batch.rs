use reprieve_study::units::MILLISECOND_NS;

use crate::guest::rcu::{Callback, Effects, Params, Rcu};

fn ready(params: Params, count: u64) -> Rcu {
    let mut rcu = Rcu::new(&params, 1);
    (0..count).for_each(|id| rcu.call(0, Callback(id), &mut Effects::default()));
    rcu.cpus[0].callbacks.accelerate(4);
    rcu.cpus[0].callbacks.advance(4);
    rcu
}

/// Runs a batch in which each callback takes so long; answers how many it invoked, and the effects of its end.
fn run(rcu: &mut Rcu, callback_ns: u64, stops_at_limit: bool) -> (u64, Effects) {
    let batch = rcu.begin_batch(1_000, 0).expect("some are ready");
    let mut count = 0;
    while !batch.is_over(count, 1_000 + count * callback_ns, stops_at_limit) && rcu.next_callback(0).is_some()
    {
        count += 1;
    }
    let mut effects = Effects::default();
    assert_eq!(rcu.end_batch(0, &mut effects), count);
    (count, effects)
}

#[test]
fn nothing_ready_is_no_batch() {
    assert_eq!(ready(Params::default(), 0).begin_batch(0, 0), None);
}

#[test]
fn a_busy_cpu_stops_at_the_limit_and_an_idle_one_does_not() {
    let mut rcu = ready(Params::default(), 100);
    let (count, effects) = run(&mut rcu, 1, true);
    assert_eq!((count, rcu.backlog_total(), effects.softirq), (10, 90, vec![0]));
    let (count, effects) = run(&mut rcu, 1, false);
    assert_eq!((count, rcu.backlog_total(), effects.softirq), (90, 0, vec![]));
}

#[test]
fn the_limit_grows_with_what_is_ready() {
    let mut rcu = ready(Params::default(), 10 << 7);
    assert_eq!(rcu.begin_batch(0, 0).map(|batch| batch.limit), Some(10));
    let mut rcu = ready(Params::default(), 11 << 7);
    assert_eq!(rcu.begin_batch(0, 0).map(|batch| batch.limit), Some(11));
}

#[test]
fn a_large_batch_is_limited_in_time_which_it_looks_at_now_and_then() {
    let mut rcu = ready(Params::default(), 200 << 7);
    assert_eq!(run(&mut rcu, 1, true).0, 200);
    // 3 ms at 50 us each are 60 callbacks; the next look at the clock comes after 64.
    assert_eq!(run(&mut rcu, 50_000, true).0, 64);
    // The time limits an idle CPU's batch, too.
    assert_eq!(run(&mut rcu, 50_000, false).0, 64);
    let mut small = ready(Params::default(), 100);
    assert_eq!(run(&mut small, 50 * MILLISECOND_NS, false).0, 100, "a small batch is not");
}

#[test]
fn pressure_is_over_at_the_low_mark() {
    let mut rcu = ready(Params { divisor: 63, ..Params::default() }, 400);
    rcu.cpus[0].blimit = 10_000;
    let batch = rcu.begin_batch(0, 0).expect("some are ready");
    assert_eq!(batch.limit, 10_000);
    (0..299).for_each(|_| assert!(rcu.next_callback(0).is_some()));
    rcu.end_batch(0, &mut Effects::default());
    assert_eq!(rcu.cpus[0].blimit, 10_000);
    rcu.begin_batch(0, 0);
    rcu.next_callback(0);
    rcu.end_batch(0, &mut Effects::default());
    assert_eq!((rcu.backlog(0), rcu.cpus[0].blimit), (100, 10));
}

#[test]
fn the_mark_of_the_last_look_follows_the_backlog_down() {
    let mut rcu = ready(Params { qhimark: 1_000, ..Params::default() }, 200);
    rcu.cpus[0].looked_at = 1_195;
    assert_eq!(run(&mut rcu, 1, true).0, 10);
    assert_eq!(rcu.cpus[0].looked_at, 190);
    run(&mut rcu, 1, false);
    assert_eq!(rcu.cpus[0].looked_at, 0);
}
