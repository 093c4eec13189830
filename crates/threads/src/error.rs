//! The errors of the ground `threads`, each with a cause and a way out.

use std::io;

use reprieve_study::scenario::BadScenario;
use reprieve_study::shown;

/// The most characters shown of a program's message.
const MOST_CHARACTERS: usize = 400;

/// `Result` with this ground's [`ThreadsError`].
pub type Result<T, E = ThreadsError> = std::result::Result<T, E>;

/// An error of this ground.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are, and what their fields are")]
pub enum ThreadsError {
    /// The scenario cannot be run on this machine.
    #[error(transparent)]
    Scenario(#[from] BadScenario),
    /// The machine lacks something: a directory, a program, or something a program needs.
    #[error("{what} is missing: {way_out}")]
    Missing { what: String, way_out: String },
    /// The program of this scheme failed. `words` is the last line of its stderr, safe to print on a terminal; empty if
    /// there is none.
    #[error("{program}: {problem}{}{words}", if words.is_empty() { "" } else { ": " })]
    Program { program: String, problem: String, words: String },
    /// A probe of the host failed.
    #[error(transparent)]
    Host(#[from] reprieve_linux::Error),
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error("interrupted")]
    Interrupted,
}

impl ThreadsError {
    /// For `map_err`: adds the action that failed.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> ThreadsError {
        let doing = doing.into();
        move |source| ThreadsError::Io { doing, source: source.into() }
    }
}

/// The last non-empty line of a program's output, truncated, and safe to print on a terminal.
pub fn last_line(words: &str) -> String {
    let line = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let cut: String = line.trim().chars().take(MOST_CHARACTERS).collect();
    shown::line(&cut).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_last_line_is_plain_and_cut() {
        assert_eq!(last_line("one\n  two\x1b[2J \n\n"), r"two\x1b[2J");
        assert_eq!(last_line(""), "");
        assert_eq!(last_line(&"ä".repeat(1_000)).chars().count(), MOST_CHARACTERS);
    }
}
