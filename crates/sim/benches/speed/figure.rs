//! A measured figure: what it must reach, what it reached in each round; as a line of the table, and as JSON.

use serde_json::{Value, json};

/// How often each figure is measured.
pub const ROUNDS: usize = 10;

/// What a figure must reach.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

/// A measured figure.
pub struct Figure {
    pub name: String,
    /// Of the bar and of the rounds.
    pub unit: &'static str,
    pub bar: Option<Bar>,
    pub rounds: Vec<f64>,
}

impl Figure {
    /// The median of the rounds.
    pub fn reached(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn spread(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted[0], sorted[sorted.len() - 1])
    }

    /// Whether the median reaches the bar; `None` without one.
    fn passes(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            Bar::AtLeast(least) => self.reached() >= least,
            Bar::AtMost(most) => self.reached() <= most,
        })
    }

    /// The head of the table of [`Figure::line`]s.
    pub fn head() -> String {
        format!("{:<72} {:>12} {:>12}   least to greatest of the rounds", "", "bar", "reached")
    }

    /// A line of the table.
    pub fn line(&self) -> String {
        let bar = self.bar.map_or(String::new(), |bar| match bar {
            Bar::AtLeast(least) => format!(">= {least} {}", self.unit),
            Bar::AtMost(most) => format!("<= {most} {}", self.unit),
        });
        let reached = format!("{:.2} {}", self.reached(), self.unit);
        let (least, greatest) = self.spread();
        let missed = if self.passes() == Some(false) { "   MISSED" } else { "" };
        format!("{:<72} {bar:>12} {reached:>12}   {least:.2} to {greatest:.2}{missed}", self.name)
    }

    /// The same, with every round.
    pub fn to_json(&self) -> Value {
        let bar = self.bar.map(|bar| match bar {
            Bar::AtLeast(least) => json!({ "at_least": least }),
            Bar::AtMost(most) => json!({ "at_most": most }),
        });
        let (least, greatest) = self.spread();
        json!({
            "name": self.name,
            "unit": self.unit,
            "bar": bar,
            "reached": self.reached(),
            "passes": self.passes(),
            "least": least,
            "greatest": greatest,
            "rounds": self.rounds,
        })
    }
}
