//! A process that measures `synchronize_rcu()` at intervals. In real guests one does the same by membarrier().

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::task::{Op, Program};

struct Sync {
    every_ns: u64,
    called_ns: Option<u64>,
}

/// Adds the process.
pub fn add(guest: &mut Guest, every_ns: u64) {
    guest.add_program(Box::new(Sync { every_ns, called_ns: None }), None);
}

impl Program for Sync {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        match self.called_ns.take() {
            Some(called_ns) => {
                env.counters.sync_ns.push(env.now_ns - called_ns);
                Op::Sleep { ns: self.every_ns }
            }
            None => {
                self.called_ns = Some(env.now_ns);
                Op::Synchronize
            }
        }
    }
}
