use super::*;

type Pairs = Table<u64, String>;

/// A hash with this home and tag.
fn hash(home: u64, tag: u64) -> u64 {
    tag << TAG_SHIFT | home
}

fn put(table: Pairs, hash: u64, key: u64) -> Option<usize> {
    // SAFETY: the test has the only handle.
    unsafe {
        let (slot, _) = table.place(hash, None)?;
        table.fill(slot, hash, (key, key.to_string()));
        Some(slot)
    }
}

fn find(table: Pairs, hash: u64, key: u64) -> Option<usize> {
    // SAFETY: nothing is dropped before the test ends.
    unsafe { table.find(hash, &key) }
}

fn free(table: Pairs) {
    // SAFETY: the test uses it no more.
    unsafe { table.free() }
}

#[test]
fn keys_of_one_home_fill_groups_in_line_up_to_the_end() {
    let table = Pairs::new(1, 1);
    let slots: Vec<_> = (0..40).map_while(|key| put(table, hash(1, key % 128), key)).collect();
    assert_eq!(slots, (16..48).collect::<Vec<_>>(), "the home group and the tail, in order");
    assert!((0..32).all(|key| find(table, hash(1, key), key) == Some(16 + key as usize)));
    assert_eq!(find(table, hash(1, 5), 1000), None, "the search ends at the control bytes beyond");
    assert_eq!(find(table, hash(0, 5), 5), None, "a search ends at an EMPTY slot");
    free(table);
}

#[test]
fn an_update_is_placed_beyond_the_old_entry_and_within_reach() {
    let table = Pairs::new(1, 1);
    (0..18).for_each(|key| assert!(put(table, hash(0, key), key).is_some()));
    // SAFETY: the test has the only handle, and the slots hold entries.
    unsafe {
        table.hold();
        table.retire(4);
        table.release(4);
        assert_eq!(table.place(hash(0, 1), None), Some((4, false)), "a new key takes a FREE slot");
        assert_eq!(table.place(hash(0, 1), Some(3)), Some((4, false)));
        assert_eq!(table.place(hash(0, 1), Some(4)), Some((18, true)), "beyond, in the next group");
        table.set_reach(0);
        assert_eq!(table.place(hash(0, 1), Some(4)), None, "out of reach");
        table.let_go();
    }
    free(table);
}

#[test]
fn sizes_hold_what_they_are_for() {
    for entries in [0, 1, 13, 14, 15, 28, 29, 1000, 1 << 20] {
        let log2 = log2_for(entries);
        assert!(FILL << log2 >= entries && (log2 == 0 || FILL << (log2 - 1) < entries));
    }
    let table = Pairs::new(3, 2);
    assert_eq!((table.groups(), table.capacity()), (10, 14 * 8));
    free(table);
    let vacant = Pairs::vacant();
    assert!(vacant.is_vacant() && find(vacant, 7, 7).is_none() && put(vacant, 7, 7).is_none());
    assert_eq!((vacant.bytes(), vacant.full().count()), (0, 0));
}

#[test]
fn large_tables_are_aligned_to_huge_pages() {
    let table: Table<u64, [u64; 7]> = Table::new(11, 0);
    let (layout, offset) = Table::<u64, [u64; 7]>::layout(table.groups());
    assert_eq!((layout.align(), table.bytes()), (HUGE_PAGE_BYTES, layout.size()));
    assert_eq!((table.into_raw().addr() - offset) % HUGE_PAGE_BYTES, 0);
    // SAFETY: the test uses it no more.
    unsafe { table.free() };
}
