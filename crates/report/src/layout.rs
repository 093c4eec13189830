//! Which tables a study gets, on the terminal and the page alike.

use reprieve_study::{Study, Workload};

use crate::side_by_side::{self, SideBySide};
use crate::stimuli;

/// The tables of a study.
pub enum Layout {
    /// One of all conditions, a row each.
    SideBySide(SideBySide),
    /// One for each metric: cases by conditions.
    Grids,
    /// Each case as a study of its own, with its name; each compares conditions with the case's own baseline.
    Cases(Vec<(String, Study)>),
    /// One for each condition against the baseline.
    Comparisons,
}

impl Layout {
    /// What suits the workload.
    pub fn of(study: &Study) -> Layout {
        if let Some(side) = side_by_side::of(study) {
            return Layout::SideBySide(side);
        }
        if stimuli::is_of(study) {
            return Layout::SideBySide(stimuli::table(study));
        }
        match (&study.scenario.workload, study.scenario.cases.is_empty()) {
            (_, true) => Layout::Comparisons,
            (Workload::Io(_), false) => Layout::Grids,
            (_, false) => Layout::Cases(study.of_cases()),
        }
    }
}
