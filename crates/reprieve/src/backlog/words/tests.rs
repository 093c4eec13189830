//! Tests of the sentences.

use reprieve_vm::introspect::backlog::{Cache, Task};

use super::*;

fn owner(callback: Callback, cache: Option<(&str, u64)>, objects: u64) -> Owner {
    let cache = cache.map(|(name, object_bytes)| Cache { name: name.into(), object_bytes });
    Owner { callback, cache, objects }
}

fn seen<'a>(backlog: &'a Backlog, names: &'a BTreeMap<u64, Function>) -> Seen<'a> {
    Seen {
        name: "guest web (process 7)",
        release: "6.1.0",
        is_dump: false,
        stands_still: false,
        other_kernels: 0,
        backlog,
        names,
    }
}

fn list(found: u64) -> ListSeen {
    let (kind, end) = (Kind::Callbacks, End::Whole);
    ListSeen { cpu: 1, kind, found, missing: 0, ready: 0, end, is_steady: true }
}

#[test]
fn the_answer_comes_first_and_then_a_row_for_each_owner() {
    let names = BTreeMap::from([(0xff00, Function { name: "__d_free".into(), module: None })]);
    let backlog = Backlog {
        owners: vec![
            owner(Callback::Function(0xff00), Some(("dentry", 192)), 12_000),
            owner(Callback::KfreeRcu, Some(("kmalloc-64", 64)), 400),
            owner(Callback::Function(0xff40), None, 80),
        ],
        lists: vec![ListSeen { ready: 30, ..list(12_480) }],
        open: Some(Open {
            age_ns: Some(1_200_000_000),
            vcpus: vec![1],
            tasks: vec![Task { pid: 77, name: "cat\u{1b}".into() }],
        }),
        problems: Vec::new(),
    };
    let text = seen(&backlog, &names).text();
    let expected = "12,480 objects, at least 2.22 MiB, wait for a grace period; 96 % are dentry (__d_free)\n\n\
                    owner      module  objects     bytes  cache\n\
                    __d_free   kernel   12,000  2.20 MiB  dentry\n\
                    kfree_rcu  -           400  25.0 KiB  kmalloc-64\n\
                    0xff40     ?            80         ?  ?\n\n\
                    The open grace period is 1.20 s old and waits for vCPU 1 and preempted readers: cat\\x1b (77).\n\
                    The grace period of 30 of these objects is over; they wait until their vCPU runs their callbacks.\n\
                    Seen in guest web (process 7), Linux 6.1.0.\n";
    assert_eq!(text, expected);
    let value: Value = serde_json::from_str(&seen(&backlog, &names).json()).unwrap();
    assert_eq!(value["owners"][0]["function"], "__d_free");
    assert_eq!((&value["known_bytes"], &value["owners"][2]["bytes"]), (&json!(2_329_600), &Value::Null));
}

#[test]
fn nothing_that_waits_is_said_so() {
    let (backlog, names) = (Backlog::default(), BTreeMap::new());
    let text = seen(&backlog, &names).text();
    assert!(text.starts_with("no object waits for a grace period\n\nNo grace period is open.\n"), "{text}");
}

#[test]
fn what_makes_figures_uncertain_is_noted() {
    let names = BTreeMap::new();
    let backlog = Backlog {
        owners: vec![owner(Callback::Other, None, 1)],
        lists: vec![
            ListSeen { is_steady: false, ..list(1000) },
            ListSeen { missing: 12, ..list(3) },
            ListSeen { end: End::Impossible(0x18), ..list(2) },
            ListSeen { end: End::Cycle, ..list(2) },
            ListSeen { end: End::Cut, ..list(2) },
        ],
        open: Some(Open::default()),
        problems: vec!["sizes are unknown: why".into()],
    };
    let seen = Seen { stands_still: true, other_kernels: 2, ..seen(&backlog, &names) };
    let text = seen.text();
    assert!(
        text.starts_with("1 object, of unknown size, waits for a grace period; 100 % are freed by others")
    );
    let notes: Vec<&str> = text.lines().filter(|line| line.starts_with("note: ")).collect();
    let parts = [
        "stands still",
        "2 more kernels",
        "up to 1,000",
        "12 more callbacks",
        "lead to 0x18",
        "lead back",
        "more than 2",
        "sizes are unknown",
    ];
    assert_eq!(notes.len(), parts.len(), "{notes:?}");
    assert!(notes.iter().zip(parts).all(|(note, part)| note.contains(part)), "{notes:?}");
    let dump = Seen { is_dump: true, ..seen };
    assert!(!dump.text().contains("stands still"), "of a dump, that is no news");
}

#[test]
fn many_owners_are_summed_up() {
    let owners = (0..30).map(|at| owner(Callback::Function(at + 5000), Some(("x", 8)), 100 - at)).collect();
    let backlog = Backlog { owners, ..Backlog::default() };
    let rows = seen(&backlog, &BTreeMap::new()).rows();
    assert_eq!(rows.len(), 1 + ROWS + 1);
    assert_eq!(rows[ROWS + 1], ["10 more", "-", "755", "5.90 KiB", "-"].map(String::from));
}

#[test]
fn thousands_are_set_apart() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}
