//! `reprieve profile`: what a VM frees after grace periods, and how it spends its time, for `plan`. Measured in the VM that it runs
//! in, or taken from a record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reprieve_linux::observe::{LOOK_EVERY, Symbols, Watch, slabs};
use reprieve_linux::proc::{ProcRoot, SysCpus};
use reprieve_linux::signals::Interrupt;
use reprieve_study::provision::live::{Measured, Shares};
use reprieve_study::provision::{Profile, recorded};
use reprieve_study::scenario::{Guest, Spinlocks};
use reprieve_study::units::MIB;

use crate::cli::ProfileArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};
use crate::{progress, record_file};

/// How much faster a guest under KVM is than those on which the simulator's costs were calibrated, which were emulated.
const KVM_SPEED: f64 = 8.0;

/// Runs the verb.
pub fn profile(arguments: &ProfileArguments) -> Result<(), Failure> {
    let profile = match &arguments.from {
        Some(path) => from_record(arguments, path)?,
        None => live(arguments)?,
    };
    profile.missing.iter().for_each(|missing| output::say(&format!("reprieve: warning: {missing}")));
    let write = |path: &PathBuf| Promised::open(path)?.write(profile.to_json().as_bytes());
    arguments.output.as_ref().map_or_else(|| output::print(&profile.to_json()), write)
}

fn from_record(arguments: &ProfileArguments, path: &Path) -> Result<Profile, Failure> {
    let study = record_file::study(path, arguments.scenario.as_deref())?;
    let made = recorded::profile(&study, arguments.case.as_deref(), arguments.condition.as_deref());
    made.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

/// Measures this machine, which is the VM.
fn live(arguments: &ProfileArguments) -> Result<Profile, Failure> {
    let given_bytes = given_bytes(&arguments.bytes)?;
    let root = ProcRoot::default();
    let slabs = slabs(&root)?;
    let interrupt = Interrupt::install()?;
    let cpus = SysCpus::default();
    let mut watch = Watch::begin(cpus.path(), Symbols::read(&root)?, &cpus.online())?;
    let ticks = root.cpu_ticks()?;
    let (began, bar) = (Instant::now(), progress::seconds(arguments.for_s));
    while !interrupt.is_raised() && began.elapsed() < Duration::from_secs(arguments.for_s) {
        std::thread::sleep(LOOK_EVERY);
        watch.look();
        bar.set_position(began.elapsed().as_secs());
    }
    bar.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    let shares = shares(ticks, root.cpu_ticks()?);
    let seen = watch.end()?;
    let mut notes = Vec::new();
    if seen.missed {
        notes.push(
            "records of the kernel were lost: how frees are shared among functions is less exact".to_string(),
        );
    }
    let measured = Measured {
        seconds,
        frees: seen.frees.into_iter().map(|frees| (frees.function, frees.objects)).collect(),
        given_bytes,
        slabs: slabs.into_iter().map(|slab| (slab.cache, slab.objects, slab.bytes)).collect(),
        grace_periods_ns: seen.grace_periods_ns,
        shares,
        guest: guest(&root, &cpus)?,
        release: rustix::system::uname().release().to_string_lossy().into_owned(),
        notes,
    };
    measured.profile().map_err(|error| Failure::Failed(error.to_string()))
}

/// This VM, in terms of the simulator.
fn guest(root: &ProcRoot, cpus: &SysCpus) -> Result<Guest, Failure> {
    // Without KVM, QEMU names its processor so.
    let is_emulated =
        std::fs::read_to_string(root.path().join("cpuinfo")).is_ok_and(|text| text.contains("QEMU TCG"));
    let (speed, spinlocks) = match is_emulated {
        true => (Guest::default().speed, Spinlocks::TestAndSet),
        false => (KVM_SPEED, Spinlocks::Paravirtual),
    };
    let memory_mib = root.memory_bytes()?.div_ceil(MIB);
    Ok(Guest { vcpus: cpus.online().iter().count(), memory_mib, speed, spinlocks, ..Guest::default() })
}

/// How the time between two counts of ticks was spent.
fn shares(before: [u64; 8], after: [u64; 8]) -> Shares {
    let ticks: Vec<f64> =
        after.iter().zip(before).map(|(after, before)| after.saturating_sub(before) as f64).collect();
    let all = ticks.iter().sum::<f64>().max(1.0);
    let [_, _, system, idle, iowait, irq, softirq, steal] = ticks[..] else { return Shares::default() };
    Shares { kernel: (system + irq + softirq) / all, idle: (idle + iowait) / all, steal: steal / all }
}

/// Sizes, as FUNCTION=BYTES.
fn given_bytes(words: &[String]) -> Result<BTreeMap<String, u64>, Failure> {
    let one = |word: &String| {
        let (function, bytes) = word.split_once('=')?;
        Some((function.to_string(), bytes.parse().ok().filter(|bytes| *bytes > 0)?))
    };
    let parsed = |word| {
        one(word).ok_or_else(|| {
            Failure::Usage(format!("--bytes {word}: give a function and bytes, such as i_callback=1080"))
        })
    };
    words.iter().map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_time_between_two_counts() {
        let shares = shares([10, 0, 10, 10, 0, 0, 0, 0], [60, 0, 20, 40, 0, 5, 5, 0]);
        assert_eq!(shares, Shares { kernel: 0.2, idle: 0.3, steal: 0.0 });
    }

    #[test]
    fn sizes_are_given_by_function() {
        let given = given_bytes(&["lab_free=1024".into(), "i_callback=760".into()]).unwrap();
        assert_eq!((given["lab_free"], given["i_callback"]), (1024, 760));
        assert!(given_bytes(&["lab_free".into()]).is_err() && given_bytes(&["lab_free=0".into()]).is_err());
    }
}
