//! The warden's side: keeps the list, waits for the end of the main process, and cleans up.
//!
//! Invariants: memory is bounded by [`MAX_GUARDED`] objects of at most [`MAX_LINE_BYTES`]; a line that is too long, or
//! truncated by the end of the input, is ignored.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use super::line::{Guarded, Line, MAX_LINE_BYTES};
use super::{MAX_GUARDED, clean};
use crate::proc::ProcRoot;
use crate::signals;

/// The body of the warden's process: reads `input` to its end, then removes what is still registered.
///
/// Ignores the signals that end the main process in an orderly way, and leaves the working directory, which may have to
/// be removed. It prints nothing, since its output goes nowhere.
pub fn run(input: impl Read, root: &ProcRoot) {
    ignore_signals();
    // Fails only if there is no root directory.
    let _ = std::env::set_current_dir("/");
    clean::remove_all(&listen(input), root);
}

/// Ignores the signals that end the main process in an orderly way. They may be sent to all processes of this name, and
/// then the main process still needs its warden. Async-signal-safe.
pub(super) fn ignore_signals() {
    for signal in signals::orderly() {
        // SAFETY: SIG_IGN installs no handler, so no code runs in signal context.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Reads the input to its end and returns what is then registered.
pub(crate) fn listen(input: impl Read) -> BTreeSet<Guarded> {
    let mut input = BufReader::new(input);
    let mut guarded = BTreeSet::new();
    while let Some(line) = next_line(&mut input) {
        match Line::decode(&line) {
            Some(Line::Guard(object)) if guarded.len() < MAX_GUARDED => {
                guarded.insert(object);
            }
            Some(Line::Release(object)) => {
                guarded.remove(&object);
            }
            _ => {}
        }
    }
    guarded
}

/// The next line without its newline; empty if it was too long; `None` at the end of the input, even in mid-line.
fn next_line(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let limit = MAX_LINE_BYTES as u64 + 1;
    // An error counts as the end of the input: nothing more can come from the main process.
    input.by_ref().take(limit).read_until(b'\n', &mut line).ok()?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Some(line);
    }
    let was_cut = line.len() as u64 == limit;
    (was_cut && input.skip_until(b'\n').ok()? > 0).then(Vec::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(names: &[&str]) -> BTreeSet<Guarded> {
        names.iter().map(|name| Guarded::Dir(format!("/t/reprieve-{name}").into())).collect()
    }

    #[test]
    fn objects_stay_registered_until_released() {
        let input = "+dir /t/reprieve-a\n+dir /t/reprieve-b\nnonsense\n+dir /etc\n-dir /t/reprieve-a\n";
        assert_eq!(listen(input.as_bytes()), dirs(&["b"]));
        assert_eq!(listen(&b""[..]), dirs(&[]));
    }

    #[test]
    fn a_line_cut_short_by_the_end_is_ignored() {
        assert_eq!(listen(&b"+dir /t/reprieve-a\n+dir /t/reprieve-lon"[..]), dirs(&["a"]));
    }

    #[test]
    fn lines_are_bounded_and_the_next_one_is_found_again() {
        for extra in [0, 1, 2, 100_000] {
            let mut input = vec![b'x'; MAX_LINE_BYTES + extra];
            input.extend(b"\n+dir /t/reprieve-a\n");
            assert_eq!(listen(&input[..]), dirs(&["a"]), "{extra}");
        }
        let longest = format!("/t/reprieve-{}", "y".repeat(4096 - 12));
        let expected = BTreeSet::from([Guarded::Dir(longest.clone().into())]);
        assert_eq!(listen(format!("+dir {longest}\n").as_bytes()), expected);
    }

    #[test]
    fn the_list_is_bounded() {
        let lines: String = (0..MAX_GUARDED + 5).map(|i| format!("+process {} 1\n", i + 2)).collect();
        assert_eq!(listen(lines.as_bytes()).len(), MAX_GUARDED);
    }
}
