//! Bytes of a terminal into keys. Source: ECMA-48 and xterm's control sequences, of which consoles send a few variants.

use super::model::Key;

/// The longest sequence that is known, bytes.
const LONGEST: usize = 8;
const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 3;

/// Keys from bytes that may end in the middle of a sequence.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

impl Keys {
    /// Takes in bytes, and gives the keys in them. What may go on stays until more comes, or [`Keys::end`].
    pub fn take(&mut self, bytes: &[u8], mut press: impl FnMut(Key)) {
        for byte in bytes {
            self.pending.push(*byte);
            match parse(&self.pending) {
                Parsed::Incomplete if self.pending.len() < LONGEST => continue,
                // An escape, and then another key.
                Parsed::Two(first, second) => {
                    [Some(first), second].into_iter().flatten().for_each(&mut press)
                }
                Parsed::One(key) => press(key),
                Parsed::Incomplete | Parsed::Unknown => {}
            }
            self.pending.clear();
        }
    }

    /// Whether a sequence has begun.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing came after it: an escape alone is the key.
    pub fn end(&mut self) -> Option<Key> {
        let pending = std::mem::take(&mut self.pending);
        (pending == [ESCAPE]).then_some(Key::All)
    }
}

enum Parsed {
    One(Key),
    Two(Key, Option<Key>),
    Incomplete,
    Unknown,
}

fn parse(bytes: &[u8]) -> Parsed {
    let known = |key: Option<Key>| key.map_or(Parsed::Unknown, Parsed::One);
    match bytes {
        [ESCAPE] | [ESCAPE, b'[' | b'O'] => Parsed::Incomplete,
        [ESCAPE, b'[' | b'O', letter @ b'A'..=b'Z'] => known(cursor(*letter)),
        [ESCAPE, b'[', digits @ .., b'~'] => known(numbered(digits)),
        [ESCAPE, b'[', .., b'0'..=b'9' | b';'] => Parsed::Incomplete,
        // With a modifier, as ESC [ 1 ; 5 C: as without it.
        [ESCAPE, b'[', .., letter @ b'A'..=b'Z'] => known(cursor(*letter)),
        [ESCAPE, b'[' | b'O', ..] => Parsed::Unknown,
        [ESCAPE, other] => Parsed::Two(Key::All, letter(*other)),
        [other] => known(letter(*other)),
        _ => Parsed::Unknown,
    }
}

fn letter(byte: u8) -> Option<Key> {
    Some(match byte {
        b'q' | b'Q' | CTRL_C => Key::Quit,
        b' ' => Key::Pause,
        b'h' => Key::Step(-1),
        b'l' => Key::Step(1),
        b'p' => Key::Incident(-1),
        b'n' => Key::Incident(1),
        b'v' | b'j' => Key::Vcpu(1),
        b'k' => Key::Vcpu(-1),
        b'?' => Key::Help,
        b'0'..=b'9' => Key::Digit(byte - b'0'),
        _ => return None,
    })
}

fn cursor(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Vcpu(-1),
        b'B' => Key::Vcpu(1),
        b'C' => Key::Step(1),
        b'D' => Key::Step(-1),
        b'H' => Key::First,
        b'F' => Key::Last,
        _ => return None,
    })
}

fn numbered(digits: &[u8]) -> Option<Key> {
    Some(match digits {
        b"1" | b"7" => Key::First,
        b"4" | b"8" => Key::Last,
        b"5" => Key::Step(-10),
        b"6" => Key::Step(10),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(parts: &[&[u8]]) -> Vec<Key> {
        let (mut keys, mut found) = (Keys::default(), Vec::new());
        parts.iter().for_each(|part| keys.take(part, |key| found.push(key)));
        found.extend(keys.end());
        found
    }

    #[test]
    fn each_key_is_told_from_its_bytes() {
        assert_eq!(keys(&[b"q"]), [Key::Quit]);
        assert_eq!(keys(&[b"\x03"]), [Key::Quit]);
        assert_eq!(keys(&[b"\x1b[D\x1b[C\x1bOD\x1b[1;5C"]), [-1, 1, -1, 1].map(Key::Step));
        assert_eq!(keys(&[b"\x1b[5~\x1b[6~"]), [Key::Step(-10), Key::Step(10)]);
        assert_eq!(
            keys(&[b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH"]),
            [Key::First, Key::Last, Key::First, Key::Last, Key::First]
        );
        assert_eq!(keys(&[b"\x1b[A7? "]), [Key::Vcpu(-1), Key::Digit(7), Key::Help, Key::Pause]);
    }

    #[test]
    fn a_sequence_may_come_in_parts_and_an_escape_alone_is_a_key() {
        assert_eq!(keys(&[b"\x1b", b"[", b"D"]), [Key::Step(-1)]);
        assert_eq!(keys(&[b"\x1b"]), [Key::All]);
        assert_eq!(keys(&[b"\x1bq"]), [Key::All, Key::Quit]);
    }

    #[test]
    fn what_is_not_known_does_nothing_and_the_next_key_is_read() {
        assert_eq!(keys(&[b"\x1b[99~z\xff\x1b[200~", b"q"]), [Key::Quit]);
        assert_eq!(keys(&[b"\x1b[11111111111111q"]).last(), Some(&Key::Quit));
    }
}
