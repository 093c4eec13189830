//! What runs inside guests, compiled from the sources this program carries: static programs with the
//! host's compiler, the kernel module against the kernel's headers. Each entry in the cache is keyed by its
//! sources, the compiler and, for the module, the kernel.

use std::path::{Path, PathBuf};

use super::cache::key_of;
use super::{Cache, ImageError, Kernel, Result, command, error, module_build, packages};
use crate::Step;
use crate::unprivileged_user::unprivileged_user;

/// A source file's name and content.
type Source = (&'static str, &'static str);

/// The sources of the guest lie beside the crates, in `guest/`.
macro_rules! sources {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../../guest/", $name)))),+]
    };
}

/// The first program of the guest.
pub(crate) const INIT: &str = include_str!("../../../../guest/init");
/// The first program of dom0.
pub(crate) const XEN_INIT: &str = include_str!("../../../../guest/xen/init");

/// Programs that are compiled together.
pub(crate) struct Bundle {
    headers: &'static [Source],
    /// Each program and what it is made of.
    programs: &'static [(&'static str, &'static [Source])],
}

impl Bundle {
    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.programs.iter().flat_map(|(_, sources)| *sources).chain(self.headers)
    }
}

/// The programs of a lab guest: `lab` and `clone`.
pub(crate) const LAB: Bundle = Bundle {
    headers: &sources!["clone.h", "lab.h"],
    programs: &[
        (
            "lab",
            &sources![
                "lab.c",
                "wire.c",
                "text.c",
                "symbols.c",
                "sync.c",
                "computing.c",
                "memory.c",
                "clones.c",
                "postmark.c",
                "program.c",
                "fio.c",
                "idle.c",
            ],
        ),
        ("clone", &sources!["clone.c"]),
    ],
};

/// The programs of the ground xen: `wakeup` for domUs, `carry` for dom0.
pub(crate) const XEN: Bundle = Bundle {
    headers: &[],
    programs: &[("carry", &sources!["xen/carry.c"]), ("wakeup", &sources!["xen/wakeup.c"])],
};

/// The program of a hostile guest: `babble`, in place of the runner.
pub(crate) const HOSTILE: Bundle = Bundle { headers: &[], programs: &[("babble", &sources!["babble.c"])] };

/// A kernel module.
pub(crate) struct ModuleSources {
    sources: &'static [Source],
    /// Where they lie, and the file that is made of them.
    directory: &'static str,
    file: &'static str,
}

/// The memory microbenchmark and the poll of grace periods.
pub(crate) const LAB_MODULE: ModuleSources = ModuleSources {
    sources: &sources![
        "module/Kbuild",
        "module/gp.c",
        "module/hold.c",
        "module/lab.h",
        "module/main.c",
        "module/memory.c"
    ],
    directory: "module",
    file: "reprieve_lab.ko",
};

/// What a hostile guest writes over its own memory with.
pub(crate) const HOSTILE_MODULE: ModuleSources = ModuleSources {
    sources: &sources!["module/hostile/Kbuild", "module/hostile/reprieve_hostile.c"],
    directory: "module/hostile",
    file: "reprieve_hostile.ko",
};

/// What makes a backlog of known size.
pub(crate) const PLANTED_MODULE: ModuleSources = ModuleSources {
    sources: &sources!["module/planted/Kbuild", "module/planted/reprieve_planted.c"],
    directory: "module/planted",
    file: "reprieve_planted.ko",
};

/// No debug information (`-s`): the image is copied into memory at each boot.
const FLAGS: [&str; 7] = ["-std=c11", "-static", "-O2", "-s", "-Wall", "-Wextra", "-Werror"];

/// A bundle's programs, compiled.
pub(crate) struct Programs {
    /// The directory that holds them.
    pub dir: PathBuf,
    /// Their key in the cache.
    pub key: String,
}

/// What the compiler says it is.
pub(crate) fn compiler(cache: &Cache) -> Result<String> {
    let version = command::run("cc", &["--version"], cache.root())?;
    Ok(version.lines().next().unwrap_or_default().to_owned())
}

/// Compiles a bundle's static programs, or finds them in the cache.
pub(crate) fn programs(
    cache: &Cache,
    bundle: &Bundle,
    compiler: &str,
    progress: &mut Step,
) -> Result<Programs> {
    let key = key_of(parts(bundle.sources()).chain(FLAGS.map(str::as_bytes)).chain([compiler.as_bytes()]));
    let dir = cache.make("programs", &key, |dir| {
        progress("compiling the guest's programs");
        write_sources(dir, bundle.sources())?;
        for (program, sources) in bundle.programs {
            let mut arguments = [&FLAGS[..], &["-o", program]].concat();
            arguments.extend(sources.iter().map(|(name, _)| name));
            command::run("cc", &arguments, dir)?;
        }
        Ok(())
    })?;
    Ok(Programs { dir, key })
}

/// Builds a kernel module for this kernel, or finds it in the cache. `None` without headers.
pub(crate) fn module(
    cache: &Cache,
    module: &ModuleSources,
    kernel: &Kernel,
    compiler: &str,
    progress: &mut Step,
) -> Result<Option<PathBuf>> {
    let Some(headers) = &kernel.headers_dir else { return Ok(None) };
    let key = key_of(parts(module.sources).chain([kernel.id.as_bytes(), compiler.as_bytes()]));
    let dir = cache.make("module", &key, |dir| {
        progress(&format!("building the guest's kernel module for {}", kernel.release));
        write_sources(dir, module.sources)?;
        let folder = dir.join(module.directory);
        module_build::build(headers, &packages::root(cache), &folder, module.file, unprivileged_user())
    })?;
    Ok(Some(dir.join(module.directory).join(module.file)))
}

fn parts<'a>(sources: impl IntoIterator<Item = &'a Source>) -> impl Iterator<Item = &'a [u8]> {
    sources.into_iter().flat_map(|(name, content)| [name.as_bytes(), content.as_bytes()])
}

fn write_sources<'a>(dir: &Path, sources: impl IntoIterator<Item = &'a Source>) -> Result<()> {
    for (name, content) in sources {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(ImageError::io(parent))?;
        }
        error::write(&path, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_of_a_program_is_carried() {
        for bundle in [LAB, XEN, HOSTILE] {
            for (name, text) in bundle.sources() {
                let mut headers =
                    text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
                assert!(
                    headers.all(|header| bundle.headers.iter().any(|(name, _)| *name == header)),
                    "{name}"
                );
            }
        }
    }
}
