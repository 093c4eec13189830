//! Disks: conservation, queue depth, the models' times, and fairness between VMs.

use proptest::prelude::*;

use reprieve_study::units::{MILLISECOND_NS as MS, SECOND_NS as SECOND};

use super::drive::{Drive, Hdd, HddSpec, Ssd};
use super::fair::{Fair, Params, WEIGHT};
use super::{Disk, DiskRequest, DiskSpec};
use crate::queue::Queue;

const US: u64 = 1_000;

fn request(guest: usize, id: u32, start: u64, bytes: u64) -> DiskRequest {
    DiskRequest { guest, id, vcpu: 0, start, bytes, writes: false }
}

fn ssd() -> Drive {
    Drive::Ssd(Ssd::new(50 * US, 500_000_000))
}

fn hdd_spec() -> HddSpec {
    HddSpec {
        seek_min_ns: 500 * US,
        seek_max_ns: 15 * MS,
        rotation_ns: 8_333_333,
        track_bytes: 1 << 20,
        buffer_bytes: 4 << 20,
        interface_per_s: 300_000_000,
        bytes: 1 << 40,
    }
}

fn disk(drive: Drive, depth: usize, fair: Params, guests: usize, queue: &mut Queue) -> Disk {
    Disk::new(DiskSpec { drive, depth, fair, entry_ns: 10 * US, exit_ns: 5 * US }, guests, queue)
}

/// Lets time pass until the disk has nothing left; returns what came back and when.
fn drain(disk: &mut Disk, queue: &mut Queue) -> Vec<(u64, DiskRequest)> {
    let mut all = Vec::new();
    while let Some((now_ns, timer)) = queue.pop_until(u64::MAX - 1) {
        assert_eq!(timer, disk.timer);
        let mut done = Vec::new();
        disk.work(now_ns, &mut done, queue);
        assert!(disk.served.len() <= disk.depth, "the queue depth is exceeded");
        all.extend(done.into_iter().map(|request| (now_ns, request)));
    }
    all
}

#[test]
fn a_small_request_is_bound_by_the_access_and_many_by_the_link() {
    let mut queue = Queue::default();
    let mut one = disk(ssd(), 32, Params::default(), 1, &mut queue);
    one.submit(0, request(0, 0, 0, 5_000), &mut queue);
    // On its way, access, 5000 bytes at 500 MB/s, and back.
    assert_eq!(drain(&mut one, &mut queue)[0].0, (10 + 50 + 10 + 5) * US);
    for id in 0..32 {
        one.submit(SECOND, request(0, id, 0, 500_000), &mut queue);
    }
    let last = drain(&mut one, &mut queue).last().unwrap().0;
    assert_eq!(last - SECOND, 10 * US + 50 * US + 32 * MS + 5 * US, "accesses overlap, data does not");
}

#[test]
fn a_depth_of_one_serves_one_after_the_other() {
    let mut queue = Queue::default();
    let mut one = disk(ssd(), 1, Params::default(), 1, &mut queue);
    (0..4).for_each(|id| one.submit(0, request(0, id, 0, 5_000), &mut queue));
    assert_eq!(drain(&mut one, &mut queue).last().unwrap().0, 15 * US + 4 * 60 * US);
    assert_eq!(one.busy_ns(SECOND), 4 * 60 * US);
}

#[test]
fn seeks_grow_with_the_distance_up_to_the_longest() {
    let hdd = Hdd::new(hdd_spec());
    assert_eq!(hdd.seek_ns(1000), 0, "on the track");
    let times: Vec<u64> = (20..=40).map(|power| hdd.seek_ns(1 << power)).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times[20], 15 * MS);
    assert!((500 * US..600 * US).contains(&times[0]));
    // A quarter of the disk takes half of what the whole takes, above the shortest.
    assert_eq!(hdd.seek_ns(1 << 38), 500 * US + 14_500 * US / 2);
}

#[test]
fn a_disk_reads_on_without_a_seek_and_turns_for_anything_else() {
    let mut drive = Drive::Hdd(Hdd::new(hdd_spec()));
    let mut now_ns = 0;
    let mut serve = |start: u64, bytes: u64| {
        let service = drive.serve(now_ns, &request(0, 0, start, bytes));
        let took_ns = service.done_ns - now_ns;
        now_ns = service.done_ns;
        took_ns
    };
    serve(0, 1 << 20);
    let next = serve(1 << 20, 1 << 20);
    assert_eq!(next, 8_333_333, "as the medium passes");
    let far = serve(1 << 39, 4096);
    assert!((10 * MS..25 * MS).contains(&far), "{far}");
}

#[test]
fn what_was_read_ahead_comes_at_the_interface_s_speed() {
    let mut drive = Drive::Hdd(Hdd::new(hdd_spec()));
    let first = drive.serve(0, &request(0, 0, 0, 1 << 20)).done_ns;
    // After three rotations of idleness 3 MiB are in the buffer.
    let now_ns = first + 3 * 8_333_333;
    let took_ns = drive.serve(now_ns, &request(0, 0, 1 << 20, 3_000_000)).done_ns - now_ns;
    assert_eq!(took_ns, 10 * MS);
}

#[test]
fn what_is_left_in_the_buffer_is_not_forgotten() {
    let mut drive = Drive::Hdd(Hdd::new(hdd_spec()));
    let first = drive.serve(0, &request(0, 0, 0, 1 << 20)).done_ns;
    // After three rotations of idleness 3 MiB are in the buffer, and all of them come at the interface's speed, in parts.
    let mut now_ns = first + 3 * 8_333_333;
    for part in 0..6 {
        let took_ns =
            drive.serve(now_ns, &request(0, 0, (1 << 20) + part * 500_000, 500_000)).done_ns - now_ns;
        assert_eq!(took_ns, 500_000 * 10 / 3, "part {part}");
        now_ns += took_ns;
    }
}

#[test]
fn a_full_buffer_stops_the_drive_and_the_platter_turns_before_it_goes_on() {
    let mut drive = Drive::Hdd(Hdd::new(hdd_spec()));
    let first = drive.serve(0, &request(0, 0, 0, 1 << 20)).done_ns;
    // A quarter of a rotation past where it stopped.
    let now_ns = first + 100 * 8_333_333 + 2_083_333;
    let took_ns = drive.serve(now_ns, &request(0, 0, 1 << 20, 4 << 20)).done_ns - now_ns;
    assert_eq!(took_ns, (4 << 20) * 10 / 3, "all that it holds");
    let done_ns = drive.serve(now_ns + took_ns, &request(0, 0, 5 << 20, 8 << 20)).done_ns;
    let rotations = (done_ns - now_ns) as f64 / 8_333_333.0;
    assert!((rotations - 8.75).abs() < 0.001, "three quarters to wait, and eight MiB: {rotations}");
}

/// Serves VMs that always have a request, each of that cost, and returns what each got.
fn compete(params: Params, costs: &[u64], rounds: u32) -> Vec<u64> {
    let mut fair = Fair::new(params, costs.len());
    let mut got = vec![0; costs.len()];
    (0..costs.len()).for_each(|guest| fair.push(request(guest, 0, 0, 1)));
    let mut now_ns = 0;
    for _ in 0..rounds {
        let next = fair.next(now_ns).expect("somebody waits");
        now_ns += costs[next.guest];
        got[next.guest] += costs[next.guest];
        fair.charge(next.guest, costs[next.guest]);
        fair.push(next);
        fair.ended(now_ns, next.guest);
    }
    got
}

#[test]
fn service_follows_the_weights_whatever_the_requests_cost() {
    let params = Params { weights: vec![WEIGHT, 3 * WEIGHT], ..Params::default() };
    let got = compete(params, &[700_000, 100_000], 100_000);
    let ratio = got[1] as f64 / got[0] as f64;
    assert!((2.99..3.01).contains(&ratio), "{ratio}");
}

#[test]
fn a_slice_is_for_one_vm() {
    let params = Params { slice_ns: 100, idle_ns: 0, ..Params::default() };
    let mut fair = Fair::new(params, 2);
    let mut order = Vec::new();
    (0..2).for_each(|guest| fair.push(request(guest, 0, 0, 1)));
    for step in 0..40 {
        let next = fair.next(step * 10).unwrap();
        fair.push(next);
        fair.ended(step * 10 + 10, next.guest);
        order.push(next.guest);
    }
    let expected: Vec<usize> = (0..40).map(|n| n / 10 % 2).collect();
    assert_eq!(order, expected);
}

#[test]
fn the_drive_is_kept_for_the_vm_of_the_slice_and_not_for_ever() {
    let mut fair = Fair::new(Params { slice_ns: 1_000, idle_ns: 50, ..Params::default() }, 2);
    fair.push(request(0, 0, 0, 1));
    assert_eq!(fair.next(0).unwrap().guest, 0);
    fair.charge(0, 10);
    fair.push(request(1, 0, 0, 1));
    fair.ended(10, 0);
    assert_eq!(fair.next(10), None, "hope");
    assert_eq!(fair.decides_ns(), Some(60));
    assert_eq!(fair.next(60).unwrap().guest, 1, "given up");
}

/// Runs two VMs for that long, on a drive that takes 10 for a request: 0 comes with its next request `thinks_ns` after the
/// last one was done, 1 at once. Returns the requests that each was served.
fn with_a_thinker(params: Params, thinks_ns: u64, until_ns: u64) -> [u64; 2] {
    let mut fair = Fair::new(params, 2);
    let mut served = [0; 2];
    (0..2).for_each(|guest| fair.push(request(guest, 0, 0, 1)));
    let (mut now_ns, mut comes_ns) = (0, None);
    while now_ns < until_ns {
        if comes_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            fair.push(request(0, 0, 0, 1));
        }
        let Some(next) = fair.next(now_ns) else {
            now_ns = [comes_ns, fair.decides_ns()].into_iter().flatten().min().unwrap();
            continue;
        };
        fair.charge(next.guest, 10);
        now_ns += 10;
        served[next.guest] += 1;
        match next.guest {
            0 => comes_ns = Some(now_ns + thinks_ns),
            _ => fair.push(next),
        }
        fair.ended(now_ns, next.guest);
    }
    served
}

#[test]
fn who_keeps_the_drive_idle_pays_for_it() {
    let params = Params { slice_ns: 1_000, idle_ns: 50, ..Params::default() };
    let [thinker, other] = with_a_thinker(params.clone(), 40, 1_000_000);
    let share = other as f64 * 10.0 / 1e6;
    assert!((0.48..0.52).contains(&share), "half of the time is the other's: {share}");
    assert!((0.18..0.22).contains(&(thinker as f64 / other as f64)), "a fifth of the thinker's half is work");
    // One for whom there is no hope loses its slices.
    let [thinker, other] = with_a_thinker(params, 500, 1_000_000);
    assert!(thinker * 20 < other, "{thinker} {other}");
}

#[test]
fn an_empty_queue_s_slice_ends_when_it_would() {
    let mut fair = Fair::new(Params { slice_ns: 30, idle_ns: 50, ..Params::default() }, 2);
    fair.push(request(0, 0, 0, 1));
    assert_eq!(fair.next(0).unwrap().guest, 0);
    fair.push(request(1, 0, 0, 1));
    fair.ended(10, 0);
    assert_eq!((fair.next(10), fair.decides_ns()), (None, Some(30)));
    assert_eq!(fair.next(30).unwrap().guest, 1);
}

#[test]
fn two_vms_share_a_disk_by_its_scheduler() {
    let run = |fair: Params| -> Vec<u64> {
        let mut queue = Queue::default();
        let mut one = disk(ssd(), 4, fair, 2, &mut queue);
        for id in 0..200 {
            (0..2).for_each(|guest| one.submit(0, request(guest, id, 0, 50_000), &mut queue));
        }
        let mut done = Vec::new();
        while let Some((now_ns, _)) = queue.pop_until(20 * MS) {
            one.work(now_ns, &mut done, &mut queue);
        }
        (0..2).map(|guest| done.iter().filter(|request| request.guest == guest).count() as u64).collect()
    };
    let equal = run(Params::default());
    assert!(equal[0].abs_diff(equal[1]) <= 1 && equal[0] > 90, "{equal:?}");
    let weighted = run(Params { weights: vec![WEIGHT, 3 * WEIGHT], ..Params::default() });
    assert!((145..=152).contains(&weighted[1]), "{weighted:?}");
}

#[test]
fn who_comes_back_does_not_catch_up() {
    let mut fair = Fair::new(Params::default(), 2);
    fair.push(request(0, 0, 0, 1));
    for now_ns in 0..1000 {
        let next = fair.next(now_ns).unwrap();
        fair.charge(0, 10);
        fair.push(next);
        fair.ended(now_ns, 0);
    }
    fair.push(request(1, 0, 0, 1));
    let mut own = 0;
    for now_ns in 1000..1100 {
        let next = fair.next(now_ns).unwrap();
        own += usize::from(next.guest == 1);
        fair.charge(next.guest, 10);
        fair.push(next);
        fair.ended(now_ns, next.guest);
    }
    assert!((49..=52).contains(&own), "{own} of 100");
}

fn under_way(disk: &Disk) -> usize {
    let delayed = disk.entering.under_way.len() + disk.leaving.under_way.len();
    delayed + disk.fair.waiting + disk.served.len()
}

proptest! {
    /// Whatever is submitted comes back, once, not before it could; and the depth is kept.
    #[test]
    fn every_request_comes_back_once(
        sent in prop::collection::vec((0_u64..5 * MS, 0_usize..3, 0_u64..1 << 30, 1_u64..1 << 20, any::<bool>()), 1..60),
        depth in 1_usize..8,
        is_disk in any::<bool>(),
        slice_ns in prop::sample::select(vec![0, MS]),
        idle_ns in prop::sample::select(vec![0, 300 * US]),
    ) {
        let mut queue = Queue::default();
        let drive = if is_disk { Drive::Hdd(Hdd::new(hdd_spec())) } else { ssd() };
        let fair = Params { slice_ns, idle_ns, weights: vec![1, 500] };
        let mut disk = disk(drive, depth, fair, 3, &mut queue);
        let mut sent = sent;
        sent.sort_by_key(|one| one.0);
        let mut back = Vec::new();
        for (id, (at_ns, guest, start, bytes, writes)) in sent.iter().copied().enumerate() {
            while let Some((now_ns, _)) = queue.pop_until(at_ns) {
                let mut done = Vec::new();
                disk.work(now_ns, &mut done, &mut queue);
                prop_assert!(disk.served.len() <= depth);
                back.extend(done.into_iter().map(|request| (now_ns, request)));
            }
            disk.submit(at_ns, DiskRequest { guest, id: id as u32, vcpu: 0, start, bytes, writes }, &mut queue);
            prop_assert_eq!(under_way(&disk) + back.len(), id + 1);
        }
        back.extend(drain(&mut disk, &mut queue));
        prop_assert_eq!(under_way(&disk), 0);
        let mut ids: Vec<u32> = back.iter().map(|(_, request)| request.id).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..sent.len() as u32).collect::<Vec<u32>>());
        for (at_ns, request) in &back {
            let least_ns = 15 * US + request.bytes * 2;
            prop_assert!(*at_ns >= sent[request.id as usize].0 + least_ns);
        }
        let bytes: u64 = back.iter().map(|(_, request)| request.bytes).sum();
        prop_assert_eq!(bytes, sent.iter().map(|one| one.3).sum::<u64>());
    }
}
