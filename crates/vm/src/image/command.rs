//! Programs of the host that an image needs, and how they are run: no standard input, the C locale, output
//! captured and bounded. A program that is missing gives the package that has it.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{ImageError, Result};

/// A program that making an image needs, and the Debian or Ubuntu package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The program's name, looked for in `PATH`.
    pub program: &'static str,
    /// The package, or packages separated by a space, to install.
    pub package: &'static str,
}

/// What the first preparation of an image needs; later ones find all in the cache and need nothing.
pub const REQUIREMENTS: [Requirement; 6] = [
    Requirement { program: "apt-cache", package: "apt" },
    Requirement { program: "apt-get", package: "apt" },
    Requirement { program: "dpkg-deb", package: "dpkg" },
    Requirement { program: "cc", package: "gcc libc6-dev" },
    Requirement { program: "make", package: "make" },
    Requirement { program: "strip", package: "binutils" },
];

/// How much of a failed program's output an error keeps, from its end, in bytes.
const OUTPUT_TAIL_BYTES: usize = 2048;

/// What a failure's output shows to be missing, and the way out.
const HINTS: [(&str, &str); 3] = [
    ("libelf.so.1", "; install the library with: apt-get install libelf1"),
    ("cannot find -lc", "; install the static C library with: apt-get install libc6-dev"),
    ("fatal error: stdio.h", "; install the C library's headers with: apt-get install libc6-dev"),
];

/// How programs say that a disk is full.
const DISK_FULL: &str = "No space left on device";

/// Runs `program` in `dir` and gives its standard output.
///
/// # Errors
/// The program is missing, or ends with anything but success.
pub(crate) fn run(program: &str, arguments: &[&str], dir: &Path) -> Result<String> {
    run_as(None, program, arguments, dir)
}

/// User and group.
pub(crate) type User = (u32, u32);

/// The same as another user, which only root can. It has none of our groups.
pub(crate) fn run_as(user: Option<User>, program: &str, arguments: &[&str], dir: &Path) -> Result<String> {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    let output = command
        .args(arguments)
        .current_dir(dir)
        .env("LC_ALL", "C")
        // A make above us would hand its own flags and job server on.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_started(program, dir, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    if printed.contains(DISK_FULL) {
        return Err(ImageError::io(dir)(ErrorKind::StorageFull.into()));
    }
    let hint = HINTS.iter().find(|(sign, _)| printed.contains(sign)).map_or("", |(_, hint)| hint);
    Err(ImageError::CommandFailed {
        command: format!("{program} {}", arguments.join(" ")),
        status: output.status.to_string(),
        hint: hint.to_owned(),
        output: tail(&printed).to_owned(),
    })
}

fn not_started(program: &str, dir: &Path, error: std::io::Error) -> ImageError {
    let known = REQUIREMENTS.iter().find(|known| known.program == program);
    match (error.kind(), known) {
        // A directory that is missing gives the same kind: tell them apart.
        (ErrorKind::NotFound, Some(known)) if dir.is_dir() => {
            ImageError::MissingProgram { program: program.to_owned(), package: known.package }
        }
        _ => ImageError::Io { path: program.into(), source: error },
    }
}

fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(OUTPUT_TAIL_BYTES);
    let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    text[from..].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_keeps_the_end_of_the_output_and_the_hint() {
        let script = "yes line | head -3000; echo 'x: libelf.so.1: cannot open' >&2; exit 3";
        let error = run("sh", &["-c", script], Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("apt-get install libelf1"), "{error}");
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.len() < OUTPUT_TAIL_BYTES + 512);
    }

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let error = run("sh", &["-c", "echo 'write: No space left on device' >&2; exit 1"], Path::new("/"))
            .unwrap_err();
        assert!(error.is_missing() && error.to_string().starts_with("/: "), "{error}");
        assert!(!run("sh", &["-c", "exit 1"], Path::new("/")).unwrap_err().is_missing());
    }

    #[test]
    fn missing_program_names_its_package() {
        let error = not_started("make", Path::new("/"), std::io::Error::from(ErrorKind::NotFound));
        assert!(error.to_string().contains("apt-get install make"), "{error}");
    }

    #[test]
    fn tail_respects_characters() {
        let text = "é".repeat(OUTPUT_TAIL_BYTES);
        assert!(tail(&text).len() <= OUTPUT_TAIL_BYTES);
    }
}
