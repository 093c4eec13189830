//! The event core against peers: the same work on two sides, ours and a peer's, in turns, so that what disturbs one
//! round disturbs both of its sides. Both sides must say the same about what they did, or the case fails.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Duration;

use reprieve_sim::queue::{Class, Queue, Timer};

use crate::figure::{Bar, Figure, ROUNDS};
use crate::stopwatch::Stopwatch;

/// Events of a round, on each side: long enough for the clock, short enough for both to see the same machine.
const EVENTS: u64 = 400_000;
/// Delays are drawn from 1 ns to this, each equally likely.
const LONGEST_DELAY_NS: u64 = 1 << 20;

/// What a side did in a round. `check` depends on all that happened, and in which order where that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    events: u64,
    check: u64,
}

impl Work {
    fn count(&mut self, time_ns: u64) {
        self.events += 1;
        self.check = self.check.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(time_ns);
    }
}

/// One side of a case: goes on for a round.
type Side = Box<dyn FnMut() -> Work>;

struct Case {
    name: String,
    /// Least ratio, if there is a bar.
    bar: Option<f64>,
    ours: Side,
    theirs: Side,
}

fn cases() -> Vec<Case> {
    let queues = [16, 256, 4096, 65_536].map(|timers| Case {
        name: format!("queue alone, {timers} timers: ours over std's BinaryHeap"),
        bar: None,
        ours: hold::ours(timers),
        theirs: hold::binary_heap(timers),
    });
    let pairs = [8, 128, 2048].map(|pairs| Case {
        name: format!("ping-pong of {pairs} pairs: ours over nexosim"),
        bar: Some(1.0),
        ours: ping_pong::ours(pairs),
        theirs: ping_pong::nexosim(pairs),
    });
    queues.into_iter().chain(pairs).collect()
}

/// For each case, ours: how many times as many events a second as the peer.
pub fn figures() -> Vec<Figure> {
    cases()
        .into_iter()
        .map(|mut case| {
            round(&mut case); // The first one warms up.
            let rounds = (0..ROUNDS).map(|_| round(&mut case)).collect();
            Figure { name: case.name, unit: "x", bar: case.bar.map(Bar::AtLeast), rounds }
        })
        .collect()
}

fn round(case: &mut Case) -> f64 {
    let (ours, our_work) = time(&mut case.ours);
    let (theirs, their_work) = time(&mut case.theirs);
    assert_eq!(our_work, their_work, "{}: the sides did not do the same", case.name);
    ours / theirs
}

/// Events a second of a round.
fn time(side: &mut Side) -> (f64, Work) {
    let stopwatch = Stopwatch::start();
    let work = black_box(side());
    (work.events as f64 / stopwatch.seconds(), work)
}

/// Cheap and deterministic (SplitMix64), so that what is measured is not the drawing of delays.
#[derive(Clone, Copy)]
struct Delays(u64);

impl Delays {
    fn next_ns(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        1 + (mixed >> 32) % LONGEST_DELAY_NS
    }
}

/// Every timer is always armed; the one that expires is armed again ("hold model").
mod hold {
    use super::*;

    pub fn ours(timers: u64) -> Side {
        let (mut queue, mut delays) = (Queue::new(), Delays(timers));
        for _ in 0..timers {
            let timer = queue.add(Class::Work);
            queue.arm(timer, delays.next_ns());
        }
        Box::new(move || {
            let mut work = Work::default();
            while work.events < EVENTS {
                let (now_ns, timer) = queue.pop().expect("all timers are armed");
                work.count(now_ns ^ timer.index() as u64);
                queue.arm(timer, now_ns + delays.next_ns());
            }
            work
        })
    }

    /// What most simulators use: neither can an armed timer be moved, nor disarmed.
    pub fn binary_heap(timers: u64) -> Side {
        let (mut heap, mut delays) = (BinaryHeap::new(), Delays(timers));
        let mut sequence = 0..;
        for timer in 0..timers as u32 {
            heap.push(Reverse((delays.next_ns(), sequence.next(), timer)));
        }
        Box::new(move || {
            let mut work = Work::default();
            while work.events < EVENTS {
                let Reverse((now_ns, _, timer)) = heap.pop().expect("all timers are armed");
                work.count(now_ns ^ u64::from(timer));
                heap.push(Reverse((now_ns + delays.next_ns(), sequence.next(), timer)));
            }
            work
        })
    }
}

/// Pairs of entities: who gets the other's message answers it after a delay. An event is an answer: a timer of the
/// sender expires, and the message arms one of the receiver.
///
/// The peer is nexosim (formerly asynchronix): of the simulators on crates.io that were looked at (besides it desim,
/// desru, sim and simrs) the only one that has reached 1.0, and its time is whole nanoseconds as ours is, not f64 as
/// in desru and sim. Models are asynchronous actors with mailboxes there, which our simulator has no use for: so the
/// ratio says what a general framework costs, not that its queue is slow. It runs on one thread, as ours does.
mod ping_pong {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use ::nexosim::model::{Context, Model, schedulable};
    use ::nexosim::ports::Output;
    use ::nexosim::simulation::{Mailbox, SimInit};
    use ::nexosim::time::MonotonicTime;
    use serde::{Deserialize, Serialize};

    use super::*;

    /// The simulated time of a round.
    fn round_ns(pairs: u64) -> u64 {
        EVENTS / pairs * (LONGEST_DELAY_NS / 2)
    }

    /// Pairs do not know each other, so what happens at one time may happen in any order.
    fn count(work: &mut Work, time_ns: u64) {
        work.events += 1;
        work.check = work.check.wrapping_add(time_ns);
    }

    pub fn ours(pairs: u64) -> Side {
        let mut queue = Queue::new();
        let timers: Vec<Timer> = (0..2 * pairs).map(|_| queue.add(Class::Work)).collect();
        let mut delays: Vec<Delays> = (0..2 * pairs).map(Delays).collect();
        for sender in (0..timers.len()).step_by(2) {
            queue.arm(timers[sender], delays[sender].next_ns());
        }
        let mut end_ns = 0;
        Box::new(move || {
            let mut work = Work::default();
            end_ns += round_ns(pairs);
            while let Some((now_ns, timer)) = queue.pop_until(end_ns) {
                count(&mut work, now_ns);
                let receiver = timer.index() ^ 1;
                queue.arm(timers[receiver], now_ns + delays[receiver].next_ns());
            }
            work
        })
    }

    #[derive(Serialize, Deserialize)]
    struct Entity {
        other: Output<()>,
        delays: u64,
        starts: bool,
        #[serde(skip)]
        work: Arc<Shared>,
    }

    /// Written by one thread at a time, so loads and stores do.
    #[derive(Default)]
    struct Shared {
        events: AtomicU64,
        check: AtomicU64,
    }

    #[Model]
    impl Entity {
        #[nexosim(init)]
        async fn init(&mut self, context: &Context<Self>) {
            if self.starts {
                self.receive((), context);
            }
        }

        fn receive(&mut self, _: (), context: &Context<Self>) {
            let mut delays = Delays(self.delays);
            let delay = Duration::from_nanos(delays.next_ns());
            self.delays = delays.0;
            context.schedule_event(delay, schedulable!(Self::answer), ()).expect("the delay is not 0");
        }

        #[nexosim(schedulable)]
        async fn answer(&mut self, _: (), context: &Context<Self>) {
            let mut work = self.work.get();
            let now = context.time().duration_since(MonotonicTime::EPOCH);
            count(&mut work, now.as_nanos() as u64);
            self.work.set(work);
            self.other.send(()).await;
        }
    }

    impl Shared {
        fn get(&self) -> Work {
            Work { events: self.events.load(Ordering::Relaxed), check: self.check.load(Ordering::Relaxed) }
        }

        fn set(&self, work: Work) {
            self.events.store(work.events, Ordering::Relaxed);
            self.check.store(work.check, Ordering::Relaxed);
        }
    }

    pub fn nexosim(pairs: u64) -> Side {
        let work = Arc::new(Shared::default());
        let mut setup = SimInit::with_num_threads(1);
        for pair in 0..pairs {
            let mailboxes = [Mailbox::new(), Mailbox::new()];
            let mut entities = [0, 1].map(|member| Entity {
                other: Output::default(),
                delays: 2 * pair + member,
                starts: member == 0,
                work: work.clone(),
            });
            entities[0].other.connect(Entity::receive, &mailboxes[1]);
            entities[1].other.connect(Entity::receive, &mailboxes[0]);
            for (entity, mailbox) in entities.into_iter().zip(mailboxes) {
                setup = setup.add_model(entity, mailbox, "entity");
            }
        }
        let mut simulation = setup.init(MonotonicTime::EPOCH).expect("the models start");
        Box::new(move || {
            work.set(Work::default());
            simulation.step_until(Duration::from_nanos(round_ns(pairs))).expect("the models run");
            work.get()
        })
    }
}
