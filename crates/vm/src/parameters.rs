//! Checks whether a guest's kernel accepted the words of its command line.
//!
//! A kernel ignores words that it does not know and values that it does not accept. A measurement would then show a
//! parameter without effect. So an ignored word is an error of the scenario. The check reads the kernel's log and the
//! files in which the kernel shows its parameters (Documentation/admin-guide/kernel-parameters.txt).
//! [`Link::read_file`] bounds how much of them the guest can send.

use reprieve_study::scenario::BadScenario;
use reprieve_study::{Observation, metric};

use crate::Result;
use crate::error::plain;
use crate::link::Link;

/// The kernel's log up to the start of the runner. `guest/init` writes it.
const LOG: &str = "/tmp/kernel.log";
const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";
/// How the log begins its list of unknown words. Each word in the list follows a space or this quotation mark.
const UNKNOWN: &str = "Unknown kernel command line parameters \"";
const OFFLOADED: &str = "Offload RCU callbacks from CPUs: ";
/// At most this many characters of a value from the guest are kept.
const SHOWN_CHARACTERS: usize = 80;

/// The settings that the kernel reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// A line for each setting, such as `preempt is voluntary`.
    pub lines: Vec<String>,
    /// Whether some vCPU runs without a tick while it has only one task (`nohz_full`).
    pub has_tickless: bool,
}

/// Reads the settings that the kernel has for these words.
///
/// # Errors
/// The kernel does not know a word, or has not accepted its value; or the guest has failed.
pub fn taken(link: &mut Link, words: &str) -> Result<Settings> {
    let mut read = |path: &str| -> Option<String> {
        let bytes = link.read_file(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string())
    };
    let log = if words.is_empty() { String::new() } else { read(LOG).unwrap_or_default() };
    let mut settings = Settings::default();
    for path in [PREEMPT, NOHZ_FULL] {
        let Some(shown) = read(path).filter(|shown| !is_none(shown)) else { continue };
        settings.has_tickless |= path == NOHZ_FULL;
        settings.lines.push(line(path.rsplit('/').next().unwrap_or(path), &chosen(&shown)));
    }
    for word in words.split_ascii_whitespace().take_while(|word| *word != "--") {
        let shown = file_of(word).and_then(|path| read(&path));
        let taken = check(word, shown.as_deref(), &log);
        let taken = taken.map_err(|why| BadScenario::new("guest.append", format!("{word}: {why}")))?;
        settings.lines.extend(taken.filter(|line| !settings.lines.contains(line)));
    }
    Ok(settings)
}

/// Removes CPU times from the observation under `nohz_full`, where the guest's memory does not hold current ones: the
/// kernel accounts the CPU time of a vCPU without a tick only when its task changes.
pub fn leave_out_unaccounted(settings: &Settings, out: &mut Observation) {
    if settings.has_tickless {
        out.metrics.retain(|id, _| ![metric::KERNEL_CPU, metric::IDLE_CPU].contains(&id.as_str()));
        let note = "the guest's CPU shares are not measured under nohz_full: a vCPU without a tick accounts its time late";
        out.provenance.notes.push(note.into());
    }
}

fn line(name: &str, value: &str) -> String {
    format!("{name} is {}", plain(value).chars().take(SHOWN_CHARACTERS).collect::<String>())
}

/// Whether this is how the kernel prints an empty list of CPUs.
fn is_none(shown: &str) -> bool {
    ["", "(null)", "(none)"].contains(&shown)
}

/// The alternative in brackets, such as `voluntary` in `none (voluntary) full`. Without brackets, the whole text.
fn chosen(shown: &str) -> String {
    if is_none(shown) {
        return shown.into();
    }
    let inner = shown.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inner.map_or(shown, |(chosen, _)| chosen).to_string()
}

/// The file in which the kernel shows this parameter.
fn file_of(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or(word);
    match name {
        "preempt" => Some(PREEMPT.into()),
        "nohz_full" => Some(NOHZ_FULL.into()),
        _ => {
            let (module, parameter) = name.split_once('.').filter(|(module, _)| *module != "sysctl")?;
            let is_name = |text: &str| {
                !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
            };
            let known = is_name(module) && is_name(parameter);
            known.then(|| {
                format!("/sys/module/{}/parameters/{}", module.replace('-', "_"), parameter.replace('-', "_"))
            })
        }
    }
}

/// A line with the kernel's setting for a word, if the kernel shows it.
///
/// # Errors
/// Why the kernel did not accept the word.
fn check(word: &str, shown: Option<&str>, log: &str) -> Result<Option<String>, String> {
    let (name, wanted) = word.split_once('=').unwrap_or((word, ""));
    let unknown = log.lines().filter_map(|line| line.split_once(UNKNOWN));
    let mut unknown = unknown.flat_map(|(_, list)| list.split('"').next().unwrap_or("").split(' '));
    if unknown.any(|other| other == word) {
        return Err("the guest's kernel does not know it".into());
    }
    if name == "rcu_nocbs" {
        let cpus = log.lines().find_map(|line| Some(line.split_once(OFFLOADED)?.1.trim_end_matches('.')));
        let none = || "the guest's kernel offloads no callbacks".to_string();
        return Ok(Some(line("rcu_nocbs", cpus.filter(|cpus| !is_none(cpus)).ok_or_else(none)?)));
    }
    let Some(path) = file_of(word) else { return Ok(None) };
    let Some(shown) = shown else {
        return Err(format!("the guest's kernel has no such parameter (no {path})"));
    };
    let shown = chosen(shown);
    match has_value(name, &shown, wanted) {
        true => Ok(Some(line(name, &shown))),
        false => Err(format!("in the guest's kernel {}", line(name, &shown))),
    }
}

/// Whether the text that the kernel shows can mean the wanted value. Numbers and booleans are compared by their
/// meaning. The kernel may write other values, such as lists of CPUs, in its own notation.
fn has_value(name: &str, shown: &str, wanted: &str) -> bool {
    let truth = |text: &str| match text.to_ascii_lowercase().as_str() {
        "y" | "1" | "on" | "" => Some(true),
        "n" | "0" | "off" => Some(false),
        _ => None,
    };
    match (shown.parse::<i128>(), wanted.parse::<i128>()) {
        _ if name == "preempt" => shown == wanted,
        (Ok(shown), Ok(wanted)) => shown == wanted,
        _ if shown == "Y" || shown == "N" => Some(shown == "Y") == truth(wanted),
        _ => !is_none(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(word: &str, shown: Option<&str>) -> Result<Option<String>, String> {
        let log = "[    0.1] Kernel command line: a b=1\n\
                   [    0.2] Unknown kernel command line parameters \"nonsense b=1\", will be passed to user space.\n\
                   [    0.3] rcu: \tOffload RCU callbacks from CPUs: 0-1.\n";
        check(word, shown, log)
    }

    fn line_of(word: &str, shown: &str) -> String {
        said(word, Some(shown)).unwrap().unwrap()
    }

    #[test]
    fn a_word_that_the_kernel_does_not_know_is_told() {
        for word in ["nonsense", "b=1"] {
            assert_eq!(said(word, None).unwrap_err(), "the guest's kernel does not know it");
        }
        assert_eq!(said("b", None), Ok(None), "another word");
        assert_eq!(said("quiet", None), Ok(None), "it is known, and shown nowhere");
        let refused = said("rcutree.nonsense=1", None).unwrap_err();
        assert!(
            refused.ends_with("no such parameter (no /sys/module/rcutree/parameters/nonsense)"),
            "{refused}"
        );
        assert_eq!(said("sysctl.vm.swappiness=1", None), Ok(None));
    }

    #[test]
    fn a_value_that_the_kernel_has_not_taken_is_told() {
        assert_eq!(line_of("rcutree.use_softirq=0", "N"), "rcutree.use_softirq is N");
        assert_eq!(line_of("rcutree.jiffies_till_first_fqs=0", "0"), "rcutree.jiffies_till_first_fqs is 0");
        assert_eq!(line_of("preempt=none", "(none) voluntary full"), "preempt is none");
        assert_eq!(line_of("nohz_full=all", "1"), "nohz_full is 1");
        let refused = |word, shown| said(word, Some(shown)).unwrap_err();
        assert!(
            refused("rcutree.use_softirq=0", "Y").ends_with("in the guest's kernel rcutree.use_softirq is Y")
        );
        assert!(refused("rcutree.kthread_prio=10", "1").contains("kthread_prio is 1"));
        assert!(refused("preempt=none", "none (voluntary) full").contains("preempt is voluntary"));
        assert!(refused("nohz_full=1", "(null)").contains("nohz_full"));
    }

    #[test]
    fn offloading_is_known_from_the_log_alone() {
        assert_eq!(said("rcu_nocbs=all", None).unwrap().unwrap(), "rcu_nocbs is 0-1");
        for log in ["", "Offload RCU callbacks from CPUs: (none)."] {
            assert!(check("rcu_nocbs=all", None, log).unwrap_err().contains("offloads no callbacks"));
        }
    }

    #[test]
    fn no_path_leaves_the_modules_and_no_control_character_passes() {
        assert_eq!(file_of("a../.x=1"), None);
        assert_eq!(file_of("a.b/../c=1"), None);
        assert_eq!(file_of("kvm-intel.x=1").unwrap(), "/sys/module/kvm_intel/parameters/x");
        assert_eq!(line_of("a.b=c", "\x1b[2J"), r"a.b is \x1b[2J");
        assert_eq!(line_of("a.b=c", &"x".repeat(1000)).len(), "a.b is ".len() + SHOWN_CHARACTERS);
    }
}
