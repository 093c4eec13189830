//! The table of a sweep: a row for each run, tidy: one value a cell, one meaning a column. The same table as CSV, for people and
//! spreadsheets, and as Parquet, for pandas, polars, DuckDB and R.
//!
//! | columns | what they hold |
//! |---|---|
//! | `id` | what identifies the run; rows whose axes make no difference have the same one |
//! | `point`, `condition`, `repetition`, `seed` | where in the sweep it stands |
//! | one for each axis | its value at this point, also where the condition does not read it |
//! | one for each metric | see [`reprieve_study::metric`]; empty if it was not measured |
//! | `error` | why the run failed; empty if it did not |
//! | `events`, `result_hash` | events that were simulated, and the hash of all that was observed |
//! | `scenario`, `ground`, `simulator` | what made the row |

mod comma;
mod parquet;

use std::collections::BTreeSet;
use std::path::PathBuf;

use reprieve_study::metric;
use reprieve_study::scenario::Setting;
use reprieve_study::scenario::space::Axis;

use crate::part::Ended;
use crate::plan::Entry;
use crate::{Plan, Result, SweepError, file};

/// The table as CSV.
pub const CSV: &str = "table.csv";
/// The table as Parquet.
pub const PARQUET: &str = "table.parquet";

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing.
    Nothing,
    /// A text.
    Text(&'a str),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// True or false.
    Bool(bool),
}

/// What the cells of a column hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Texts.
    Text,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Number,
    /// True or false.
    Bool,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What its cells hold.
    pub kind: Kind,
}

/// The columns of a sweep's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// All of them, in their order.
    pub all: Vec<Column>,
    /// Identifiers of the metrics among them.
    metrics: Vec<&'static str>,
}

impl Columns {
    /// For a plan whose runs gave these metrics.
    pub fn of(plan: &Plan, seen: &BTreeSet<&str>) -> Columns {
        let metrics: Vec<&str> =
            metric::ALL.iter().map(|metric| metric.id).filter(|id| seen.contains(*id)).collect();
        let axes = plan.scenario().space.iter().flat_map(|space| &space.axes);
        let named = |names: &[(&str, Kind)]| {
            names.iter().map(|(name, kind)| Column { name: (*name).into(), kind: *kind }).collect::<Vec<_>>()
        };
        let mut all = named(&[
            ("id", Kind::Text),
            ("point", Kind::Whole),
            ("condition", Kind::Text),
            ("repetition", Kind::Whole),
            ("seed", Kind::Whole),
        ]);
        all.extend(axes.map(|(name, axis)| Column { name: name.clone(), kind: kind_of(axis) }));
        all.extend(metrics.iter().map(|id| Column { name: (*id).into(), kind: Kind::Number }));
        all.extend(named(&[
            ("error", Kind::Text),
            ("note", Kind::Text),
            ("events", Kind::Whole),
            ("result_hash", Kind::Text),
            ("scenario", Kind::Text),
            ("ground", Kind::Text),
            ("simulator", Kind::Text),
        ]));
        Columns { all, metrics }
    }
}

/// What the values of an axis are, if all are alike; else texts.
fn kind_of(axis: &Axis) -> Kind {
    if let Some(range) = &axis.range {
        return if range.whole { Kind::Whole } else { Kind::Number };
    }
    let all = |is: fn(&Setting) -> bool| axis.values.iter().all(is);
    match () {
        () if all(|value| matches!(value, Setting::Bool(_))) => Kind::Bool,
        () if all(|value| matches!(value, Setting::Integer(_))) => Kind::Whole,
        () if all(|value| value.number().is_some()) => Kind::Number,
        () => Kind::Text,
    }
}

/// A run with its outcome.
pub struct Row<'a> {
    /// Of this plan.
    pub plan: &'a Plan,
    /// The run.
    pub entry: &'a Entry,
    /// What became of it.
    pub ended: &'a Ended,
}

impl Row<'_> {
    /// Gives the cells, in the order of the columns, to a function.
    pub fn cells(&self, columns: &Columns, mut give: impl FnMut(&Column, Cell<'_>)) {
        let Row { plan, entry, ended } = self;
        let scenario = plan.scenario();
        let values = match ended {
            Ended::Result(values) => Some(values),
            Ended::Error(_) => None,
        };
        let error = match ended {
            Ended::Result(_) => Cell::Nothing,
            Ended::Error(error) => Cell::Text(error),
        };
        let (id, mut all) = (entry.id.to_string(), columns.all.iter());
        let mut next = |cell: Cell<'_>| give(all.next().expect("a column for each cell"), cell);
        next(Cell::Text(&id));
        next(Cell::Whole(entry.point as i64));
        next(Cell::Text(&entry.condition));
        next(Cell::Whole(entry.repetition.into()));
        next(Cell::Whole(scenario.run.seed as i64));
        let axes = scenario.space.iter().flat_map(|space| space.axes.values());
        for (axis, value) in axes.zip(&entry.values) {
            let text = value.to_string();
            next(match (kind_of(axis), value) {
                (Kind::Bool, Setting::Bool(value)) => Cell::Bool(*value),
                (Kind::Whole, Setting::Integer(value)) => Cell::Whole(*value),
                (Kind::Number, value) => value.number().map_or(Cell::Nothing, Cell::Number),
                _ => Cell::Text(&text),
            });
        }
        for metric in &columns.metrics {
            next(
                values
                    .and_then(|values| values.metrics.get(*metric))
                    .map_or(Cell::Nothing, |value| Cell::Number(*value)),
            );
        }
        next(error);
        let note = values.map(|values| values.note.as_str()).filter(|note| !note.is_empty());
        next(note.map_or(Cell::Nothing, Cell::Text));
        next(values.map_or(Cell::Nothing, |values| Cell::Whole(values.events as i64)));
        next(values.map_or(Cell::Nothing, |values| Cell::Text(&values.result_hash)));
        next(Cell::Text(&scenario.name));
        next(values.map_or(Cell::Nothing, |values| Cell::Text(&values.ground)));
        next(Cell::Text(plan.simulator()));
    }
}

/// Both tables while they are written. They appear under their names once both are whole.
pub struct Tables {
    columns: Columns,
    comma: comma::Table,
    parquet: parquet::Table,
    folder: PathBuf,
}

impl Tables {
    /// Begins them in the sweep's folder.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn begin(plan: &Plan, columns: Columns) -> Result<Tables> {
        let folder = plan.folder().to_path_buf();
        let comma = comma::Table::begin(file::unfinished(&folder)?, &columns)
            .map_err(SweepError::io(&folder.join(CSV)))?;
        let parquet = parquet::Table::begin(file::unfinished(&folder)?, &columns)
            .map_err(SweepError::io(&folder.join(PARQUET)))?;
        Ok(Tables { columns, comma, parquet, folder })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn push(&mut self, row: &Row<'_>) -> Result {
        row.cells(&self.columns, |_, cell| {
            self.comma.cell(cell);
            self.parquet.cell(cell);
        });
        self.comma.end_row().map_err(SweepError::io(&self.folder.join(CSV)))?;
        self.parquet.end_row().map_err(SweepError::io(&self.folder.join(PARQUET)))
    }

    /// Gives both tables their names.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn end(self) -> Result<Vec<PathBuf>> {
        let (csv, parquet) = (self.folder.join(CSV), self.folder.join(PARQUET));
        let first = self.comma.end().map_err(SweepError::io(&csv))?;
        let second = self.parquet.end().map_err(SweepError::io(&parquet))?;
        // Both are on the disk before either has its name.
        for (file, path) in [(&first, &csv), (&second, &parquet)] {
            file.as_file().sync_all().map_err(SweepError::io(path))?;
        }
        file::finish(first, &csv)?;
        file::finish(second, &parquet)?;
        Ok(vec![csv, parquet])
    }
}
