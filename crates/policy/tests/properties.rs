//! Properties of the placer that hold for any sequence of signals.

mod support;

use proptest::prelude::*;
use reprieve_policy::beat::{Beat, Lateness, grain_ns};
use reprieve_policy::cpus::CpuSet;
use reprieve_policy::place::{Move, Placer, Policy, Settings, Target, Why};
use reprieve_policy::signal::{Admission, Signal};
use support::{MS, Random, Schedule, run};

const VCPUS: usize = 4;
const TASKS: usize = 6;

/// One signal and its time as a step from the one before.
fn signal() -> impl Strategy<Value = (u64, Signal)> {
    let (vcpu, task) = (0..VCPUS + 1, 0..TASKS + 1);
    let mask =
        prop::collection::vec(0..VCPUS, 1..=VCPUS).prop_map(|cpus| cpus.into_iter().collect::<CpuSet>());
    let on = prop::option::of(0..VCPUS);
    let beat =
        (vcpu.clone(), prop_oneof![4 => 0..200_000u64, 1 => 0..40 * MS]).prop_map(|(vcpu, late_ns)| {
            // `due_ns` holds the lateness until the time is known.
            Signal::Beat(Beat {
                vcpu,
                due_ns: late_ns,
                at_ns: 0,
                period_ns: MS,
                steal_ns: None,
                run_delay_ns: None,
            })
        });
    let admit = (task.clone(), mask.clone(), on).prop_map(|(task, mask, on)| Signal::Admit {
        task,
        admission: Admission::new(mask, on),
        at_ns: 0,
    });
    let kind = prop_oneof![
        12 => beat,
        2 => Just(Signal::Tick { at_ns: 0 }),
        1 => admit,
        1 => (task.clone(), mask).prop_map(|(task, mask)| Signal::Mask { task, mask, at_ns: 0 }),
        1 => (task.clone(), 0..VCPUS).prop_map(|(task, on)| Signal::Seen { task, on, at_ns: 0 }),
        6 => task.clone().prop_map(|task| Signal::IoBegin { task, at_ns: 0 }),
        2 => task.clone().prop_map(|task| Signal::IoEnd { task, at_ns: 0, took_ns: Some(500_000) }),
        1 => Just(Signal::CatchUp { until_ns: 0 }),
        1 => (vcpu, 0..100 * MS, 1..40 * MS).prop_map(|(vcpu, in_ns, off_ns)| Signal::NextOff { vcpu, off_ns: in_ns, back_ns: off_ns }),
    ];
    (prop_oneof![9 => 0..400_000u64, 1 => 0..30 * MS], kind)
}

fn signals() -> impl Strategy<Value = Vec<Signal>> {
    prop::collection::vec(signal(), 1..3000).prop_map(|steps| {
        let mut now_ns = 0;
        let mut due_ns = [0; VCPUS + 1];
        let mut all: Vec<Signal> = (0..TASKS).map(|task| admit(task, task % VCPUS)).collect();
        all.extend(steps.into_iter().map(|(step_ns, signal)| {
            now_ns += step_ns;
            at(signal, now_ns, &mut due_ns)
        }));
        all
    })
}

fn admit(task: usize, on: usize) -> Signal {
    Signal::Admit { task, admission: Admission::new(CpuSet::first(VCPUS), Some(on)), at_ns: 0 }
}

/// The signal at this time.
fn at(signal: Signal, now_ns: u64, due_ns: &mut [u64]) -> Signal {
    match signal {
        Signal::Beat(beat) => {
            let at_ns = now_ns.max(due_ns[beat.vcpu]);
            let due = at_ns.saturating_sub(beat.due_ns);
            due_ns[beat.vcpu] = at_ns;
            Signal::Beat(Beat { due_ns: due, at_ns, ..beat })
        }
        Signal::NextOff { vcpu, off_ns, back_ns } => {
            Signal::NextOff { vcpu, off_ns: now_ns + off_ns, back_ns: now_ns + off_ns + back_ns }
        }
        other => shifted(other, now_ns),
    }
}

/// The signal, shifted in time.
fn shifted(signal: Signal, by_ns: u64) -> Signal {
    let mut signal = signal;
    match &mut signal {
        Signal::Beat(beat) => (beat.at_ns, beat.due_ns) = (beat.at_ns + by_ns, beat.due_ns + by_ns),
        Signal::NextOff { off_ns, back_ns, .. } => (*off_ns, *back_ns) = (*off_ns + by_ns, *back_ns + by_ns),
        Signal::Tick { at_ns }
        | Signal::Admit { at_ns, .. }
        | Signal::Dismiss { at_ns, .. }
        | Signal::Mask { at_ns, .. }
        | Signal::Seen { at_ns, .. }
        | Signal::IoBegin { at_ns, .. }
        | Signal::IoEnd { at_ns, .. }
        | Signal::IoSampled { at_ns, .. }
        | Signal::Completion { at_ns, .. }
        | Signal::CatchUp { until_ns: at_ns }
        | Signal::Halt { at_ns }
        | Signal::Resume { at_ns } => *at_ns += by_ns,
    }
    signal
}

/// The moves that each signal causes, with its time.
fn decide(placer: &mut Placer, signals: &[Signal]) -> Vec<(u64, Move)> {
    let mut moves = Vec::new();
    for signal in signals {
        moves.extend(placer.take(signal).iter().map(|made| (signal.at_ns(), *made)));
    }
    moves
}

/// vCPUs that go off at random: for 5 to 40 ms after 5 to 60 ms.
fn random_schedule(seed: u64, end_ns: u64) -> Schedule {
    let mut random = Random(seed);
    (0..VCPUS)
        .map(|_| {
            let (mut off, mut now_ns) = (Vec::new(), 0);
            while now_ns < end_ns {
                let from_ns = now_ns + random.within(5 * MS, 60 * MS);
                now_ns = from_ns + random.within(5 * MS, 40 * MS);
                off.push((from_ns, now_ns));
            }
            off
        })
        .collect()
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_task_is_only_ever_put_where_its_mask_allows(policy in any_policy(), signals in signals()) {
        let mut placer = Placer::new(Settings { act_off_permille: 0, ..Settings::new(VCPUS, TASKS).with(policy) });
        let mut masks = [CpuSet::EMPTY; TASKS + 1];
        for signal in &signals {
            match *signal {
                Signal::Admit { task, admission, .. } => masks[task] = admission.mask,
                Signal::Mask { task, mask, .. } => masks[task] = mask,
                _ => {}
            }
            for made in placer.take(signal) {
                if let Target::Vcpu(vcpu) = made.to {
                    prop_assert!(masks[made.task].contains(vcpu), "{made:?} {:?}", masks[made.task]);
                }
            }
        }
    }

    #[test]
    fn moves_are_bounded_and_one_for_a_task_at_a_time(policy in any_policy(), signals in signals()) {
        let settings = Settings { act_off_permille: 0, moves_per_s: 20, ..Settings::new(VCPUS, TASKS).with(policy) };
        // Leave admissions out: a task that is admitted again gets a new limit.
        let once: Vec<Signal> = signals.into_iter().enumerate()
            .filter(|(i, signal)| *i < TASKS || !matches!(signal, Signal::Admit { .. })).map(|(_, signal)| signal).collect();
        let mut placer = Placer::new(settings);
        for signal in &once {
            let moves = placer.take(signal);
            let mut tasks: Vec<usize> = moves.iter().map(|made| made.task).collect();
            tasks.sort_unstable();
            tasks.dedup();
            prop_assert_eq!(tasks.len(), moves.len());
        }
        let moves = decide(&mut Placer::new(settings), &once);
        for task in 0..TASKS {
            let mut now_ns = 0;
            let times: Vec<u64> = moves.iter().filter(|(_, made)| made.task == task && made.why != Why::Release)
                .map(|(at_ns, _)| { now_ns = now_ns.max(*at_ns); now_ns }).collect();
            for (i, from_ns) in times.iter().enumerate() {
                let within = times[i..].iter().filter(|at_ns| *at_ns - from_ns < 1_000 * MS).count() as u64;
                prop_assert!(within <= 20 + Settings::BURST, "{within} moves of task {task} in a second");
            }
        }
    }

    #[test]
    fn decisions_depend_on_nothing_but_the_signals(policy in any_policy(), signals in signals()) {
        let new = || Placer::new(Settings { act_off_permille: 0, ..Settings::new(VCPUS, TASKS).with(policy) });
        let first = decide(&mut new(), &signals);
        prop_assert!(first == decide(&mut new(), &signals), "another run decides differently");
        // Decisions do not depend on the absolute time.
        let later: Vec<Signal> = signals.iter().map(|signal| shifted(*signal, 86_400_000 * MS)).collect();
        let moved: Vec<Move> = decide(&mut new(), &later).into_iter().map(|(_, made)| made).collect();
        prop_assert!(first.iter().map(|(_, made)| *made).eq(moved), "a day later it decides differently");
        // Nor do they depend on anything that the text form of a signal leaves out.
        let read: Vec<Signal> = signals.iter().map(|signal| signal.to_string().parse().unwrap()).collect();
        prop_assert!(read == signals, "the text form loses something");
    }

    #[test]
    fn the_threshold_keeps_its_bounds(
        late in prop::collection::vec(prop_oneof![8 => 0..2 * MS, 1 => 0..1_000 * MS, 1 => any::<u64>()], 0..2_000),
        period_ns in prop_oneof![1..20 * MS, any::<u64>()],
    ) {
        let mut lateness = Lateness::default();
        for late_ns in late {
            lateness.learn(late_ns);
            let threshold_ns = lateness.threshold_ns(period_ns);
            prop_assert!(grain_ns(period_ns) <= threshold_ns && threshold_ns <= 5 * MS);
            prop_assert!(lateness.ordinary_ns() <= threshold_ns.max(5 * MS));
        }
    }

    #[test]
    fn lateness_in_half_of_the_beats_never_gets_ordinary(
        noise_us in 1..400u64, late_in_ten in 0..6u64, late_ms in 3..1_000u64, seed in any::<u64>(),
    ) {
        let (mut lateness, mut random) = (Lateness::default(), Random(seed));
        for beat in 0..5_000 {
            let late_ns = match random.within(0, 10) < late_in_ten {
                true => late_ms * MS,
                false => random.within(0, noise_us * 1_000),
            };
            // The estimate may stray a little: the lower quartile stays within twice the noise, and ordinary is three times that.
            prop_assert!(lateness.ordinary_ns() <= 6 * noise_us * 1_000 + 100_000, "{beat}: {lateness:?}");
            lateness.learn(late_ns);
        }
    }

    #[test]
    fn never_all_on_one_while_another_has_time(seed in any::<u64>(), tasks in 2..TASKS) {
        let end_ns = 1_500 * MS;
        let schedule = random_schedule(seed, end_ns);
        let mut world = Placer::new(Settings::new(VCPUS, tasks));
        let outcome = run(&mut world, &schedule, tasks, end_ns);
        let mut placer = Placer::new(Settings::new(VCPUS, tasks));
        let mut on: Vec<usize> = (0..tasks).map(|task| task % VCPUS).collect();
        // Where each must not return to, maybe.
        let mut left = vec![None; tasks];
        for signal in &outcome.signals {
            let moves = placer.take(signal).to_vec();
            for made in moves {
                let Target::Vcpu(to) = made.to else { continue };
                on[made.task] = to;
                let left = std::mem::replace(&mut left[made.task], made.from);
                let others: Vec<usize> = (0..tasks).filter(|task| *task != made.task && placer.is_io(*task)).collect();
                if made.why == Why::Park || others.is_empty() || others.iter().any(|other| on[*other] != to) {
                    continue;
                }
                // All tasks are on this vCPU, so no other may have had time for the moved one.
                for vcpu in (0..VCPUS).filter(|vcpu| *vcpu != to && Some(*vcpu) != left) {
                    prop_assert!(!placer.could_take(made.task, vcpu), "{made:?} at {}, though {vcpu} has time", signal.at_ns());
                }
            }
        }
    }

    #[test]
    fn a_task_does_not_return_soon_within_the_slice_in_which_it_left(seed in any::<u64>()) {
        let end_ns = 1_500 * MS;
        let schedule = random_schedule(seed, end_ns);
        let outcome = run(&mut Placer::new(Settings::new(VCPUS, 3)), &schedule, 3, end_ns);
        let mut placer = Placer::new(Settings::new(VCPUS, 3));
        // By task and vCPU: the slice that the task has left, and the time until which it stays away at least (16
        // beats).
        let mut left = [[None; VCPUS]; 3];
        for signal in &outcome.signals {
            for made in placer.take(signal).to_vec() {
                let current = |vcpu: usize| placer.vcpu(vcpu).map(|vcpu| vcpu.slice());
                match made.to {
                    Target::Home => left[made.task] = [None; VCPUS],
                    Target::Vcpu(to) => {
                        let returns = left[made.task][to]
                            .is_some_and(|(slice, until_ns)| slice == current(to) && signal.at_ns() < until_ns);
                        prop_assert!(made.why == Why::Park || !returns, "{made:?} at {}", signal.at_ns());
                        made.from.into_iter().for_each(|from| left[made.task][from] = Some((current(from), signal.at_ns() + 16 * MS)));
                    }
                }
            }
        }
    }
}
