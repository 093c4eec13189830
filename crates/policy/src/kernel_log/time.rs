//! The time of a line: since boot, or by the clock of the day.
//!
//! `[  143.213011] ...` (dmesg, journalctl -o short-monotonic) · `Nov 25 19:32:25 host kernel: ...` (journalctl -k, syslog, with
//! `.123456` in short-precise) · `2026-11-25T19:32:25+0100 ...` (short-iso, dmesg --time-format iso) · `[Wed Nov 25 19:32:25
//! 2026] ...` (dmesg -T). Where a line has both, the time since boot counts: no step of the clock moves it.

/// The words of a line among which a time of the day is looked for.
const WORDS: usize = 6;
/// The brackets of a line in which a time since boot is looked for.
const BRACKETS: usize = 4;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// Seconds since boot.
    Boot(f64),
    /// Seconds by the clock of the day, since some day in the past. It can step.
    Day(f64),
}

impl At {
    /// Seconds from `earlier` to this; nothing if they are of different clocks.
    pub fn since(self, earlier: At) -> Option<f64> {
        match (self, earlier) {
            (At::Boot(now_s), At::Boot(then_s)) | (At::Day(now_s), At::Day(then_s)) => Some(now_s - then_s),
            _ => None,
        }
    }
}

/// The time of a line, and its text: without the time since boot, and else as it stands.
pub(super) fn split(line: &str) -> (Option<At>, &str) {
    let brackets = line.match_indices('[').take(BRACKETS).map(|(start, _)| &line[start + 1..]);
    let since_boot = |rest: &'_ str| -> Option<f64> {
        let number = rest.split_once(']')?.0.trim();
        // A process has its PID in brackets, without a point; `+0.5` is the time since the line before.
        let is_time = number.starts_with(|first: char| first.is_ascii_digit()) && number.contains('.');
        number.parse().ok().filter(|at_s: &f64| is_time && at_s.is_finite())
    };
    for rest in brackets {
        if let (Some(at_s), Some((_, text))) = (since_boot(rest), rest.split_once(']')) {
            return (Some(At::Boot(at_s)), text);
        }
    }
    (of_day(line).map(At::Day), line)
}

/// Seconds by the clock of the day.
fn of_day(line: &str) -> Option<f64> {
    let words: Vec<&str> =
        line.split_whitespace().take(WORDS).map(|word| word.trim_matches(['[', ']', ','])).collect();
    words.iter().enumerate().find_map(|(index, word)| {
        let before = |back: usize| index.checked_sub(back).and_then(|index| words.get(index)).copied();
        if let Some((date, clock)) = word.split_once('T') {
            return Some(iso_date(date)? + clock_s(clock)?);
        }
        let clock_s = clock_s(word)?;
        let date_s = match (before(1), before(2)) {
            (Some(date), _) if iso_date(date).is_some() => iso_date(date)?,
            (Some(one), Some(other)) => named_date(one, other).unwrap_or(0.0),
            _ => 0.0,
        };
        Some(date_s + clock_s)
    })
}

/// `2026-11-25`, in seconds.
fn iso_date(date: &str) -> Option<f64> {
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_date = (1..=9_999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    (is_date && parts.next().is_none()).then(|| days(year, month, day) * 86_400.0)
}

/// A day and a month, in either order, of a year that is not said. A month in another language counts as January: within a
/// log it stays the same one.
fn named_date(one: &str, other: &str) -> Option<f64> {
    let (day, month) = match (one.parse::<i64>(), other.parse::<i64>()) {
        (Ok(day), Err(_)) => (day, other),
        (Err(_), Ok(day)) => (day, one),
        _ => return None,
    };
    let month = MONTHS.iter().position(|name| month.starts_with(name)).unwrap_or(0) as i64 + 1;
    (1..=31).contains(&day).then(|| days(2_000, month, day) * 86_400.0)
}

/// `19:32:25`, with a fraction and a zone or without.
fn clock_s(word: &str) -> Option<f64> {
    let word = word.split(['+', '-', 'Z']).next().unwrap_or(word).replace(',', ".");
    let mut parts = word.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let two = |part: &str| (part.len() == 2).then(|| part.parse::<u8>().ok()).flatten();
    let whole = two(seconds.get(..2)?)?;
    let fraction = match &seconds[2..] {
        "" => 0.0,
        rest => rest.strip_prefix('.').and_then(|_| format!("0{rest}").parse::<f64>().ok())?,
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    let is_time = hours < 24 && minutes < 60 && whole < 61 && parts.next().is_none() && fraction < 1.0;
    is_time.then(|| f64::from(hours) * 3_600.0 + f64::from(minutes) * 60.0 + f64::from(whole) + fraction)
}

/// Days since 1970 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> f64 {
    // Counting years from March on puts the leap day last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    (365 * year + year / 4 - year / 100 + year / 400 + of_year - 719_468) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_write_a_time_are_read() {
        let day = 20_782.0 * 86_400.0;
        let clock = 19.0 * 3_600.0 + 32.0 * 60.0 + 25.0;
        for (line, expected) in [
            ("[  143.213011] rcu: x", At::Boot(143.213011)),
            ("Nov 25 12:00:01 web-01 kernel: [  200.000001] rcu", At::Boot(200.000001)),
            ("kern.err: [    2.424048] rcu", At::Boot(2.424048)),
            ("2026-11-25T19:32:25+0100 host kernel: rcu", At::Day(day + clock)),
            ("2026-11-25T19:32:25,500000+00:00 rcu", At::Day(day + clock + 0.5)),
            ("Wed 2026-11-25 19:32:25 UTC host kernel: rcu", At::Day(day + clock)),
            ("12:00:01 host kernel: rcu", At::Day(43_201.0)),
        ] {
            assert_eq!(split(line).0, Some(expected), "{line}");
        }
        // These name no year, or not in a place that counts, so only differences matter.
        let apart_s = |one: &str, other: &str| split(other).0.unwrap().since(split(one).0.unwrap()).unwrap();
        for (one, other) in [
            ("Nov 30 23:59:59 host kernel: x", "Dec  1 00:00:00.500 host kernel: y"),
            ("[Mon Nov 30 23:59:59 2026] x", "[Tue Dec  1 00:00:00.500 2026] y"),
            ("Mai 16 14:26:51 Gentoo kernel: x", "Mai 16 14:26:52.5 Gentoo kernel: y"),
            ("04 Aug, 14:03:26 host kernel: x", "04 Aug, 14:03:27.5 host kernel: y"),
        ] {
            assert!([1.5, 2.5 - 1.0].contains(&apart_s(one, other)), "{one}");
        }
        assert_eq!(At::Boot(1.0).since(At::Day(1.0)), None);
    }

    #[test]
    fn what_only_looks_like_a_time_is_none() {
        for line in [
            "",
            "[",
            "[nan] x",
            "[inf.] x",
            "[ +0.001879] x",
            "systemd[1]: x",
            "25:00:00 x",
            "1:2:3 x",
            "12:00:é x",
            "T",
        ] {
            assert_eq!(split(line), (None, line), "{line}");
        }
    }
}
