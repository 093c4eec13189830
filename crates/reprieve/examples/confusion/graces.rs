//! Grace periods as the host sees them in the guest's memory, and what explain said of the same time.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use reprieve_linux::boost::GuestRcu;
use reprieve_linux::proc::ProcRoot;
use reprieve_vm::VmError;
use reprieve_vm::attach::{self, Given, Seen, Watched};

use crate::causes::{Cause, GRACE_SETTINGS};
use crate::matrix::{Shown, runs};
use crate::record::{Graces, Record, Run};

/// Between two looks at the guest's memory.
const LOOK: Duration = Duration::from_millis(1);

/// Looks at a guest's memory, in a thread of its own.
pub struct Looking {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
}

impl Looking {
    /// Begins to look at the guest of this process.
    ///
    /// # Errors
    /// Its memory cannot be read.
    pub fn begin(root: &ProcRoot, pid: i32) -> Result<Looking, VmError> {
        let qemu = attach::of(root, pid)?;
        let seen = Arc::new(Mutex::new(Seen::new(qemu.vcpus.len())));
        let attached = attach::attach(root, qemu, &Given::default(), &|| false)?;
        let mut watched = Watched::new(root, attached, seen.clone())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(Relaxed) && watched.look().is_ok() {
                std::thread::sleep(LOOK);
            }
        });
        Ok(Looking { is_over, thread: Some(thread), seen })
    }

    /// Ends, and gives what was seen; none if no grace period was.
    pub fn end(mut self) -> Option<Graces> {
        self.is_over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = &seen.durations;
        (!durations.is_empty()).then(|| Graces {
            count: durations.len() as usize,
            p50_ns: durations.value_at_quantile(0.5),
            longest_ns: durations.max(),
        })
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// In words; empty if there are no such runs.
pub fn text(record: &Record, shown: Shown) -> String {
    let all: Vec<&Run> =
        runs(record, shown).into_iter().filter(|run| run.cause == Cause::GracePeriods).collect();
    let mut text = String::new();
    if !all.is_empty() {
        text.push_str("\nGrace periods as the guest saw them, over those that the host saw meanwhile: median [least, most] of runs\n");
    }
    for (strength, (name, _)) in GRACE_SETTINGS.iter().enumerate() {
        let of: Vec<&Run> = all.iter().copied().filter(|run| run.strength == strength).collect();
        if of.is_empty() {
            continue;
        }
        let ratios = |seen: fn(&Run) -> Option<Graces>, figure: fn(&Graces) -> u64| {
            let ratio = |run: &&Run| {
                let (seen, truth) = (seen(run)?, run.truth.graces?);
                Some(figure(&seen) as f64 / figure(&truth).max(1) as f64)
            };
            said(of.iter().filter_map(ratio).collect())
        };
        let t0 = |run: &Run| run.verdict.as_ref()?.waits();
        let t2 = |run: &Run| run.verdict.as_ref()?.exact_graces;
        let p50 = |graces: &Graces| graces.p50_ns;
        let longest = |graces: &Graces| graces.longest_ns;
        let _ = writeln!(
            text,
            "{name}: T0 (membarrier) medians {}, longest {}; T2 medians {}, longest {}",
            ratios(t0, p50),
            ratios(t0, longest),
            ratios(t2, p50),
            ratios(t2, longest)
        );
    }
    text
}

fn said(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.get(ratios.len() / 2), ratios.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{median:.2} [{least:.2}, {most:.2}] of {}", ratios.len())
        }
        _ => "unseen".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_its_spread() {
        assert_eq!(said(vec![1.5, 0.5, 1.0]), "1.00 [0.50, 1.50] of 3");
        assert_eq!(said(Vec::new()), "unseen");
    }
}
