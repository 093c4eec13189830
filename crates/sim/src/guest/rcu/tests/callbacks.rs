use super::*;

fn filled(callbacks: &mut Callbacks, count: u64) {
    (0..count).for_each(|id| callbacks.push(Callback(id)));
}

#[test]
fn new_callbacks_wait_for_the_grace_period_that_they_are_assigned_to() {
    let mut callbacks = Callbacks::default();
    filled(&mut callbacks, 3);
    callbacks.advance(100);
    assert_eq!((callbacks.ready(), callbacks.unassigned()), (0, 3), "not assigned, never due");
    assert!(callbacks.accelerate(8));
    assert_eq!((callbacks.pending(), callbacks.unassigned()), (3, 0));
    callbacks.advance(7);
    assert_eq!(callbacks.ready(), 0);
    callbacks.advance(8);
    assert_eq!((callbacks.ready(), callbacks.pending(), callbacks.len()), (3, 0, 3));
}

#[test]
fn later_callbacks_take_the_next_segment_and_then_join_it() {
    let mut callbacks = Callbacks::default();
    filled(&mut callbacks, 1);
    assert!(callbacks.accelerate(8));
    assert!(callbacks.accelerate(8), "the same again changes nothing");
    filled(&mut callbacks, 2);
    assert!(callbacks.accelerate(12));
    filled(&mut callbacks, 4);
    assert!(!callbacks.accelerate(16), "both segments wait for earlier ones");
    assert_eq!(callbacks.unassigned(), 4);
    assert!(callbacks.accelerate(12), "they may join the segment for 12");
    assert_eq!(callbacks.unassigned(), 0);
    callbacks.advance(8);
    assert_eq!(callbacks.ready(), 1);
    callbacks.advance(12);
    assert_eq!(callbacks.ready(), 7);
}

#[test]
fn an_earlier_grace_period_takes_over_callbacks_of_a_later_one() {
    let mut callbacks = Callbacks::default();
    filled(&mut callbacks, 1);
    assert!(callbacks.accelerate(12));
    filled(&mut callbacks, 1);
    assert!(callbacks.accelerate(8), "8 comes before 12, so all wait for 8");
    callbacks.advance(8);
    assert_eq!(callbacks.ready(), 2);
}

#[test]
fn what_is_left_moves_up_and_keeps_its_number() {
    let mut callbacks = Callbacks::default();
    filled(&mut callbacks, 1);
    callbacks.accelerate(8);
    filled(&mut callbacks, 1);
    callbacks.accelerate(12);
    callbacks.advance(8);
    callbacks.advance(8);
    assert_eq!((callbacks.ready(), callbacks.pending()), (1, 1));
    filled(&mut callbacks, 5);
    assert!(callbacks.accelerate(16), "a segment became free");
    callbacks.advance(12);
    assert_eq!((callbacks.ready(), callbacks.pending()), (2, 5));
}

#[test]
fn numbers_wrap() {
    let mut callbacks = Callbacks::default();
    filled(&mut callbacks, 1);
    assert!(callbacks.accelerate(4));
    callbacks.advance(0_u64.wrapping_sub(4));
    assert_eq!(callbacks.ready(), 0);
    callbacks.advance(4);
    assert_eq!(callbacks.ready(), 1);
}

#[test]
fn an_entrained_callback_joins_the_last_segment_in_use() {
    let mut callbacks = Callbacks::default();
    assert!(!callbacks.entrain(Callback(9)));
    filled(&mut callbacks, 1);
    callbacks.accelerate(8);
    assert!(callbacks.entrain(Callback(9)));
    assert_eq!(callbacks.unassigned(), 0);
    callbacks.advance(8);
    assert_eq!(callbacks.ready(), 2);
    callbacks.begin_batch();
    assert_eq!(callbacks.invoke(), Some(Callback(0)));
    // The batch took all: it is still there to be followed, though no segment holds it.
    assert!(callbacks.entrain(Callback(10)));
    assert_eq!(callbacks.ready(), 1);
    assert_eq!(callbacks.invoke(), Some(Callback(9)));
    assert_eq!(callbacks.invoke(), None);
    assert_eq!((callbacks.end_batch(), callbacks.len()), (2, 1));
}

#[test]
fn a_batch_counts_until_it_ends_and_returns_what_it_left() {
    let mut callbacks = Callbacks::default();
    filled(&mut callbacks, 5);
    callbacks.accelerate(8);
    callbacks.advance(8);
    callbacks.begin_batch();
    callbacks.push(Callback(5));
    assert_eq!((callbacks.ready(), callbacks.invoke(), callbacks.len()), (0, Some(Callback(0)), 6));
    assert_eq!(callbacks.end_batch(), 1);
    assert_eq!((callbacks.ready(), callbacks.pending(), callbacks.len()), (4, 1, 5));
}
