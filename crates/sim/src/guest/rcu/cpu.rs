//! What RCU keeps per CPU (`rcu_data`).

use super::callbacks::Callbacks;

/// The state of one CPU. What each tick reads comes first.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// A quiescent state of this CPU is still wanted (`cpu_no_qs.b.norm`).
    pub no_qs: bool,
    /// The same, for the expedited grace period (`cpu_no_qs.b.exp`).
    pub no_expedited_qs: bool,
    /// The grace period waits for this CPU, as far as this CPU knows (`core_needs_qs`).
    pub core_needs_qs: bool,
    /// A scan asks for a quiescent state soon (`rcu_urgent_qs`).
    pub urgent: bool,
    /// A scan asks for a step of the idle counter (`rcu_need_heavy_qs`).
    pub heavy: bool,
    /// It was asked for a report and will make one at its next quiescent state.
    pub asked: bool,
    /// Its leaf.
    pub leaf: u32,
    /// Its bit in the leaf.
    pub bit: u64,
    /// The grace period that it knows of.
    pub gp_seq: u64,
    /// The furthest one that was asked for, as far as it knows.
    pub gp_seq_needed: u64,
    /// Its callbacks.
    pub callbacks: Callbacks,
    /// Its current `blimit`.
    pub blimit: u64,
    /// Callbacks when it last looked whether there are too many (`qlen_last_fqs_check`).
    pub looked_at: u64,
    /// Scans when it last looked (`n_force_qs_snap`).
    pub scans_seen: u64,
    /// Steps between watching and idle: odd while RCU watches this CPU (the `dynticks` counter).
    pub idle_steps: u64,
    /// `idle_steps` at the first scan.
    pub steps_seen: u64,
    /// Jiffy of the last reschedule that a scan asked for.
    pub rescheduled_at: u64,
}

impl Cpu {
    /// In an extended quiescent state: RCU does not watch it, and any scan may report it quiescent.
    #[inline]
    pub fn in_extended_qs(&self) -> bool {
        self.idle_steps & 1 == 0
    }
}
