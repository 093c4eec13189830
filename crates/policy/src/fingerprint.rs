//! What a host does to a vCPU, told from the times alone at which the vCPU was off: a CPU quota with its period, or turns
//! with other threads and the length of their slices.
//!
//! A host enforces a quota by a timer: a vCPU that has used up its time comes back at the next multiple of the period,
//! whenever it went off. So the times at which it comes back have one phase. They are tested by the mean resultant length,
//! the *regularity* here: each return is a point on a circle whose circumference is the period, and regularity is the distance
//! of their centre of mass from the circle's centre, from 0 (anywhere) to 1 (all in one place). Returns weigh as much as the
//! time off before them, so short absences for other reasons count little.
//!
//! Turns with other threads can be regular, too, but they *wander*: whenever another thread of the host runs, all later turns
//! shift. A quota's returns do not: each is late or not for itself. The von Neumann ratio tells the two apart: the mean square
//! of the steps from each deviation to the next, over the mean square of the deviations. It is near 2 if they are independent
//! of each other, and near 0 if they wander. If two threads alternate undisturbed for the whole time, they cannot be told from
//! a quota.
//!
//! Source: the mean resultant length is that of N. I. Fisher, Statistical Analysis of Circular Data, 1993, chapter 2; the ratio
//! is that of J. von Neumann, Annals of Mathematical Statistics 12, 1941. That quotas are enforced so: the kernel's Documentation/scheduler/sched-bwc.rst. The constants are estimates of our own.
//!
//! This is analysis after the fact: unlike the rest of this crate it allocates.

use std::f64::consts::{PI, TAU};

use serde::{Deserialize, Serialize};

/// Fewer absences than this show no rhythm.
const FEWEST: usize = 8;
/// The shortest and the longest period that is looked for, ns: the kernel takes 1 ms to 1 s, and up to 4 ms a period
/// cannot be told from the ticks at which hosts switch threads.
const SHORTEST_NS: u64 = 5_000_000;
const LONGEST_NS: u64 = 1_000_000_000;
/// From this regularity on, many returns are taken for those of a quota. Fitted: in recorded guests, returns under a quota had 0.6
/// or more where other threads interrupted the vCPU often, and under everything else at most 0.51.
const REGULAR: f64 = 0.6;
/// Few returns are regular by chance, too: the more periods are tried, the likelier. So few must have this regularity.
const FEW_REGULAR: f64 = 0.9;
/// Between few and many, the regularity times the root of their number must be this much. The chance that returns at any time are so
/// regular at a given period is then e to the power of minus its square (J. W. Rayleigh's test, in Fisher's chapter 4).
const CLEAR: f64 = 4.0;
/// Of periods that are about as regular as the best one, the longest is taken: its halves and thirds fit, too. Fitted: where the other
/// vCPUs have quotas of their own, some returns lie between the multiples, and the half was up to one seventh more regular.
const ABOUT_AS_REGULAR: f64 = 0.85;
/// Each round of the search for a period looks at returns so many times further apart.
const FURTHER: f64 = 4.0;
/// Below this von Neumann ratio, returns wander.
const STEADY: f64 = 0.5;
/// From this regularity on, and if departures are irregular, the von Neumann ratio is not asked: a clock that drifts would fail it, too.
/// Fitted: in one of two tuning runs with a quota of 200 ms, the guest's clock moved by 3 ms within a second.
const VERY_REGULAR: f64 = 0.9;
/// Departures are irregular if their standard deviation is more than so many times that of the returns...
const AS_IRREGULAR: f64 = 1.1;
/// ... and more than this, ns: beats show departures no better. It is a third of the time between two.
const BLUR_NS: f64 = 300_000.0;
/// Two returns are at the same time if they are less than this part of the period apart.
const SAME_PHASE: f64 = 0.03;
/// vCPUs come back at the same moment if it is within this, ns: half of the time between two beats, which have a phase on each vCPU.
const SAME_MOMENT_NS: u64 = 500_000;
/// A time off counts for a rhythm if it is at least this part of the usual one.
const LONG_PART: u64 = 2;

/// The most times off that a rhythm is looked for in: those of 10 s in which each beat is late, twice. Files may have more.
const MOST_OFFS: usize = 20_000;

/// A time that a vCPU was off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Off {
    /// When it began, ns.
    pub since_ns: u64,
    /// When the vCPU was back, ns; later than `since_ns`.
    pub back_ns: u64,
}

impl Off {
    /// How long it lasted, ns.
    pub fn length_ns(&self) -> u64 {
        self.back_ns.saturating_sub(self.since_ns)
    }
}

/// A CPU quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// Its period, ns.
    pub period_ns: u64,
    /// Time on a pCPU in each period, ns. The quota is less by what the vCPU idled and by short times off, which
    /// [`crate::explain`] takes away.
    pub on_ns: u64,
    /// How regularly the vCPU came back, from 0.6 to 1.
    pub regularity: f64,
    /// Whether the vCPU also *went* off at regular times. A quota ends when it is used up, which varies with the host's ticks
    /// and with what the vCPU does; a task of the host that runs once in a period, or turns that begin at ticks, do not vary.
    pub is_ambiguous: bool,
}

/// Turns with other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The usual time on, ns: a slice of this host.
    pub on_ns: u64,
    /// The usual time off, ns.
    pub off_ns: u64,
    /// How many other threads wanted the pCPU, if all have equal weight: at least 1.
    pub competitors: u64,
}

/// What a vCPU's times off look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rhythm {
    /// It comes back at multiples of a period.
    Quota(Quota),
    /// It takes turns.
    Turns(Turns),
    /// It was off too rarely to tell.
    Unknown,
}

/// The rhythm of a vCPU's times off, in the order of time.
pub fn rhythm(offs: &[Off]) -> Rhythm {
    if let Some(quota) = quota(offs) {
        return Rhythm::Quota(quota);
    }
    turns(offs).map_or(Rhythm::Unknown, Rhythm::Turns)
}

/// The quota that explains these times off, if one does.
fn quota(offs: &[Off]) -> Option<Quota> {
    let long = long(offs);
    if long.len() < FEWEST {
        return None;
    }
    let mut between: Vec<u64> = long.windows(2).map(|pair| pair[1].back_ns - pair[0].back_ns).collect();
    between.sort_unstable();
    // Returns are one period apart, or several if the vCPU did not use its quota up, or had overrun it.
    let tenths = (1..10).map(|tenth| between[between.len() * tenth / 10]);
    let candidates = tenths.flat_map(|between_ns| (1..=4).map(move |periods| between_ns / periods));
    let refined = candidates.map(|first_ns| refined(&long, first_ns));
    let fits = refined.filter(|period_ns| (SHORTEST_NS as f64..=LONGEST_NS as f64).contains(period_ns));
    let regular: Vec<(f64, f64)> = fits.map(|period_ns| (period_ns, regularity(&long, period_ns))).collect();
    let best = regular.iter().map(|(_, regularity)| *regularity).fold(0.0, f64::max);
    let clear = (CLEAR / (long.len() as f64).sqrt()).clamp(REGULAR, FEW_REGULAR);
    if best < clear {
        return None;
    }
    let wanted = (best * ABOUT_AS_REGULAR).max(REGULAR);
    let (period_ns, regularity) = regular
        .into_iter()
        .filter(|(_, regularity)| *regularity >= wanted)
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let is_ambiguous = goes_regularly(&long, period_ns);
    let is_clear = regularity >= VERY_REGULAR && !is_ambiguous;
    if !is_clear && steadiness(&long, period_ns) < STEADY {
        return None;
    }
    let on_ns = on_in_a_period(&long, period_ns)?;
    Some(Quota { period_ns: period_ns.round() as u64, on_ns, regularity, is_ambiguous })
}

/// The times off that count for a rhythm: short ones, for small tasks of the host, end no slice.
fn long(offs: &[Off]) -> Vec<Off> {
    let shortest_ns = shortest_of_rhythm_ns(offs);
    offs.iter().copied().filter(|off| off.length_ns() >= shortest_ns).take(MOST_OFFS).collect()
}

/// How long a time off must at least be to count for a rhythm, ns.
pub(crate) fn shortest_of_rhythm_ns(offs: &[Off]) -> u64 {
    usual_length_ns(offs).unwrap_or(0) / LONG_PART
}

/// The length for which half of all time off was in longer absences.
fn usual_length_ns(offs: &[Off]) -> Option<u64> {
    let mut lengths: Vec<u64> = offs.iter().map(Off::length_ns).collect();
    lengths.sort_unstable();
    let half = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length)) / 2;
    let mut sum = 0_u64;
    lengths.into_iter().find(|length| {
        sum = sum.saturating_add(*length);
        sum >= half
    })
}

/// A period near `first_ns` that fits the returns best. Returns that are near each other give it roughly. With it, the number of periods
/// between distant returns is known, and these give it better. It is the median over all such pairs, so that a few returns at
/// another phase have little effect.
fn refined(offs: &[Off], first_ns: u64) -> f64 {
    let mut period_ns = first_ns.max(1) as f64;
    let (Some(first), Some(last)) = (offs.first(), offs.last()) else { return period_ns };
    let span_ns = (last.back_ns - first.back_ns) as f64;
    let mut apart_ns = period_ns;
    while apart_ns <= span_ns {
        let mut told: Vec<f64> = offs
            .iter()
            .enumerate()
            .filter_map(|(index, off)| told(off, &offs[index + 1..], apart_ns, period_ns))
            .collect();
        if told.len() < FEWEST / 2 {
            break;
        }
        let middle = told.len() / 2;
        period_ns = *told.select_nth_unstable_by(middle, f64::total_cmp).1;
        apart_ns *= FURTHER;
    }
    period_ns
}

/// The period by one return and a later one that is about `apart_ns` after it, if there is a whole number of periods between.
fn told(off: &Off, later: &[Off], apart_ns: f64, period_ns: f64) -> Option<f64> {
    let from_ns = off.back_ns + (apart_ns - period_ns / 2.0).max(0.0) as u64;
    let other = later.get(later.partition_point(|later| later.back_ns < from_ns))?;
    let between_ns = (other.back_ns - off.back_ns) as f64;
    let periods = (between_ns / period_ns).round();
    let is_whole = periods >= 1.0 && (between_ns - periods * period_ns).abs() < period_ns / 4.0;
    is_whole.then(|| between_ns / periods)
}

/// The regularity of the returns: their mean resultant length on a circle of that circumference.
fn regularity(offs: &[Off], period_ns: f64) -> f64 {
    let (x, y, weight) = centre(offs, period_ns);
    if weight == 0.0 { 0.0 } else { x.hypot(y) / weight }
}

/// The angle of a return on a circle of that circumference.
fn angle(off: &Off, period_ns: f64) -> f64 {
    (off.back_ns as f64 / period_ns).fract() * TAU
}

/// The sum of the returns as vectors, each as long as the time off before it, and the sum of their lengths.
fn centre(offs: &[Off], period_ns: f64) -> (f64, f64, f64) {
    offs.iter().fold((0.0, 0.0, 0.0), |(x, y, weight), off| {
        let (angle, length) = (angle(off, period_ns), off.length_ns() as f64);
        (x + length * angle.cos(), y + length * angle.sin(), weight + length)
    })
}

/// Whether departures are about as regular as returns.
fn goes_regularly(offs: &[Off], period_ns: f64) -> bool {
    let swapped: Vec<Off> = offs.iter().map(|off| Off { since_ns: 0, back_ns: off.since_ns }).collect();
    // The circular standard deviation, ns. Departures weigh alike here: they have no length of their own.
    let deviation_ns = |offs: &[Off]| {
        let (x, y) = offs.iter().fold((0.0, 0.0), |(x, y), off| {
            let angle = angle(off, period_ns);
            (x + angle.cos(), y + angle.sin())
        });
        let resultant = (x.hypot(y) / offs.len() as f64).clamp(f64::MIN_POSITIVE, 1.0);
        (-2.0 * resultant.ln()).sqrt() * period_ns / TAU
    };
    deviation_ns(&swapped) <= (deviation_ns(offs) * AS_IRREGULAR).max(BLUR_NS)
}

/// Whether two vCPUs come back at the same time of the period, as under one quota for both.
pub fn in_phase(a: &[Off], b: &[Off], period_ns: u64) -> bool {
    let phase = |offs: &[Off]| {
        let (x, y, _) = centre(offs, period_ns as f64);
        y.atan2(x)
    };
    let apart = (phase(a) - phase(b) + PI).rem_euclid(TAU) - PI;
    apart.abs() < TAU * SAME_PHASE
}

/// The von Neumann ratio of the returns' deviations from their mean phase.
fn steadiness(offs: &[Off], period_ns: f64) -> f64 {
    let (x, y, _) = centre(offs, period_ns);
    let mean = y.atan2(x);
    // From half a turn before the mean to half a turn behind it.
    let deviations: Vec<f64> =
        offs.iter().map(|off| (angle(off, period_ns) - mean + PI).rem_euclid(TAU) - PI).collect();
    let steps: f64 = deviations.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let squares: f64 = deviations.iter().map(|deviation| deviation.powi(2)).sum();
    if squares == 0.0 { f64::INFINITY } else { steps / squares }
}

/// Mean time on in a period. A vCPU that ran for more than two periods between two absences did not use its quota up
/// meanwhile, and does not count. One that overran its quota, because hosts look at ticks alone, can run into the next period,
/// or stays off for longer. `None` if most absences do not count: a quota that is used up so rarely is no quota. Turns that
/// begin at a host's ticks are as regular, but most ticks begin none.
fn on_in_a_period(offs: &[Off], period_ns: f64) -> Option<u64> {
    let (mut on_ns, mut periods, mut count) = (0, 0.0, 0);
    for pair in offs.windows(2) {
        let ran_ns = pair[1].since_ns.saturating_sub(pair[0].back_ns);
        if ran_ns as f64 <= 2.0 * period_ns {
            on_ns += ran_ns;
            count += 1;
            periods += ((pair[1].back_ns - pair[0].back_ns) as f64 / period_ns).round();
        }
    }
    (count * 2 >= offs.len() && periods >= 1.0).then(|| (on_ns as f64 / periods).round() as u64)
}

/// Turns with others, if there are enough.
pub fn turns(offs: &[Off]) -> Option<Turns> {
    let long = long(offs);
    if long.len() < FEWEST {
        return None;
    }
    let on_ns =
        median(long.windows(2).map(|pair| pair[1].since_ns.saturating_sub(pair[0].back_ns)).collect());
    let off_ns = median(long.iter().map(Off::length_ns).collect());
    let competitors = ((off_ns + on_ns / 2) / on_ns.max(1)).max(1);
    Some(Turns { on_ns, off_ns, competitors })
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Of each vCPU the times off that not all others came back from at the same moment. With one vCPU, all.
pub fn alone(vcpus: &[&[Off]]) -> Vec<Vec<Off>> {
    let of = |(vcpu, offs): (usize, &&[Off])| offs.iter().map(move |off| (*off, vcpu)).collect::<Vec<_>>();
    let mut returns: Vec<(Off, usize)> = vcpus.iter().enumerate().flat_map(of).collect();
    returns.sort_by_key(|(off, _)| off.back_ns);
    let mut alone = vec![Vec::new(); vcpus.len()];
    // Returns at the same moment as the one that is looked at: how many of each vCPU, and of how many vCPUs.
    let (mut near, mut near_vcpus, mut first, mut end) = (vec![0; vcpus.len()], 0, 0, 0);
    for (off, vcpu) in &returns {
        while let Some((other, of)) = returns.get(end)
            && other.back_ns <= off.back_ns.saturating_add(SAME_MOMENT_NS)
        {
            near_vcpus += usize::from(near[*of] == 0);
            near[*of] += 1;
            end += 1;
        }
        while let (other, of) = returns[first]
            && other.back_ns.saturating_add(SAME_MOMENT_NS) < off.back_ns
        {
            near[of] -= 1;
            near_vcpus -= usize::from(near[of] == 0);
            first += 1;
        }
        if vcpus.len() == 1 || near_vcpus < vcpus.len() {
            alone[*vcpu].push(*off);
        }
    }
    alone
}

/// The times at which both vCPUs were off.
pub fn both_off(a: &[Off], b: &[Off]) -> Vec<Off> {
    let (mut both, mut a, mut b) = (Vec::new(), a.iter().peekable(), b.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let off = Off { since_ns: x.since_ns.max(y.since_ns), back_ns: x.back_ns.min(y.back_ns) };
        if off.since_ns < off.back_ns {
            both.push(off);
        }
        if x.back_ns <= y.back_ns {
            a.next()
        } else {
            b.next()
        };
    }
    both
}

#[cfg(test)]
mod tests;
