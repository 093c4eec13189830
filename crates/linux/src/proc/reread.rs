//! Reads one file again and again: it stays open, and once its buffer is large enough, nothing is allocated.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::MAX_FILE_BYTES;

/// The buffer's first size, bytes: most files of `/proc` fit.
const FIRST_BYTES: usize = 4096;

/// A file, or none if it cannot be opened.
#[derive(Debug)]
pub(crate) struct Reread {
    file: Option<File>,
    buffer: Vec<u8>,
}

impl Reread {
    pub(crate) fn open(path: &Path) -> Reread {
        Reread { file: File::open(path).ok(), buffer: vec![0; FIRST_BYTES] }
    }

    /// The file as it is now; `None` if it cannot be read or is not UTF-8.
    pub(crate) fn read(&mut self) -> Option<&str> {
        let file = self.file.as_ref()?;
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                if length as u64 >= MAX_FILE_BYTES {
                    return None;
                }
                self.buffer.resize(length * 2, 0);
            }
            // The kernel returns about a page at a time.
            match file.read_at(&mut self.buffer[length..], length as u64).ok()? {
                0 => break,
                read => length += read,
            }
        }
        std::str::from_utf8(&self.buffer[..length]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeProc;
    use super::*;

    #[test]
    fn a_file_is_read_again_however_long_it_becomes() {
        let proc = FakeProc::new();
        let mut none = Reread::open(&proc.root.join("stat"));
        assert_eq!(none.read(), None);
        proc.put("stat", "short");
        let mut reread = Reread::open(&proc.root.join("stat"));
        assert_eq!(reread.read(), Some("short"));
        let long = "x".repeat(3 * FIRST_BYTES + 1);
        proc.put("stat", &long);
        assert_eq!(reread.read(), Some(&long[..]));
        proc.put("stat", "");
        assert_eq!(reread.read(), Some(""));
    }
}
