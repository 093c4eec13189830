//! A metric over the axes of a space, in words and as a table.

use reprieve_study::Metric;
use reprieve_study::scenario::space::Axis;
use reprieve_study::statistics::Estimate;
use reprieve_study::surface::{Cell, Surface};
use reprieve_study::units::significant;

/// The metric itself, or its ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The metric.
    Value,
    /// Its ratio to the baseline.
    Ratio,
}

/// A surface, and all that words need to tell what it is.
#[derive(Clone, Debug)]
pub struct Surfaced<'a> {
    /// The scenario.
    pub scenario: &'a str,
    /// The metric.
    pub metric: &'a Metric,
    /// The axes, by name.
    pub axes: Vec<(&'a str, &'a Axis)>,
    /// The condition.
    pub condition: &'a str,
    /// The condition that ratios are to, if there is one.
    pub baseline: Option<&'a str>,
    /// The quantity in the cells.
    pub shows: Shows,
    /// The answer.
    pub surface: &'a Surface,
}

impl Surfaced<'_> {
    /// The estimate of a cell, with its interval.
    pub fn estimate(&self, cell: &Cell) -> Option<Estimate> {
        match self.shows {
            Shows::Value => cell.value,
            Shows::Ratio => cell.ratio,
        }
    }

    /// The finding: the least and the largest value, and where they are.
    pub fn title(&self) -> String {
        let all = self.surface.cells.iter().enumerate();
        let all = all.filter_map(|(index, cell)| Some((index, self.estimate(cell)?.value)));
        let least = all.clone().min_by(|one, other| one.1.total_cmp(&other.1));
        let largest = all.max_by(|one, other| one.1.total_cmp(&other.1));
        match (least, largest) {
            (Some(least), Some(largest)) => format!(
                "{} from {} ({}) to {} ({})",
                self.quantity(),
                self.show(least.1),
                self.place(least.0),
                self.show(largest.1),
                self.place(largest.0)
            ),
            _ => self.quantity(),
        }
    }

    /// The caption: which runs, which average, which intervals.
    pub fn caption(&self) -> String {
        let runs: usize = self.surface.cells.iter().map(|cell| cell.runs).sum();
        let how = match (self.shows, self.baseline) {
            (Shows::Ratio, Some(baseline)) => {
                format!("geometric means of ratios to {baseline} at the same point and repetition")
            }
            _ => "medians of runs".into(),
        };
        format!(
            "{} under {}: {how}, with 95 % intervals as if a cell's runs were independent; {runs} simulated runs of {}.",
            self.metric.label, self.condition, self.scenario
        )
    }

    /// The metric, or its ratio.
    pub fn quantity(&self) -> String {
        match (self.shows, self.baseline) {
            (Shows::Ratio, Some(baseline)) => format!("{}, times that of {baseline}", self.metric.label),
            _ => self.metric.label.into(),
        }
    }

    /// The axis of that number: its label and unit.
    pub fn axis_title(&self, number: usize) -> String {
        let (name, axis) = self.axes[number];
        let label = if axis.label.is_empty() { name } else { &axis.label };
        if axis.unit.is_empty() { label.into() } else { format!("{label}, {}", axis.unit) }
    }

    /// A cell in words: where it is, its value and interval, its runs.
    pub fn told(&self, cell: &Cell) -> String {
        let Some(Estimate { value, low, high }) = self.estimate(cell) else {
            return "nothing measured".into();
        };
        let (value, low, high) = (self.show(value), self.show(low), self.show(high));
        format!("{value} [{low}, {high}], {} runs", cell.runs)
    }

    /// Lines of a table: the values of the axes, the estimate, its interval, the runs.
    pub fn lines(&self) -> Vec<Vec<String>> {
        let line = |(index, cell): (usize, &Cell)| {
            let mut line: Vec<String> =
                self.bins_of(index).map(|(axis, bin)| self.surface.bins[axis][bin].label.clone()).collect();
            let estimate = self.estimate(cell);
            line.push(estimate.map_or("-".into(), |one| self.show(one.value)));
            line.push(
                estimate.map_or(String::new(), |one| {
                    format!("[{}, {}]", self.show(one.low), self.show(one.high))
                }),
            );
            line.push(cell.runs.to_string());
            line
        };
        self.surface.cells.iter().enumerate().map(line).collect()
    }

    /// The heads of these lines.
    pub fn heads(&self) -> Vec<String> {
        let axes = (0..self.axes.len()).map(|axis| self.axis_title(axis));
        axes.chain([self.quantity(), "95 %".into(), "runs".into()]).collect()
    }

    /// A value as people read it.
    pub fn show(&self, value: f64) -> String {
        match self.shows {
            Shows::Ratio => significant(value),
            Shows::Value => self.metric.unit.show(value),
        }
    }

    /// The values of the axes in a cell: `overcommit 4, slice_us 500`.
    fn place(&self, cell: usize) -> String {
        let named = |(axis, bin): (usize, usize)| {
            format!("{} {}", self.axes[axis].0, self.surface.bins[axis][bin].label)
        };
        self.bins_of(cell).map(named).collect::<Vec<_>>().join(", ")
    }

    /// The bin of each axis in a cell.
    fn bins_of(&self, cell: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let after = |axis: usize| -> usize { self.surface.bins[axis + 1..].iter().map(Vec::len).product() };
        (0..self.axes.len()).map(move |axis| (axis, cell / after(axis) % self.surface.bins[axis].len()))
    }
}
