use super::*;

const MS: u64 = 1_000_000;

/// A placer that has watched two vCPUs, off for 25 of every 60 ms in antiphase, for two seconds. It has no task yet.
fn learnt(policy: Policy) -> (Placer, u64) {
    let mut placer = Placer::new(Settings::new(2, 4).with(policy));
    for ms in 0..2000u64 {
        for vcpu in 0..2 {
            beat(&mut placer, vcpu, ms);
        }
    }
    (placer, 2000)
}

/// Whether the vCPU is off: vCPU 0 is in the first 25 ms of each 60 ms, vCPU 1 for 25 ms from 30 ms on.
fn is_off(vcpu: usize, ms: u64) -> bool {
    (ms + 60 - 30 * vcpu as u64) % 60 < 25
}

fn beat(placer: &mut Placer, vcpu: usize, ms: u64) -> Vec<Move> {
    if is_off(vcpu, ms) {
        return Vec::new();
    }
    let was_off = ms > 0 && is_off(vcpu, ms - 1);
    let due = if was_off { ms - 25 } else { ms };
    let (due_ns, at_ns) = (due * MS, ms * MS);
    let beat = Beat { vcpu, due_ns, at_ns, period_ns: MS, steal_ns: None, run_delay_ns: None };
    placer.take(&Signal::Beat(beat)).to_vec()
}

/// A task that always has an I/O outstanding.
fn admit_io(placer: &mut Placer, task: usize, mask: CpuSet, on: usize, ms: u64) {
    let at_ns = ms * MS;
    placer.take(&Signal::Admit { task, admission: Admission::new(mask, Some(on)), at_ns });
    placer.take(&Signal::IoBegin { task, at_ns });
}

#[test]
fn a_task_leaves_ahead_of_the_end_and_only_within_its_mask() {
    for (mask, leaves) in [(CpuSet::first(2), true), (CpuSet::of(1), false)] {
        let (mut placer, begin) = learnt(Policy::Combined);
        admit_io(&mut placer, 0, mask, 1, begin);
        // vCPU 1 goes off at 2010 and at 2070; vCPU 0 is back at 2005 and at 2065.
        let mut moves = Vec::new();
        for ms in begin..begin + 69 {
            (0..2).for_each(|vcpu| {
                moves.extend(beat(&mut placer, vcpu, ms).into_iter().map(|made| (ms, made)))
            });
        }
        assert_eq!(!moves.is_empty(), leaves, "{moves:?}");
        if leaves {
            let first = moves[0];
            assert_eq!((first.1.from, first.1.to), (Some(1), Target::Vcpu(0)));
            assert!((2005..2010).contains(&first.0), "{moves:?}");
        }
    }
}

#[test]
fn a_task_that_nothing_pulls_leaves_ahead() {
    let (mut placer, begin) = learnt(Policy::Combined);
    (begin..begin + 6).for_each(|ms| (0..2).for_each(|vcpu| drop(beat(&mut placer, vcpu, ms))));
    // vCPU 0 was back at 2005, before the task was there; vCPU 1 goes off at 2010.
    admit_io(&mut placer, 0, CpuSet::first(2), 1, begin + 6);
    let moves: Vec<(u64, Move)> = (begin + 6..begin + 15)
        .flat_map(|ms| {
            let made = [beat(&mut placer, 0, ms), beat(&mut placer, 1, ms)].concat();
            made.into_iter().map(move |made| (ms, made))
        })
        .collect();
    assert_eq!(moves.len(), 1, "{moves:?}");
    assert!(moves[0].0 < begin + 10 && moves[0].1.why == Why::Ahead, "{moves:?}");
}

#[test]
fn an_io_in_flight_while_its_vcpu_was_off_does_not_count_for_the_device() {
    let (mut placer, begin) = learnt(Policy::None);
    admit_io(&mut placer, 0, CpuSet::first(2), 1, begin + 9);
    // vCPU 1 is off from 2010 to 2035.
    (begin..begin + 37).for_each(|ms| (0..2).for_each(|vcpu| drop(beat(&mut placer, vcpu, ms))));
    let lead_ns = placer.lead_ns(1);
    let at_ns = (begin + 37) * MS;
    placer.take(&Signal::IoEnd { task: 0, at_ns, took_ns: Some(28 * MS) });
    assert_eq!(placer.lead_ns(1), lead_ns);
    placer.take(&Signal::IoBegin { task: 0, at_ns });
    placer.take(&Signal::IoEnd { task: 0, at_ns: at_ns + MS / 2, took_ns: Some(MS / 2) });
    assert_eq!(placer.lead_ns(1), lead_ns + MS, "twice the time of an I/O");
}

#[test]
fn a_vcpu_outside_the_mask_is_never_chosen() {
    let (mut placer, begin) = learnt(Policy::Combined);
    (begin..begin + 6).for_each(|ms| (0..2).for_each(|vcpu| drop(beat(&mut placer, vcpu, ms))));
    admit_io(&mut placer, 0, CpuSet::first(2), 1, begin + 6);
    admit_io(&mut placer, 1, CpuSet::of(1), 1, begin + 6);
    assert!(placer.could_take(0, 0) && !placer.could_take(1, 0));
}

#[test]
fn regularity_and_remaining_are_learnt() {
    let (placer, begin) = learnt(Policy::Combined);
    assert!((0..2).all(|vcpu| placer.regular_permille(vcpu) > 900));
    let remaining_ns = placer.vcpu(1).unwrap().remaining_at(50, (begin - 1) * MS).unwrap();
    // It is on from 1975 to 2010 ms.
    assert!((10 * MS..12 * MS).contains(&remaining_ns), "{remaining_ns}");
    assert_eq!(placer.vcpu(0).unwrap().remaining_at(50, (begin - 1) * MS).is_some(), !is_off(0, begin - 2));
}

#[test]
fn a_mask_that_changes_undoes_the_placement() {
    let (mut placer, begin) = learnt(Policy::Pull);
    admit_io(&mut placer, 0, CpuSet::first(2), 1, begin);
    (begin..begin + 10).for_each(|ms| (0..2).for_each(|vcpu| drop(beat(&mut placer, vcpu, ms))));
    assert_eq!(placer.placed_on(0), Some(0));
    placer.take(&Signal::Mask { task: 0, mask: CpuSet::of(1), at_ns: (begin + 10) * MS });
    assert_eq!(placer.placed_on(0), None);
    let after: Vec<Move> = (begin + 10..begin + 200).flat_map(|ms| beat(&mut placer, 0, ms)).collect();
    assert!(after.is_empty(), "{after:?}");
}

#[test]
fn halting_releases_all_and_nothing_moves_until_it_resumes() {
    let (mut placer, begin) = learnt(Policy::Pull);
    (0..3).for_each(|task| admit_io(&mut placer, task, CpuSet::first(2), 1, begin));
    let run = |placer: &mut Placer, from: u64, to: u64| -> usize {
        (from..to).map(|ms| (0..2).map(|vcpu| beat(placer, vcpu, ms).len()).sum::<usize>()).sum()
    };
    assert!(run(&mut placer, begin, begin + 10) >= 3);
    let released = placer.take(&Signal::Halt { at_ns: (begin + 10) * MS }).to_vec();
    assert_eq!(released.iter().filter(|made| made.to == Target::Home).count(), 3);
    assert_eq!(run(&mut placer, begin + 10, begin + 100), 0);
    placer.take(&Signal::Resume { at_ns: (begin + 100) * MS });
    assert!(run(&mut placer, begin + 100, begin + 200) > 0);
}

#[test]
fn a_beat_that_the_guest_delayed_moves_nothing() {
    let mut placer = Placer::new(Settings::new(2, 4).with(Policy::Pull));
    let mut waited_ns = 0;
    admit_io(&mut placer, 0, CpuSet::first(2), 1, 0);
    for ms in (0..3000u64).filter(|ms| ms % 60 >= 25) {
        let late_ns = if ms % 60 == 25 { 25 * MS } else { 0 };
        waited_ns += late_ns;
        for vcpu in 0..2 {
            let (due_ns, at_ns) = ((ms * MS).saturating_sub(late_ns), ms * MS);
            let beat =
                Beat { vcpu, due_ns, at_ns, period_ns: MS, steal_ns: Some(0), run_delay_ns: Some(waited_ns) };
            assert!(placer.take(&Signal::Beat(beat)).is_empty());
        }
    }
    let verdicts = placer.vcpu(0).unwrap().verdicts();
    assert!(verdicts.guest > 40 && verdicts.host + verdicts.unknown == 0, "{verdicts:?}");
}

#[test]
fn numbers_beyond_the_settings_are_ignored() {
    let (mut placer, begin) = learnt(Policy::Combined);
    admit_io(&mut placer, 99, CpuSet::first(2), 0, begin);
    admit_io(&mut placer, 0, CpuSet::first(64), 63, begin);
    let far = Beat { vcpu: 99, due_ns: 0, at_ns: 1, period_ns: 1, steal_ns: None, run_delay_ns: None };
    placer.take(&Signal::Beat(far));
    placer.take(&Signal::NextOff { vcpu: 99, off_ns: 0, back_ns: 1 });
    let moves: Vec<Move> = (begin..begin + 100)
        .flat_map(|ms| [beat(&mut placer, 0, ms), beat(&mut placer, 1, ms)].concat())
        .collect();
    assert!(moves.iter().all(|made| matches!(made.to, Target::Vcpu(0 | 1))), "{moves:?}");
}

/// The placer of [`learnt`] with an I/O task on vCPU 1, and the time at which vCPU 0 is back.
fn ready() -> (Placer, u64) {
    let (mut placer, begin) = learnt(Policy::Combined);
    admit_io(&mut placer, 0, CpuSet::first(2), 1, begin);
    for ms in begin..begin + 5 {
        assert!((0..2).all(|vcpu| beat(&mut placer, vcpu, ms).is_empty()));
    }
    (placer, begin + 5)
}

#[test]
fn old_signals_are_learnt_from_but_move_nothing() {
    let (mut placer, back) = ready();
    let (mut late, _) = ready();
    let until = back + 120;
    late.take(&Signal::CatchUp { until_ns: until * MS });
    let run = |placer: &mut Placer, from: u64, to: u64| -> usize {
        (from..to).map(|ms| (0..2).map(|vcpu| beat(placer, vcpu, ms).len()).sum::<usize>()).sum()
    };
    assert!(run(&mut placer, back, until) >= 3);
    assert_eq!(run(&mut late, back, until), 0);
    let slices = |placer: &Placer| format!("{:?}", placer.vcpu(0).unwrap().slices());
    assert_eq!(slices(&placer), slices(&late), "it learns the same");
    assert!(run(&mut late, until, until + 60) > 0);
}

#[test]
fn a_signal_from_the_future_does_not_stop_the_placer() {
    for future in [1_000u64, 86_400_000] {
        let (mut placer, back) = ready();
        let at_ns = (back + future) * MS;
        placer.take(&Signal::IoSampled { task: 3, at_ns, outstanding_ns: 0 });
        placer.take(&Signal::IoBegin { task: 0, at_ns });
        let moves: Vec<Move> = (back..back + 3_000)
            .flat_map(|ms| [beat(&mut placer, 0, ms), beat(&mut placer, 1, ms)].concat())
            .collect();
        // At least 1.5 of the 3 s remain after the wrong time has passed: enough for some fifty moves.
        assert!(
            moves.iter().filter(|made| made.why != Why::Release).count() > 40,
            "{future}: {}",
            moves.len()
        );
    }
}

#[test]
fn a_beat_from_the_future_is_a_clock_fault_and_passes() {
    for future in [5_000, 86_400_000] {
        let (mut placer, back) = ready();
        let at_ns = (back + future) * MS;
        let far = Beat { vcpu: 1, due_ns: at_ns, at_ns, period_ns: MS, steal_ns: None, run_delay_ns: None };
        placer.take(&Signal::Beat(far));
        let moves: Vec<Move> = (back..back + 1_000)
            .flat_map(|ms| [beat(&mut placer, 0, ms), beat(&mut placer, 1, ms)].concat())
            .collect();
        assert!(moves.len() > 20, "{future}: {}", moves.len());
        assert_eq!(placer.vcpu(1).unwrap().verdicts().clock_faults, 1);
    }
}

#[test]
fn acting_has_hysteresis() {
    // Something is wrong from 10 thousandths on, until it is below 5.
    let mut placer = Placer::new(Settings::new(1, 1));
    let mut now = 0;
    // Twenty half seconds with this many ms off in each. Returns whether it acts at the end.
    let mut halves = |placer: &mut Placer, off: u64| {
        for _ in 0..20 {
            now += off;
            for i in 0..500 - off {
                let due = if i == 0 { now - off } else { now };
                let (due_ns, at_ns) = (due * MS, now * MS);
                let beat = Beat { vcpu: 0, due_ns, at_ns, period_ns: MS, steal_ns: None, run_delay_ns: None };
                placer.take(&Signal::Beat(beat));
                now += 1;
            }
        }
        placer.is_wrong()
    };
    assert_eq!([3, 7, 3, 0, 3].map(|off| halves(&mut placer, off)), [false, true, true, false, false]);
}

#[test]
fn a_task_that_waits_for_an_io_of_a_vcpu_that_is_off_is_left_there() {
    // vCPU 1 is off from 2010 to 2035, and that is known when the task is seen there; vCPU 0 is on until 2040.
    for outstanding in [true, false] {
        let (mut placer, begin) = learnt(Policy::Combined);
        (begin..begin + 14).for_each(|ms| (0..2).for_each(|vcpu| drop(beat(&mut placer, vcpu, ms))));
        let at_ns = (begin + 13) * MS;
        placer.take(&Signal::Admit { task: 0, admission: Admission::new(CpuSet::first(2), Some(1)), at_ns });
        placer.take(&Signal::IoBegin { task: 0, at_ns });
        if !outstanding {
            // The I/O took long enough to make this an I/O task.
            placer.take(&Signal::IoEnd { task: 0, at_ns: at_ns + 900_000, took_ns: None });
        }
        let moves: Vec<Move> = (begin + 14..begin + 20).flat_map(|ms| beat(&mut placer, 0, ms)).collect();
        let rescued = moves.iter().any(|made| made.why == Why::Rescue);
        assert_eq!((moves.len(), rescued), if outstanding { (0, false) } else { (1, true) }, "{moves:?}");
    }
}
