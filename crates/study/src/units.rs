//! Writes quantities for people. Inside the program time is nanoseconds in `u64` and sizes are bytes; only the last
//! step of an output formats them.

/// One second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;
/// One millisecond, in nanoseconds.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;

/// A duration with three significant digits in the largest unit that keeps it above one: `4.02 ms`.
pub fn duration(ns: f64) -> String {
    scaled(ns, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// A size with three significant digits in binary units: `53.1 MiB`.
pub fn size(bytes: f64) -> String {
    scaled(bytes, &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)])
}

/// A plain number with three significant digits and a decimal prefix above ten thousand: `53.1 k`.
pub fn count(value: f64) -> String {
    if value.abs() < 10_000.0 {
        return significant(value);
    }
    scaled(value, &[("k", 1e3), ("M", 1e6), ("G", 1e9)])
}

/// Three significant digits without an exponent.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let (unit, factor) =
        units.iter().rev().find(|(_, factor)| value.abs() >= *factor).copied().unwrap_or(units[0]);
    format!("{} {unit}", significant(value / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_the_unit_a_reader_expects() {
        assert_eq!(duration(4_020_000.0), "4.02 ms");
        assert_eq!(duration(0.0), "0 ns");
        assert_eq!(duration(1.5e9), "1.50 s");
        assert_eq!(size(53.1 * 1_048_576.0), "53.1 MiB");
        assert_eq!(count(512.0), "512");
        assert_eq!(count(51_234.0), "51.2 k");
        assert_eq!(significant(0.265), "0.265");
        assert_eq!(significant(f64::NAN), "-");
    }
}
