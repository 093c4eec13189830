use super::*;

#[test]
fn graces_are_read_as_they_are_written() {
    let grace = |number: u64| {
        let at = 10 * number;
        Grace { begin_ns: at, begun_ns: at + 1, end_ns: at + 5, forced: number % 3 }
    };
    let image = |ended: u64| {
        let mut words = vec![0u64; 1 + GRACE_WORDS * (1 + GRACES as usize)];
        words[0] = ended;
        for number in 0..ended {
            let at = 1 + GRACE_WORDS * (1 + (number % GRACES) as usize);
            let of = grace(number);
            words[at..at + GRACE_WORDS].copy_from_slice(&[of.begin_ns, of.begun_ns, of.end_ns, of.forced]);
        }
        words.into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<u8>>()
    };
    assert_eq!(parse_graces(&image(3), 1), (3, vec![grace(1), grace(2)]));
    let (ended, kept) = parse_graces(&image(GRACES + 5), 2);
    assert_eq!((ended, kept.len(), kept[0]), (GRACES + 5, GRACES as usize, grace(5)));
    assert_eq!(parse_graces(&[], 7), (7, vec![]));
    assert_eq!(parse_graces(&9u64.to_ne_bytes(), 8), (9, vec![]), "cut off");
}
