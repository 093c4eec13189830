//! The clock of the day in words, always UTC: `2026-11-25T20:00:00Z`, and for names of files `20261125T200000Z`.
//!
//! Source of the arithmetic: H. Hinnant, "chrono-compatible low-level date algorithms" (days since 1970 to a date and back, in
//! years that begin in March).

const SECOND_NS: u64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

/// A date and a time of that day.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    second: i64,
}

/// The time in words, to a second.
pub fn text(day_ns: u64) -> String {
    let Civil { year, month, day, second } = civil(day_ns);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The time for the name of a file.
pub fn file_text(day_ns: u64) -> String {
    text(day_ns).chars().filter(|letter| !"-:".contains(*letter)).collect()
}

/// The time of `2026-11-25T20:00:00Z` (or with a space, or without the Z), ns since 1970; `None` if it is none.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let is_one = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let second = hour * 3600 + minute * 60 + second;
    if !is_one || !(0..DAY_S).contains(&second) || minute > 59 {
        return None;
    }
    let seconds = days(year, month, day) * DAY_S + second;
    u64::try_from(seconds).ok()?.checked_mul(SECOND_NS)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let is_plain = |part: &&str| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.splitn(3, separator).filter(is_plain).map(str::parse);
    Some([parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?])
}

/// Days from 1970 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(day_ns: u64) -> Civil {
    let seconds = (day_ns / SECOND_NS) as i64;
    let (days, second) = (seconds / DAY_S + 719_468, seconds % DAY_S);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    Civil { year, month, day: of_year - (153 * from_march + 2) / 5 + 1, second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_told_and_parsed() {
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, told) in known {
            assert_eq!((text(seconds * SECOND_NS).as_str(), parse(told)), (told, Some(seconds * SECOND_NS)));
        }
        assert_eq!(file_text(0), "19700101T000000Z");
        assert_eq!(parse("1970-01-01 00:00:01"), Some(SECOND_NS));
        text(u64::MAX);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in ["", "now", "1970-01-01", "1970-13-01T00:00:00Z", "1970-01-01T24:00:00Z", "-1-1-1T0:0:0"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
