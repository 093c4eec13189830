//! How long something takes on a core. Where others use the machine too, a thread waits for its core now and then; Linux
//! says for how long (`run_delay`), and that time does not count.

use std::time::Instant;

/// Runs since it was started, while the thread that started it has a core.
pub struct Stopwatch {
    start: Instant,
    waited_ns: u64,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { waited_ns: waited_ns(), start: Instant::now() }
    }

    pub fn seconds(&self) -> f64 {
        let elapsed = self.start.elapsed().as_secs_f64();
        elapsed - (waited_ns() - self.waited_ns) as f64 / 1e9
    }
}

/// How long this thread has waited for a core; 0 where nobody says.
fn waited_ns() -> u64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    said.split_whitespace().nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0)
}
