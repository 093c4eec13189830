//! Single decisions of the policies.

use reprieve_study::units::MILLISECOND_NS;

use crate::sched::cfs::Cfs;
use crate::sched::eevdf::Eevdf;
use crate::sched::fair::{Arrival, Policy, Runqueue, Share};
use crate::sched::{Entity, Tunables};

const MS: i64 = MILLISECOND_NS as i64;

fn share(entity: u32, weight: u32, vruntime: i64) -> Share {
    Share { vruntime, ..Share::new(entity, weight) }
}

/// A runqueue where those wait.
fn queue<P: Policy>(policy: &P, shares: &[Share]) -> Runqueue {
    let mut queue = Runqueue::default();
    shares.iter().for_each(|share| queue.insert(policy.key(share), share));
    queue
}

fn chosen<P: Policy>(policy: &P, queue: &Runqueue, current: Option<&Share>) -> Option<Entity> {
    policy.choose(queue, current).map(|at| Entity(queue.waiting()[at].entity))
}

#[test]
fn among_equals_the_first_comes_first() {
    let cfs = Cfs::new(&Tunables::linux(1, 1000));
    let queue = queue(&cfs, &[share(3, 1024, 5), share(1, 1024, 5), share(2, 1024, 4)]);
    let order: Vec<_> = queue.waiting().iter().map(|waiter| waiter.entity).collect();
    assert_eq!(order, [2, 3, 1]);
}

#[test]
fn cfs_favours_who_preempts_over_others_as_far_behind() {
    let cfs = Cfs::new(&Tunables::linux(1, 1000));
    let (current, woken) = (share(0, 1024, 20 * MS), share(2, 1024, 11 * MS));
    let mut queue = queue(&cfs, &[share(1, 1024, 10 * MS), woken]);
    assert_eq!(chosen(&cfs, &queue, Some(&current)), Some(Entity(1)));
    assert!(cfs.preempts(&mut queue, &current, &woken));
    assert_eq!(chosen(&cfs, &queue, Some(&current)), Some(Entity(2)));
    // But not if another is behind by more than the wake-up granularity.
    queue.insert(9 * MS, &share(3, 1024, 9 * MS));
    assert_eq!(chosen(&cfs, &queue, Some(&current)), Some(Entity(3)));
}

#[test]
fn cfs_lets_only_who_is_far_behind_preempt() {
    let cfs = Cfs::new(&Tunables::linux(1, 1000));
    let preempts = |weight, behind| {
        let woken = share(1, weight, 20 * MS - behind);
        cfs.preempts(&mut queue(&cfs, &[woken]), &share(0, 1024, 20 * MS), &woken)
    };
    assert!(!preempts(1024, MS) && preempts(1024, MS + 1));
    // The granularity is 1 ms of the woken one's run time.
    assert!(!preempts(512, 2 * MS) && preempts(2048, MS / 2 + 1));
}

#[test]
fn cfs_places_an_entity_relative_to_the_queue_it_comes_from() {
    let cfs = Cfs::new(&Tunables::linux(1, 1000));
    let mut queue = queue(&cfs, &[]);
    queue.rebase(1000 * MS);
    let placed = |arrival, vruntime, base_was| {
        let mut share = share(0, 1024, vruntime);
        cfs.place(&queue, None, &mut share, arrival, base_was);
        share.vruntime
    };
    assert_eq!(placed(Arrival::Moved, 150 * MS, Some(140 * MS)), 1010 * MS);
    assert_eq!(placed(Arrival::Woken, 150 * MS, Some(140 * MS)), 1010 * MS);
    assert_eq!(placed(Arrival::Woken, 998 * MS, None), 998 * MS);
    // Half the latency of 6 ms is a sleeper's bonus; a new one has a slice to wait.
    assert_eq!(placed(Arrival::Woken, 0, None), 997 * MS);
    assert_eq!(placed(Arrival::New, 0, None), 1006 * MS);
}

#[test]
fn eevdf_protects_who_runs_until_its_deadline_or_for_a_base_slice() {
    for (run_to_parity, preempted_after) in [(true, 28 * MS / 10), (false, 7 * MS / 10)] {
        let eevdf = Eevdf::new(&Tunables { run_to_parity, ..Tunables::linux(8, 1000) });
        // A light one begins its slice of 2.8 ms; a heavy one, with the earlier deadline, is as eligible.
        let mut queue = queue(&eevdf, &[]);
        let mut current = Share { deadline: 56 * MS / 10, ..share(0, 512, 0) };
        eevdf.start(&mut queue, &mut current);
        for ran in [0, preempted_after - 1, preempted_after] {
            let current = Share { vruntime: 2 * ran, ..current };
            let mut queue = Runqueue::default();
            queue.insert(1, &share(1, 4096, 2 * ran));
            let expected = (ran == preempted_after).then_some(Entity(1));
            assert_eq!(chosen(&eevdf, &queue, Some(&current)), expected, "after {ran}");
        }
    }
}

#[test]
fn eevdf_runs_the_eligible_one_with_the_earliest_deadline() {
    let eevdf = Eevdf::new(&Tunables::linux(8, 1000));
    let with = |entity, weight, vruntime, deadline| Share { deadline, ..share(entity, weight, vruntime) };
    // The average is (1 x 30 + 2 x 12 + 1 x 6) / 4 = 15.
    let queue = queue(&eevdf, &[with(0, 1024, 30, 31), with(1, 2048, 12, 40), with(2, 1024, 6, 50)]);
    assert_eq!(queue.average(None), 15);
    assert_eq!(chosen(&eevdf, &queue, None), Some(Entity(1)));
    // One that runs: it stays if it is eligible and has the earlier deadline.
    assert_eq!(chosen(&eevdf, &queue, Some(&with(3, 1024, 15, 39))), None);
    assert_eq!(chosen(&eevdf, &queue, Some(&with(3, 1024, 15, 40))), Some(Entity(1)));
    assert_eq!(chosen(&eevdf, &queue, Some(&with(3, 1024, 16, 39))), Some(Entity(1)));
}
