//! An async service whose tasks keep the routes that they started with, across awaits: `RcuCell::hold`.
//!
//! A guard of `Domain::lock` cannot be held across an `.await`, because it belongs to its thread, and the runtime may
//! continue the task on another one. A `Held` belongs to no thread, and keeps one value, so that a slow request
//! delays no reload.
//!
//! `cargo run -p reprieve-rcu --example tokio_service`

use reprieve_rcu::{Domain, Held, RcuCell};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Routes {
    generation: u64,
    upstreams: Vec<String>,
}

impl Routes {
    fn new(generation: u64) -> Self {
        Self { generation, upstreams: (0..generation % 7 + 1).map(|n| format!("host-{n}:80")).collect() }
    }
}

const REQUESTS: usize = 200;
const RELOADS: u64 = 100;

static ROUTES: RcuCell<Routes> = RcuCell::lazy(|| Routes::new(0));
/// Requests that continued on another thread than they started on.
static MOVED: AtomicUsize = AtomicUsize::new(0);

/// One request. It sees the same routes from beginning to end.
async fn request() -> u64 {
    let routes: Held<Routes> = ROUTES.hold();
    let (generation, thread) = (routes.generation, std::thread::current().id());
    for _ in 0..10 {
        tokio::task::yield_now().await;
        assert_eq!(routes.generation, generation);
        assert_eq!(routes.upstreams.len() as u64, generation % 7 + 1);
    }
    if std::thread::current().id() != thread {
        MOVED.fetch_add(1, Ordering::Relaxed);
    }
    generation
}

async fn reload() {
    for generation in 1..=RELOADS {
        // Waits for no request. Only the values that requests hold stay until these end.
        ROUTES.replace(Routes::new(generation));
        tokio::task::yield_now().await;
    }
}

/// Public for the test that runs this example.
pub fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("a runtime");
    let latest = runtime.block_on(async {
        let requests: Vec<_> = (0..REQUESTS).map(|_| tokio::spawn(request())).collect();
        tokio::spawn(reload()).await.expect("the reload");
        let mut latest = 0;
        for request in requests {
            latest = latest.max(request.await.expect("a request"));
        }
        latest
    });
    drop(runtime);
    Domain::global().barrier();
    assert!(latest <= RELOADS && ROUTES.with(|routes| routes.generation) == RELOADS);
    assert_eq!(Domain::global().stats().garbage_objects, 0);
    let moved = MOVED.load(Ordering::Relaxed);
    println!(
        "{REQUESTS} requests during {RELOADS} reloads, {moved} of them on several threads; nothing is left"
    );
}
