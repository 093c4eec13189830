//! What root may read: slab caches that grow, and the kernel's log.

use std::collections::BTreeMap;
use std::path::Path;

use reprieve_policy::sample::{Sample, SlabGrowth};

use super::kernel_messages::KernelMessages;
use super::slabs;
use crate::proc::{ProcRoot, Reread};

/// Slab caches in a sample.
const MOST_SLABS: usize = 4;
/// The most caches; a kernel has a few hundred, and one more for each kind of a file system's or module's.
const MOST_CACHES: usize = 4096;
/// At a frugal pace, slabs are read only in each such sample: the kernel holds a lock meanwhile.
const SLABS_EACH: u64 = 10;
/// The kernel's log.
pub(super) const KMSG: &str = "/dev/kmsg";

/// Reads what root may read.
#[derive(Debug)]
pub(super) struct Privileged {
    slabinfo: Reread,
    messages: Option<KernelMessages>,
    /// Bytes in use of each cache, as read last.
    caches: BTreeMap<String, u64>,
    samples: u64,
}

impl Privileged {
    /// Opens what this user may open; `None` if that is nothing.
    pub fn open(root: &ProcRoot) -> Option<Privileged> {
        let mut slabinfo = Reread::open(&root.path().join("slabinfo"));
        let messages = KernelMessages::open(Path::new(KMSG)).ok();
        let is_any = slabinfo.read().is_some() || messages.is_some();
        is_any.then_some(Privileged { slabinfo, messages, caches: BTreeMap::new(), samples: 0 })
    }

    /// Adds what happened since the last time to a sample.
    pub fn read(&mut self, is_close: bool, into: &mut Sample) {
        let complaints = self.messages.as_mut().map(KernelMessages::look);
        into.stalls = complaints.map(|complaints| complaints.stalls);
        into.lockups = complaints.map(|complaints| complaints.lockups);
        into.slabs.clear();
        if is_close || self.samples.is_multiple_of(SLABS_EACH) {
            let text = self.slabinfo.read().unwrap_or_default();
            into.slabs.extend(growth(text, &mut self.caches));
        }
        self.samples += 1;
    }
}

/// The caches that grew most.
fn growth(text: &str, caches: &mut BTreeMap<String, u64>) -> Vec<SlabGrowth> {
    let mut grown = Vec::new();
    for (cache, objects, object_bytes) in text.lines().filter_map(slabs::fields) {
        let bytes = objects.saturating_mul(object_bytes);
        let has_room = caches.len() < MOST_CACHES;
        match caches.get_mut(cache) {
            Some(before) => {
                let grown_bytes = bytes.saturating_sub(std::mem::replace(before, bytes));
                grown.push((grown_bytes, bytes, cache));
            }
            None if has_room => _ = caches.insert(cache.into(), bytes),
            None => {}
        }
    }
    grown.retain(|(grown_bytes, ..)| *grown_bytes > 0);
    grown.sort_unstable_by(|a, b| b.cmp(a));
    let of = |(grown_bytes, bytes, cache): &(u64, u64, &str)| SlabGrowth {
        cache: cache.to_string(),
        bytes: *bytes,
        grown_bytes: *grown_bytes,
    };
    grown.iter().take(MOST_SLABS).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    fn info(objects: [u64; 6]) -> String {
        let line = |(at, objects): (usize, &u64)| format!("cache-{at} {objects} 99 {} 1 1\n", 10 * (at + 1));
        let lines: String = objects.iter().enumerate().map(line).collect();
        format!("slabinfo - version: 2.1\n# name <active_objs>\n{lines}")
    }

    #[test]
    fn the_caches_that_grew_most_are_named() {
        let proc = FakeProc::new();
        proc.put("slabinfo", &info([5, 5, 5, 5, 5, 5]));
        let mut privileged = Privileged::open(&proc.root).unwrap();
        let mut sample = Sample::default();
        privileged.read(true, &mut sample);
        assert_eq!(sample.slabs, [], "nothing to compare with");
        proc.put("slabinfo", &info([105, 6, 4, 5, 6, 6]));
        privileged.read(false, &mut sample);
        assert_eq!(sample.slabs, [], "not at each frugal sample");
        privileged.read(true, &mut sample);
        let found: Vec<_> =
            sample.slabs.iter().map(|slab| (&slab.cache[..], slab.bytes, slab.grown_bytes)).collect();
        let expected =
            [("cache-0", 1050, 1000), ("cache-5", 360, 60), ("cache-4", 300, 50), ("cache-1", 120, 20)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_list_without_end_is_cut() {
        let text: String = (0..2 * MOST_CACHES).map(|at| format!("cache-{at} 1 1 8\n")).collect();
        let mut caches = BTreeMap::new();
        growth(&text, &mut caches);
        assert_eq!(caches.len(), MOST_CACHES);
        assert_eq!(growth("x 18446744073709551615 1 18446744073709551615\n", &mut BTreeMap::new()), []);
    }
}
