//! The rows below the axis: a figure over the time in sight.

use super::super::model::Model;
use super::super::moment::{Moment, VcpuMoment};
use super::super::scale::Scale;

/// The memory that waits is what is above the lowest of so many seconds.
const LOWEST_OF_S: usize = 60;

/// A figure over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its scale.
    pub scale: Scale,
    /// A value for each second in sight; none where it was not measured.
    pub values: Vec<Option<u64>>,
    /// The value in the second that is looked at.
    pub now: Option<u64>,
}

/// Rows of vCPUs that fit into so many lines, and what is said of the others.
pub struct VcpuRows {
    /// A row each.
    pub rows: Vec<Row>,
    /// Others, if some do not fit: how many, and the most that one of them was off in the second that is looked at, thousandths.
    pub others: Option<(usize, u64)>,
}

/// A row each for the vCPUs, or for those that were off most in the time in sight.
pub fn of_vcpus(model: &Model, (first, end): (usize, usize), lines: usize) -> VcpuRows {
    let moments = || model.moments().iter().skip(first).take(end - first);
    // How many vCPUs there are may change, as by hotplug.
    let mut sums: Vec<(usize, u64)> = Vec::new();
    for vcpu in moments().flat_map(|moment| &moment.vcpus) {
        match sums.binary_search_by_key(&vcpu.vcpu, |(number, _)| *number) {
            Ok(at) => sums[at].1 += vcpu.off_permille,
            Err(at) => sums.insert(at, (vcpu.vcpu, vcpu.off_permille)),
        }
    }
    let now = |number: usize| model.moment().and_then(|moment| moment.vcpu(number));
    let mut others = None;
    if sums.len() > lines {
        sums.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let rest = sums.split_off(lines.saturating_sub(1));
        let most = rest.iter().filter_map(|(number, _)| Some(now(*number)?.off_permille)).max();
        others = Some((rest.len(), most.unwrap_or(0)));
        sums.sort_unstable();
    }
    let rows = sums.into_iter().map(|(number, _)| of_vcpu(model, (first, end), number)).collect();
    VcpuRows { rows, others }
}

/// The row of a vCPU.
pub fn of_vcpu(model: &Model, window: (usize, usize), number: usize) -> Row {
    let off = |vcpu: &VcpuMoment| (!vcpu.is_silent).then_some(vcpu.off_permille);
    row(model, window, format!("vCPU {number} off"), Scale::Share, |moment| moment.vcpu(number).and_then(off))
}

/// The rows of the whole VM.
pub fn of_vm(model: &Model, window: (usize, usize)) -> Vec<Row> {
    let one = |name: &str, scale, of: fn(&Moment) -> Option<u64>| row(model, window, name.into(), scale, of);
    let mut rows = vec![
        one("steal", Scale::Share, |moment| moment.steal_permille),
        one("grace period", Scale::Time, |moment| moment.grace_ns),
        one("run delay", Scale::TimeRate, |moment| moment.run_delay_ns),
        waiting_memory(model, window),
        one("memory wait", Scale::Share, |moment| moment.memory_permille),
    ];
    let queued = one("queued", Scale::Count, |moment| moment.queued);
    if queued.values.iter().any(Option::is_some) {
        rows.push(queued);
    }
    rows
}

fn row(
    model: &Model,
    (first, end): (usize, usize),
    name: String,
    scale: Scale,
    of: impl Fn(&Moment) -> Option<u64>,
) -> Row {
    let values = model.moments().iter().skip(first).take(end - first).map(&of).collect();
    Row { name, scale, values, now: model.moment().and_then(of) }
}

/// Slabs that cannot be reclaimed, above the least of the last minute: what waits for grace periods is in it.
fn waiting_memory(model: &Model, (first, end): (usize, usize)) -> Row {
    let above = |at: usize| {
        let slab = |at: usize| model.moments().get(at).and_then(|moment| moment.slab_bytes);
        let lowest = (at.saturating_sub(LOWEST_OF_S)..=at).filter_map(slab).min();
        Some(slab(at)? - lowest?)
    };
    let values = (first..end).map(above).collect();
    Row { name: "slab growth".into(), scale: Scale::Size, values, now: above(model.at()) }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MS, live, quiet, quota};
    use super::*;
    use reprieve_policy::sample::{Memory, VcpuSample};

    #[test]
    fn the_vcpus_that_are_off_most_are_shown_and_the_others_counted() {
        let mut sample = quota(1, true);
        sample.vcpus.extend((2..20).map(|vcpu| VcpuSample { vcpu, beats: 1000, ..VcpuSample::default() }));
        let back_ns = 900 * MS;
        sample.vcpus[15].offs = vec![reprieve_policy::fingerprint::Off { since_ns: 600 * MS, back_ns }];
        let model = live([sample].into_iter());
        let shown = |lines| {
            let VcpuRows { rows, others } = of_vcpus(&model, (0, 1), lines);
            (rows.into_iter().map(|row| row.name).collect::<Vec<_>>(), others)
        };
        let names = ["vCPU 0 off", "vCPU 1 off", "vCPU 15 off"].map(String::from).to_vec();
        assert_eq!(shown(4), (names, Some((17, 0))));
        assert_eq!(shown(2), (vec!["vCPU 1 off".to_string()], Some((19, 300))));
        assert_eq!((shown(20).0.len(), shown(20).1), (20, None));
    }

    #[test]
    fn waiting_memory_is_what_is_above_the_least_of_the_last_minute() {
        let at = |(second, mib): (u64, u64)| {
            let memory = Memory { unreclaimable_bytes: mib << 20, ..Memory::default() };
            reprieve_policy::sample::Sample { memory: Some(memory), ..quiet(second) }
        };
        let mut model = live([(1, 50), (2, 40), (3, 60)].into_iter().map(at));
        assert_eq!(waiting_memory(&model, (0, 3)).values, [Some(0), Some(0), Some(20 << 20)]);
        (4..80).map(|second| Moment::of(&at((second, 60)), None)).for_each(|moment| model.push(moment));
        assert_eq!(waiting_memory(&model, (0, 79)).now, Some(0), "it has been so for a minute");
    }
}
