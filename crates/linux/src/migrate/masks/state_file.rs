//! The state file: the user masks of managed tasks and their bindings. With it the warden, the next daemon, or
//! `--restore` can restore masks if the daemon is killed.
//!
//! ```text
//! reprieve-migrate-masks 3 BOOT-ID
//!     -     1                88911 4711 4712 88302 whole 0-3
//!  FROM    TO                BOUND PID  TID  START ...   MASK
//! ```
//! The first page holds the header line and, further on, a time: all forks before it have been handled. A task that
//! started later may have inherited a binding unnoticed.
//!
//! After it follows one page for each slot, with a record or blank. A record is never half written, since not even
//! SIGKILL cuts a write within one page short. FROM, TO and BOUND are rewritten just before each change of affinity:
//! the CPU that the task was bound to, the CPU that it is being bound to (`-` is its user's mask), and when it was
//! first bound (`-` is never). Once a change has succeeded, FROM becomes `-`. BOUND and START, the task's start time,
//! are in clock ticks since boot. `whole` means that MASK was the task's whole cpuset (else `exact`); `doubt` after
//! MASK means that the task is in doubt. A reboot voids the file, since masks do not outlive it.
//!
//! Invariants: a task is in the file before it is bound, and leaves it only when it has its mask again or has ended. A
//! mask that cannot be restored stays in the file. A mask in doubt is restored only if the user asks for it.
//!
//! Errors: [`Error::NotPermitted`] or [`Error::Io`], and then the file stays as it was; [`Error::Malformed`].

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::state_record::binding_text;
use super::{
    Binding, NEVER_TICKS, Saved, StateRecord, find_children, is_still_in_doubt, restore_mask, successor,
};
use crate::migrate::Roots;
use crate::migrate::own_file::{self, beside};
use crate::proc::ProcRoot;
use crate::{Error, Result};

/// The start of the first line of a state file of any version.
const FAMILY: &str = "reprieve-migrate-masks ";
/// The start of the first line of this version.
const HEADER: &str = "reprieve-migrate-masks 3";
/// The size of the header and of each record, bytes: a page, which is longer than the text of any mask.
const RECORD_BYTES: usize = 4096;
/// The most tasks in a file.
const MAX_RECORDS: usize = 65_536;
const WAY_OUT: &str = "name another file with --state, in a directory that you may write to";
/// How long to wait for the lock. The warden of a killed daemon holds it briefly, while it restores masks.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Position in the file of the time up to which forks have been handled, bytes.
const HANDLED_AT: u64 = 256;
/// Length of that time as text.
const HANDLED_BYTES: usize = 20;

/// What to do with tasks in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubtful {
    /// Leave them as they are, and keep them in the file.
    Leave,
    /// Give them the mask of the task that they descend from.
    Restore,
}

/// The result of restoring masks, as numbers of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Tasks that have their mask again, including children that had inherited a binding.
    pub restored: usize,
    /// Tasks that already had the mask that their user wants.
    pub untouched: usize,
    /// Tasks that have ended.
    pub gone: usize,
    /// Tasks that could not be changed; they stay in the file.
    pub failed: usize,
    /// Tasks in doubt that were left alone; they stay in the file.
    pub in_doubt: usize,
}

/// The state file. It is locked, because two daemons would undo each other's work.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    file: File,
    _lock: File,
}

impl StateFile {
    /// Opens or makes the file at `path` and locks it, by `PATH.lock`, which is never removed.
    /// [`records`](StateFile::records) then returns what an earlier daemon left, unless that was before a reboot.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another process holds the lock for two seconds, or another version wrote the file;
    /// [`Error::NotPermitted`]; [`Error::Io`]; [`Error::Malformed`].
    pub fn open(path: &Path, root: &ProcRoot) -> Result<StateFile> {
        let refused = |e: std::io::Error| Error::io("open", path, e, WAY_OUT);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(refused)?;
        }
        let lock = own_file::open(&beside(path, ".lock")).map_err(refused)?;
        let since = Instant::now();
        while lock.try_lock().is_err() {
            if since.elapsed() < LOCK_WAIT {
                std::thread::sleep(LOCK_PAUSE);
                continue;
            }
            let expected =
                "another `reprieve migrate` is using it; end that one, or name another file with --state";
            return Err(Error::invalid("state file", path.display().to_string(), expected));
        }
        let header = format!("{HEADER} {}\n", root.boot_id()?);
        let file = own_file::open(path).map_err(refused)?;
        let state = StateFile { path: path.into(), file, _lock: lock };
        let found = state.first_line()?;
        if found != header.trim_end() {
            if !found.is_empty() && !found.starts_with(FAMILY) {
                return Err(Error::malformed(path, "a state file of reprieve migrate", &found));
            }
            if found.starts_with(FAMILY) && found.ends_with(&root.boot_id()?) {
                let expected =
                    "another version of reprieve wrote it; restore its masks with that version (--restore)";
                return Err(Error::invalid("state file", path.display().to_string(), expected));
            }
            // A new file, or one from before a reboot.
            state
                .file
                .set_len(0)
                .and_then(|()| state.file.write_all_at(&padded(&header), 0))
                .map_err(refused)?;
        }
        state.records()?;
        Ok(state)
    }

    /// Restores the masks in the file at `path`, and removes the file if it is then empty. If there is no file, does
    /// nothing, and leaves no lock behind.
    pub fn restore_at(path: &Path, roots: &Roots, doubtful: Doubtful) -> Result<Restored> {
        if !path.exists() {
            return Ok(Restored::default());
        }
        StateFile::open(path, &roots.proc)?.finish(roots, doubtful)
    }

    /// Saves the time, in clock ticks since boot, up to which forks have been handled: every child that started before
    /// it and had inherited a binding has its mask, or is in the file.
    pub fn save_handled(&self, ticks: u64) -> Result<()> {
        self.write_at(format!("{ticks:>HANDLED_BYTES$}").as_bytes(), HANDLED_AT)
    }

    /// The time last saved by [`save_handled`](StateFile::save_handled); 0 if none was.
    fn handled_ticks(&self) -> u64 {
        let mut text = [b' '; HANDLED_BYTES];
        let read = self.file.read_exact_at(&mut text, HANDLED_AT);
        let text = read.ok().and_then(|()| std::str::from_utf8(&text).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// The first line: the kind and version of the file, and its boot.
    fn first_line(&self) -> Result<String> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(HANDLED_AT).read_to_end(&mut bytes);
        read.map_err(|e| Error::io("read", &self.path, e, WAY_OUT))?;
        Ok(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().trim_end().into())
    }

    /// A state file that cannot be written.
    #[cfg(test)]
    pub fn unwritable() -> StateFile {
        let open = || File::open("/dev/null").unwrap();
        StateFile { path: "/dev/null".into(), file: open(), _lock: open() }
    }

    /// All records in the file.
    pub fn records(&self) -> Result<Vec<StateRecord>> {
        let unread = |e: std::io::Error| Error::io("read", &self.path, e, WAY_OUT);
        let length = self.file.metadata().map_err(unread)?.len();
        let count = (length / RECORD_BYTES as u64).saturating_sub(1) as usize;
        if count > MAX_RECORDS {
            return Err(Error::malformed(&self.path, "at most 65536 tasks", "more"));
        }
        let mut records = Vec::new();
        let mut buffer = vec![0; RECORD_BYTES];
        for slot in 0..count {
            self.file.read_exact_at(&mut buffer, offset(slot)).map_err(unread)?;
            // A slot never used is a hole in the file, which reads as zeros.
            let text = String::from_utf8_lossy(&buffer);
            let text = text.trim_matches(|c: char| c == '\0' || c.is_ascii_whitespace());
            if text.is_empty() {
                continue;
            }
            let record = StateRecord::parse(slot, text);
            records.push(record.ok_or_else(|| {
                Error::malformed(&self.path, "FROM TO BOUND PID TID START whole|exact MASK [doubt]", text)
            })?);
        }
        Ok(records)
    }

    /// Saves a task, not bound yet, in a slot. If this fails, do not bind the task.
    pub fn put(&self, slot: usize, saved: &Saved) -> Result<()> {
        let (saved, binding) = (saved.clone(), Binding::default());
        self.put_record(&StateRecord { slot, saved, binding, in_doubt: false })
    }

    /// Saves a record in its slot.
    ///
    /// # Errors
    /// [`Error::Invalid`] with too many tasks.
    pub fn put_record(&self, record: &StateRecord) -> Result<()> {
        if record.slot >= MAX_RECORDS {
            return Err(Error::invalid("task to save", record.slot.to_string(), "at most 65536 tasks"));
        }
        self.write_at(&padded(&record.text()), offset(record.slot))
    }

    /// Saves the binding of the task in a slot, and when the task was first bound. Allocates nothing. If this fails, do not
    /// bind the task.
    pub fn bind(&self, slot: usize, binding: Binding, bound_ticks: u64) -> Result<()> {
        self.write_at(&binding_text(binding, bound_ticks), offset(slot))
    }

    /// Removes the task in a slot, which has its mask again or has ended.
    pub fn clear(&self, slot: usize) -> Result<()> {
        self.write_at(&padded("\n"), offset(slot))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let refused = |e| Error::io("write", &self.path, e, WAY_OUT);
        self.file.write_all_at(bytes, offset).map_err(refused)
    }

    /// Restores all masks as [`restore`](StateFile::restore) does, and removes the file if it is then empty. Save
    /// nothing after this.
    pub fn finish(&self, roots: &Roots, doubtful: Doubtful) -> Result<Restored> {
        let sum = self.restore(roots, doubtful)?;
        self.remove_if_empty()?;
        Ok(sum)
    }

    /// Restores all masks, and removes the tasks that are done from the file. Also searches for children that may have
    /// inherited a binding of a task in the file. They are in doubt, since nobody recorded who bound them. Tasks that could
    /// not be changed are counted, and stay in the file.
    pub fn restore(&self, roots: &Roots, doubtful: Doubtful) -> Result<Restored> {
        let records = self.records()?;
        let bound = records.iter().filter(|record| record.saved.bound_ticks != NEVER_TICKS);
        let bound: Vec<Saved> = bound.map(|record| record.saved.clone()).collect();
        let mut children = self.new_children(&roots.proc, &bound, &[])?;
        // On a full file system this fails, but there is room once other records are blank.
        let _ = self.put_children(&mut children);
        let first = self.restore_records(roots, doubtful)?;
        // Children forked while those masks were restored.
        children.extend(self.new_children(&roots.proc, &bound, &children)?);
        if children.is_empty() {
            return Ok(first);
        }
        let unwritten = self.put_children(&mut children);
        let second = self.restore_records(roots, doubtful)?;
        unwritten.map(|()| Restored {
            restored: first.restored + second.restored,
            gone: first.gone + second.gone,
            untouched: first.untouched + second.untouched,
            ..second
        })
    }

    /// Children that may have inherited a binding from these tasks, and are neither in the file nor among `others`.
    fn new_children(
        &self,
        root: &ProcRoot,
        of: &[Saved],
        others: &[StateRecord],
    ) -> Result<Vec<StateRecord>> {
        let records = self.records()?;
        let known = || records.iter().chain(others).map(|record| &record.saved).chain(of);
        let mut children = find_children(root, of, self.handled_ticks());
        children.extend(of.iter().filter_map(|saved| successor(root, saved)));
        children.retain(|child| {
            known().all(|of| (of.tid, of.start_ticks) != (child.saved.tid, child.saved.start_ticks))
        });
        Ok(children)
    }

    /// Moves children from the list into free slots, in doubt.
    fn put_children(&self, children: &mut Vec<StateRecord>) -> Result<()> {
        let taken: BTreeSet<usize> = self.records()?.iter().map(|record| record.slot).collect();
        let mut free = (0..).filter(|slot| !taken.contains(slot));
        while let (Some(child), Some(slot)) = (children.last(), free.next()) {
            self.put_record(&StateRecord { slot, in_doubt: true, ..child.clone() })?;
            children.pop();
        }
        Ok(())
    }

    /// As [`restore`](StateFile::restore), but does not search for children.
    pub fn restore_records(&self, roots: &Roots, doubtful: Doubtful) -> Result<Restored> {
        let mut sum = Restored::default();
        for record in self.records()? {
            if record.in_doubt && doubtful == Doubtful::Leave && is_still_in_doubt(&roots.proc, &record) {
                sum.in_doubt += 1;
                continue;
            }
            match restore_mask(roots, &record) {
                Ok(Some(_)) => sum.restored += 1,
                Ok(None) => sum.untouched += 1,
                Err(e) if e.is_gone() => sum.gone += 1,
                Err(_) => {
                    sum.failed += 1;
                    continue;
                }
            }
            self.clear(record.slot)?;
        }
        Ok(sum)
    }

    /// Removes the file if it is empty. Save nothing after this.
    pub fn remove_if_empty(&self) -> Result<()> {
        if self.records()?.is_empty() { self.remove() } else { Ok(()) }
    }

    fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &self.path, e, WAY_OUT))
            }
            _ => Ok(()),
        }
    }
}

fn offset(slot: usize) -> u64 {
    ((slot + 1) * RECORD_BYTES) as u64
}

/// A text padded with blanks to the size of a record, with a newline at the end.
fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.trim_end().as_bytes().to_vec();
    bytes.resize(RECORD_BYTES - 1, b' ');
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests;
