use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const CLASSES: [Class; 5] = [Class::Work, Class::GuestClock, Class::HostClock, Class::Stimulus, Class::Probe];

impl Queue {
    /// When the timer expires, if it is armed.
    fn armed_for(&self, timer: Timer) -> Option<u64> {
        let Place { group, slot } = self.leaf(timer);
        let key = self.groups[group].0[slot];
        (key != Key::NEVER && self.popped != Some(timer)).then_some(key.time_ns)
    }

    /// When the next timer expires.
    fn next_ns(&self) -> Option<u64> {
        let next = self.popped.map_or(self.least, |popped| self.least_without(popped));
        (next != Key::NEVER).then_some(next.time_ns)
    }

    /// The least key of all timers except that one.
    fn least_without(&self, timer: Timer) -> Key {
        let mut key = Key::NEVER;
        let mut place = Some(self.leaf(timer));
        while let Some(at) = place {
            key = self.groups[at.group].least_beside(at.slot).min(key);
            place = at.parent();
        }
        key
    }
}

/// Time, class, sequence.
type ModelKey = (u64, Class, u64);

/// The same as [`Queue`], written to be obviously right.
#[derive(Default)]
struct Model {
    timers: Vec<(Class, Option<ModelKey>)>,
    armed: BTreeMap<ModelKey, usize>,
    sequence: u64,
}

impl Model {
    fn disarm(&mut self, timer: usize) {
        if let Some(key) = self.timers[timer].1.take() {
            self.armed.remove(&key);
        }
    }

    fn arm(&mut self, timer: usize, at_ns: u64) {
        self.disarm(timer);
        let key = (at_ns, self.timers[timer].0, self.sequence);
        self.sequence += 1;
        self.timers[timer].1 = Some(key);
        self.armed.insert(key, timer);
    }

    fn pop(&mut self) -> Option<(u64, usize)> {
        let (key, timer) = self.armed.pop_first()?;
        self.timers[timer].1 = None;
        Some((key.0, timer))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(Class),
    Arm(prop::sample::Index, u64),
    Disarm(prop::sample::Index),
    Pop,
    PopUntil(u64),
    /// Pops, and arms the same timer again that much later.
    Repeat(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few different times, so that many are equal; and the extremes.
    let time = || prop_oneof![20 => 0..8u64, 1 => Just(u64::MAX), 1 => any::<u64>()];
    prop_oneof![
        2 => prop::sample::select(&CLASSES).prop_map(Step::Add),
        6 => (any::<prop::sample::Index>(), time()).prop_map(|(timer, at)| Step::Arm(timer, at)),
        2 => any::<prop::sample::Index>().prop_map(Step::Disarm),
        2 => Just(Step::Pop),
        2 => time().prop_map(Step::PopUntil),
        3 => time().prop_map(Step::Repeat),
    ]
}

fn take(queue: &mut Queue, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    let count = model.timers.len();
    match step {
        Step::Add(class) => {
            let timer = queue.add(class);
            prop_assert_eq!(timer.index(), count);
            model.timers.push((class, None));
        }
        Step::Arm(timer, at_ns) if count > 0 => {
            let timer = timer.index(count);
            queue.arm(Timer(timer as u32), at_ns);
            model.arm(timer, at_ns);
        }
        Step::Disarm(timer) if count > 0 => {
            let timer = timer.index(count);
            queue.disarm(Timer(timer as u32));
            model.disarm(timer);
        }
        Step::Arm(..) | Step::Disarm(_) => {}
        Step::Pop => {
            let popped = queue.pop().map(|(at_ns, timer)| (at_ns, timer.index()));
            prop_assert_eq!(popped, model.pop());
        }
        Step::PopUntil(until_ns) => {
            let popped = queue.pop_until(until_ns).map(|(at_ns, timer)| (at_ns, timer.index()));
            let due = model.armed.first_key_value().is_some_and(|(key, _)| key.0 <= until_ns);
            prop_assert_eq!(popped, if due { model.pop() } else { None });
        }
        Step::Repeat(after_ns) => {
            let popped = queue.pop();
            prop_assert_eq!(popped.map(|(at_ns, timer)| (at_ns, timer.index())), model.pop());
            if let Some((at_ns, timer)) = popped {
                let at_ns = at_ns.saturating_add(after_ns);
                queue.arm(timer, at_ns);
                model.arm(timer.index(), at_ns);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// `before_renumbering` is how many times a timer can be armed before the sequence numbers have run out once.
    #[test]
    fn it_agrees_with_the_model(
        timers in 0..90usize,
        before_renumbering in prop_oneof![Just(u32::MAX), 0..200u32],
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut queue = Queue { sequence: u32::MAX - before_renumbering, ..Queue::new() };
        let mut model = Model::default();
        for timer in 0..timers {
            take(&mut queue, &mut model, Step::Add(CLASSES[timer % CLASSES.len()]))?;
        }
        for step in steps {
            take(&mut queue, &mut model, step)?;
            let next = model.armed.first_key_value();
            prop_assert_eq!(queue.next_ns(), next.map(|(key, _)| key.0));
            for (timer, (_, armed)) in model.timers.iter().enumerate() {
                prop_assert_eq!(queue.armed_for(Timer(timer as u32)), armed.map(|key| key.0));
            }
        }
        while let Some((at_ns, timer)) = model.pop() {
            prop_assert_eq!(queue.pop(), Some((at_ns, Timer(timer as u32))));
        }
        prop_assert_eq!(queue.pop(), None);
    }
}

/// Everything that expires, in order; cut off where a queue that never ends would fill the memory.
fn drain(queue: &mut Queue) -> Vec<(u64, Timer)> {
    std::iter::from_fn(|| queue.pop()).take(100).collect()
}

#[test]
fn equal_times_go_by_class_and_then_by_the_order_of_arming() {
    let mut queue = Queue::new();
    let probe = queue.add(Class::Probe);
    let work = [(); 9].map(|()| queue.add(Class::Work));
    let clock = queue.add(Class::GuestClock);
    queue.arm(probe, 100);
    queue.arm(clock, 100);
    // Neither the order of adding nor its reverse.
    let order = [5, 2, 8, 0, 6, 1, 7, 4, 3];
    for index in order {
        queue.arm(work[index], 100);
    }
    let expected: Vec<_> = order.map(|index| (100, work[index])).into_iter().collect();
    assert_eq!(drain(&mut queue), [expected, vec![(100, clock), (100, probe)]].concat());
}

#[test]
fn a_timer_that_is_armed_again_counts_as_armed_last() {
    let mut queue = Queue::new();
    let [a, b, c] = [(); 3].map(|()| queue.add(Class::Work));
    for timer in [a, b, c] {
        queue.arm(timer, 7);
    }
    queue.arm(a, 7);
    assert_eq!(drain(&mut queue), [(7, b), (7, c), (7, a)]);
}

#[test]
fn a_popped_timer_is_not_armed() {
    let mut queue = Queue::new();
    let [a, b] = [(); 2].map(|()| queue.add(Class::Work));
    queue.arm(a, 1);
    queue.arm(b, 5);
    assert_eq!(queue.pop(), Some((1, a)));
    assert_eq!((queue.armed_for(a), queue.next_ns()), (None, Some(5)));
    queue.disarm(a);
    queue.arm(b, 3);
    assert_eq!((queue.next_ns(), queue.pop(), queue.pop()), (Some(3), Some((3, b)), None));
    assert_eq!(queue.next_ns(), None);
}

#[test]
fn the_order_outlives_the_sequence_numbers() {
    let mut queue = Queue { sequence: u32::MAX - 3, ..Queue::new() };
    let timers: Vec<Timer> = (0..20).map(|_| queue.add(Class::Work)).collect();
    for &timer in timers.iter().rev() {
        queue.arm(timer, 9);
    }
    assert!(queue.sequence < 100, "the numbers ran out once");
    let expected: Vec<_> = timers.iter().rev().map(|&timer| (9, timer)).collect();
    assert_eq!(drain(&mut queue), expected);
}

#[test]
fn the_last_moment_can_be_armed_for() {
    let mut queue = Queue::new();
    let probe = queue.add(Class::Probe);
    queue.arm(probe, u64::MAX);
    assert_eq!((queue.armed_for(probe), queue.next_ns()), (Some(u64::MAX), Some(u64::MAX)));
    assert_eq!(drain(&mut queue), [(u64::MAX, probe)]);
}
