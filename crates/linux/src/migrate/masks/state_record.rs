//! One task's record in the state file, and its text form, which [`state_file`](super::state_file) shows.

use reprieve_policy::cpus::{CpuSet, MAX_CPUS};

/// Length of the binding in the text: two numbers of five places, one of twenty, and spaces.
const BINDING_BYTES: usize = 33;
/// `bound_ticks` of a task that was never bound.
pub const NEVER_TICKS: u64 = u64::MAX;

/// A task and its user's mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its process.
    pub pid: i32,
    /// Its thread id.
    pub tid: i32,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
    /// When the daemon first bound it, clock ticks since boot; `NEVER_TICKS` if never. Children forked earlier have
    /// not inherited a binding.
    pub bound_ticks: u64,
    /// The CPUs that its user allows.
    pub mask: CpuSet,
    /// The mask is its whole cpuset: no user has chosen it, and it grows and shrinks with the cpuset.
    pub whole: bool,
}

impl Saved {
    /// The mask to request in order to restore the task: every CPU, if only its cpuset limits it.
    pub fn request(&self) -> CpuSet {
        if self.whole { CpuSet::first(MAX_CPUS) } else { self.mask }
    }
}

/// The CPUs that a task was and is bound to; `None` is its user's mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The CPU before the latest change.
    pub from: Option<usize>,
    /// The CPU after the latest change, which may not be carried out yet.
    pub to: Option<usize>,
}

/// The record of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Its place in the file.
    pub slot: usize,
    /// The task.
    pub saved: Saved,
    /// What it is bound to.
    pub binding: Binding,
    /// Whether the task is in doubt: it has inherited the binding, or its user has bound it.
    pub in_doubt: bool,
}

impl StateRecord {
    /// The record as text, without its newline.
    pub(super) fn text(&self) -> String {
        let StateRecord {
            saved: Saved { pid, tid, start_ticks, bound_ticks, mask, whole },
            binding,
            in_doubt,
            ..
        } = self;
        let binding = binding_text(*binding, *bound_ticks);
        let binding = String::from_utf8_lossy(&binding);
        let whole = if *whole { "whole" } else { "exact" };
        let doubt = if *in_doubt { " doubt" } else { "" };
        format!("{binding}{pid} {tid} {start_ticks} {whole} {mask}{doubt}")
    }

    /// Reads what [`text`](StateRecord::text) wrote; `None` for anything else.
    pub(super) fn parse(slot: usize, text: &str) -> Option<StateRecord> {
        let mut words = text.split_ascii_whitespace();
        let mut some = || match words.next()? {
            "-" => Some(None),
            number => number.parse::<u64>().ok().map(Some),
        };
        let (from, to, bound_ticks) = (some()?, some()?, some()?.unwrap_or(NEVER_TICKS));
        let cpu = |cpu: Option<u64>| cpu.map(usize::try_from).transpose().ok();
        let binding = Binding { from: cpu(from)?, to: cpu(to)? };
        let mut number = || words.next()?.parse::<u64>().ok();
        let (pid, tid, start_ticks) = (number()?, number()?, number()?);
        let whole = match words.next()? {
            "whole" => true,
            "exact" => false,
            _ => return None,
        };
        let mask = words.next()?.parse().ok()?;
        let (pid, tid) = (pid.try_into().ok()?, tid.try_into().ok()?);
        let saved = Saved { pid, tid, start_ticks, bound_ticks, mask, whole };
        let in_doubt = match words.next() {
            None => false,
            Some("doubt") => true,
            Some(_) => return None,
        };
        words.next().is_none().then_some(StateRecord { slot, saved, binding, in_doubt })
    }
}

/// The first three words of a record, which have a fixed length. Allocates nothing.
pub(super) fn binding_text(Binding { from, to }: Binding, bound_ticks: u64) -> [u8; BINDING_BYTES] {
    let mut text = [b' '; BINDING_BYTES];
    let mut put = |number: Option<u64>, end: usize| {
        let mut rest = number;
        let mut at = end;
        text[end] = b'-';
        while let Some(number) = rest {
            text[at] = b'0' + (number % 10) as u8;
            at -= 1;
            rest = Some(number / 10).filter(|number| *number > 0);
        }
    };
    // CPUs are below 1024 and a u64 has at most twenty digits, so no number runs into another.
    let cpu = |cpu: usize| cpu.min(MAX_CPUS) as u64;
    put(from.map(cpu), 4);
    put(to.map(cpu), 10);
    put((bound_ticks != NEVER_TICKS).then_some(bound_ticks), 31);
    text
}
