//! Where what is costly to make is kept: a directory of entries, each made once and never changed.
//!
//! Invariants: an entry exists complete or not at all (it is built beside and renamed into place); its key
//! says all that went into it, so an entry is never out of date; one process builds at a time (a lock on the
//! file `lock`), so what lies in a `reprieve-tmp-` directory while the lock is held was left by a crash. Where all
//! that is needed is there nothing is written, not even the lock: a cache that is read-only does.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::{ImageError, Result};

const TEMPORARY_PREFIX: &str = "reprieve-tmp-";

/// The cache directory.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens, and if need be makes, the cache in `root`.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(root: impl Into<PathBuf>) -> Result<Cache> {
        let root = root.into();
        let unusable =
            |error: io::Error| ImageError::CacheUnusable { root: root.clone(), problem: error.to_string() };
        fs::create_dir_all(&root).map_err(unusable)?;
        // Other programs run inside the cache, where a relative path would mean something else.
        let root = fs::canonicalize(&root).map_err(unusable)?;
        Ok(Cache { root })
    }

    /// `$XDG_CACHE_HOME/reprieve`, else `$HOME/.cache/reprieve`; the environment is handed in.
    ///
    /// # Errors
    /// Neither variable is set.
    pub fn default_dir(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .map(|base| base.join("reprieve"))
            .ok_or(ImageError::NoCacheDir)
    }

    /// The cache directory's absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The entry of this kind and key, if it has been made.
    pub fn entry(&self, kind: &str, key: &str) -> Option<PathBuf> {
        let path = self.path(kind, key);
        path.is_dir().then_some(path)
    }

    /// Entries of this kind whose key begins with `prefix`, latest made first.
    pub fn entries(&self, kind: &str, prefix: &str) -> Vec<PathBuf> {
        let Ok(listing) = fs::read_dir(self.root.join(kind)) else { return Vec::new() };
        let mut found: Vec<(SystemTime, PathBuf)> = listing
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// The entry of this kind and key; `build` makes it in the empty directory it is given, if nobody has.
    ///
    /// `build` must not call `make` again: the lock is held.
    ///
    /// # Errors
    /// What `build` returns, or the cache cannot be written.
    pub fn make(&self, kind: &str, key: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        match self.entry(kind, key) {
            Some(entry) => Ok(entry),
            None => self.make_new(kind, key, build).map_err(|error| self.explain(error)),
        }
    }

    fn make_new(&self, kind: &str, key: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let _lock = self.lock()?;
        // Another process may have made it while this one waited.
        if let Some(entry) = self.entry(kind, key) {
            return Ok(entry);
        }
        self.remove_leftovers();
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempdir_in(&self.root)
            .map_err(ImageError::io(&self.root))?;
        let content = temporary.path().join("content");
        fs::create_dir(&content).map_err(ImageError::io(&content))?;
        build(&content)?;
        let path = self.path(kind, key);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(ImageError::io(parent))?;
        }
        fs::rename(&content, &path).map_err(ImageError::io(&path))?;
        Ok(path)
    }

    /// Removes entries of this kind but for the `count` made last. Another process that uses an older one has to make it
    /// again.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub(crate) fn keep_latest(&self, kind: &str, count: usize) -> Result<()> {
        if self.entries(kind, "").len() <= count {
            return Ok(());
        }
        let _lock = match self.lock() {
            // What cannot be written does not grow either.
            Err(ImageError::Io { source, .. }) if is_read_only(&source) => return Ok(()),
            lock => lock?,
        };
        self.entries(kind, "")
            .iter()
            .skip(count)
            .try_for_each(|entry| fs::remove_dir_all(entry).map_err(ImageError::io(entry)))
    }

    fn path(&self, kind: &str, key: &str) -> PathBuf {
        debug_assert!(!kind.contains('/') && !key.contains('/'), "a kind and a key are one name each");
        self.root.join(kind).join(key)
    }

    fn lock(&self) -> Result<File> {
        let path = self.root.join("lock");
        let open = || -> io::Result<File> {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(ImageError::io(&path))
    }

    /// Names the cache as the cause where an error comes from a cache that is full or cannot be written.
    fn explain(&self, error: ImageError) -> ImageError {
        match error {
            ImageError::Io { path, source }
                if path.starts_with(&self.root) && (is_read_only(&source) || is_full(&source)) =>
            {
                ImageError::CacheUnusable { root: self.root.clone(), problem: source.to_string() }
            }
            other => other,
        }
    }

    /// Only with the lock held. What cannot be removed is left: it harms nobody.
    fn remove_leftovers(&self) {
        let Ok(listing) = fs::read_dir(&self.root) else { return };
        for entry in listing.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A key that says all of `parts`, in their order: SHA-256, the first 128 bits, in hexadecimal.
pub(crate) fn key_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps "ab","c" and "a","bc" apart.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("c")).unwrap();
        (dir, cache)
    }

    #[test]
    fn an_entry_is_made_once_even_by_many() {
        let (_dir, cache) = cache();
        let built = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let entry = cache.make("kind", "key", |dir| {
                        built.fetch_add(1, Ordering::Relaxed);
                        fs::write(dir.join("file"), "x").map_err(ImageError::io(dir))
                    });
                    assert_eq!(fs::read(entry.unwrap().join("file")).unwrap(), b"x");
                });
            }
        });
        assert_eq!(built.into_inner(), 1);
    }

    #[test]
    fn a_failed_build_leaves_nothing_and_a_crashed_one_is_cleared_away() {
        let (_dir, cache) = cache();
        fs::create_dir(cache.root().join("reprieve-tmp-crashed")).unwrap();
        cache.make("kind", "bad", |_| Err(ImageError::NoCacheDir)).unwrap_err();
        assert!(cache.entry("kind", "bad").is_none());
        let left: Vec<_> = fs::read_dir(cache.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn only_the_latest_entries_of_a_kind_are_kept() {
        let (_dir, cache) = cache();
        for (kind, key) in [("kind", "a"), ("kind", "b"), ("other", "a"), ("kind", "c")] {
            let entry = cache.make(kind, key, |_| Ok(())).unwrap();
            // A file system may be too coarse to tell them apart.
            let made = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(key.as_bytes()[0]));
            File::open(entry).unwrap().set_modified(made).unwrap();
        }
        cache.keep_latest("kind", 2).unwrap();
        let left = [("kind", "a"), ("kind", "b"), ("kind", "c"), ("other", "a")];
        assert_eq!(left.map(|(kind, key)| cache.entry(kind, key).is_some()), [false, true, true, true]);
    }

    #[test]
    fn nothing_is_locked_where_nothing_has_to_be_made() {
        let (_dir, cache) = cache();
        let made = cache.make("kind", "a", |_| Ok(())).unwrap();
        // A lock that cannot be opened, whoever we are.
        let lock = cache.root().join("lock");
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        assert_eq!(Cache::new(cache.root()).unwrap().make("kind", "a", |_| unreachable!()).unwrap(), made);
        cache.keep_latest("kind", 1).unwrap();
        assert!(cache.make("kind", "b", |_| Ok(())).is_err());
    }

    #[test]
    fn a_cache_that_cannot_be_used_is_named_with_the_way_out() {
        let (dir, cache) = cache();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let no_directory = Cache::new(file.join("c")).unwrap_err();
        let full = |path: &Path| {
            let path = path.to_owned();
            let full = |_: &Path| Err(ImageError::io(&path)(io::ErrorKind::StorageFull.into()));
            cache.make("kind", "a", full).unwrap_err()
        };
        for error in [no_directory, full(&cache.root().join("x"))] {
            let text = error.to_string();
            assert!(error.is_missing() && text.contains("XDG_CACHE_HOME=DIRECTORY"), "{text}");
        }
        // A disk that is full elsewhere is another one's matter.
        assert!(full(Path::new("/elsewhere")).to_string().starts_with("/elsewhere: "));
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_not_tidied() {
        for refusal in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
            assert!(is_read_only(&refusal.into()));
        }
        assert!(!is_read_only(&io::ErrorKind::IsADirectory.into()));
    }

    #[test]
    fn default_dir_follows_the_environment() {
        let env = |set: &'static [(&str, &str)]| {
            Cache::default_dir(move |name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
            })
        };
        assert_eq!(env(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]).unwrap(), Path::new("/x/reprieve"));
        assert_eq!(env(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/reprieve"));
        assert!(env(&[]).is_err());
    }

    #[test]
    fn keys_keep_their_parts_apart() {
        assert_ne!(key_of([b"ab".as_slice(), b"c"]), key_of([b"a".as_slice(), b"bc"]));
        assert_eq!(key_of([b"a".as_slice()]).len(), 32);
    }
}
