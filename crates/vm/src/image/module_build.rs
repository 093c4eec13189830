//! Building the guest's kernel module against headers, which bring their own makefiles and build tools along.
//!
//! Invariant: nothing of the headers runs as root. When we are root, make runs as another user, in a folder of that
//! user's; what it has made is then taken for data. Headers in the cache, which may lie in root's own folder, are copied
//! to where that user can read them, but not change them.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::command::{self, User};
use super::{ImageError, Result, error};

/// Largest module, bytes; ours has some 30 KiB.
const MODULE_BYTES_MAX: u64 = 16 << 20;

/// Builds the module `file` of the sources in `dir`, there. `packages` is where headers that we have unpacked lie, each set below a
/// root of its own.
pub(super) fn build(
    headers: &Path,
    packages: &Path,
    dir: &Path,
    file: &str,
    user: Option<User>,
) -> Result<()> {
    let Some(user) = user else { return make(headers, dir, None) };
    let folder = tempfile::Builder::new().prefix("reprieve-").tempdir();
    let folder = folder.map_err(ImageError::io(&std::env::temp_dir()))?;
    // It is root's: the user may go through, and changes nothing but the build folder.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))
        .map_err(ImageError::io(folder.path()))?;
    let build = folder.path().join("module");
    hand_over(dir, &build, user)?;
    let headers = readable(headers, packages, folder.path(), user)?;
    make(&headers, &build, Some(user))?;
    error::write(&dir.join(file), fetch(&build.join(file))?)
}

fn make(headers: &Path, dir: &Path, user: Option<User>) -> Result<()> {
    let headers = headers.to_string_lossy();
    let sources = format!("M={}", dir.to_string_lossy());
    // The kernel's own compiler may not be installed; the host's does for a module of this size. Debug information, and
    // type information (which needs pahole), would only make the image larger.
    let without_btf = "CONFIG_DEBUG_INFO_BTF_MODULES=";
    let arguments = ["-C", &headers, &sources, "CC=cc", "KCFLAGS=-g0", without_btf, "modules"];
    command::run_as(user, "make", &arguments, dir).map(drop)
}

/// Copies the sources into a folder that is the user's.
fn hand_over(dir: &Path, build: &Path, (uid, gid): User) -> Result<()> {
    let give = |path: &Path| chown(path, Some(uid), Some(gid)).map_err(ImageError::io(path));
    fs::create_dir(build).map_err(ImageError::io(build))?;
    for source in error::list(dir)? {
        let copy = build.join(source.file_name().unwrap_or_default());
        fs::copy(source, &copy).map_err(ImageError::io(&copy))?;
        give(&copy)?;
    }
    give(build)
}

/// The headers, or a copy of them in `folder`, that the user can read.
fn readable(headers: &Path, packages: &Path, folder: &Path, user: User) -> Result<PathBuf> {
    let makefile = headers.join("Makefile");
    if command::run_as(Some(user), "test", &["-r", &makefile.to_string_lossy()], Path::new("/")).is_ok() {
        return Ok(headers.into());
    }
    // Below the root of the packages, headers lead to their like, and to the build tools.
    let inside = headers.strip_prefix(packages).ok().map(|path| path.components().collect::<Vec<_>>());
    let Some([root, usr, below @ ..]) = inside.as_deref() else {
        let problem = format!(
            "user {} cannot read the kernel's headers, and root does not run their build tools: put them where \
             everybody can read them, or run without root",
            user.0
        );
        let refused = io::Error::new(ErrorKind::PermissionDenied, problem);
        return Err(ImageError::io(headers)(refused));
    };
    let from = packages.join(root).join(usr);
    let to = folder.join("headers");
    fs::create_dir_all(to.join("lib")).map_err(ImageError::io(&to))?;
    let copy = |what: &Path, to: &Path| {
        command::run("cp", &["-R", "-P", &what.to_string_lossy(), &to.to_string_lossy()], folder).map(drop)
    };
    copy(&from.join("src"), &to)?;
    for entry in fs::read_dir(from.join("lib")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("linux-kbuild") {
            copy(&entry.path(), &to.join("lib"))?;
        }
    }
    Ok(below.iter().fold(to, |path, part| path.join(part)))
}

/// What make has left. The folder is another's: a link or a device may stand in the module's place.
fn fetch(path: &Path) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        let mut content = Vec::new();
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > MODULE_BYTES_MAX {
            return Err(io::Error::other("not a module"));
        }
        file.take(MODULE_BYTES_MAX).read_to_end(&mut content)?;
        Ok(content)
    };
    read().map_err(ImageError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unprivileged_user::unprivileged_user;

    const MODULE: &str = "reprieve_lab.ko";
    /// Says whom it runs as, and whether that user can change the headers.
    const MAKEFILE: &str = "include ../common/Makefile\n";
    const COMMON: &str = "modules:\n\t../../lib/linux-kbuild-9/tool $(M)/reprieve_lab.ko\n";
    const TOOL: &str = "#!/bin/sh\n{ id -u; touch Makefile 2>/dev/null && echo changed; } >\"$1\"; exit 0\n";

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_headers_tools_do_not_run_as_root() {
        let cache = tempfile::tempdir().unwrap();
        // As root's own folder is: closed to everybody else.
        fs::set_permissions(cache.path(), Permissions::from_mode(0o700)).unwrap();
        let packages = cache.path().join("packages");
        let usr = packages.join("linux-image_1/usr");
        let headers = usr.join("src/linux-headers-9");
        write(headers.join("Makefile"), MAKEFILE);
        write(usr.join("src/common/Makefile"), COMMON);
        write(usr.join("lib/linux-kbuild-9/tool"), TOOL);
        let dir = cache.path().join("module");
        write(dir.join("main.c"), "");
        let user = unprivileged_user();
        build(&headers, &packages, &dir, MODULE, user).unwrap();
        let said = fs::read_to_string(dir.join(MODULE)).unwrap();
        match user {
            Some((uid, _)) => assert_eq!(said, format!("{uid}\n")),
            None => assert_ne!(said.lines().next(), Some("0")),
        }
        if user.is_some() {
            let elsewhere = cache.path().join("own/linux");
            write(elsewhere.join("Makefile"), COMMON);
            let said = build(&elsewhere, &packages, &dir, MODULE, user).unwrap_err().to_string();
            assert!(said.contains("run without root"), "{said}");
        }
    }

    #[test]
    fn what_stands_in_the_module_s_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        fs::write(&file, "content").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(fetch(&file).unwrap(), b"content");
        assert!(fetch(&link).is_err() && fetch(folder.path()).is_err());
    }
}
