//! The highest tier: what RCU and the scheduler do, from inside the kernel. It costs more than counters, so it is armed when
//! something is wrong, and disarmed after.
//!
//! It prefers eBPF, which adds up in the kernel and sees also who is in the way. Without the feature `ebpf`, or where the kernel
//! or the user's rights do not permit it, [`Watch`] sees deferred frees and grace periods by perf events.

#[cfg(feature = "ebpf")]
pub(super) mod ebpf;

use std::collections::BTreeMap;
use std::path::Path;

use reprieve_policy::sample::{Deferred, Sample};

use super::{Symbols, Watch};
use crate::proc::{ProcRoot, SysCpus};

/// The most grace periods of a sample; a kernel has fewer in a second.
const MOST_GRACE_PERIODS: usize = 1024;
/// The most functions that a sample names; the rest is added up.
const MOST_FUNCTIONS: usize = 16;
/// The name of the rest.
const REST: &str = "(others)";

/// Why there is no eBPF, if this program cannot use it.
pub(super) const NO_EBPF: Option<&str> = match cfg!(feature = "ebpf") {
    true => None,
    false => Some("no eBPF: this program was built without the feature `ebpf`"),
};

/// What is armed.
pub(super) enum Deep {
    #[cfg(feature = "ebpf")]
    Ebpf(Box<ebpf::Ebpf>),
    Perf(Box<Watch>),
}

impl std::fmt::Debug for Deep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            #[cfg(feature = "ebpf")]
            Deep::Ebpf(_) => "eBPF",
            Deep::Perf(_) => "perf events",
        })
    }
}

/// By what the highest tier sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeepBy {
    /// eBPF.
    Ebpf,
    /// Perf events at functions of the kernel: no tasks in the way.
    PerfEvents,
}

impl Deep {
    /// Arms it.
    ///
    /// # Errors
    /// Why neither way is open, as text.
    pub fn arm(root: &ProcRoot) -> Result<Deep, String> {
        let symbols = Symbols::read(root).map_err(|error| error.to_string())?;
        #[cfg(feature = "ebpf")]
        let refusal = match ebpf::Ebpf::arm(symbols.clone()) {
            Ok(ebpf) => return Ok(Deep::Ebpf(Box::new(ebpf))),
            Err(refusal) => refusal,
        };
        #[cfg(not(feature = "ebpf"))]
        let refusal = NO_EBPF.unwrap_or_default();
        match Watch::begin(Path::new("/sys"), symbols, &SysCpus::default().online()) {
            Ok(watch) => Ok(Deep::Perf(Box::new(watch))),
            Err(error) => Err(format!("{refusal}; no perf events at functions of the kernel: {error}")),
        }
    }

    /// By what it sees.
    pub fn by(&self) -> DeepBy {
        match self {
            #[cfg(feature = "ebpf")]
            Deep::Ebpf(_) => DeepBy::Ebpf,
            Deep::Perf(_) => DeepBy::PerfEvents,
        }
    }

    /// Takes what happened since the last time.
    pub fn take(&mut self, into: &mut Sample) {
        into.in_the_way.clear();
        let deferred = into.deferred.insert(Deferred::default());
        match self {
            #[cfg(feature = "ebpf")]
            Deep::Ebpf(ebpf) => ebpf.take(deferred, &mut into.in_the_way),
            Deep::Perf(watch) => {
                watch.look();
                // Calls that could not be counted are left out.
                let seen = watch.take().unwrap_or_default();
                deferred.grace_periods_ns = seen.grace_periods_ns;
                deferred.grace_periods_ns.truncate(MOST_GRACE_PERIODS);
                let frees =
                    seen.frees.into_iter().map(|frees| (frees.function, frees.objects.round() as u64));
                deferred.queued = most(frees, MOST_FUNCTIONS);
            }
        }
    }
}

/// The largest sums by name, and the rest as one.
fn most(all: impl IntoIterator<Item = (String, u64)>, kept: usize) -> Vec<(String, u64)> {
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for (name, sum) in all {
        let total = by_name.entry(name).or_default();
        *total = total.saturating_add(sum);
    }
    let mut sums: Vec<_> = by_name.into_iter().filter(|(_, sum)| *sum > 0).collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rest = sums.iter().skip(kept).fold(0u64, |rest, (_, sum)| rest.saturating_add(*sum));
    sums.truncate(kept);
    sums.extend(Some((REST.to_string(), rest)).filter(|(_, rest)| *rest > 0));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_added_up() {
        let of = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
            all.iter().map(|(name, sum)| (name.to_string(), *sum)).collect()
        };
        let all = of(&[("a", 1), ("b", 5), ("c", 3), ("a", 3), ("d", 2), ("none", 0)]);
        assert_eq!(most(all.clone(), 2), of(&[("b", 5), ("a", 4), (REST, 5)]));
        assert_eq!(most(all, 4), of(&[("b", 5), ("a", 4), ("c", 3), ("d", 2)]));
        assert_eq!(most(of(&[]), 2), []);
    }
}
