//! Requests are merged, limited by the ring, and never lost.

use proptest::prelude::*;

use super::*;

fn spec(ring: usize) -> BlockSpec {
    BlockSpec {
        page_bytes: 4096,
        cache_pages: 64,
        read_ahead_pages: 16,
        request_pages: 8,
        ring,
        submit_ns: 10,
        complete_ns: 5,
        traced: true,
        trace_ns: 1,
    }
}

impl Block {
    /// Whether that task waits for a page.
    fn is_waiting(&self, task: TaskId) -> bool {
        self.waiters.iter().any(|waiter| waiter.task == task)
    }
}

fn by(task: u32, vcpu: usize) -> By {
    By { task: TaskId(task), vcpu, now_ns: 0 }
}

fn pages(first: u32, count: u32) -> Pages {
    Pages { file: FileId(0), first, count }
}

fn leaving(block: &mut Block) -> Vec<DiskRequest> {
    std::iter::from_fn(|| block.leave(0)).collect()
}

/// Brings all of these back, and takes their interrupts.
fn complete(block: &mut Block, requests: &[DiskRequest]) -> Vec<TaskId> {
    let mut wakes = Vec::new();
    for request in requests {
        let v = block.came_back(request.id);
        assert_eq!(v, request.vcpu, "the vCPU that submitted it");
        assert!(block.waits_for_interrupt(v));
        block.complete(1, v, &mut wakes);
    }
    block.check().unwrap();
    wakes
}

#[test]
fn neighbouring_pages_are_one_request_as_large_as_may_be() {
    let mut block = Block::new(spec(32), 2);
    block.add_file(1 << 20, 1000);
    let (is_there, ns) = block.read(by(7, 1), pages(100, 20));
    assert!(!is_there && block.is_waiting(TaskId(7)));
    let requests = leaving(&mut block);
    let ranges: Vec<(u64, u64)> =
        requests.iter().map(|r| ((r.start - (1 << 20)) / 4096, r.bytes / 4096)).collect();
    assert_eq!(ranges, [(100, 8), (108, 8), (116, 4)]);
    assert_eq!(ns, 3 * (10 + 1));
    assert!(!block.is_idle_at_device());
    assert_eq!(complete(&mut block, &requests), [TaskId(7)], "it waits for its first page alone");
    assert!(block.read(by(7, 1), pages(100, 20)).0);
    assert!(block.is_idle_at_device());
}

#[test]
fn what_the_ring_does_not_take_is_merged_and_goes_when_there_is_room() {
    let mut block = Block::new(spec(1), 1);
    block.add_file(0, 1000);
    for (task, first, count) in [(1, 500, 1), (1, 10, 2), (1, 12, 2), (2, 14, 2)] {
        assert!(block.write(by(task, 0), pages(first, count)).is_some());
    }
    let first = leaving(&mut block);
    assert_eq!((first.len(), block.queued.len()), (1, 2), "one in the ring; two of one task are one");
    complete(&mut block, &first);
    let second = leaving(&mut block);
    assert_eq!((second.len(), second[0].start, second[0].bytes), (1, 10 * 4096, 4 * 4096));
    assert!(second[0].writes);
    complete(&mut block, &second);
    assert_eq!(leaving(&mut block)[0].start, 14 * 4096);
}

#[test]
fn starts_and_ends_are_told_with_their_times() {
    let mut block = Block::new(spec(4), 1);
    block.add_file(0, 1000);
    block.read(by(3, 0), pages(50, 1));
    let requests = leaving(&mut block);
    complete(&mut block, &requests);
    let mut events = Vec::new();
    block.take_events(&mut events);
    let told: Vec<_> = events.iter().map(|event| (event.begins, event.task, event.took_ns)).collect();
    assert_eq!(told, [(true, TaskId(3), None), (false, TaskId(3), Some(1))]);
}

#[test]
fn times_are_told_though_telling_costs_nothing_and_nothing_is_told_unasked() {
    for (traced, trace_ns, told) in [(true, 0, 2), (false, 1, 0)] {
        let mut block = Block::new(BlockSpec { traced, trace_ns, ..spec(4) }, 1);
        block.add_file(0, 1000);
        block.read(by(3, 0), pages(50, 1));
        let requests = leaving(&mut block);
        complete(&mut block, &requests);
        let mut events = Vec::new();
        block.take_events(&mut events);
        assert_eq!((events.len(), block.traced_ns), (told, 0));
    }
}

#[test]
fn a_write_to_a_page_on_its_way_is_made_once_that_is_there() {
    let mut block = Block::new(spec(4), 1);
    block.add_file(0, 1000);
    block.read(by(1, 0), pages(50, 4));
    let read = leaving(&mut block);
    assert_eq!(block.write(by(2, 0), pages(52, 4)), None);
    assert!(leaving(&mut block).is_empty() && block.is_waiting(TaskId(2)));
    assert_eq!(complete(&mut block, &read), [TaskId(1), TaskId(2)]);
    assert!(block.write(by(2, 0), pages(52, 4)).is_some());
    let written = leaving(&mut block);
    assert_eq!((written.len(), written[0].writes, written[0].bytes), (1, true, 4 * 4096));
}

#[test]
fn who_waits_for_an_interrupt_of_a_vcpu_that_is_off_is_counted() {
    let mut block = Block::new(spec(4), 2);
    block.add_file(0, 1000);
    block.read(by(1, 0), pages(50, 1));
    block.read(by(2, 1), pages(500, 1));
    let requests = leaving(&mut block);
    let kept = |block: &Block, on: [bool; 2]| block.kept_waiting(|v| on[v]);
    assert_eq!(kept(&block, [false; 2]), 0, "the device works for both");
    block.came_back(requests[0].id);
    assert_eq!((kept(&block, [false, true]), kept(&block, [true, false])), (1, 0));
    block.came_back(requests[1].id);
    assert_eq!(kept(&block, [false; 2]), 2);
}

#[test]
fn who_waits_for_room_in_the_ring_waits_for_who_makes_it() {
    let mut block = Block::new(spec(1), 2);
    block.add_file(0, 1000);
    block.read(by(1, 0), pages(50, 1));
    block.read(by(2, 1), pages(500, 1));
    let requests = leaving(&mut block);
    assert_eq!((requests.len(), block.kept_waiting(|_| false)), (1, 0));
    block.came_back(requests[0].id);
    assert_eq!(block.kept_waiting(|_| false), 2, "vCPU 0 would take the interrupt and submit the second");
    assert_eq!(block.kept_waiting(|v| v == 0), 0);
    assert_eq!(block.kept_waiting(|v| v == 1), 2);
}

proptest! {
    /// However tasks read and write and the device answers, in whatever order: every page that was asked for comes, each
    /// request is in one place, and the ring is kept.
    #[test]
    fn every_page_comes_and_no_request_is_lost(
        steps in prop::collection::vec((0_u32..4, 0_u32..200, 1_u32..12, any::<bool>(), 0_usize..6), 1..80),
        ring in 1_usize..5,
    ) {
        let mut block = Block::new(spec(ring), 3);
        block.add_file(0, 256);
        let mut at_device: Vec<DiskRequest> = Vec::new();
        let mut wakes = Vec::new();
        for (task, first, count, writes, answers) in steps {
            let range = pages(first, count);
            if writes {
                if block.write(by(task, task as usize % 3), range).is_some() {
                    block.wait_for(TaskId(task), range);
                }
            } else {
                block.read(by(task, task as usize % 3), range);
            }
            at_device.extend(leaving(&mut block));
            prop_assert!(at_device.len() <= ring);
            for _ in 0..answers.min(at_device.len()) {
                let request = at_device.swap_remove(0);
                let v = block.came_back(request.id);
                block.complete(1, v, &mut wakes);
                at_device.extend(leaving(&mut block));
            }
            prop_assert_eq!(block.check(), Ok(()));
        }
        while let Some(request) = at_device.pop() {
            let v = block.came_back(request.id);
            block.complete(1, v, &mut wakes);
            at_device.extend(leaving(&mut block));
        }
        prop_assert!(block.is_idle_at_device() && block.queued.is_empty());
        prop_assert!(block.waiters.is_empty(), "somebody waits for ever");
        prop_assert_eq!(block.check(), Ok(()));
    }
}
