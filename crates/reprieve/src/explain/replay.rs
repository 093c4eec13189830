//! `reprieve explain FILE`: judges a hindsight record: its worst ten seconds, or others, and lists what else there was. Writes it for
//! the Perfetto viewer, and for a replay in the simulator.

mod incidents;
mod window;
mod write;

use std::path::Path;

use reprieve_hindsight::{ReadError, Record, day, read};
use reprieve_policy::explain::{self, Evidence};
use reprieve_policy::sample::beats_per_second;
use reprieve_study::{shown, units};
use serde_json::json;

use super::words;
use crate::cli::{ExplainArguments, ReplayArguments};
use crate::failure::Failure;
use crate::output::{self, Promised};
use incidents::Incident;
use window::{Choice, Window};

/// The longest list of incidents in the output.
const MOST_SHOWN: usize = 20;

/// Judges a record.
pub fn replay(path: &Path, arguments: &ExplainArguments) -> Result<(), Failure> {
    let ReplayArguments { at, last, perfetto, tape, .. } = &arguments.replay;
    let record = read(path).map_err(|error| match error {
        ReadError::Io { .. }
        | ReadError::NoRecord(_)
        | ReadError::Newer { .. }
        | ReadError::TooLarge(_)
        | ReadError::TooMuch(_) => Failure::Usage(error.to_string()),
    })?;
    say_damage(path, &record);
    let empty = || Failure::Usage(format!("{}: it has no sample that can be read", path.display()));
    let incidents = incidents::of(&record);
    let window = match (at, last) {
        (Some(day_ns), _) => {
            let found = window::around(&record, *day_ns);
            found.ok_or_else(|| nothing_at(path, &record, *day_ns))?
        }
        (None, Some(span_ns)) => window::last(&record, *span_ns).ok_or_else(empty)?,
        (None, None) => window::worst(&record).ok_or_else(empty)?,
    };
    refuse_overwriting(path, [perfetto.as_deref(), tape.as_deref()])?;
    // Both are promised and made before anything is written.
    let trace = perfetto.as_deref().map(Promised::open).transpose()?;
    let tape = tape.as_deref().map(|path| Ok::<_, Failure>((path, Promised::open(path)?))).transpose()?;
    let traced = trace.is_some().then(|| write::perfetto(&record).map_err(Failure::Usage)).transpose()?;
    let made = tape.is_some().then(|| write::tape(&record, &window).map_err(Failure::Usage)).transpose()?;
    if let Some((trace, traced)) = trace.zip(traced) {
        trace.write(&traced)?;
    }
    if let Some(((name, tape), made)) = tape.zip(made) {
        let length = units::duration(made.length_ns as f64);
        tape.write(made.to_json().as_bytes())?;
        let vcpus = made.vcpus();
        output::say(&format!(
            "{}: {length} of {vcpus} vCPUs; a scenario replays it by: replay = {:?}. The error known for replays, from recordings \
             by a host: averages of grace periods came out 0.72 to 0.95 of the recorded ones (docs/hindsight.md)",
            name.display(),
            name.display().to_string()
        ));
    }
    output::print(&told(&record, &incidents, &window, arguments.json))
}

/// Refuses outputs that are one file, or that would replace the record or a part of it.
fn refuse_overwriting(record: &Path, outputs: [Option<&Path>; 2]) -> Result<(), Failure> {
    // Of a file that is not there yet, the folder tells which one it will be.
    let real = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let named = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(named).unwrap_or_else(|| path.to_path_buf())
    };
    let is_of_record = |path: &Path| {
        let (record, path) = (real(record), real(path));
        path == record
            || (path.parent() == Some(&record) && path.extension().is_some_and(|end| end == "segment"))
    };
    if let Some(bad) = outputs.into_iter().flatten().find(|path| is_of_record(path)) {
        return Err(Failure::Usage(format!(
            "{}: that is the record itself; name another file",
            bad.display()
        )));
    }
    match outputs {
        [Some(one), Some(other)] if real(one) == real(other) => Err(Failure::Usage(format!(
            "{}: named for both --perfetto and --tape; name two files",
            one.display()
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn say_damage(path: &Path, record: &Record) {
    let path = path.display();
    match (record.damaged, record.torn) {
        (0, 0) => {}
        (0, torn) => output::say(&format!(
            "{path}: {torn} incomplete {} left out: the recorder was killed",
            if torn == 1 { "line is" } else { "lines are" }
        )),
        (damaged, torn) => output::say(&format!(
            "reprieve: {path}: {damaged} damaged and {torn} incomplete lines are left out; what is said rests on the others"
        )),
    }
}

fn nothing_at(path: &Path, record: &Record, day_ns: u64) -> Failure {
    let samples = || record.stretches.iter().flat_map(|stretch| &stretch.samples);
    let (first, last) = (samples().next(), samples().last());
    let day = |sample: Option<&reprieve_policy::sample::Sample>| {
        sample.map_or("nothing".into(), |sample| day::text(sample.day_ns))
    };
    Failure::Usage(format!(
        "{}: nothing is recorded at {}; it has {} to {}",
        path.display(),
        day::text(day_ns),
        day(first),
        day(last)
    ))
}

/// The verdict on the window, and then what is in the file.
fn told(record: &Record, incidents: &[Incident], window: &Window<'_>, as_json: bool) -> String {
    let seen = Evidence::of(window.judged());
    let verdict = explain::judge(&seen);
    let text = words::of(&seen, &verdict, as_json);
    if as_json {
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let listed: Vec<serde_json::Value> = incidents.iter().map(Incident::json).collect();
        value["record"] = json!({
            "from": day::text(window.begin_day_ns()),
            "to": day::text(window.end_day_ns()),
            "chosen": window.choice.name(),
            "close": window.is_close(),
            "host": window.stretch.header.host,
            "kernel": window.stretch.header.kernel,
            "span_ns": span_ns(record),
            "incidents": listed,
            "damaged_lines": record.damaged,
            "incomplete_lines": record.torn,
        });
        return format!("{}\n", shown::json(&value.to_string()));
    }
    let count = match incidents.len() {
        0 => "No incident".into(),
        1 => "1 incident".into(),
        count => format!("{count} incidents"),
    };
    let length = units::duration(span_ns(record) as f64);
    let span = units::duration(window.span_ns() as f64);
    let chosen = match window.choice {
        Choice::Worst => format!("the worst {span}"),
        Choice::Around => format!("{span} around that time"),
        Choice::Last => format!("the last {span}"),
    };
    let mut all = text;
    all.push_str(&format!(
        "Judged: {chosen}, up to {}, of {length} of {}. {count}.\n",
        day::text(window.end_day_ns()),
        shown::line(&window.stretch.header.host)
    ));
    if !window.is_close() {
        // A look that became a close one within the window is as coarse as its beginning.
        let beats = window.judged().map(|sample| sample.beat_ns).max().map_or(0, beats_per_second);
        all.push_str(&format!(
            "  (at least a part was seen with {beats} beats a second only: they show what part of the time a vCPU was off, not when)\n"
        ));
    }
    if !incidents.is_empty() {
        all.push_str("Incidents:\n");
        incidents
            .iter()
            .take(MOST_SHOWN)
            .for_each(|incident| all.push_str(&format!("  {}\n", incident.words())));
    }
    if incidents.len() > MOST_SHOWN {
        all.push_str(&format!("  and {} more (--json lists all)\n", incidents.len() - MOST_SHOWN));
    }
    all
}

/// The recorded time, ns.
fn span_ns(record: &Record) -> u64 {
    let samples = record.stretches.iter().flat_map(|stretch| &stretch.samples);
    samples.fold(0, |sum, sample| sum.saturating_add(sample.span_ns))
}
