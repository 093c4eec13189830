//! A service on tokio: tasks keep a value of the configuration across awaits, while another one replaces it.

use reprieve_rcu::{Domain, RcuCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

static DROPPED: AtomicU64 = AtomicU64::new(0);

struct Config {
    version: u64,
    upstreams: Vec<String>,
}

impl Drop for Config {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

fn load(version: u64) -> Config {
    Config { version, upstreams: vec![format!("a:{version}")] }
}

async fn handle(config: Arc<RcuCell<Config>>, n: u64) {
    let held = config.hold();
    let version = held.version;
    tokio::time::sleep(Duration::from_millis(n % 10)).await;
    assert_eq!(held.upstreams[0], format!("a:{version}"));
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let config = Arc::new(RcuCell::new(load(0)));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..1_000)
            .map(|n| {
                config.replace(load(n + 1));
                tokio::spawn(handle(config.clone(), n))
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    drop((runtime, config));
    Domain::global().barrier();
    assert_eq!((DROPPED.load(Relaxed), Domain::global().stats().garbage_objects), (1_001, 0));
}
