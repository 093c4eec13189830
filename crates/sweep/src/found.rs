//! What a sweep's folder holds of finished runs. Nothing of a part is trusted: a last line that is torn, and lines that are damaged, are
//! left out and counted, so their runs are done again; results of one run must be equal to the byte.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::part::{self, Attempt, Ended, Line, MOST_LINE_BYTES, OPEN, Outcome, PARTS, WHOLE};
use crate::plan::VERSION;
use crate::{Id, Plan, Result, SweepError, file};

/// Parts that stay open while they are read again. Most systems allow a thousand files.
const MOST_OPEN: usize = 512;

/// Where the line of a finished run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The run.
    pub id: Id,
    part: u32,
    bytes: u32,
    offset: u64,
    /// Whether the run failed.
    pub has_failed: bool,
}

/// A part that was found.
#[derive(Clone, Debug)]
pub struct FoundPart {
    /// The file.
    pub path: PathBuf,
    /// Who made it, if its first line is whole.
    pub attempt: Option<Attempt>,
    /// Whether its shard was done when it ended.
    pub is_whole: bool,
    /// Runs in it.
    pub runs: u64,
    /// Lines that are damaged.
    pub damaged: u64,
    /// When it was last written to.
    pub written: Option<SystemTime>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The parts, by name.
    pub parts: Vec<FoundPart>,
    /// A place for each finished run, by ID. While they are read, 48 bytes are held for each line.
    pub places: Vec<Place>,
    /// Parts that stay open, to be read again.
    files: Vec<OnceCell<File>>,
}

impl Found {
    /// Reads all parts of which `wanted` says so by their path. `see` sees each outcome, and may end it by an error.
    ///
    /// # Errors
    /// That of `see`; or a part cannot be read, was made by another simulator, or has another result of a run than another one has.
    pub fn read(
        plan: &Plan,
        wanted: &dyn Fn(&Path) -> bool,
        see: &mut dyn FnMut(&Outcome) -> Result,
    ) -> Result<Found> {
        let mut found = Found::default();
        for path in paths(plan)?.into_iter().filter(|path| wanted(path)) {
            found.add(plan, path, see)?;
        }
        found.places.sort_unstable();
        found.drop_duplicates()?;
        Ok(found)
    }

    /// The line of a finished run.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub fn line(&self, place: &Place) -> Result<Vec<u8>> {
        let number = place.part as usize;
        let path = &self.parts[number].path;
        let mut line = vec![0; place.bytes as usize];
        let read = match &self.files[number] {
            kept if number < MOST_OPEN => {
                let opened = match kept.get() {
                    Some(file) => Ok(file),
                    None => open(path).map(|file| kept.get_or_init(|| file)),
                };
                opened.and_then(|file| file.read_exact_at(&mut line, place.offset))
            }
            _ => open(path).and_then(|file| file.read_exact_at(&mut line, place.offset)),
        };
        read.map_err(SweepError::io(path))?;
        Ok(line)
    }

    /// The outcome of a finished run.
    ///
    /// # Errors
    /// It cannot be read any more, or was changed since.
    pub fn outcome(&self, place: &Place) -> Result<Outcome> {
        let line = self.line(place)?;
        match part::checked(&line).map(serde_json::from_slice) {
            Some(Ok(Line::Outcome(outcome))) if outcome.id == place.id => Ok(outcome),
            _ => {
                let path = &self.parts[place.part as usize].path;
                Err(SweepError::refused(path, "it was changed while it was read; do it again"))
            }
        }
    }

    /// The place of a run, if it is finished.
    pub fn place(&self, id: Id) -> Option<&Place> {
        self.places.binary_search_by_key(&id, |place| place.id).ok().map(|index| &self.places[index])
    }

    fn add(&mut self, plan: &Plan, path: PathBuf, see: &mut dyn FnMut(&Outcome) -> Result) -> Result {
        let number = self.parts.len() as u32;
        let file = open(&path).map_err(SweepError::io(&path))?;
        let written = file.metadata().and_then(|about| about.modified()).ok();
        let is_whole = !path.to_string_lossy().ends_with(OPEN);
        let mut part = FoundPart { path, attempt: None, is_whole, runs: 0, damaged: 0, written };
        let mut lines = Lines { input: BufReader::new(file), offset: 0, line: Vec::new() };
        while let Some((offset, line)) = lines.next().map_err(SweepError::io(&part.path))? {
            match part::checked(line).and_then(|json| serde_json::from_slice(json).ok()) {
                Some(Line::Attempt { attempt }) => {
                    check(plan, &part.path, &attempt)?;
                    part.attempt = Some(attempt);
                }
                Some(Line::Outcome(outcome)) => {
                    see(&outcome)?;
                    part.runs += 1;
                    let has_failed = matches!(outcome.ended, Ended::Error(_));
                    let bytes = line.len() as u32;
                    self.places.push(Place { id: outcome.id, part: number, bytes, offset, has_failed });
                }
                None => part.damaged += 1,
            }
        }
        self.parts.push(part);
        self.files.push(OnceCell::new());
        Ok(())
    }

    /// Leaves one place of each run, if all of its results are equal.
    fn drop_duplicates(&mut self) -> Result {
        let mut places = std::mem::take(&mut self.places);
        let mut problem = Ok(());
        places.dedup_by(|place, kept| {
            if place.id != kept.id || problem.is_err() {
                return false;
            }
            problem = self.check_equal(kept, place);
            true
        });
        self.places = places;
        problem
    }

    fn check_equal(&self, one: &Place, other: &Place) -> Result {
        if self.line(one)? == self.line(other)? {
            return Ok(());
        }
        let path = |place: &Place| self.parts[place.part as usize].path.clone();
        Err(SweepError::Differ { id: one.id.to_string(), one: path(one), other: path(other) })
    }
}

/// Opens a part, which may have been given its other name meanwhile.
fn open(path: &Path) -> io::Result<File> {
    let opened = file::open(path);
    let whole = path.to_str().and_then(|text| text.strip_suffix(OPEN)).map(|name| format!("{name}{WHOLE}"));
    match (opened, whole) {
        (Err(error), Some(whole)) if error.kind() == io::ErrorKind::NotFound => file::open(Path::new(&whole)),
        (opened, _) => opened,
    }
}

/// The parts of the folder, by name.
fn paths(plan: &Plan) -> Result<Vec<PathBuf>> {
    let folder = plan.folder().join(PARTS);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(SweepError::io(&folder))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(SweepError::io(&folder))?;
        let path = entry.path();
        // A pipe would never end.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && path.to_str().is_some_and(|name| name.ends_with(WHOLE) || name.ends_with(OPEN)) {
            paths.push(path);
        }
    }
    paths.sort();
    // It got its other name while the folder was read.
    paths.dedup_by(|open, whole| {
        open.to_str() == whole.to_str().map(|name| format!("{name}.open")).as_deref()
    });
    Ok(paths)
}

fn check(plan: &Plan, path: &Path, attempt: &Attempt) -> Result {
    if attempt.sweep_version != VERSION {
        let problem = format!(
            "its version is {}, and this program reads {VERSION}: move this file out of the folder",
            attempt.sweep_version
        );
        return Err(SweepError::refused(path, problem));
    }
    if attempt.simulator != plan.simulator() {
        let problem = format!(
            "it was made by simulator {}, and the plan is for {}; their results do not compare: move this file out of the folder",
            attempt.simulator,
            plan.simulator()
        );
        return Err(SweepError::refused(path, problem));
    }
    Ok(())
}

/// Lines with their offsets. A last one without its break is torn, and left out; of one that is too long, only its end is seen, which
/// is damaged.
struct Lines<R> {
    input: R,
    offset: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        loop {
            self.line.clear();
            let offset = self.offset;
            let read = self.input.by_ref().take(MOST_LINE_BYTES as u64).read_until(b'\n', &mut self.line)?;
            self.offset += read as u64;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
                return Ok(Some((offset, &self.line)));
            }
            if read < MOST_LINE_BYTES {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_left_out_and_a_long_one_is_passed_over() {
        let long = [vec![b'x'; MOST_LINE_BYTES + 5], b"\nshort\ntorn".to_vec()].concat();
        let mut lines = Lines { input: &long[..], offset: 0, line: Vec::new() };
        let (offset, line) = lines.next().unwrap().unwrap();
        assert_eq!((offset, line), (MOST_LINE_BYTES as u64, &b"xxxxx"[..]));
        let (offset, line) = lines.next().unwrap().unwrap();
        assert_eq!((offset, line), (MOST_LINE_BYTES as u64 + 6, &b"short"[..]));
        assert_eq!(lines.next().unwrap(), None);
    }
}
