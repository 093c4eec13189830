//! What can go wrong on the ground of real threads, each with its way out.

use std::io;

use reprieve_study::scenario::BadScenario;
use reprieve_study::shown;

/// Longest sentence of a program's that is shown.
const PLAIN_CHARACTERS: usize = 400;

/// An error of this ground.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The scenario cannot be run on this machine.
    #[error(transparent)]
    Scenario(#[from] BadScenario),
    /// Something of the machine is missing.
    #[error("{what} is missing: {way_out}")]
    Missing {
        /// A directory, a program, what a program needs.
        what: String,
        /// How to get it.
        way_out: String,
    },
    /// A program failed; the last line of its stderr may say more.
    #[error("{program}: {problem}{}{words}", if words.is_empty() { "" } else { ": " })]
    Program {
        /// Its name, which is that of its scheme.
        program: String,
        /// What happened.
        problem: String,
        /// The last line that it wrote to stderr, fit for a terminal; empty if there is none.
        words: String,
    },
    /// A probe of the host failed.
    #[error(transparent)]
    Host(#[from] reprieve_linux::Error),
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ThreadsError {
    /// For `map_err`: says what was being done.
    pub fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> ThreadsError {
        let doing = doing.into();
        move |source| ThreadsError::Io { doing, source: source.into() }
    }
}

/// The last line of a program's words, fit for the user's terminal, and cut.
pub fn last_line(words: &str) -> String {
    let line = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let cut: String = line.trim().chars().take(PLAIN_CHARACTERS).collect();
    shown::line(&cut).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_last_line_is_plain_and_cut() {
        assert_eq!(last_line("one\n  two\x1b[2J \n\n"), r"two\x1b[2J");
        assert_eq!(last_line(""), "");
        assert_eq!(last_line(&"ä".repeat(1_000)).chars().count(), PLAIN_CHARACTERS);
    }
}
