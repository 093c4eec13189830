//! Sizes and quantiles on the command line.

/// Bytes of `512MiB`.
///
/// # Errors
/// No number, or no unit.
pub fn parse(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.trim(), shift)));
    let (number, shift) = found.ok_or("write it with a unit, as in 512MiB or 1.5GiB")?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    let bytes = number * (1u64 << shift) as f64;
    match (1.0..=(1u64 << 50) as f64).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err("it is not within 1 byte and 1024 TiB".into()),
    }
}

/// The share of `p99.9`.
///
/// # Errors
/// No number, or none above p0 and below p100.
pub fn quantile(text: &str) -> Result<f64, String> {
    let percent = text.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("write it as p95 or p99.9".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_limits() {
        assert_eq!(
            [parse("512MiB"), parse("1.5 GiB"), parse("1KiB")],
            [Ok(512 << 20), Ok(3 << 29), Ok(1024)]
        );
        for bad in ["512", "MiB", "-1MiB", "NaNMiB", "infGiB", "0MiB", "1e9TiB", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quantiles_lie_between_none_and_all() {
        assert_eq!([quantile("p50"), quantile("p99.9")], [Ok(0.5), Ok(99.9 / 100.0)]);
        for bad in ["p0", "p100", "pNaN", "0.5", "p", "p-1"] {
            assert!(quantile(bad).is_err(), "{bad}");
        }
    }
}
