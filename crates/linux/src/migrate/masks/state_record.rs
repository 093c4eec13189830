//! What the state file holds of one task, and its text: the line shown in [`masks`](super::masks).

use reprieve_policy::cpus::{CpuSet, MAX_CPUS};

/// A binding: two numbers of five places, one of twenty, and their spaces.
const BINDING_BYTES: usize = 33;
/// Of a task that we have never bound.
pub const NEVER_TICKS: u64 = u64::MAX;

/// A task and its user's mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
    /// When we bound it first, clock ticks since boot: children that it forked earlier are not bound by us. [`u64::MAX`] if we never
    /// have.
    pub bound_ticks: u64,
    /// Where its user lets it run.
    pub mask: CpuSet,
    /// The mask is the whole of its cpuset, and so nobody's wish: it grows and shrinks with that.
    pub whole: bool,
}

impl Saved {
    /// The mask to ask the kernel for, so that the task is as it was: every CPU if its cpuset alone bounds it.
    pub fn request(&self) -> CpuSet {
        if self.whole { CpuSet::first(MAX_CPUS) } else { self.mask }
    }
}

/// What a task was bound to and is, or is just being, bound to; `None` is its user's mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Before the last change.
    pub from: Option<usize>,
    /// By the last change, if that was carried out.
    pub to: Option<usize>,
}

/// What the file says of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Where it is in the file.
    pub slot: usize,
    /// The task.
    pub saved: Saved,
    /// What is bound.
    pub binding: Binding,
    /// It may have inherited the binding, or may have been bound so by its user.
    pub in_doubt: bool,
}

impl StateRecord {
    /// A record, without its newline.
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

    /// Reads what [`text`](StateRecord::text) wrote; `None` if it is anything else.
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

/// The first three words of a record, always as long. Allocates nothing.
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
    // CPUs are below 1024, and no u64 takes more than twenty places, so none runs into another.
    let cpu = |cpu: usize| cpu.min(MAX_CPUS) as u64;
    put(from.map(cpu), 4);
    put(to.map(cpu), 10);
    put((bound_ticks != NEVER_TICKS).then_some(bound_ticks), 31);
    text
}
