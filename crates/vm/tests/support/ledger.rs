//! What came of many rounds against a hostile guest: how each ended, how long the longest took, what memory it took. A
//! round that does not end ends the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No round may take longer: a guest that is silent costs its deadline, and one that died another boot.
const ROUND_LIMIT: Duration = Duration::from_secs(300);
/// Memory of this program alone, without that of guests.
const MEMORY_LIMIT_BYTES: u64 = 1 << 30;

pub struct Ledger {
    /// Ends of rounds, numbers in them made alike, and how many ended so.
    pub ends: BTreeMap<String, u64>,
    pub rounds: u64,
    pub longest: (Duration, u64),
    pub memory_bytes: u64,
    began: Arc<AtomicU64>,
    since: Instant,
}

impl Ledger {
    pub fn open() -> Ledger {
        let (since, began) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let watched = Arc::downgrade(&began);
        std::thread::spawn(move || {
            while let Some(began) = watched.upgrade() {
                let began = Duration::from_nanos(began.load(Ordering::Relaxed));
                if since.elapsed().saturating_sub(began) > ROUND_LIMIT {
                    eprintln!("a round has not ended within {ROUND_LIMIT:?}");
                    // The thread that hangs cannot be made to panic.
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Ledger {
            ends: BTreeMap::new(),
            rounds: 0,
            longest: (Duration::ZERO, 0),
            memory_bytes: 0,
            began,
            since,
        }
    }

    /// Does the round of that seed, which says how it ended.
    pub fn round(&mut self, seed: u64, round: impl FnOnce() -> Vec<String>) {
        let begin = Instant::now();
        self.began.store(self.since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        for end in round() {
            *self.ends.entry(alike(&end)).or_default() += 1;
        }
        self.rounds += 1;
        self.longest = self.longest.max((begin.elapsed(), seed));
        self.memory_bytes = self.memory_bytes.max(own_memory_bytes());
        assert!(self.memory_bytes < MEMORY_LIMIT_BYTES, "{} bytes of memory", self.memory_bytes);
    }

    /// For people.
    pub fn tell(&self, what: &str) {
        eprintln!(
            "{what}: {} rounds in {:?}; the longest took {:?} (seed {}); peak memory {} KiB; {} ends:",
            self.rounds,
            self.since.elapsed(),
            self.longest.0,
            self.longest.1,
            self.memory_bytes >> 10,
            self.ends.len()
        );
        for (end, count) in &self.ends {
            eprintln!("{count:8}  {end}");
        }
    }
}

/// The first line, with its numbers as `#`.
fn alike(text: &str) -> String {
    let mut out = String::new();
    for word in
        text.lines().next().unwrap_or_default().split_inclusive([' ', ',', ':', ';', '(', ')', '[', '=', '"'])
    {
        match word.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            true => {
                out.push('#');
                out.push_str(
                    word.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-.".contains(c)),
                );
            }
            false => out.push_str(word),
        }
    }
    out.chars().filter(|character| !character.is_control()).take(160).collect()
}

/// Resident memory of this process that is not shared: guests' memory is.
fn own_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
