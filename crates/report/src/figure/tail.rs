//! The tail of latencies, pooled over a condition's repetitions: which share of them is longer than a latency. Both axes are
//! logarithmic, so that the rarest are seen as well as the most.

use reprieve_study::observation::LATENCIES;
use reprieve_study::{Distribution, Study, metric};

use super::Figure;
use super::axis::Axis;
use super::staircase::Staircase;

/// Share of latencies that were longer, one curve for each condition.
pub fn latency_tail(study: &Study) -> Option<Figure> {
    let staircase = Staircase {
        name: "latency-tail",
        title: "Tail of the latencies",
        metric: metric::LATENCY_P99,
        key: LATENCIES,
        counted: "",
        durations: "Latency",
        shares: |most| {
            Axis::logarithmic("Share of latencies that are longer", 1.0 / most as f64, 1.0, percent)
        },
        corners,
    };
    staircase.figure(study)
}

/// A power of ten as per cent, without the noise of the multiplication.
fn percent(share: f64) -> String {
    format!("{} %", (share * 1e10).round() / 1e8)
}

/// From the shortest, which all others are at least as long as.
fn corners(distribution: &Distribution) -> Vec<(f64, f64)> {
    let at_most = distribution.cumulative();
    let shortest = at_most.first().map(|(ns, _)| (*ns as f64, 1.0));
    shortest.into_iter().chain(at_most.into_iter().map(|(ns, share)| (ns as f64, 1.0 - share))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round_and_curves_begin_at_the_whole() {
        assert_eq!([1.0, 0.1, 1e-3, 1e-6].map(percent), ["100 %", "10 %", "0.1 %", "0.0001 %"]);
        let mut distribution = Distribution::default();
        distribution.extend([1_000_000, 1_000_000, 2_000_000, 8_000_000]);
        let corners = corners(&distribution);
        assert_eq!(corners.iter().map(|(_, share)| *share).collect::<Vec<_>>(), [1.0, 0.5, 0.25, 0.0]);
        assert_eq!(corners[0].0, corners[1].0);
    }
}
