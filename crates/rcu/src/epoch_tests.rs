use super::*;
use crate::mode::ASYMMETRIC;

fn scan(acks: &Acknowledged, words: &[&AtomicU64]) -> u64 {
    acks.scan(|| words.iter().copied())
}

#[test]
fn a_section_holds_up_later_tokens_only() {
    let (clock, acks, word) = (Clock::new(ASYMMETRIC), Acknowledged::default(), AtomicU64::new(0));
    let before = clock.tick();
    acks.fence_done(before);
    enter(&word, &clock);
    let after = clock.tick();
    acks.fence_done(after);
    assert_eq!(scan(&acks, &[&word]), before);
    assert!(acks.has_passed(before) && !acks.has_passed(after));
    assert!(holds_up(word.load(Ordering::Relaxed), after) && !holds_up(word.load(Ordering::Relaxed), before));
    assert!(leave(&word));
    assert_eq!(scan(&acks, &[&word]), after);
}

#[test]
fn an_unfenced_token_does_not_pass() {
    let (clock, acks) = (Clock::new(ASYMMETRIC), Acknowledged::default());
    let fenced = clock.tick();
    acks.fence_done(fenced);
    let unfenced = clock.tick();
    assert_eq!(scan(&acks, &[]), fenced);
    assert!(!acks.has_passed(unfenced));
}

#[test]
fn nesting_keeps_the_outer_token() {
    let (clock, word) = (Clock::new(ASYMMETRIC), AtomicU64::new(0));
    enter(&word, &clock);
    let token = clock.tick();
    enter(&word, &clock);
    assert!(!leave(&word));
    assert!(holds_up(word.load(Ordering::Relaxed), token));
    assert!(leave(&word));
    assert_eq!(word.load(Ordering::Relaxed), 0);
}

#[test]
#[should_panic(expected = "nested more than 4,095 deep")]
fn nesting_is_limited() {
    let (clock, word) = (Clock::new(ASYMMETRIC), AtomicU64::new(0));
    for _ in 0..=4_095 {
        enter(&word, &clock);
    }
}

#[test]
fn a_refresh_moves_on_unless_nested() {
    let (clock, word) = (Clock::new(ASYMMETRIC), AtomicU64::new(0));
    enter(&word, &clock);
    enter(&word, &clock);
    let token = clock.tick();
    refresh(&word, &clock);
    assert!(holds_up(word.load(Ordering::Relaxed), token));
    leave(&word);
    refresh(&word, &clock);
    assert!(!holds_up(word.load(Ordering::Relaxed), token));
    assert_eq!(steps(clock.now()), 2);
}

#[test]
fn passed_never_goes_back() {
    let (clock, acks, word) = (Clock::new(ASYMMETRIC), Acknowledged::default(), AtomicU64::new(0));
    let first = clock.tick();
    enter(&word, &clock);
    let second = clock.tick();
    acks.fence_done(second);
    assert_eq!(scan(&acks, &[]), second);
    assert_eq!(scan(&acks, &[&word]), second);
    assert!(first < second);
}
