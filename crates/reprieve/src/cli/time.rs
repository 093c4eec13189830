//! Times as people write them.

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn within(text: &str, least_s: u64, most_s: u64, said: &str) -> Result<u64, String> {
    let ns = time(text)?;
    match (least_s * SECOND_NS..=most_s * SECOND_NS).contains(&ns) {
        true => Ok(ns),
        false => Err(format!("it is not within {said}")),
    }
}

/// Whole seconds of `30s`, `2min`, or of a number alone; at least one.
pub(super) fn seconds(text: &str, most_s: u64, most: &str) -> Result<u64, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let text = if is_number { format!("{text}s") } else { text.into() };
    let ns = within(&text, 1, most_s, &format!("1s and {most}"))?;
    match ns % SECOND_NS {
        0 => Ok(ns / SECOND_NS),
        _ => Err("it is no whole number of seconds".into()),
    }
}

/// Nanoseconds of `15min`.
fn time(text: &str) -> Result<u64, String> {
    let units = [("min", 60.0), ("ms", 1e-3), ("s", 1.0), ("h", 3600.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?.trim(), seconds)));
    let (number, seconds) = found.ok_or("write it with a unit, ms, s, min or h, as in 30s or 15min")?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    match number * seconds {
        seconds if (0.0..=1e7).contains(&seconds) => Ok((seconds * SECOND_NS as f64) as u64),
        _ => Err("it is negative or too long".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_limits() {
        assert_eq!(
            [time("15min"), time("1.5 s"), time("2h")].map(Result::unwrap),
            [900_000_000_000, 1_500_000_000, 7_200_000_000_000]
        );
        for bad in ["15", "min", "-1s", "NaNs", "infh", "1e99h", ""] {
            assert!(time(bad).is_err(), "{bad}");
        }
        let up_to_a_minute = |text| seconds(text, 60, "60s");
        assert_eq!(["30", "30s", "1min", "1000ms"].map(up_to_a_minute), [30, 30, 60, 1].map(Ok));
        for bad in ["0", "61", "2min", "1.5s", "", "x", "-1", "1.5"] {
            assert!(up_to_a_minute(bad).is_err(), "{bad}");
        }
    }
}
