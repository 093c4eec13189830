//! `[host.xen]`: settings of Xen's schedulers, on a simulated host and on real Xen.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SchedulerKind;

/// Settings of Xen's schedulers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Xen {
    /// Xen's version, for what its credit scheduler does differently. The ground `xen` has 4.17.
    pub version: XenVersion,
    /// credit: length of a slice, and time between two accountings, in ms. A tick is a third of it.
    #[schemars(range(min = 1, max = 1_000))]
    pub slice_ms: u64,
    /// credit and credit2: time that a vCPU runs at least before another may take its pCPU, in us; 0 for no
    /// limit, else at least 100. At most a slice.
    #[schemars(range(min = 0, max = 500_000))]
    pub ratelimit_us: u64,
    /// Defects that are fixed beyond those that the version has fixed. Only on the simulator.
    pub fixes: Vec<XenFix>,
    /// credit: time between a wake-up's store of BOOST and its look at the priority, in ns, during which an
    /// accounting on another pCPU goes unseen; 0 for never.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub race_window_ns: u64,
    /// Weight of the guest under test. Other VMs have Xen's default, 256.
    #[schemars(range(min = 1, max = 65_535))]
    pub guest_weight: u32,
    /// credit: most CPU time that the guest gets, in per cent of a pCPU; 0 for no limit.
    #[schemars(range(min = 0, max = 6_400))]
    pub guest_cap_percent: u32,
    /// Weight of each spinner.
    #[schemars(range(min = 1, max = 65_535))]
    pub spinner_weight: u32,
    /// credit: most CPU time that each spinner gets, in per cent of a pCPU; 0 for no limit.
    #[schemars(range(min = 0, max = 6_400))]
    pub spinner_cap_percent: u32,
    /// Whether the trace has the scheduler's events. In real Xen that takes time, and shifts phases.
    pub trace: bool,
}

/// Xen's default weight.
pub const WEIGHT: u32 = 256;

impl Default for Xen {
    fn default() -> Self {
        Xen {
            version: XenVersion::default(),
            slice_ms: 30,
            ratelimit_us: 1_000,
            fixes: Vec::new(),
            race_window_ns: 1,
            guest_weight: WEIGHT,
            guest_cap_percent: 0,
            spinner_weight: WEIGHT,
            spinner_cap_percent: 0,
            trace: false,
        }
    }
}

/// A version of Xen, for what its credit scheduler does differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum XenVersion {
    /// 4.5 and 4.6.
    #[serde(rename = "4.5")]
    V4_5,
    /// 4.7 and later: a vCPU's own migration does not boost it any more.
    #[serde(rename = "4.7")]
    V4_7,
    /// The version in Debian 12.
    #[default]
    #[serde(rename = "4.17")]
    V4_17,
}

/// The name in a scenario file.
impl fmt::Display for XenVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

/// Defects of Xen's schedulers that the simulator can fix, each by the smallest change of its mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum XenFix {
    /// credit: a CPU hog is boosted by its own migration, to the pCPU where it was. Fixed in 4.7.
    BoostOnMigration,
    /// credit: a vCPU with much credit is not accounted for any more, and gets into debt unseen.
    InactiveDebt,
    /// credit: accounting overwrites the BOOST of a vCPU that was just woken or that waits.
    BoostErased,
    /// credit2: a wake that the rate limit refuses is not tried again.
    LateWake,
}

impl XenFix {
    /// The scheduler that it concerns.
    pub fn scheduler(self) -> SchedulerKind {
        match self {
            XenFix::LateWake => SchedulerKind::Credit2,
            _ => SchedulerKind::Credit,
        }
    }
}

/// The name in a scenario file.
impl fmt::Display for XenFix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

impl Xen {
    /// For captions: version, and what differs from Xen's defaults.
    pub(super) fn text(&self, scheduler: SchedulerKind) -> String {
        let mut text = format!("{} of Xen {}", scheduler.name(), self.version);
        if scheduler == SchedulerKind::Credit {
            text += &format!(" with slices of {} ms", self.slice_ms);
        }
        if scheduler != SchedulerKind::Rtds {
            text += &format!(", rate limit {} us", self.ratelimit_us);
        }
        if !self.fixes.is_empty() {
            let names: Vec<String> = self.fixes.iter().map(XenFix::to_string).collect();
            text += &format!(", fixed: {}", names.join(", "));
        }
        for (who, weight, cap_percent) in [
            ("the guest", self.guest_weight, self.guest_cap_percent),
            ("spinners", self.spinner_weight, self.spinner_cap_percent),
        ] {
            if weight != WEIGHT {
                text += &format!(", weight {weight} for {who}");
            }
            if cap_percent != 0 {
                text += &format!(", cap {cap_percent} % for {who}");
            }
        }
        text
    }
}
