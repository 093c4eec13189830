//! Makes foreign text safe for a terminal: names of tasks, scenarios and conditions, words of guests, texts of
//! records and files.
//!
//! A terminal obeys control characters, and reorders or hides text at bidirectional and invisible ones. So each such
//! character of a foreign text is shown escaped, as `\x1b` or `\u{202e}`: it cannot forge a line, a colour or another
//! name. Every other character stays, backslashes too: the escapes are for people, and not meant to be parsed.
//! Source: the Unicode Standard, general category Cf and default ignorable characters; UTR 36.

use std::borrow::Cow;

/// A text that belongs on one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, escape)
}

/// A text whose line breaks are the program's own.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\n' && is_unsafe(letter), escape)
}

/// JSON with the same value: such characters, which occur only in strings, are written as `\uXXXX`.
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |letter, out| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

fn escaped(text: &str, is_wrong: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(&is_wrong) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_wrong(letter) { escape(letter, &mut out) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

fn escape(letter: char, out: &mut String) {
    match letter {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..='\u{ff}' => out.push_str(&format!("\\x{:02x}", u32::from(letter))),
        _ => out.push_str(&format!("\\u{{{:x}}}", u32::from(letter))),
    }
}

/// Control characters (C0, DEL, C1), and those that reorder text, end a line or cannot be seen.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}'
            | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}'
            | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(line("a\x1b]0;x\x07\x1b[2Jb\u{9b}1mc"), r"a\x1b]0;x\x07\x1b[2Jb\x9b1mc");
        assert_eq!(line("x\r\nwarning:\troot\x7f"), r"x\r\nwarning:\troot\x7f");
        assert_eq!(lines("one\ntwo\r\x1b"), "one\ntwo\\r\\x1b");
    }

    #[test]
    fn what_reorders_ends_or_hides_text_is_escaped() {
        assert_eq!(line("a\u{202e}b\u{2066}c\u{200b}d\u{2028}e"), r"a\u{202e}b\u{2066}c\u{200b}d\u{2028}e");
        assert_eq!(line("\u{feff}\u{ad}\u{e0041}\u{61c}"), r"\u{feff}\xad\u{e0041}\u{61c}");
    }

    #[test]
    fn all_other_text_stays_as_it_is() {
        let plain = "plain – text, Größe 3 µs ×2, 日本語, e\u{301}, C:\\x1b, \u{fffd}";
        assert!(matches!(line(plain), Cow::Borrowed(same) if same == plain));
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"comm": "\u{9b}2J\u{202e}\x7f\u{e0041}\n\"\\"});
        let text = value.to_string();
        let safe = json(&text);
        assert!(safe.is_ascii(), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
