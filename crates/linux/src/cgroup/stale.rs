//! Removes quota trees that an earlier run left behind.
//!
//! A tree's name holds the PID and start time of its owner; a tree whose owner is alive is never touched. The PID is
//! valid in the owner's PID namespace only, so do not sweep from another one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cgroups, DIRECTORY_PREFIX, remove_tree};
use crate::proc::ProcRoot;
use crate::{Error, Result};

const WAY_OUT: &str = "run as the user who made it, or remove it by hand with rmdir";

/// A unique name for [`Cgroups::create`] that [`sweep_stale`] understands: `PID-STARTTIME-COUNT`.
///
/// # Errors
/// As [`ProcRoot::start_time_ticks`].
pub fn unique_name(proc_root: &ProcRoot) -> Result<String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let start_ticks = proc_root.start_time_ticks(pid as i32)?;
    // Relaxed: only distinctness matters.
    Ok(format!("{pid}-{start_ticks}-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Removes the trees in [`Cgroups::base`] whose owner has ended, and moves their tasks up. Returns the removed paths.
///
/// # Errors
/// The first [`Error::NotPermitted`] or [`Error::Io`], after trying all trees.
pub fn sweep_stale(cgroups: &Cgroups, proc_root: &ProcRoot) -> Result<Vec<PathBuf>> {
    let base = &cgroups.base;
    let children = cgroups.fs.children(base).map_err(|e| Error::io("list", base, e, WAY_OUT))?;
    let (mut removed, mut first_error) = (Vec::new(), None);
    for path in children {
        let Some((pid, start_ticks)) = path.file_name().and_then(|n| parse_owner(n.to_str()?)) else {
            continue;
        };
        if owner_may_live(proc_root, pid, start_ticks) {
            continue;
        }
        match remove_tree(&*cgroups.fs, &path) {
            Ok(()) => removed.push(path),
            Err(e) => {
                first_error.get_or_insert(Error::io("remove", path, e, WAY_OUT));
            }
        }
    }
    first_error.map_or(Ok(removed), Err)
}

/// PID and start time in `reprieve-PID-STARTTIME[-...]`.
fn parse_owner(name: &str) -> Option<(i32, u64)> {
    let mut fields = name.strip_prefix(DIRECTORY_PREFIX)?.split('-');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Whether the owner is alive; true if in doubt.
fn owner_may_live(proc_root: &ProcRoot, pid: i32, start_ticks: u64) -> bool {
    match proc_root.start_time_ticks(pid) {
        // A zombie that its parent never reaps counts as dead: it will not remove its tree.
        Ok(ticks) => ticks == start_ticks && !proc_root.is_zombie(pid).unwrap_or(false),
        Err(e) => !e.is_gone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::super::fake::FakeHost;
    use super::*;

    #[test]
    fn only_trees_of_dead_owners_go() {
        let host = FakeHost::with(Version::V1);
        let stat = format!("10 (alive) S {}500 0 0\n", "0 ".repeat(18));
        host.proc.put("10/stat", &stat).put("11/stat", "unreadable");
        host.proc.put("12/stat", &stat.replace(" S ", " Z ")).put("12/task/12/comm", "");
        let cgroups = host.detect().unwrap();
        for name in [
            "reprieve-10-500-0", // alive
            "reprieve-10-499-0", // its PID is in use again
            "reprieve-99-1-0",   // dead
            "reprieve-12-500-0", // dead, but its parent has not waited for it
            "reprieve-99-1",     // dead, without a count
            "reprieve-11-1-0",   // unknown
            "reprieve-lab",      // not made by unique_name
            "reprieve-99-x",     // not made by unique_name
            "99-1-0",            // without the prefix
        ] {
            cgroups.fs.make_dir(&cgroups.base.join(name)).unwrap();
        }
        host.put("m/own/reprieve-99-1-0/tasks", "77\n");
        let mut removed = sweep_stale(&cgroups, &host.proc.root).unwrap();
        removed.sort();
        let names: Vec<_> = removed.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["reprieve-10-499-0", "reprieve-12-500-0", "reprieve-99-1", "reprieve-99-1-0"]);
        assert_eq!(cgroups.fs.children(&cgroups.base).unwrap().len(), 5);
        assert_eq!(cgroups.fs.read(&host.path("m/own/tasks")).unwrap(), "77\n");
    }

    #[test]
    fn unique_names_differ_and_name_their_owner() {
        let root = ProcRoot::default();
        let (a, b) = (unique_name(&root).unwrap(), unique_name(&root).unwrap());
        assert_ne!(a, b);
        let (pid, ticks) = parse_owner(&format!("{DIRECTORY_PREFIX}{a}")).unwrap();
        assert_eq!(pid, std::process::id() as i32);
        assert!(owner_may_live(&root, pid, ticks));
    }
}
