use super::*;

fn kfree() -> Kfree<u64> {
    Kfree::new(Settings { drain_jiffies: 100, page_objects: 4, kept_pages: 2 }, 2)
}

#[test]
fn the_kernels_settings() {
    assert_eq!(Settings::linux(250), Settings { drain_jiffies: 1_250, page_objects: 510, kept_pages: 5 });
}

#[test]
fn the_first_object_arms_the_monitor_and_many_hurry_it() {
    let mut kfree = kfree();
    assert_eq!(kfree.push(0, 1, 7), Pushed { monitor: Some(100), refill: true });
    assert_eq!(kfree.push(0, 2, 8), Pushed::default());
    assert_eq!(kfree.push(0, 3, 8), Pushed::default());
    assert_eq!(kfree.push(0, 4, 9), Pushed { monitor: Some(1), refill: false });
    assert_eq!(kfree.push(0, 5, 9), Pushed::default());
    assert_eq!((kfree.backlog(0), kfree.backlog(1)), (5, 0));
}

#[test]
fn objects_go_to_pages_while_there_are_pages() {
    let mut kfree = kfree();
    kfree.push(0, 0, 0);
    assert_eq!(kfree.refill(0), 2);
    assert_eq!(kfree.keep(0, 3), 1, "one too many");
    (1..10).for_each(|object| {
        kfree.push(0, object, 0);
    });
    let Drained { batch: Some(batch), monitor: None } = kfree.monitor(0, 1) else { panic!() };
    let objects = kfree.take(0, batch);
    assert_eq!((objects.pages, objects.paged), (2, (1..9).collect()));
    assert_eq!(objects.chained, [0, 9]);
    assert_eq!(kfree.backlog(0), 0);
}

#[test]
fn objects_collect_while_both_batches_wait() {
    let mut kfree = kfree();
    let mut batches = Vec::new();
    for object in 0..2 {
        kfree.push(0, object, 0);
        batches.extend(kfree.monitor(0, 0).batch);
    }
    assert_eq!(batches, [0, 1]);
    kfree.push(0, 2, 0);
    assert_eq!(kfree.monitor(0, 100), Drained { batch: None, monitor: Some(100) });
    assert_eq!(kfree.take(0, 1).chained, [1]);
    assert_eq!(kfree.monitor(0, 200), Drained { batch: Some(1), monitor: None });
    assert_eq!(kfree.take(0, 1).chained, [2]);
    assert_eq!(kfree.take(0, 0).chained, [0]);
    assert_eq!(kfree.monitor(0, 300), Drained::default(), "nothing collected");
}

#[test]
fn every_object_comes_back_once_and_after_its_batch_was_queued() {
    let mut kfree = kfree();
    let (mut waiting, mut freed) = (std::collections::VecDeque::new(), Vec::new());
    for object in 0..1_000 {
        kfree.push(0, object, object);
        if object % 7 == 0 {
            waiting.extend(kfree.monitor(0, object).batch.map(|batch| (batch, object)));
        }
        if object % 11 == 0
            && let Some((batch, queued)) = waiting.pop_front()
        {
            let objects = kfree.take(0, batch);
            kfree.keep(0, objects.pages);
            assert!(objects.paged.iter().chain(&objects.chained).all(|&object| object <= queued));
            freed.extend(objects.paged);
            freed.extend(objects.chained);
        }
        if object % 50 == 0 {
            let pages = kfree.refill(0);
            kfree.keep(0, pages);
        }
    }
    assert_eq!(freed.len() as u64 + kfree.backlog(0), 1_000);
    freed.sort();
    freed.dedup();
    assert_eq!(freed.len() as u64 + kfree.backlog(0), 1_000);
}
