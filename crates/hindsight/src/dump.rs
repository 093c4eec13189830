//! Copies a ring into one file: the minutes before an incident, kept.
//!
//! A dump appears under its name whole or not at all. It is made beside the writer, who need not wait: a segment that is forgotten
//! meanwhile is missing in it, and the current one is copied up to its last whole line.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{day, disk};

const SUFFIX: &str = ".reprieve";
/// What a dump is called until it is whole.
const UNFINISHED: &str = ".unfinished";
/// The longest segment that is copied, bytes: an eighth of the largest ring, and a line.
const MOST_SEGMENT_BYTES: u64 = 256 << 20;
/// Letters of a name.
const MOST_LETTERS: usize = 64;
/// Dumps of one name and second.
const MOST_ALIKE: usize = 100;

/// Copies the ring in `folder` to `folder/dumps/NAME-TIME.reprieve`, and says where that is. `most` dumps are kept: the oldest
/// ones are removed, but no file that is none.
///
/// # Errors
/// The kernel's. Then nothing is left of it.
pub fn dump(folder: &Path, name: &str, day_ns: u64, most: usize) -> io::Result<PathBuf> {
    let dumps = folder.join(disk::DUMPS);
    disk::make(&dumps)?;
    let unfinished = dumps.join(UNFINISHED);
    // Of a writer that was killed.
    if disk::begins_as_one(&unfinished) {
        std::fs::remove_file(&unfinished)?;
    }
    let done = copy(folder, &unfinished).and_then(|()| {
        let path = free_name(&dumps, name, day_ns)?;
        std::fs::rename(&unfinished, &path)?;
        Ok(path)
    });
    match &done {
        Ok(path) => forget(&dumps, path, most)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(_) => drop(std::fs::remove_file(&unfinished)),
    }
    done
}

fn copy(folder: &Path, to: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(disk::careful());
    let mut file = options.open(to)?;
    let (mut bytes, mut is_empty) = (Vec::new(), true);
    for found in disk::segments(folder)? {
        let segment = match disk::open(&found.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened?,
        };
        bytes.clear();
        segment.take(MOST_SEGMENT_BYTES).read_to_end(&mut bytes)?;
        // Nothing may follow half a line.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        file.write_all(&bytes[..whole])?;
        is_empty &= whole == 0;
    }
    match is_empty {
        true => Err(io::Error::other("nothing is recorded yet")),
        false => file.sync_all(),
    }
}

/// A name that is not taken.
fn free_name(dumps: &Path, name: &str, day_ns: u64) -> io::Result<PathBuf> {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let name: String = name.chars().map(plain).take(MOST_LETTERS).collect();
    let time = day::file_text(day_ns);
    let names = (1..=MOST_ALIKE).map(|number| match number {
        1 => dumps.join(format!("{name}-{time}{SUFFIX}")),
        _ => dumps.join(format!("{name}-{time}-{number}{SUFFIX}")),
    });
    let mut free = names.into_iter().filter(|path| std::fs::symlink_metadata(path).is_err());
    free.next().ok_or_else(|| io::Error::other("too many dumps in one second"))
}

/// Removes the oldest dumps beyond `most`; never the newest.
fn forget(dumps: &Path, newest: &Path, most: usize) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dumps)? {
        let path = entry?.path();
        let is_named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(SUFFIX));
        if is_named && path != newest && disk::begins_as_one(&path) {
            let made = std::fs::symlink_metadata(&path).and_then(|found| found.modified())?;
            found.push((made, path));
        }
    }
    found.sort_unstable();
    let too_many = (found.len() + 1).saturating_sub(most.max(1));
    found.iter().take(too_many).try_for_each(|(_, path)| std::fs::remove_file(path))
}
