//! Fixed scales, so that a height means the same at all times and on all machines, and the letters that show heights.

use std::ffi::OsStr;

use reprieve_study::units;

/// The heights above none.
pub const HEIGHTS: u8 = 8;
/// Below this part of the time, nothing is shown, thousandths.
const NOTHING_PERMILLE: u64 = 5;
const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
/// A time has the height of the last step that it reaches, ns.
const TIME_STEPS: [u64; HEIGHTS as usize] =
    [10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS, 500 * MS, 1000 * MS, 2000 * MS];
/// The same for sizes, bytes.
const SIZE_STEPS: [u64; HEIGHTS as usize] =
    [MIB / 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB];
/// The same for objects.
const COUNT_STEPS: [u64; HEIGHTS as usize] = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000];

/// A scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A part of the time, thousandths: eight equal steps.
    Share,
    /// A time, ns: steps of about two.
    Time,
    /// A time in a second, ns: the same steps.
    TimeRate,
    /// A size, bytes: steps of four.
    Size,
    /// Objects a second: steps of about three.
    Count,
}

impl Scale {
    /// The full height, in words.
    pub fn top(self) -> &'static str {
        match self {
            Scale::Share => "100 %",
            Scale::Time => "log 2 s",
            Scale::TimeRate => "log 2 s",
            Scale::Size => "log 4 G",
            Scale::Count => "log300k",
        }
    }

    /// The height of a value, from 0 to [`HEIGHTS`].
    pub fn height(self, value: u64) -> u8 {
        let reached = |steps: &[u64]| steps.iter().take_while(|step| value >= **step).count() as u8;
        match self {
            Scale::Share if value < NOTHING_PERMILLE => 0,
            Scale::Share => (value.min(1000) * u64::from(HEIGHTS)).div_ceil(1000) as u8,
            Scale::Time | Scale::TimeRate => reached(&TIME_STEPS),
            Scale::Size => reached(&SIZE_STEPS),
            Scale::Count => reached(&COUNT_STEPS),
        }
    }

    /// A value with its unit.
    pub fn words(self, value: u64) -> String {
        match self {
            Scale::Share => format!("{} %", units::significant(value as f64 / 10.0)),
            Scale::Time => units::duration(value as f64),
            Scale::TimeRate => format!("{}/s", units::duration(value as f64)),
            Scale::Size => units::size(value as f64),
            Scale::Count => format!("{}/s", units::count(value as f64)),
        }
    }
}

/// How this terminal may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// In colours. They repeat what heights and words say.
    pub colour: bool,
    /// With letters beyond ASCII.
    pub unicode: bool,
}

impl Look {
    /// The letter of a height; of what was not measured, if none.
    pub fn letter(self, height: Option<u8>) -> char {
        const BLOCKS: [char; HEIGHTS as usize + 1] = ['.', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        match height {
            None => '?',
            Some(0) => '.',
            Some(height) if self.unicode => BLOCKS[usize::from(height.min(HEIGHTS))],
            Some(height) => char::from(b'0' + height.min(HEIGHTS)),
        }
    }
}

/// Whether the locale's letters are those of UTF-8: the first of these variables that is set says so.
pub fn is_utf8<S: AsRef<OsStr>>(variable: impl Fn(&str) -> Option<S>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable);
    let first = set
        .map(|value| value.as_ref().to_string_lossy().to_ascii_lowercase())
        .find(|value| !value.is_empty());
    first.is_some_and(|value| value.contains("utf-8") || value.contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_grow_with_the_value_and_end_at_the_top() {
        let shares = [0, 4, 5, 125, 126, 500, 876, 1000, 5000].map(|value| Scale::Share.height(value));
        assert_eq!(shares, [0, 0, 1, 1, 2, 4, 8, 8, 8]);
        let times = [0, 10, 19, 100, 1999, 2000, 99_000].map(|ms| Scale::Time.height(ms * MS));
        assert_eq!(times, [0, 1, 1, 4, 7, 8, 8]);
        assert_eq!([0, MIB, 5000 * MIB].map(|bytes| Scale::Size.height(bytes)), [0, 2, 8]);
    }

    #[test]
    fn letters_differ_without_colour_and_without_unicode() {
        let all = |unicode| -> String {
            let look = Look { colour: false, unicode };
            [None].into_iter().chain((0..=8).map(Some)).map(|height| look.letter(height)).collect()
        };
        assert_eq!((all(true).as_str(), all(false).as_str()), ("?.▁▂▃▄▅▆▇█", "?.12345678"));
    }

    #[test]
    fn values_fit_their_column() {
        for value in [0, 1, 999, 9_999, 123_456_789, 20 * 1024 * MIB] {
            for scale in [Scale::Time, Scale::TimeRate, Scale::Size, Scale::Count] {
                assert!(scale.words(value).len() <= 10, "{}", scale.words(value));
            }
            assert!(scale_share(value).len() <= 10 && Scale::Share.top().len() <= 7);
        }
    }

    fn scale_share(value: u64) -> String {
        Scale::Share.words(value.min(1000))
    }

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let with = |all: &'static str, lang: &'static str| {
            is_utf8(move |name: &str| match name {
                "LC_ALL" => Some(all),
                "LANG" => Some(lang),
                _ => None,
            })
        };
        assert!(with("", "en_US.UTF-8") && with("C.utf8", "C"));
        assert!(!with("C", "en_US.UTF-8") && !with("", ""));
    }
}
