//! The state as a whole (`rcu_state`), and what can be asked of it.

use reprieve_study::GracePeriod;

use super::cpu::Cpu;
use super::effects::Effects;
use super::expedited::Expedited;
use super::grace_periods::GracePeriods;
use super::kthread::Stage;
use super::params::{Delays, Params};
use super::sequence::in_progress;
use super::tree::{Kind, Tree};
use crate::bits::bits;

/// RCU of one guest. CPUs are numbered from 0; all are online.
#[derive(Debug)]
pub struct Rcu {
    pub(super) params: Params,
    pub(super) delays: Delays,
    pub(super) tree: Tree,
    pub(super) cpus: Vec<Cpu>,
    /// The number of the current or next grace period above two bits of state. Starts at 0, wraps.
    pub(super) gp_seq: u64,
    /// A grace period is to be started (`RCU_GP_FLAG_INIT`).
    pub(super) start_wanted: bool,
    /// The kthread is to look: a scan is wanted, or nobody is waited for any more (`RCU_GP_FLAG_FQS`).
    pub(super) look_wanted: bool,
    pub(super) stage: Stage,
    /// Jiffy of the start of the grace period.
    pub(super) gp_start: u64,
    /// Jiffy of the next scan (`jiffies_force_qs`).
    pub(super) scan_at: u64,
    /// Scans so far (`n_force_qs`).
    pub(super) scans: u64,
    /// The last scan but one found a CPU with too many callbacks (`cbovld`), and the last one did (`cbovldnext`).
    pub(super) overloaded: bool,
    pub(super) overloaded_next: bool,
    pub(super) expedited: Expedited,
    pub(super) grace_periods: GracePeriods,
    pub(super) backlog: u64,
    /// Grace periods so long that a kernel would have warned of an RCU CPU stall.
    pub(super) stall_warnings: u64,
}

impl Rcu {
    /// RCU of a guest with that many CPUs, all busy in the kernel, no grace period in progress.
    ///
    /// # Panics
    /// If there are no CPUs, or `leaf` or `fanout` is not within 2..=64.
    pub fn new(params: &Params, cpus: usize) -> Rcu {
        let fits = |width: usize| (2..=64).contains(&width);
        assert!(cpus > 0 && fits(params.leaf) && fits(params.fanout), "no tree for {cpus} CPUs: {params:?}");
        let tree = Tree::new(cpus, params.leaf, params.fanout);
        let cpu = |cpu| Cpu {
            leaf: tree.leaf_of(cpu),
            bit: tree.bit_of(cpu),
            blimit: params.blimit,
            idle_steps: 1,
            ..Cpu::default()
        };
        Rcu {
            delays: params.delays(cpus),
            cpus: (0..cpus).map(cpu).collect(),
            tree,
            params: params.clone(),
            gp_seq: 0,
            start_wanted: false,
            look_wanted: false,
            stage: Stage::Idle,
            gp_start: 0,
            scan_at: 0,
            scans: 0,
            overloaded: false,
            overloaded_next: false,
            expedited: Expedited::default(),
            grace_periods: GracePeriods::new(cpus),
            backlog: 0,
            stall_warnings: 0,
        }
    }

    /// Whether a grace period is in progress.
    #[inline]
    pub fn gp_in_progress(&self) -> bool {
        in_progress(self.gp_seq)
    }

    /// Callbacks on a CPU, not yet invoked or in a batch that has not ended (`rcu_segcblist.len`).
    pub fn backlog(&self, cpu: usize) -> u64 {
        self.cpus[cpu].callbacks.len()
    }

    /// The sum of [`Rcu::backlog`] over the CPUs.
    pub fn backlog_total(&self) -> u64 {
        self.backlog
    }

    /// Takes the grace periods that ended since the last call, in order. A CPU's time in `cleared_ns` is when its bit
    /// was cleared, by itself or by a scan; it is `None` if the grace period never waited for it.
    pub fn finished(&mut self) -> std::vec::Drain<'_, GracePeriod> {
        self.grace_periods.ended.drain(..)
    }

    /// Start of the grace period in progress.
    pub fn open_since_ns(&self) -> Option<u64> {
        self.gp_in_progress().then_some(self.grace_periods.start_ns)
    }

    /// Whether the grace period in progress waits for that CPU.
    pub fn is_holdout(&self, cpu: usize) -> bool {
        let Cpu { leaf, bit, .. } = self.cpus[cpu];
        self.gp_in_progress() && self.tree.nodes[leaf as usize].waiting & bit != 0
    }

    /// Whether callbacks of that CPU have their grace period behind them and were not invoked yet. Only the oracle asks,
    /// as below.
    pub fn has_due_callbacks(&self, cpu: usize) -> bool {
        self.cpus[cpu].callbacks.are_due(self.gp_seq)
    }

    /// Whether the CPU has noticed callbacks of which this is so, and has not invoked them all.
    pub fn has_ready_callbacks(&self, cpu: usize) -> bool {
        self.cpus[cpu].callbacks.are_ready()
    }

    /// Wakes the kthread, if there is something for it to do (`rcu_gp_kthread_wake`).
    pub(super) fn wake_kthread(&self, effects: &mut Effects) {
        effects.wake_kthread |= self.start_wanted || self.look_wanted;
    }

    /// The grace period does not wait for these CPUs of a leaf any more; the kthread ends it if they were the last
    /// (`rcu_report_qs_rnp`, `rcu_report_qs_rsp`).
    pub(super) fn clear_waiting(&mut self, now_ns: u64, leaf: u32, mask: u64, effects: &mut Effects) {
        let node = &self.tree.nodes[leaf as usize];
        for bit in bits(mask & node.waiting) {
            self.grace_periods.clear(now_ns, node.first_cpu + bit as usize);
        }
        if self.tree.clear(Kind::Normal, leaf, mask) {
            self.look_wanted = true;
            self.wake_kthread(effects);
        }
    }
}
