//! What a sweep runs: written once, and never changed. Nothing but this is read later: neither the scenario's file nor the catalogue.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use reprieve_study::Scenario;
use reprieve_study::scenario::space::expand::Expander;
use reprieve_study::scenario::space::points::Point;
use reprieve_study::scenario::{BadScenario, PlannedRun, Setting};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Id, Result, SweepError, file};

/// Version of the folder's form.
pub const VERSION: u32 = 1;
/// The file of the plan.
pub const PLAN: &str = "plan.json";
/// The file of the runs.
pub const RUNS: &str = "runs.jsonl";
/// The longest `plan.json`, bytes: a scenario and little else.
const MOST_PLAN_BYTES: u64 = 64 << 20;
/// The longest line of `runs.jsonl`, bytes.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// `plan.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    /// [`VERSION`].
    sweep_version: u32,
    /// The program that made it.
    program: String,
    /// The simulator that runs it: no other may.
    simulator: String,
    /// Lines of `runs.jsonl`: the rows of the table.
    rows: u64,
    /// Different runs among them.
    runs: u64,
    /// SHA-256 of `runs.jsonl`.
    runs_sha256: String,
    /// The scenario with all its keys.
    scenario: Scenario,
    /// SHA-256 of this object as compact JSON, with an empty text here and as `program`: any program of that simulator may go on.
    sha256: String,
}

impl Head {
    fn hash(&self) -> String {
        let unhashed = Head { sha256: String::new(), program: String::new(), ..self.clone() };
        hex(Sha256::digest(serde_json::to_vec(&unhashed).expect("every type of a scenario has a JSON form")))
    }
}

fn hex(hash: impl AsRef<[u8]>) -> String {
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line of `runs.jsonl`: a run at a point of the space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What identifies the run.
    pub id: Id,
    /// The number of the point, from 0.
    pub point: u64,
    /// The condition.
    pub condition: String,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// The values of the axes, in their order.
    pub values: Vec<Setting>,
}

/// The plan of a sweep's folder.
pub struct Plan {
    folder: PathBuf,
    head: Head,
}

impl Plan {
    /// Reads the plan of a folder, for this version of the simulator.
    ///
    /// # Errors
    /// There is none, or it was made by another version of this program or of the simulator.
    pub fn open(folder: &Path, simulator: &str) -> Result<Plan> {
        let plan = Plan::read(folder)?;
        let of = &plan.head.simulator;
        if of != simulator {
            let problem = format!(
                "it was made for simulator {of}, and this program is {simulator}: results of both would not compare; use that \
                 program, or plan the sweep again in another folder"
            );
            return Err(SweepError::refused(&folder.join(PLAN), problem));
        }
        plan.check()?;
        Ok(plan)
    }

    fn read(folder: &Path) -> Result<Plan> {
        let path = folder.join(PLAN);
        let mut text = String::new();
        let read = file::open(&path).and_then(|file| file.take(MOST_PLAN_BYTES).read_to_string(&mut text));
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => SweepError::refused(
                &path,
                "there is no plan; make one with: reprieve sweep plan SCENARIO -o FOLDER",
            ),
            _ => SweepError::Io { path: path.clone(), error },
        })?;
        let refused = |problem: String| {
            SweepError::refused(&path, format!("{problem}; plan the sweep again in another folder"))
        };
        let damaged = |error: serde_json::Error| refused(format!("not a plan of this program: {error}"));
        #[derive(Deserialize)]
        struct Version {
            sweep_version: u32,
        }
        let Version { sweep_version } = serde_json::from_str(&text).map_err(damaged)?;
        if sweep_version != VERSION {
            return Err(refused(format!("its version is {sweep_version}, and this program reads {VERSION}")));
        }
        let head: Head = serde_json::from_str(&text).map_err(damaged)?;
        Ok(Plan { folder: folder.into(), head })
    }

    /// Refuses a plan that somebody changed.
    fn check(&self) -> Result {
        if self.head.hash() != self.head.sha256 {
            let problem =
                "it was changed; remove it, and plan the sweep again: runs that are finished stay finished";
            return Err(SweepError::refused(&self.folder.join(PLAN), problem));
        }
        Ok(self.head.scenario.check()?)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The scenario with its space.
    pub fn scenario(&self) -> &Scenario {
        &self.head.scenario
    }

    /// Tells it from other plans, in a few digits.
    pub(crate) fn mark(&self) -> &str {
        self.head.sha256.get(..8).unwrap_or_default()
    }

    /// The version of the simulator that runs it.
    pub fn simulator(&self) -> &str {
        &self.head.simulator
    }

    /// The number of rows that its table will have.
    pub fn rows(&self) -> u64 {
        self.head.rows
    }

    /// The number of different runs: several rows can be one run.
    pub fn runs(&self) -> u64 {
        self.head.runs
    }

    /// The runs, to be read in any order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries(&self) -> Result<Entries> {
        let path = self.folder.join(RUNS);
        let lines = BufReader::new(file::open(&path).map_err(SweepError::io(&path))?);
        let axes = self.head.scenario.space.as_ref().map_or(0, |space| space.axes.len());
        Ok(Entries { path, lines, line: Vec::new(), axes })
    }

    /// Reads the whole of `runs.jsonl`, and makes sure that it is what was planned. Gives each ID with the offset of its line, by ID.
    ///
    /// # Errors
    /// The file cannot be read, or was changed.
    pub fn index(&self) -> Result<Vec<(Id, u64)>> {
        let (mut entries, mut hash, mut index) = (self.entries()?, Sha256::new(), Vec::new());
        while let Some((offset, entry)) = entries.next_entry()? {
            hash.update(&entries.line);
            index.push((entry.id, offset));
            if index.len() as u64 > self.head.rows {
                return Err(damaged(&entries.path, "it has more lines than were planned"));
            }
        }
        if hex(hash.finalize()) != self.head.runs_sha256 {
            return Err(SweepError::refused(
                &entries.path,
                "it was changed; the same `sweep plan` as before makes it again",
            ));
        }
        index.sort_unstable();
        Ok(index)
    }

    /// The run of an entry, which must be what its ID says.
    ///
    /// # Errors
    /// It cannot be run, or is not what the plan says.
    pub fn expand(&self, expander: &Expander<'_>, entry: &Entry) -> Result<PlannedRun> {
        let run = expander.run(&entry.condition, entry.repetition, &entry.values)?;
        let id = Id::of(&run, self.simulator());
        if id != entry.id {
            let problem = format!(
                "the run of point {} is {id}, and not {}: it was changed; the same `sweep plan` as before makes it again",
                entry.point, entry.id
            );
            return Err(SweepError::refused(&self.folder.join(RUNS), problem));
        }
        Ok(run)
    }
}

/// The runs of a plan, to be read in any order.
pub struct Entries {
    path: PathBuf,
    lines: BufReader<File>,
    line: Vec<u8>,
    /// Values that each has.
    axes: usize,
}

impl Entries {
    /// The next run, with the place of its line; `None` after the last one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn next_entry(&mut self) -> Result<Option<(u64, Entry)>> {
        let offset = self.lines.stream_position().map_err(SweepError::io(&self.path))?;
        let entry = read_entry(&self.path, &mut self.lines, &mut self.line)?;
        if entry.as_ref().is_some_and(|entry| entry.values.len() != self.axes) {
            return Err(damaged(&self.path, "a line has more values than the space has axes, or fewer"));
        }
        Ok(entry.map(|entry| (offset, entry)))
    }

    /// The run of that ID, whose line is at that place.
    ///
    /// # Errors
    /// It cannot be read, or is another one.
    pub fn at(&mut self, (id, offset): (Id, u64)) -> Result<Entry> {
        self.lines.seek(SeekFrom::Start(offset)).map_err(SweepError::io(&self.path))?;
        let entry = self.next_entry()?.map(|(_, entry)| entry).filter(|entry| entry.id == id);
        entry.ok_or_else(|| SweepError::refused(&self.path, "it was changed while it was read; do it again"))
    }
}

fn read_entry(path: &Path, lines: &mut BufReader<File>, line: &mut Vec<u8>) -> Result<Option<Entry>> {
    line.clear();
    if lines.take(MOST_LINE_BYTES).read_until(b'\n', line).map_err(SweepError::io(path))? == 0 {
        return Ok(None);
    }
    serde_json::from_slice(line)
        .map(Some)
        .map_err(|error| damaged(path, &format!("a line is damaged: {error}")))
}

fn damaged(path: &Path, problem: &str) -> SweepError {
    SweepError::refused(path, format!("{problem}; the same `sweep plan` as before makes the file again"))
}

/// Writes the plan of a scenario's space into a folder, which may be there. `tell` is told how many points are done, and may end it by an
/// error.
///
/// # Errors
/// That of `tell`; or the scenario has no space, a point cannot be run, an axis changes nothing, or the folder has another plan.
pub fn write(
    folder: &Path,
    scenario: &Scenario,
    program: &str,
    simulator: &str,
    tell: &mut dyn FnMut(u64) -> Result,
) -> Result<Plan> {
    if scenario.space.is_none() {
        return Err(BadScenario::new("space", "the scenario has no space; add [space] with its axes").into());
    }
    fs::create_dir_all(folder).map_err(SweepError::io(folder))?;
    file::clean(folder);
    let path = folder.join(RUNS);
    let mut runs = file::unfinished(folder)?;
    let mut written = Written::new(scenario, simulator, &mut runs, &path)?;
    for point in scenario.space.iter().flat_map(|space| space.each_point(scenario.run.seed)) {
        written.point(&point)?;
        tell(point.number + 1)?;
    }
    let (count, distinct, runs_sha256) = written.end()?;
    let mut head = Head {
        sweep_version: VERSION,
        program: program.into(),
        simulator: simulator.into(),
        rows: count,
        runs: distinct,
        runs_sha256,
        scenario: scenario.clone(),
        sha256: String::new(),
    };
    head.sha256 = head.hash();
    let plan = Plan { folder: folder.into(), head };
    if folder.join(PLAN).exists() && Plan::read(folder)?.head.sha256 != plan.head.sha256 {
        let problem = "the folder has another plan; choose another folder, or remove this one";
        return Err(SweepError::refused(&folder.join(PLAN), problem));
    }
    // Also if the same plan was there: perhaps its files were changed.
    file::finish(runs, &path)?;
    let text = serde_json::to_vec_pretty(&plan.head).expect("every type of a scenario has a JSON form");
    file::put(&folder.join(PLAN), &text)?;
    Ok(plan)
}

/// `runs.jsonl` while it is written.
struct Written<'a, W: Write> {
    scenario: &'a Scenario,
    simulator: &'a str,
    path: &'a Path,
    expander: Expander<'a>,
    out: BufWriter<W>,
    hash: Sha256,
    ids: Vec<Id>,
    /// For each axis, why no run so far reads it; `None` once one does.
    unread: Vec<Option<String>>,
}

impl<'a, W: Write> Written<'a, W> {
    fn new(scenario: &'a Scenario, simulator: &'a str, out: W, path: &'a Path) -> Result<Written<'a, W>> {
        let axes = scenario.space.iter().flat_map(|space| space.axes.values());
        Ok(Written {
            scenario,
            simulator,
            path,
            expander: Expander::new(scenario)?,
            out: BufWriter::new(out),
            hash: Sha256::new(),
            ids: Vec::new(),
            unread: axes
                .map(|axis| Some(format!("{}: no run under these conditions has it", axis.key)))
                .collect(),
        })
    }

    fn point(&mut self, point: &Point) -> Result {
        for condition in self.scenario.space_conditions() {
            let first = self.expander.run(condition, 0, &point.values)?;
            self.note_unread(&first);
            for repetition in 0..self.scenario.run.repeat {
                let run = PlannedRun { repetition, ..first.clone() };
                self.line(&Entry {
                    id: Id::of(&run, self.simulator),
                    point: point.number,
                    condition: condition.into(),
                    repetition,
                    values: point.values.clone(),
                })?;
            }
        }
        Ok(())
    }

    fn line(&mut self, entry: &Entry) -> Result {
        let mut line = serde_json::to_vec(entry).expect("every type of a scenario has a JSON form");
        line.push(b'\n');
        self.hash.update(&line);
        self.ids.push(entry.id);
        self.out.write_all(&line).map_err(SweepError::io(self.path))
    }

    /// Notes which axes this run reads.
    fn note_unread(&mut self, run: &PlannedRun) {
        for (axis, effect) in self.expander.effects(run).enumerate() {
            match (effect, &mut self.unread[axis]) {
                (Some(Ok(())), unread) => *unread = None,
                (Some(Err(why)), Some(unread)) => *unread = why.to_string(),
                _ => {}
            }
        }
    }

    /// Lines, different runs, and the hash of the file.
    fn end(mut self) -> Result<(u64, u64, String)> {
        let axes = self.scenario.space.iter().flat_map(|space| space.axes.keys());
        if let Some((name, why)) = axes.zip(&self.unread).find_map(|(name, why)| Some((name, why.as_ref()?)))
        {
            return Err(BadScenario::new(format!("space.axes.{name}"), why.clone()).into());
        }
        self.out.flush().map_err(SweepError::io(self.path))?;
        let count = self.ids.len() as u64;
        self.ids.sort_unstable();
        self.ids.dedup();
        Ok((count, self.ids.len() as u64, hex(self.hash.finalize())))
    }
}
