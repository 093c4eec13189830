//! What can be said on the command line.

pub mod export;
mod hindsight;
mod run;
pub mod sweep;
mod time;
pub mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use hindsight::{HindsightArguments, ReplayArguments};
pub use run::RunArguments;

use crate::sizes;
use export::ExportArguments;
use sweep::SweepVerb;
use time::seconds;
use watch::WatchArguments;

/// Measures the damage that CPU preemption does to code that must not be interrupted.
///
/// A scenario is run on a ground and gives an observation; conditions are compared with the baseline.
/// Results go to stdout, progress and warnings to stderr.
///
/// Exit codes: 0 done, 1 a run failed or was interrupted, 2 bad usage, 69 something of this machine is missing.
#[derive(Debug, Parser)]
#[command(name = "reprieve", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the scenarios that are built in, a line each; with names, what those do
    List {
        /// Names of scenarios or paths of scenario files: their conditions, cases and sweeps
        #[arg(value_name = "SCENARIO")]
        scenarios: Vec<String>,
    },
    /// Print a scenario's file, as a start for your own: reprieve show rcu-memory > mine.toml
    Show {
        /// The name of a scenario (see `reprieve list`), or a file of rt-app (.json): the scenario that is made from it
        #[arg(value_name = "SCENARIO")]
        scenario: String,
    },
    /// Run scenarios and show the comparison
    Run(RunArguments),
    /// Run a scenario's space, of up to a million runs, on one machine or many
    ///
    /// A space varies several keys at once (`[space]` in the scenario; docs/sweeps.md). `plan` writes down all its runs; `run` does them, or
    /// one of several shards of them; `merge` makes one table. Kill it at any time: the same command goes on, and finished runs
    /// are kept.
    Sweep {
        /// What to do
        #[command(subcommand)]
        verb: SweepVerb,
    },
    /// Compare two recorded runs
    Compare(CompareArguments),
    /// Show a recorded run again
    Report(ReportArguments),
    /// Record when the host keeps the vCPUs of a virtual machine from running
    ///
    /// On the host. The file is replayed in the simulator by `replay = "FILE"` in a condition of a scenario: what would that time
    /// have been with another RCU setting, or another workload?
    ///
    /// With --hindsight, inside a VM: keeps the last minutes of what `explain` looks at, for when something will have been slow.
    Record(RecordArguments),
    /// Say how much memory a VM needs at each overcommit ratio
    ///
    /// Simulates a VM, given by a profile or a scenario, beside busy neighbours, without and with each remedy. Reports grace
    /// periods, memory beyond the undisturbed peak (that without neighbours) with upper bounds, fragmentation, throughput, and
    /// the highest ratio that a memory budget allows. With --against, simulates the conditions of a measured record instead of
    /// ratios; the exit code is 1 if a condition does not agree.
    Plan(PlanArguments),
    /// Say who slows this VM down: the host, the VM itself, or the clock
    ///
    /// Run it in the VM while it is slow; it needs no privileges. A thread on each vCPU wakes 1,000 times a second, and late
    /// wake-ups show when the vCPU was off. The times off show a CPU quota with its period, or turns with other threads. Steal,
    /// throttling, pressure, grace periods and clocks confirm it or name another cause. As root it sees past the VM's own load.
    Explain(ExplainArguments),
    /// Show this VM from inside, a column a second: who slows it down, and since when; or replay a record of it
    ///
    /// The top line is the verdict. Below it, on one axis of time: each vCPU's time off, steal, grace periods, run delay, memory
    /// that may wait for grace periods, and waits for memory. It needs no privileges, and looks closely only once something is
    /// wrong. Keys: q quits, space pauses, the arrows go back in time, v chooses one vCPU, ? shows the others.
    Watch(WatchArguments),
    /// Serve what this VM sees of itself to Prometheus: steal, times off, grace periods, and who slows it down
    ///
    /// Runs in the VM until a signal, and needs no privileges. A browser at http://ADDRESS:PORT/ finds the metrics; packaging/ has
    /// a systemd unit, alerts and a dashboard.
    Export(ExportArguments),
    /// Make a profile of this VM, or of one in a record, for `plan`
    ///
    /// Run it as root in the VM, while the VM does its usual work and the host does not disturb it. It counts the objects that the
    /// kernel frees after grace periods (by perf events at call_rcu and kvfree_call_rcu) and times grace periods. Nothing is
    /// changed or left behind. With --from, it takes all that from a record.
    Profile(ProfileArguments),
    /// Keep I/O tasks of this virtual machine on vCPUs that are on
    ///
    /// A vCPU that the host deschedules issues no I/O. This finds tasks that do I/O, tells from timer beats when
    /// each vCPU is on and for how long yet, and moves those tasks ahead, by their affinity. By default it only
    /// says what it would do and why; --apply does it. It only narrows masks, saves each one first, and restores it
    /// when it ends. If it is killed, a second process, its warden, restores them at once; if both are, the next
    /// --apply or --restore does.
    Migrate(MigrateArguments),
    /// Say how long guests' RCU grace periods wait for descheduled vCPUs; --apply boosts these
    ///
    /// Runs on the host, for guests of QEMU (and so of libvirt). A vCPU is off, or descheduled, while it has work but the host
    /// does not run it. A grace period that waits for it cannot end, and memory that the guest frees piles up. This reads
    /// RCU's state from the guest's memory, without the guest's help. By default it only says what it would do. With --apply
    /// it lends such a vCPU a moment of its own CPU quota in advance, and takes it back in the next periods. It puts the
    /// quotas back at its end; if it is killed, a second process, its warden, does that.
    Boost(BoostArguments),
    /// Say which objects wait for an RCU grace period in a guest, and who frees them
    ///
    /// Runs on the host, for a guest of QEMU that runs or is paused, or for a dump of a guest's memory. Objects that the guest frees
    /// through RCU wait until a grace period has ended. This walks the lists of these objects in the guest's memory, without the
    /// guest's help, and groups them by the function that frees them and by their slab cache. It also says how old the open
    /// grace period is, and for whom it waits. Nothing is changed.
    Backlog(BacklogArguments),
    /// Say what this machine has, what is missing and how to get it
    Doctor,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page (troff)
    Man,
    /// Guards what a run makes, and removes it when the run is gone (started by `run`)
    #[command(hide = true)]
    Warden,
    /// Keeps one pCPU busy (started by `run`)
    #[command(hide = true)]
    Hog,
}

/// Arguments of `record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// The virtual machine: the process of its QEMU, whose threads are named "CPU 0/KVM" and so on
    #[arg(long, value_name = "PID", required_unless_present = "folder", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Threads of the process, in the order of the vCPUs that they are; repeatable [those that QEMU names "CPU N/..."]
    #[arg(long = "tid", value_name = "TID", value_parser = clap::value_parser!(i32).range(1..))]
    pub tids: Vec<i32>,
    /// For how long, at most 1h; a signal ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = up_to_an_hour)]
    pub for_s: u64,
    /// The file to write
    #[arg(long, short, value_name = "FILE", required_unless_present = "folder")]
    pub output: Option<PathBuf>,
    /// Inside a VM.
    #[command(flatten)]
    pub hindsight: HindsightArguments,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// A profile (a .json file, see `reprieve profile`), or the name or path of a scenario
    #[arg(value_name = "PROFILE|SCENARIO")]
    pub input: String,
    /// Overcommit ratios: busy vCPUs on each pCPU, this VM's own included
    #[arg(
        long,
        value_name = "R,R...",
        value_delimiter = ',',
        default_value = "1,1.5,2,3,4",
        conflicts_with = "against"
    )]
    pub ratios: Vec<f64>,
    /// Memory to spare beyond the undisturbed peak, such as 512MiB: find the highest ratio that needs no more
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub budget: Option<u64>,
    /// The quantile of a window's peak that must fit into the budget: p50, p95, p99.9 or another one
    #[arg(long, value_name = "QUANTILE", default_value = "p99.9", value_parser = sizes::quantile)]
    pub risk: f64,
    /// Remedies to try, each alone, or none [all that can be simulated, without the oracle and controls]
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',', conflicts_with = "against")]
    pub remedies: Option<Vec<String>>,
    /// Repetitions of each condition; each is one window
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub repeat: u32,
    /// Seed of the workload and the resampling
    #[arg(long, value_name = "S", default_value = "1")]
    pub seed: u64,
    /// Change a key of the scenario (or of the scenario made from the profile), for instance guest.vcpus=4; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// The case, in a scenario or a record that has cases
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// A record of real guests: simulate its conditions, and compare
    #[arg(long, value_name = "RECORD")]
    pub against: Option<PathBuf>,
    /// Skip the simulations with varied inputs, which show the input that matters most
    #[arg(long)]
    pub no_inputs: bool,
    /// Simulated runs at a time; the results do not depend on it [the pCPUs of this process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Write the answer as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with the figure
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show what would be simulated, and estimate from one short run how long it takes
    #[arg(long)]
    pub dry_run: bool,
    /// Say nothing while it runs; warnings and errors are still said
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub struct ProfileArguments {
    /// A record of a workload that frees memory through RCU: memory, clone or postmark, on real guests or simulated
    #[arg(long, value_name = "RECORD")]
    pub from: Option<PathBuf>,
    /// For how long to watch this VM; a signal ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "30s", conflicts_with = "from", value_parser = up_to_a_day)]
    pub for_s: u64,
    /// The size of the objects that a function frees, where it is not known; repeatable
    #[arg(long, value_name = "FUNCTION=BYTES", conflicts_with = "from")]
    pub bytes: Vec<String>,
    /// The scenario, in a record that has several
    #[arg(long, value_name = "NAME", requires = "from")]
    pub scenario: Option<String>,
    /// The case, in a record that has cases
    #[arg(long, value_name = "NAME", requires = "from")]
    pub case: Option<String>,
    /// The condition whose runs are taken; it must be one without neighbours, quotas or pinning [the first such]
    #[arg(long, value_name = "NAME", requires = "from")]
    pub condition: Option<String>,
    /// The file to write [standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// For how long to watch this VM, at most 60s; a signal ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", conflicts_with = "dmesg", value_parser = up_to_a_minute)]
    pub for_s: u64,
    /// Use no more than this tier: T0 needs no rights; T1, as root, reads slabs and the kernel's log; T2 attaches probes to the running
    /// kernel, which has crashed guests under emulation
    #[arg(long, value_name = "TIER", default_value = "T1", conflicts_with = "dmesg", value_parser = ["T0", "T1", "T2"])]
    pub tier: String,
    /// Judge a kernel's log instead, from any machine: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub dmesg: Option<PathBuf>,
    /// On the host: say who keeps the vCPUs of the guest of this QEMU process off; as root it names tasks
    #[arg(long, value_name = "PID", conflicts_with = "dmesg", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Write what was seen into this file, a small record to be judged again or elsewhere: reprieve explain FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dmesg", "pid", "record"])]
    pub save: Option<PathBuf>,
    /// Write the verdict as JSON
    #[arg(long)]
    pub json: bool,
    /// Of a record.
    #[command(flatten)]
    pub replay: ReplayArguments,
}

/// Arguments of `boost`.
#[derive(Debug, Args)]
pub struct BoostArguments {
    /// Process ID of a guest's QEMU; repeatable [all guests of this host, also those that arrive later; at most 64]
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
    /// Boost vCPUs, instead of only saying what boosts would do (needs root)
    #[arg(long)]
    pub apply: bool,
    /// Without --apply: for how long to watch; a signal ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "10s", conflicts_with = "apply", value_parser = up_to_a_day)]
    pub for_s: u64,
    /// End after this many seconds [with --apply: run until a signal]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit_s: Option<u64>,
    /// The type information of the guests' kernel, a copy of its /sys/kernel/btf/vmlinux [found in the guest's memory]
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// The symbols of the guests' kernel, its System.map or a copy of /proc/kallsyms [found in the guest's memory]
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// Write metrics in Prometheus' text form into this file, every second
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
}

/// Arguments of `backlog`.
#[derive(Debug, Args)]
pub struct BacklogArguments {
    /// Process ID of the guest's QEMU [the only guest of this host]
    #[arg(long, value_name = "PID", conflicts_with = "dump", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// A file with a guest's memory: of QEMU's dump-guest-memory, virsh dump --memory-only, or the raw memory
    #[arg(long, value_name = "FILE")]
    pub dump: Option<PathBuf>,
    /// The type information of the guest's kernel, a copy of its /sys/kernel/btf/vmlinux [found in the guest's memory]
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// The symbols of the guest's kernel, its System.map or a copy of /proc/kallsyms [found in the guest's memory]
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArguments {
    /// Carry decisions out (needs root or CAP_SYS_NICE; see --only user= for your own tasks)
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    pub apply: bool,
    /// Change nothing: replay a record of --record and check its decisions; without a file say what would be used
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "restore")]
    pub dry_run: Option<Option<PathBuf>>,
    /// Restore the masks that a killed daemon left behind, and end
    #[arg(long)]
    pub restore: bool,
    /// With --restore, also restore descendants of moved tasks that are bound to one CPU, even if their user bound them
    #[arg(long, requires = "restore")]
    pub in_doubt: bool,
    /// Look only after tasks in a cgroup (cgroup=/PATH), of a user (user=NAME) or with a name (comm=NAME); repeatable
    #[arg(long, value_name = "CONDITION")]
    pub only: Vec<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// With --apply, also print each move: there may be a hundred a second
    #[arg(long, short)]
    pub verbose: bool,
    /// Write metrics in Prometheus' text form into this file, every second
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Write all signals and decisions into this file, for --dry-run
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Where masks are saved [/run/reprieve/migrate.state, or below $XDG_RUNTIME_DIR if you are not root]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub limit_s: Option<u64>,
    /// How to place: combined, or to compare with: none, react, pull, predict
    #[arg(long, value_name = "POLICY", default_value = "combined")]
    pub policy: String,
    /// For experiments: when vCPUs will go off and come back, lines `told OFF_NS VCPU BACK_NS`; for --policy oracle
    #[arg(long, value_name = "FILE", hide = true)]
    pub off_times: Option<PathBuf>,
    /// Keep moving tasks even if throughput falls
    #[arg(long)]
    pub no_guard: bool,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArguments {
    /// A record, the reference
    pub a: PathBuf,
    /// Another record
    pub b: PathBuf,
    /// Show all effects, and what differs between the two besides
    #[arg(long)]
    pub full: bool,
    /// Compare conditions of one name though they are two experiments
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// A record
    pub record: PathBuf,
    /// Write a self-contained page with the figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write each figure as an SVG file into this folder
    #[arg(long, value_name = "FOLDER")]
    pub figures: Option<PathBuf>,
    /// Show all metrics with ranges and p-values, and how they were measured
    #[arg(long)]
    pub full: bool,
}

fn up_to_a_minute(text: &str) -> Result<u64, String> {
    seconds(text, 60, "60s")
}

fn up_to_an_hour(text: &str) -> Result<u64, String> {
    seconds(text, 3_600, "1h")
}

fn up_to_a_day(text: &str) -> Result<u64, String> {
    seconds(text, 86_400, "24h")
}
