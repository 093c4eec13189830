//! Axes: they map values to places between 0 and 1, and choose the ticks.
//!
//! Invariants: `low < high`; every tick lies between them, in ascending order; labels of neighbouring ticks
//! differ.

use reprieve_study::Unit;
use reprieve_study::units::significant;

use crate::quantity::Scale;

/// A linear axis that would end at or below this ends at 1 instead. No metric has such small values, and a step that
/// rounds to zero would give infinitely many ticks.
const SMALLEST: f64 = 1e-30;

/// A tick: its value and its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// In the metric's base unit.
    pub at: f64,
    /// A number; on a logarithmic axis with its unit, which a linear axis has in its title.
    pub label: String,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// The name of the quantity; on a linear axis also its unit.
    pub title: String,
    /// In ascending order.
    pub ticks: Vec<Tick>,
}

/// Where a linear axis ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the first tick that is not below the highest value.
    AtTick,
    /// At the highest value.
    AtValue,
}

impl Axis {
    /// From zero to `highest`, with about `wanted` ticks at round numbers.
    pub fn linear(name: &str, unit: Unit, highest: f64, wanted: usize, end: End) -> Axis {
        let highest = if highest.is_finite() && highest > SMALLEST { highest } else { 1.0 };
        let scale = Scale::of(unit, highest);
        let step = round_step(highest / scale.factor / wanted.max(1) as f64);
        let steps = highest / scale.factor / step;
        // The slack is for rounding: a highest value on a tick needs no further tick, and does not lose its own.
        let count = match end {
            End::AtTick => (steps - 1e-9).ceil(),
            End::AtValue => (steps + 1e-9).floor(),
        };
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let tick = |index: usize| Tick {
            at: index as f64 * step * scale.factor,
            label: format!("{:.decimals$}", index as f64 * step),
        };
        let title = match scale.unit {
            "" => name.to_string(),
            "k" => format!("{name}, thousands"),
            "M" => format!("{name}, millions"),
            "G" => format!("{name}, billions"),
            unit => format!("{name}, {unit}"),
        };
        Axis {
            low: 0.0,
            high: if end == End::AtTick { count * step * scale.factor } else { highest },
            logarithmic: false,
            title,
            ticks: (0..=count as usize).map(tick).collect(),
        }
    }

    /// From `low` to `high`, both above zero. Ticks are at powers of ten, and on an axis of at most 3.5 decades also at
    /// 2 and 5 times these. An axis shorter than the step between two ticks may have none.
    pub fn logarithmic(name: &str, low: f64, high: f64, label: impl Fn(f64) -> String) -> Axis {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 10.0 };
        let decades = (high / low).log10();
        let between: &[f64] = if decades > 3.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let every = (decades / 8.0).ceil().max(1.0) as i32;
        let exponents = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
        let at = exponents
            .filter(|exponent| exponent % every == 0)
            .flat_map(|exponent| between.iter().map(move |part| part * 10_f64.powi(exponent)));
        let ticks = at
            .filter(|at| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(at))
            .map(|at| Tick { at, label: label(at) })
            .collect();
        Axis { low, high, logarithmic: true, title: name.into(), ticks }
    }

    /// The place of a value: 0 at the low end, 1 at the high end. A value beyond an end is put at that end.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Whether the value is on the axis.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The smallest number not below `step` that is 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let parts = [1.0, 2.0, 5.0, 10.0];
    let part = parts.into_iter().find(|part| part * power >= step * (1.0 - 1e-9));
    part.unwrap_or(10.0) * power
}

/// A duration as a tick's label, without trailing zeros: `10 ms`.
pub fn duration_label(ns: f64) -> String {
    let scale = Scale::of(Unit::Nanoseconds, ns * (1.0 + 1e-9));
    format!("{} {}", plain(ns / scale.factor), scale.unit)
}

/// A ratio as a tick's label: `x2`.
pub fn ratio_label(ratio: f64) -> String {
    format!("x{}", plain(ratio))
}

fn plain(value: f64) -> String {
    let text = significant(value);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round_in_the_unit_that_is_shown() {
        let axis = Axis::linear("Footprint", Unit::Bytes, 230.0 * 1_048_576.0, 5, End::AtTick);
        assert_eq!(axis.title, "Footprint, MiB");
        assert_eq!(labels(&axis), ["0", "50", "100", "150", "200", "250"]);
        assert_eq!(axis.place(125.0 * 1_048_576.0), 0.5);
        let axis = Axis::linear("Time", Unit::Nanoseconds, 1.2e9, 6, End::AtValue);
        assert_eq!(axis.title, "Time, s");
        assert_eq!(labels(&axis), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2"]);
        assert_eq!(axis.place(1.2e9), 1.0);
        let axis = Axis::linear("Share", Unit::Share, 1.0, 5, End::AtTick);
        assert_eq!(labels(&axis), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn logarithmic_ticks_are_decades_or_one_two_five() {
        let axis = Axis::logarithmic("GP", 3e5, 2e10, duration_label);
        assert_eq!(labels(&axis), ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
        let axis = Axis::logarithmic("Ratio", 0.4, 6.0, ratio_label);
        assert_eq!(labels(&axis), ["x0.5", "x1", "x2", "x5"]);
        assert!((axis.place((0.4_f64 * 6.0).sqrt()) - 0.5).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        assert!(axis.contains(1.0) && !axis.contains(0.1));
    }

    #[test]
    fn ticks_stay_few_ascending_on_the_axis_and_distinct_whatever_the_values() {
        for exponent in -12..18 {
            for part in [1.0, 1.7, 3.3, 9.99] {
                let high = part * 10_f64.powi(exponent);
                for axis in [
                    Axis::linear("a", Unit::Bytes, high, 5, End::AtTick),
                    Axis::linear("a", Unit::Nanoseconds, high, 6, End::AtValue),
                    Axis::logarithmic("a", 1e-3, high, |value| format!("{value:e}")),
                ] {
                    assert!((1..=14).contains(&axis.ticks.len()), "{axis:?}");
                    assert!(
                        axis.ticks
                            .windows(2)
                            .all(|two| two[0].at < two[1].at && two[0].label != two[1].label)
                    );
                    assert!(axis.ticks.iter().all(|tick| axis.place(tick.at).is_finite()), "{axis:?}");
                }
            }
        }
    }

    #[test]
    fn a_useless_highest_value_still_gives_an_axis() {
        for highest in [0.0, -1.0, f64::MIN_POSITIVE, f64::NAN, f64::INFINITY] {
            let axis = Axis::linear("a", Unit::Count, highest, 5, End::AtTick);
            assert_eq!(axis.place(1.0), 1.0);
        }
    }
}
