//! `reprieve migrate`: keeps I/O tasks of this virtual machine on vCPUs that are on.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_linux::migrate::{
    self, Condition, Doubtful, Filter, OffTimes, Options, Roots, Source, StateFile, Summary, may_move_all,
};
use reprieve_linux::proc::{ProcRoot, allowed_cpus};
use reprieve_linux::signals::Interrupt;
use reprieve_linux::warden::Guarded;
use reprieve_policy::place::Policy;

use crate::cli::MigrateArguments;
use crate::failure::Failure;
use crate::grounds;
use crate::migrate_words::Words;
use crate::output;

/// Shortest and longest time between beats, ns. In measurements on real guests 1 ms was short enough; 4 ms keeps the
/// daemon below 1 % of a CPU.
const PERIOD_NS: (u64, u64) = (1_000_000, 4_000_000);

/// Runs the verb.
pub fn migrate(arguments: &MigrateArguments) -> Result<(), Failure> {
    let policy = policy(&arguments.policy, arguments.off_times.is_some())?;
    let filter = filter(&arguments.only)?;
    let words = Words { json: arguments.json, apply: arguments.apply, verbose: arguments.verbose };
    let state = arguments.state.clone().unwrap_or_else(default_state);
    if arguments.restore {
        let doubtful = if arguments.in_doubt { Doubtful::Restore } else { Doubtful::Leave };
        return restore(&state, doubtful, &words);
    }
    match &arguments.dry_run {
        Some(Some(record)) => return replay(record, &words),
        Some(None) => return explain(policy, &state, &words),
        None => {}
    }
    if arguments.apply {
        check_permission(&filter)?;
    }
    let unfit = |why: &str| Failure::Usage(format!("--state {:?}: {why}", state.display().to_string()));
    if state.as_os_str().as_encoded_bytes().contains(&b'\n') {
        return Err(unfit("a name with a newline in it cannot be used"));
    }
    let masks = std::path::absolute(&state).map_err(|error| unfit(&error.to_string()))?;
    let masks = Guarded::Masks(masks);
    let options = Options {
        apply: arguments.apply,
        filter,
        policy,
        off_times: arguments.off_times.as_deref().map(off_times).transpose()?.unwrap_or_default(),
        guard: !arguments.no_guard,
        state,
        record: arguments.record.as_deref().map(create).transpose()?,
        metrics: arguments.metrics.clone(),
        limit: arguments.limit_s.map(Duration::from_secs),
        period_ns: PERIOD_NS,
        roots: Roots::default(),
    };
    // A second ^C does not hurry the end: masks must be restored, which takes a bounded time.
    let interrupt = Interrupt::install_patient()?;
    let warden = arguments.apply.then(grounds::warden).transpose()?;
    warden.as_ref().map_or(Ok(()), |warden| warden.guard(masks.clone()))?;
    let ran = run(options, &interrupt, &words);
    // The masks are restored as far as possible. If the warden has ended, it needs no message.
    warden.map(|warden| warden.release(&masks));
    let summary = ran?;
    words.summary(&summary)?;
    match summary.restored.failed {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!(
            "the masks of {failed} task(s) could not be restored; they are still saved: try --restore"
        ))),
    }
}

/// Reads the oracle's knowledge.
fn off_times(path: &Path) -> Result<OffTimes, Failure> {
    let bad = |text: String| Failure::Usage(format!("{}: {text}", path.display()));
    let file = crate::input::open(path).map_err(|error| bad(error.to_string()))?;
    let vcpus = allowed_cpus()?.last().map_or(0, |last| last + 1);
    OffTimes::read(BufReader::new(file), vcpus).map_err(|error| bad(error.to_string()))
}

/// Creates the file for the record, or opens a pipe or device.
fn create(path: &Path) -> Result<Box<dyn Write>, Failure> {
    let refused = |error| Failure::Usage(format!("cannot write {}: {error}", path.display()));
    let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    let opened = if is_other { output::stream(path) } else { File::create(path) };
    Ok(Box::new(BufWriter::new(opened.map_err(refused)?)))
}

/// Runs the daemon and writes its notices as they come. If the reader goes away, the notices end, but not the run.
fn run(options: Options, interrupt: &Interrupt, words: &Words) -> Result<Summary, Failure> {
    let mut unwritten = None;
    let mut tell = |notice: migrate::Notice| {
        if unwritten.is_none() {
            unwritten = words.notice(&notice).err();
        }
    };
    let ran = migrate::run(options, interrupt, &mut tell).map_err(failure);
    unwritten.map_or(ran, Err)
}

/// The policy of this name. An oracle policy needs a file with its knowledge, and no other policy may have one.
fn policy(name: &str, has_off_times: bool) -> Result<Policy, Failure> {
    let known = Policy::named(name).filter(|policy| policy.is_oracle() == has_off_times);
    let names = "combined, none, react, pull, predict";
    known.ok_or_else(|| Failure::Usage(format!("there is no policy {name:?} here; there are {names}")))
}

fn filter(conditions: &[String]) -> Result<Filter, Failure> {
    let usage = |error: reprieve_linux::Error| Failure::Usage(error.to_string());
    let conditions: Result<Vec<Condition>, _> = conditions.iter().map(|text| text.parse()).collect();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Filter::new(&conditions.map_err(usage)?, &passwd).map_err(usage)
}

/// The default state file.
fn default_state() -> PathBuf {
    runtime_folder().join("migrate.state")
}

/// Where this program's locks and states are while it runs.
pub fn runtime_folder() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !is_root());
    own.map_or("/run".into(), PathBuf::from).join("reprieve")
}

fn is_root() -> bool {
    own_user() == Some(0)
}

/// The effective user of this process.
fn own_user() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Refuses a process without CAP_SYS_NICE, unless the filter confines it to its own tasks.
fn check_permission(filter: &Filter) -> Result<(), Failure> {
    let own_only = own_user().is_some_and(|own| filter.users == [own]);
    if may_move_all(&ProcRoot::default()) || own_only {
        return Ok(());
    }
    Err(Failure::Missing(
        "not permitted to change the affinity of others' tasks; run as root or with CAP_SYS_NICE (setcap \
         cap_sys_nice,cap_ipc_lock+ep on this program), confine it to your own tasks with --only user=NAME, or leave \
         out --apply to see what it would do"
            .into(),
    ))
}

fn restore(state: &Path, doubtful: Doubtful, words: &Words) -> Result<(), Failure> {
    let restored = StateFile::restore_at(state, &Roots::default(), doubtful);
    let restored = restored.map_err(failure)?;
    words.restored(&restored)?;
    match restored.failed {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!(
            "the masks of {failed} task(s) could not be restored; they are still saved: try again as root"
        ))),
    }
}

fn replay(record: &Path, words: &Words) -> Result<(), Failure> {
    let bad = |text: String| Failure::Usage(format!("{}: {text}", record.display()));
    let file = crate::input::open(record).map_err(|error| bad(error.to_string()))?;
    let mut unwritten = Ok(());
    let replayed = migrate::replay(BufReader::new(file), |decision| {
        if unwritten.is_ok() {
            unwritten = words.replayed_decision(decision);
        }
    });
    let replayed = replayed.map_err(|error| bad(error.to_string()))?;
    unwritten?;
    words.replayed(&replayed)?;
    replayed
        .differs
        .map_or(Ok(()), |differs| Err(Failure::Failed(format!("{}: {differs}", record.display()))))
}

fn explain(policy: Policy, state: &Path, words: &Words) -> Result<(), Failure> {
    let root = ProcRoot::default();
    let (source, _, _) = Source::open(&root);
    let vcpus = allowed_cpus()?.len();
    words.plan(policy, source, vcpus, may_move_all(&root), state)
}

/// Sorts an error by its exit code: a wrong argument is usage, and something that the machine lacks is missing.
fn failure(error: reprieve_linux::Error) -> Failure {
    use reprieve_linux::Error;
    let text = error.to_string();
    match error {
        Error::Invalid { .. } | Error::Malformed { .. } => Failure::Usage(text),
        Error::Missing { .. } | Error::NotPermitted { .. } => Failure::Missing(text),
        _ => Failure::Failed(text),
    }
}

/// Prints a line to stdout.
pub fn line(text: &str) -> Result<(), Failure> {
    output::print(&format!("{text}\n"))
}
