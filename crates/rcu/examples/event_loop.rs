//! An event loop that reads in every round and sleeps in between: `Online`.
//!
//! `cargo run -p reprieve-rcu --example event_loop`

use reprieve_rcu::{Domain, RcuCell};
use std::collections::HashMap;
use std::sync::mpsc;

/// Public for the test that runs this example.
pub fn main() {
    let domain = Domain::default();
    let routes = RcuCell::in_domain(&domain, HashMap::from([("/", 1u32)]));
    let (send, events) = mpsc::channel::<&str>();

    std::thread::scope(|s| {
        let domain = &domain;
        let routes = &routes;
        let answers = s.spawn(move || {
            let reader = domain.register("event loop").expect("a reader");
            let mut online = reader.online();
            let mut answers = Vec::new();
            // Waiting may take any time: while offline, the loop holds up nobody.
            while let Ok(first) = online.offline(|| events.recv()) {
                // One round. References may be held throughout, and entering a section costs nothing.
                let table = routes.load(&online);
                for path in std::iter::once(first).chain(events.try_iter()) {
                    answers.push(table.get(path).copied());
                }
                // The end of the round: nothing is held, and the compiler ensures it.
                online.quiescent();
            }
            answers
        });
        send.send("/").unwrap();
        send.send("/new").unwrap();
        // A new table. The old one is freed as soon as the loop has ended its round, or sleeps.
        routes.update(|old| old.iter().map(|(k, v)| (*k, *v)).chain([("/new", 2)]).collect());
        domain.synchronize();
        send.send("/new").unwrap();
        drop(send);
        let answers = answers.join().unwrap();
        assert_eq!((answers.len(), answers[0], answers[2]), (3, Some(1), Some(2)));
        println!("answers: {answers:?}");
    });
}
