//! Makes one table of all parts: a row for each run of the plan, sorted by the run's ID. The same runs give the same bytes, whichever
//! machine made them, in whatever order and how often.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reprieve_study::metric;

use crate::found::Found;
use crate::part::Ended;
use crate::table::{Columns, Row, Tables};
use crate::{Id, Plan, Result, file};

/// IDs of missing runs that are kept.
const MOST_MISSING: u64 = 20;

/// What became of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The tables.
    Whole {
        /// The files.
        files: Vec<PathBuf>,
        /// Their rows.
        rows: u64,
        /// Rows with an error in place of a result.
        failed: u64,
    },
    /// No table was made, because runs are missing.
    Missing {
        /// How many.
        runs: u64,
        /// The first of them, by ID.
        first: Vec<Id>,
    },
}

/// Makes the tables in the sweep's folder. `tell` is told how many rows are written, and may end it by an error. Memory is 48 bytes for each line of a part,
/// 32 for each row, and one group of rows of the tables.
///
/// # Errors
/// That of `tell`, as of [`Found::read`], and if a table cannot be written.
pub fn merge(plan: &Plan, tell: &mut dyn FnMut(u64) -> Result) -> Result<Merged> {
    let rows = plan.index()?;
    let mut metrics = BTreeSet::new();
    let found = Found::read(plan, &|_| true, &mut |outcome| {
        let is_planned = rows.binary_search_by_key(&outcome.id, |(id, _)| *id).is_ok();
        if let (true, Ended::Result(values)) = (is_planned, &outcome.ended) {
            metrics
                .extend(values.metrics.keys().filter_map(|name| metric::find(name)).map(|metric| metric.id));
        }
        tell(0)
    })?;
    if let Some(missing) = missing(&found, &rows) {
        return Ok(missing);
    }
    file::clean(plan.folder());
    let mut entries = plan.entries()?;
    let mut tables = Tables::begin(plan, Columns::of(plan, &metrics))?;
    let mut failed = 0;
    for (written, row) in rows.iter().enumerate() {
        let place = found.place(row.0).expect("none is missing");
        let (outcome, entry) = (found.outcome(place)?, entries.at(*row)?);
        failed += u64::from(place.has_failed);
        tables.push(&Row { plan, entry: &entry, ended: &outcome.ended })?;
        tell(written as u64 + 1)?;
    }
    Ok(Merged::Whole { files: tables.end()?, rows: rows.len() as u64, failed })
}

fn missing(found: &Found, rows: &[(Id, u64)]) -> Option<Merged> {
    let (mut runs, mut first) = (0, Vec::new());
    for rows in rows.chunk_by(|one, other| one.0 == other.0) {
        if found.place(rows[0].0).is_none() {
            runs += 1;
            first.extend((runs <= MOST_MISSING).then_some(rows[0].0));
        }
    }
    (runs > 0).then_some(Merged::Missing { runs, first })
}
