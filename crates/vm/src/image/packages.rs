//! Distribution packages, downloaded and unpacked into the cache; nothing is installed, root is not needed.
//!
//! apt knows the repositories and checks signatures; `dpkg-deb` unpacks. An entry is named after its first
//! package and that package's exact version. Once there, it is never replaced: runs stay comparable,
//! and no network is needed. A kernel comes as a meta package whose dependencies lead to the
//! packages with content: Debian Policy 7.1 for the syntax of `Depends`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Cache, ImageError, Result, command, error};
use crate::Step;

/// Most packages one entry may consist of.
const PACKAGES_MAX: usize = 128;

/// The kind of these entries in the cache.
const KIND: &str = "packages";

/// Kernels for virtual machines, and their headers, with what they depend on: Debian's, then Ubuntu's.
pub(crate) const KERNELS: [&[&str]; 2] = [
    &["linux-image-cloud-amd64", "linux-headers-cloud-amd64"],
    &["linux-image-virtual", "linux-headers-virtual"],
];

/// Dependencies named `linux-` that hold nothing a guest or a module build needs.
const NOT_NEEDED: [&str; 2] = ["linux-base", "linux-firmware"];

/// Packages unpacked side by side under one root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// NAME_VERSION of the first package: two with the same id have the same content.
    pub id: String,
    /// The root they were unpacked under.
    pub root: PathBuf,
}

impl Unpacked {
    /// The first of `names`, paths below the root, that is there.
    pub fn find(&self, names: &[&str]) -> Result<PathBuf> {
        let there = names.iter().map(|name| self.root.join(name)).find(|path| path.exists());
        there.ok_or_else(|| ImageError::PackageLacks { package: self.id.clone(), what: names.join(" or ") })
    }
}

/// What apt says of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stanza {
    package: String,
    version: String,
    depends: String,
}

/// The first of these kernels (an image, and what is to lie beside it) that the distribution has.
pub(crate) fn kernel(cache: &Cache, kernels: &[&[&str]], progress: &mut Step) -> Result<Unpacked> {
    entry(cache, kernels, follow_linux, patch_headers, progress)
}

/// Debian's names for a kernel of a series, and for its headers.
pub(crate) fn series_packages(series: &str) -> [String; 2] {
    ["image", "headers"].map(|what| format!("linux-{what}-{series}-cloud-amd64"))
}

/// These packages, each an entry of its own, without their dependencies.
pub(crate) fn singles<const N: usize>(
    cache: &Cache,
    names: [&str; N],
    progress: &mut Step,
) -> Result<[Unpacked; N]> {
    let single = |name: &str| entry(cache, &[&[name]], |_| Vec::new(), |_| Ok(()), progress);
    let unpacked: Vec<Unpacked> = names.into_iter().map(single).collect::<Result<_>>()?;
    Ok(unpacked.try_into().expect("one entry for each name"))
}

/// This package and all packages with libraries that it depends on, side by side.
pub(crate) fn with_libraries(cache: &Cache, name: &str, progress: &mut Step) -> Result<Unpacked> {
    entry(cache, &[&[name]], follow_libraries, |_| Ok(()), progress)
}

/// The name and version of the first of these packages that is in the cache, or that apt could download.
///
/// # Errors
/// apt knows none, or there is no apt.
pub(crate) fn known(cache: &Cache, names: &[&str]) -> Result<String> {
    for name in names {
        if let Some(there) = latest(cache, name) {
            return Ok(format!("{}, in the cache", there.id));
        }
        if let Some(packages) = resolve(cache.root(), &[name], |_| Vec::new())? {
            let Stanza { package, version, .. } = &packages[0];
            return Ok(format!("{package} {version}, to be downloaded"));
        }
    }
    Err(ImageError::UnknownPackage { package: names.join(" or ") })
}

/// The first of these entries that is in the cache, else the first that apt knows, downloaded. Each is given by the packages it
/// begins with; `follow` and `finish` are those of [`resolve`] and [`fetch`].
fn entry(
    cache: &Cache,
    entries: &[&[&str]],
    follow: impl Fn(&str) -> Vec<Vec<String>>,
    finish: impl FnOnce(&Path) -> Result<()>,
    progress: &mut Step,
) -> Result<Unpacked> {
    if let Some(found) = entries.iter().find_map(|names| latest(cache, names[0])) {
        return Ok(found);
    }
    let resolved = entries.iter().find_map(|names| resolve(cache.root(), names, &follow).transpose());
    let first: Vec<&str> = entries.iter().map(|names| names[0]).collect();
    let unknown = || ImageError::UnknownPackage { package: first.join(" or ") };
    fetch(cache, &resolved.ok_or_else(unknown)??, finish, progress)
}

/// Where all packages lie, each with what belongs to it below a root of its own.
pub(crate) fn root(cache: &Cache) -> PathBuf {
    cache.root().join(KIND)
}

/// The entry of this package made last.
fn latest(cache: &Cache, name: &str) -> Option<Unpacked> {
    let root = cache.entries(KIND, &format!("{name}_")).into_iter().next()?;
    let id = root.file_name()?.to_string_lossy().into_owned();
    Some(Unpacked { id, root })
}

/// The packages `names` stand for: themselves, and those that `follow` picks from their dependencies, with
/// their versions. `None` if apt does not know one of `names`.
fn resolve(
    dir: &Path,
    names: &[&str],
    follow: impl Fn(&str) -> Vec<Vec<String>>,
) -> Result<Option<Vec<Stanza>>> {
    let mut groups: Vec<Vec<String>> = names.iter().map(|name| vec![(*name).to_owned()]).collect();
    let mut resolved: Vec<Stanza> = Vec::new();
    // One level of dependencies a turn, as each question to apt takes a good part of a second.
    while !groups.is_empty() {
        let known = show(dir, &groups)?;
        let found = groups.iter().map(|group| group.iter().find_map(|name| known.get(name)));
        let found: Vec<Option<&Stanza>> = found.collect();
        // Further down, what apt does not know is a virtual package: somebody else provides it.
        if resolved.is_empty() && found.contains(&None) {
            return Ok(None);
        }
        groups.clear();
        for stanza in found.into_iter().flatten() {
            if resolved.iter().any(|known| known.package == stanza.package) {
                continue;
            }
            if resolved.len() == PACKAGES_MAX {
                return Err(ImageError::TooManyPackages {
                    package: names[0].to_owned(),
                    limit: PACKAGES_MAX,
                });
            }
            groups.extend(follow(&stanza.depends));
            resolved.push(stanza.clone());
        }
    }
    Ok(Some(resolved))
}

/// Of a `Depends` field, the groups of alternatives that begin with `linux-`.
fn follow_linux(depends: &str) -> Vec<Vec<String>> {
    follow(depends, |name| name.starts_with("linux-") && !NOT_NEEDED.contains(&name))
}

/// Of a `Depends` field, the groups of libraries, by Debian's names for them (Debian Policy 8.1).
fn follow_libraries(depends: &str) -> Vec<Vec<String>> {
    follow(depends, |name| name.starts_with("lib") || name.starts_with("zlib"))
}

fn follow(depends: &str, wanted: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let groups = depends.split(',').map(|group| {
        // name:arch (>= version) [arch] <profile>: the name ends at the first of these.
        let name = |text: &str| text.trim().split([' ', ':', '(', '[', '<']).next().unwrap_or("").to_owned();
        group.split('|').map(name).filter(|name| wanted(name)).collect::<Vec<_>>()
    });
    groups.filter(|group| !group.is_empty()).collect()
}

/// What apt knows of the packages in these groups: their candidate versions, by name.
fn show(dir: &Path, groups: &[Vec<String>]) -> Result<BTreeMap<String, Stanza>> {
    let mut arguments = vec!["show", "--no-all-versions"];
    arguments.extend(groups.iter().flatten().map(String::as_str));
    match command::run("apt-cache", &arguments, dir) {
        Ok(text) => {
            let stanzas = text.split("\n\n").filter_map(parse_stanza);
            Ok(stanzas.map(|stanza| (stanza.package.clone(), stanza)).collect())
        }
        // It fails if it knows none of them, and says no more than that.
        Err(ImageError::CommandFailed { .. }) => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

/// One stanza of apt-cache's output. Continuation lines begin with a space.
fn parse_stanza(text: &str) -> Option<Stanza> {
    let mut fields: BTreeMap<&str, String> = BTreeMap::new();
    let mut last = None;
    for line in text.lines() {
        if line.starts_with([' ', '\t']) {
            if let Some(value) = last.and_then(|key| fields.get_mut(key)) {
                value.push_str(line);
            }
        } else if let Some((key, value)) = line.split_once(':') {
            fields.insert(key, value.trim().to_owned());
            last = Some(key);
        }
    }
    let mut take = |key| fields.remove(key);
    let depends = [take("Pre-Depends"), take("Depends")].into_iter().flatten().collect::<Vec<_>>().join(", ");
    Some(Stanza { package: take("Package")?, version: take("Version")?, depends })
}

/// Downloads and unpacks the packages into one entry; `finish` is given its root.
fn fetch(
    cache: &Cache,
    packages: &[Stanza],
    finish: impl FnOnce(&Path) -> Result<()>,
    progress: &mut Step,
) -> Result<Unpacked> {
    // make takes a colon, which an epoch brings, for the end of a target.
    let id = format!("{}_{}", packages[0].package, packages[0].version.replace(':', "_"));
    let root = cache.make(KIND, &id, |dir| {
        progress(&format!("downloading {id} ({} packages)", packages.len()));
        packages.iter().try_for_each(|package| download(dir, package))?;
        for path in downloaded(dir)? {
            command::run("dpkg-deb", &["-x", &path.to_string_lossy(), "."], dir)?;
            fs::remove_file(&path).map_err(ImageError::io(&path))?;
        }
        finish(dir)
    })?;
    Ok(Unpacked { id, root })
}

/// Downloads one package. Given several, apt would try each in turn on a server that does not answer; so the first one that
/// fails ends a download within a minute.
fn download(dir: &Path, package: &Stanza) -> Result<()> {
    let exact = format!("{}={}", package.package, package.version);
    let limits = ["Acquire::Retries=1", "Acquire::http::Timeout=12", "Acquire::https::Timeout=12"];
    let mut arguments = vec!["-q"];
    arguments.extend(limits.iter().flat_map(|limit| ["-o", limit]));
    arguments.extend(["download", &exact]);
    match command::run("apt-get", &arguments, dir) {
        Err(ImageError::CommandFailed { output, .. }) => {
            Err(ImageError::NotDownloaded { package: exact, cause: cause(&output).to_owned() })
        }
        other => other.map(drop),
    }
}

/// Why apt could not fetch a package: the end of its line `E: Failed to fetch ADDRESS  CAUSE`, else its last line.
fn cause(output: &str) -> &str {
    let failed = output.lines().find_map(|line| line.strip_prefix("E: Failed to fetch "));
    let cause = failed.and_then(|rest| rest.split_once(' ')).map(|(_, cause)| cause);
    cause.or(output.lines().last()).unwrap_or_default().trim()
}

fn downloaded(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = error::list(dir)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
    paths.sort();
    Ok(paths)
}

/// Debian's header packages include each other's makefiles by absolute path, as if installed. Make it
/// relative: they were unpacked side by side.
fn patch_headers(root: &Path) -> Result<()> {
    let sources = root.join("usr/src");
    let Ok(listing) = fs::read_dir(&sources) else { return Ok(()) };
    for entry in listing.flatten() {
        let makefile = entry.path().join("Makefile");
        if !makefile.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let text = fs::read_to_string(&makefile).map_err(ImageError::io(&makefile))?;
        let patched = text.replace("include /usr/src/", "include ../");
        if patched != text {
            fs::write(&makefile, patched).map_err(ImageError::io(&makefile))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanza_is_parsed_with_continuations() {
        let text = "Package: a\nVersion: 1:2.3-4\nPre-Depends: linux-x\nDepends: b (>= 1),\n linux-c\n";
        let stanza = parse_stanza(text).unwrap();
        assert_eq!((stanza.package.as_str(), stanza.version.as_str()), ("a", "1:2.3-4"));
        assert_eq!(follow_linux(&stanza.depends), [["linux-x"], ["linux-c"]]);
        assert!(parse_stanza("").is_none() && parse_stanza("nonsense").is_none());
    }

    #[test]
    fn a_failed_download_says_its_cause() {
        let output = "Err:1 http://server/debian\n  Connection failed\n\
                      E: Failed to fetch http://server/a.deb  Connection failed [IP: 127.0.0.1 80]\nE: Unable\n";
        assert_eq!(cause(output), "Connection failed [IP: 127.0.0.1 80]");
        assert_eq!((cause("a\nE: no sources\n"), cause("")), ("E: no sources", ""));
    }

    #[test]
    fn only_linux_packages_are_followed_with_their_alternatives() {
        let depends = "kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120) | linux-initramfs-tool, \
                       linux-image-6.1.0-56-cloud-amd64:amd64 (= 6.1.192-2), linux-a [amd64] | linux-b <!x>";
        assert_eq!(
            follow_linux(depends),
            [
                vec!["linux-initramfs-tool"],
                vec!["linux-image-6.1.0-56-cloud-amd64"],
                vec!["linux-a", "linux-b"]
            ]
        );
    }

    #[test]
    fn libraries_are_followed_and_nothing_else() {
        let depends =
            "libaio1 (>= 0.3.93), zlib1g (>= 1:1.2.0), python3, liba | libb:any, init-system-helpers";
        assert_eq!(follow_libraries(depends), [vec!["libaio1"], vec!["zlib1g"], vec!["liba", "libb"]]);
    }

    #[test]
    fn header_makefiles_become_relative() {
        let dir = tempfile::tempdir().unwrap();
        let headers = dir.path().join("usr/src/linux-headers-9");
        fs::create_dir_all(&headers).unwrap();
        fs::write(headers.join("Makefile"), "include /usr/src/linux-headers-9-common/Makefile\n").unwrap();
        patch_headers(dir.path()).unwrap();
        let text = fs::read_to_string(headers.join("Makefile")).unwrap();
        assert_eq!(text, "include ../linux-headers-9-common/Makefile\n");
    }
}
