//! The state file: the masks of tasks that may be bound, and what they are bound to, so that the warden, the next daemon, or
//! `--restore` can give them back if the daemon is killed.
//!
//! ```text
//! reprieve-migrate-masks 3 BOOT-ID
//!     -     1                88911 4711 4712 88302 whole 0-3
//!  FROM    TO                BOUND PID  TID  START ...   MASK
//! ```
//! Further on in the first line's page is a time: all forks before it have been handled. A task that is younger may have inherited a
//! binding that nobody has looked at.
//!
//! A record for each slot, of one page each: a record is never half written, since a write within a page of a file is not
//! cut short, not even by SIGKILL. The first three words are rewritten just before each change of affinity: what the task was
//! bound to, what it is being bound to (`-`: its user's mask), and when it was bound first (`-`: never). BOUND and START, the
//! task's start time, are in clock ticks since boot. A slot without a task is blank. `whole` says that the mask was the whole of
//! the task's cpuset; `doubt` after the mask, that the task may have inherited our binding, or may have been bound so by its user. FROM is blanked
//! out (`-`) as soon as a change has succeeded. A reboot makes the file void, since masks do not outlive one.
//!
//! Invariants: a task is in the file before it is bound, and leaves it only when it has its mask again or has ended; what
//! could not be given back stays. A mask in doubt is left alone, unless the user says that it may be given back.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::restore as give_back;
use super::state_record::{Binding, NEVER_TICKS, Saved, StateRecord, binding_text};
use crate::error::{Error, Result};
use crate::migrate::own_file::{self, beside};
use crate::proc::{ProcRoot, SysCpus};

/// How the first line of a state file of any version begins.
const FAMILY: &str = "reprieve-migrate-masks ";
/// First line of a state file.
const HEADER: &str = "reprieve-migrate-masks 3";
/// The size of the header and of each record, bytes: a page, and more than any mask takes in text.
const RECORD_BYTES: usize = 4096;
/// The most tasks in a file.
const MAX_RECORDS: usize = 65_536;
const WAY_OUT: &str = "name another file with --state, in a directory that you may write to";
/// The warden of a daemon that was killed locks the file for a moment, while it gives masks back.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Where in the file the time is up to which forks have been seen to, and its places.
const SEEN_AT: u64 = 256;
const SEEN_BYTES: usize = 20;

/// What to do with tasks that may have inherited a binding, or may have been bound so by their user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubtful {
    /// Leave them as they are, and remember them.
    Leave,
    /// Give them the mask of the task that they descend from.
    GiveBack,
}

/// What giving back came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Tasks that have their mask again, those that had inherited a binding included.
    pub restored: usize,
    /// Tasks that were as their user wants them.
    pub untouched: usize,
    /// Tasks that have ended.
    pub gone: usize,
    /// Tasks that could not be changed; they stay in the file.
    pub failed: usize,
    /// Tasks that are left alone since nobody knows who has bound them; they stay in the file.
    pub in_doubt: usize,
}

/// The state file, locked: two daemons would undo each other's work.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    file: File,
    _lock: File,
}

impl StateFile {
    /// Opens or makes the file at `path` and locks it (by `PATH.lock`, which stays). What a former daemon left is in
    /// [`records`](StateFile::records); if it is of another boot it is void.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another process holds it for two seconds, [`Error::NotPermitted`], [`Error::Io`], [`Error::Malformed`].
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
                "no other `reprieve migrate` may use it; end that one, or name another file with --state";
            return Err(Error::invalid("state file", path.display().to_string(), expected));
        }
        let header = format!("{HEADER} {}\n", root.boot_id()?);
        let file = own_file::open(path).map_err(refused)?;
        let state = StateFile { path: path.into(), file, _lock: lock };
        let found = state.what_and_when()?;
        if found != header.trim_end() {
            if !found.is_empty() && !found.starts_with(FAMILY) {
                return Err(Error::malformed(path, "a state file of reprieve migrate", &found));
            }
            if found.starts_with(FAMILY) && found.ends_with(&root.boot_id()?) {
                let expected =
                    "of this version of reprieve; have the version that wrote it give masks back (--restore)";
                return Err(Error::invalid("state file", path.display().to_string(), expected));
            }
            // A new file, or one of another boot.
            state
                .file
                .set_len(0)
                .and_then(|()| state.file.write_all_at(&padded(&header), 0))
                .map_err(refused)?;
        }
        state.records()?;
        Ok(state)
    }

    /// Gives back what is in the file at `path`, and removes it if nothing is left in it. A file that is not there needs no lock,
    /// and leaves none behind.
    ///
    /// # Errors
    /// As [`open`](StateFile::open) and [`restore`](StateFile::restore).
    pub fn restore_at(path: &Path, root: &ProcRoot, sys: &SysCpus, doubtful: Doubtful) -> Result<Restored> {
        if !path.exists() {
            return Ok(Restored::default());
        }
        StateFile::open(path, root)?.finish(root, sys, doubtful)
    }

    /// Says that all tasks that began before then, in clock ticks since boot, and had inherited a binding, have their masks.
    ///
    /// # Errors
    /// [`Error::Io`]; heirs are looked for from an earlier time on then.
    pub fn saw_forks(&self, ticks: u64) -> Result<()> {
        self.write_at(format!("{ticks:>SEEN_BYTES$}").as_bytes(), SEEN_AT)
    }

    /// The time last saved by [`saw_forks`](StateFile::saw_forks); 0 if none was.
    fn seen_ticks(&self) -> u64 {
        let mut text = [b' '; SEEN_BYTES];
        let read = self.file.read_exact_at(&mut text, SEEN_AT);
        let text = read.ok().and_then(|()| std::str::from_utf8(&text).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// What the file says it is, and its boot.
    fn what_and_when(&self) -> Result<String> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(SEEN_AT).read_to_end(&mut bytes);
        read.map_err(|e| Error::io("read", &self.path, e, WAY_OUT))?;
        Ok(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().trim_end().into())
    }

    /// A file that cannot be written.
    #[cfg(test)]
    pub fn unwritable() -> StateFile {
        let open = || File::open("/dev/null").unwrap();
        StateFile { path: "/dev/null".into(), file: open(), _lock: open() }
    }

    /// The tasks in it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Malformed`].
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
            // Where no task ever was the file has a hole, which reads as zeros.
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

    /// Saves a task in a slot, bound to nothing yet.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NotPermitted`]; the task must not be bound then.
    pub fn put(&self, slot: usize, saved: &Saved) -> Result<()> {
        self.put_record(&StateRecord {
            slot,
            saved: saved.clone(),
            binding: Binding::default(),
            in_doubt: false,
        })
    }

    /// Saves a task in a slot with what it is bound to.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NotPermitted`], [`Error::Invalid`] with too many tasks.
    pub fn put_record(&self, record: &StateRecord) -> Result<()> {
        if record.slot >= MAX_RECORDS {
            return Err(Error::invalid("task to save", record.slot.to_string(), "at most 65536 tasks"));
        }
        self.write_at(&padded(&record.text()), offset(record.slot))
    }

    /// Says what the task in a slot is bound to and is about to be bound to, and when it was bound first. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Io`]; the task must not be bound then.
    pub fn bind(&self, slot: usize, binding: Binding, bound_ticks: u64) -> Result<()> {
        self.write_at(&binding_text(binding, bound_ticks), offset(slot))
    }

    /// Forgets the task in a slot: it has its mask again, or has ended.
    ///
    /// # Errors
    /// [`Error::Io`]; the task is still in the file then.
    pub fn clear(&self, slot: usize) -> Result<()> {
        self.write_at(&padded("\n"), offset(slot))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let refused = |e| Error::io("write", &self.path, e, WAY_OUT);
        self.file.write_all_at(bytes, offset).map_err(refused)
    }

    /// Gives all masks back as [`restore`](StateFile::restore) does, and removes the file if nothing is left in it: nothing may
    /// be saved any more.
    ///
    /// # Errors
    /// As [`restore`](StateFile::restore).
    pub fn finish(&self, root: &ProcRoot, sys: &SysCpus, doubtful: Doubtful) -> Result<Restored> {
        let sum = self.restore(root, sys, doubtful)?;
        self.remove_if_empty()?;
        Ok(sum)
    }

    /// Gives all masks back, and forgets all tasks that have been dealt with. Tasks that may have inherited a binding from
    /// those in the file are looked for: they are in doubt, since nobody was there to see who has bound them.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read or written. Tasks that could not be changed are counted, and stay in it.
    pub fn restore(&self, root: &ProcRoot, sys: &SysCpus, doubtful: Doubtful) -> Result<Restored> {
        let records = self.records()?;
        let bound = records.iter().filter(|record| record.saved.bound_ticks != NEVER_TICKS);
        let bound: Vec<Saved> = bound.map(|record| record.saved.clone()).collect();
        let mut children = self.new_children(root, &bound, &[])?;
        // On a full file system there is room once the others' records are blank.
        let _ = self.put_children(&mut children);
        let first = self.give_back(root, sys, doubtful)?;
        // And what was forked while those were given back.
        children.extend(self.new_children(root, &bound, &children)?);
        if children.is_empty() {
            return Ok(first);
        }
        let unwritten = self.put_children(&mut children);
        let second = self.give_back(root, sys, doubtful)?;
        unwritten.map(|()| Restored {
            restored: first.restored + second.restored,
            gone: first.gone + second.gone,
            untouched: first.untouched + second.untouched,
            ..second
        })
    }

    /// Tasks that may have inherited a binding from these, and are neither in the file nor among `others`.
    fn new_children(
        &self,
        root: &ProcRoot,
        of: &[Saved],
        others: &[StateRecord],
    ) -> Result<Vec<StateRecord>> {
        let records = self.records()?;
        let known = || records.iter().chain(others).map(|record| &record.saved).chain(of);
        let mut children = give_back::find_children(root, of, self.seen_ticks());
        children.extend(of.iter().filter_map(|saved| give_back::successor(root, saved)));
        children.retain(|child| {
            known().all(|of| (of.tid, of.start_ticks) != (child.saved.tid, child.saved.start_ticks))
        });
        Ok(children)
    }

    /// Puts tasks into free slots, as in doubt, and takes them from the list.
    fn put_children(&self, children: &mut Vec<StateRecord>) -> Result<()> {
        let taken: BTreeSet<usize> = self.records()?.iter().map(|record| record.slot).collect();
        let mut free = (0..).filter(|slot| !taken.contains(slot));
        while let (Some(child), Some(slot)) = (children.last(), free.next()) {
            self.put_record(&StateRecord { slot, in_doubt: true, ..child.clone() })?;
            children.pop();
        }
        Ok(())
    }

    /// Gives the masks of the tasks in the file back, and forgets all that have been dealt with.
    ///
    /// # Errors
    /// As [`restore`](StateFile::restore).
    pub fn give_back(&self, root: &ProcRoot, sys: &SysCpus, doubtful: Doubtful) -> Result<Restored> {
        let mut sum = Restored::default();
        for record in self.records()? {
            if record.in_doubt && doubtful == Doubtful::Leave && give_back::is_still_in_doubt(root, &record) {
                sum.in_doubt += 1;
                continue;
            }
            match give_back::give_back(root, sys, &record) {
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

    /// Removes the file if no task is left in it: nothing may be saved any more.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Malformed`].
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

/// A record: blanks up to the size, and the newline last.
fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.trim_end().as_bytes().to_vec();
    bytes.resize(RECORD_BYTES - 1, b' ');
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests;
