//! Several values of one metric in one unit. `study::units` writes a single value in the unit that suits it;
//! a range or an axis needs one unit for all its values, the one that suits the largest or the median.

use reprieve_study::Unit;
use reprieve_study::statistics;
use reprieve_study::units::significant;

/// A unit to write values in: the value over `factor`, in `unit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// How much of the metric's base unit one of `unit` is.
    pub factor: f64,
    /// Its symbol; empty for plain numbers.
    pub unit: &'static str,
}

const DURATIONS: &[(f64, &str)] = &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
const SIZES: &[(f64, &str)] = &[(1.0, "B"), (1024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")];
/// Plain numbers stay plain up to ten thousand, as in `study::units::count`.
const COUNTS: &[(f64, &str)] = &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];
const RATES: &[(f64, &str)] = &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")];
/// Decimal, as disks are sold.
const BYTE_RATES: &[(f64, &str)] = &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")];
const PLAIN_BELOW: f64 = 10_000.0;

impl Scale {
    /// The scale in which `value` of that unit reads best.
    pub fn of(unit: Unit, value: f64) -> Scale {
        let steps = match unit {
            Unit::Nanoseconds => DURATIONS,
            Unit::Bytes => SIZES,
            Unit::Count => COUNTS,
            Unit::PerSecond => RATES,
            Unit::BytesPerSecond => BYTE_RATES,
            Unit::Share => &[(0.01, "%")],
            Unit::Index => &[(1.0, "")],
        };
        let plain = matches!(unit, Unit::Count | Unit::PerSecond) && value.abs() < PLAIN_BELOW;
        let fitting = steps.iter().rev().find(|(factor, _)| value.abs() >= *factor).filter(|_| !plain);
        let (factor, unit) = fitting.copied().unwrap_or(steps[0]);
        Scale { factor, unit }
    }

    /// The value without its unit, three significant digits.
    pub fn number(self, value: f64) -> String {
        significant(value / self.factor)
    }

    /// The value with its unit. A rate's unit follows without a space when it has no prefix: `512/s`.
    pub fn show(self, value: f64) -> String {
        let space = if self.unit.is_empty() || self.unit == "/s" { "" } else { " " };
        format!("{}{space}{}", self.number(value), self.unit)
    }
}

/// Median and extremes of one metric's values over repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// With its unit: `4.02 ms`.
    pub median: String,
    /// In the unit of the median: `(3.81–4.33)`; empty for a single value.
    pub range: String,
}

impl Spread {
    /// `None` when there are no values.
    pub fn of(unit: Unit, values: &[f64]) -> Option<Spread> {
        let median = statistics::median(values)?;
        let scale = Scale::of(unit, median);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = format!("({}–{})", scale.number(low), scale.number(high));
        Some(Spread {
            median: scale.show(median),
            range: if values.len() > 1 { range } else { String::new() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_in_the_unit_of_its_median() {
        let spread = Spread::of(Unit::Nanoseconds, &[900_000.0, 4_020_000.0, 12_000_000.0]).unwrap();
        assert_eq!((spread.median.as_str(), spread.range.as_str()), ("4.02 ms", "(0.900–12.0)"));
        let spread = Spread::of(Unit::Share, &[0.25]).unwrap();
        assert_eq!((spread.median.as_str(), spread.range.as_str()), ("25.0 %", ""));
        assert_eq!(Spread::of(Unit::Bytes, &[]), None);
    }

    #[test]
    fn agrees_with_the_units_of_study_on_single_values() {
        for unit in [Unit::Nanoseconds, Unit::Bytes, Unit::Count, Unit::PerSecond, Unit::Share, Unit::Index] {
            for value in [0.0, 0.265, 1.0, 999.0, 9_999.0, 10_000.0, 5.4e7, 3.2e9] {
                assert_eq!(Scale::of(unit, value).show(value), unit.show(value), "{unit:?} {value}");
            }
        }
    }
}
