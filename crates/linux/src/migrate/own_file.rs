//! Opens and replaces the daemon's own files safely: other users may write to their folder, so links are not followed,
//! and another user's file is not used.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Opens or makes a file that only its owner can open: anybody else who could open it could lock it forever.
///
/// # Errors
/// The kernel's; and if the file is a link, is not regular, or belongs to another user.
pub fn open(path: &Path) -> Result<File> {
    // O_NONBLOCK: if it is a pipe, do not wait for a process at the other end.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    let found = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() || found.uid() != own || found.nlink() > 1 {
        return Err(Error::new(
            ErrorKind::PermissionDenied,
            "it belongs to another user, has a second name, or is not a regular file",
        ));
    }
    if found.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Replaces a file as a whole by one that everybody may read.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let new = beside(path, ".new");
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // `create_new`: if the name is taken again by now, somebody wants to redirect the write.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    // The daemon's umask may have removed rights.
    file.set_permissions(Permissions::from_mode(0o644))?;
    std::fs::rename(&new, path)
}

/// The path with something appended to its name.
pub fn beside(path: &Path, appended: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(appended);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn nobody_else_can_open_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        open(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        // Earlier versions made it readable for others.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        open(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn links_and_pipes_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, path) = (folder.path().join("secret"), folder.path().join("state"));
        fs::write(&secret, "kept").unwrap();
        symlink(&secret, &path).unwrap();
        assert!(open(&path).is_err());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&secret, &path).unwrap();
        assert!(open(&path).is_err());
        assert_eq!(fs::read_to_string(&secret).unwrap(), "kept");
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(open(&path).is_err());
    }

    #[test]
    fn the_target_of_a_link_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, path) = (folder.path().join("secret"), folder.path().join("m.prom"));
        fs::write(&secret, "kept").unwrap();
        symlink(&secret, beside(&path, ".new")).unwrap();
        symlink(&secret, &path).unwrap();
        for _ in 0..2 {
            replace(&path, "metrics").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "metrics");
        }
        assert_eq!((fs::read_to_string(&secret).unwrap().as_str(), mode(&path)), ("kept", 0o644));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
