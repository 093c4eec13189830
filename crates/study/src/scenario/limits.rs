//! Limits how much a scenario may ask for: counts, lengths, and products of both. The range of a single number stands
//! beside its field.
//!
//! All of them are checked before the scenario is expanded, so that refusing it costs no more than reading it.
//! Ordinary scenarios stay far below these limits: the largest built-in one has 39 conditions and 111 different
//! scenarios to run.

/// A scenario file. Bytes.
pub const FILE_BYTES: u64 = 1 << 20;
/// Scenarios that take their conditions from each other. Files.
pub const CHAIN_FILES: usize = 16;
/// Assignments `key=value` on top of a file.
pub const ASSIGNMENTS: usize = 1_024;

/// Conditions of a scenario, counterparts included.
pub const CONDITIONS: usize = 1_024;
/// Conditions whose loss is attributed to causes: each is run once more for each of five causes.
pub const ATTRIBUTED: usize = 64;
/// Cases.
pub const CASES: usize = 256;
/// Sweeps.
pub const SWEEPS: usize = 64;
/// Values of one sweep.
pub const SWEEP_VALUES: usize = 64;
/// Different scenarios to run: conditions by cases, and conditions by values of sweeps.
pub const POINTS: u64 = 4_096;
/// All of them together, as TOML. Bytes.
pub const EXPANDED_BYTES: u64 = 32 << 20;
/// Runs: repetitions of all of them.
pub const RUNS: u64 = 100_000;

/// Axes of a space.
pub const AXES: usize = 64;
/// Values of an axis, in a list or of a range.
pub const AXIS_VALUES: usize = 100_000;
/// Runs of a space: points by conditions by repetitions.
pub const SPACE_RUNS: u64 = 1_000_000;

/// Keys that a condition or a case sets.
pub const SET_KEYS: usize = 64;
/// Pauses of a condition.
pub const PAUSES: usize = 4_096;
/// Spikes of a condition.
pub const SPIKES: usize = 1_024;
/// pCPUs that a condition names.
pub const PCPUS: usize = 1_024;
/// Threads of the simulated host: vCPUs of all VMs, hogs, spinners, spikes, and one of the host's own for each pCPU.
pub const HOST_THREADS: u64 = 1 << 15;
/// Metrics of a short table.
pub const ROWS: usize = 12;
/// Applications of the workload `io`.
pub const APPLICATIONS: usize = 64;
/// Published ratios, pairs, orders or statements, of each.
pub const PUBLISHED: usize = 1_024;

/// A name: of a scenario, a condition, a case, a sweep, an application. Bytes.
pub const NAME_BYTES: usize = 128;
/// Any other text. Bytes.
pub const TEXT_BYTES: usize = 4_096;
/// An addition to the kernel's command line, which ends at 2048 bytes (COMMAND_LINE_SIZE on x86). Bytes.
pub const APPEND_BYTES: usize = 1_024;
