//! A cache that several threads share: a map whose values are expensive to make, count their uses, and are dropped
//! when they are no longer wanted.
//!
//! Values hold a counter, which cannot be cloned, and are therefore behind an `Arc`. A view gives references to them.
//! The `Arc` keeps a value that must outlive the view.
//!
//! `cargo run --release -p reprieve-rcu --example cache`

use reprieve_rcu::RcuMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A template that is compiled once and rendered often.
struct Template {
    words: Vec<String>,
    used: AtomicU64,
}

impl Template {
    fn compile(source: &str) -> Self {
        Self { words: source.split(' ').map(str::to_owned).collect(), used: AtomicU64::new(0) }
    }

    fn render(&self, name: &str) -> String {
        self.used.fetch_add(1, Ordering::Relaxed);
        let words: Vec<_> = self.words.iter().map(|word| if word == "NAME" { name } else { word }).collect();
        words.join(" ")
    }
}

type Cache = RcuMap<String, Arc<Template>>;

/// The source is only lent: the cache makes a `String` of it only if the template is new.
fn greet(cache: &Cache, source: &str, name: &str) -> String {
    let view = cache.pin();
    view.get_or_insert_with_ref(source, || Arc::new(Template::compile(source))).render(name)
}

/// Public for the test that runs this example.
pub fn main() {
    // In the domain that the process shares. A static would work, too.
    let cache = Cache::default();
    std::thread::scope(|s| {
        for name in ["Ann", "Bob"] {
            let cache = &cache;
            s.spawn(move || {
                for _ in 0..10_000 {
                    assert_eq!(greet(cache, "good morning NAME", name), format!("good morning {name}"));
                }
            });
        }
    });
    assert_eq!(greet(&cache, "good bye NAME", "Ann"), "good bye Ann");

    let favourite = cache.pin().get("good morning NAME").cloned().expect("it was used");
    println!("{} templates, one used {} times", cache.len(), favourite.used.load(Ordering::Relaxed));
    cache.retain(|_, template| template.used.load(Ordering::Relaxed) > 1);
    assert_eq!(cache.len(), 1);
    cache.clear();
    assert_eq!(favourite.render("Eve"), "good morning Eve"); // as long as somebody has it
}
