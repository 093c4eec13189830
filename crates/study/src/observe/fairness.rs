//! Whether a vCPU with a quota kept to it over each second.

use crate::observe::grace_period::Span;
use crate::units::SECOND_NS;

/// The longest time that these spans, in order and without overlap, have in common with any second within the window, ns.
/// `None` if the window is shorter than a second.
///
/// A second with the most in it can be moved until it begins with a span or ends with one, so only these are looked at.
pub fn most_in_a_second_ns(running: &[Span], window: Span) -> Option<u64> {
    let last_ns = window.end_ns.checked_sub(SECOND_NS).filter(|last_ns| *last_ns >= window.start_ns)?;
    // What had been run when each span begins.
    let mut before_ns = Vec::with_capacity(running.len());
    let mut sum_ns = 0;
    for span in running {
        before_ns.push(sum_ns);
        sum_ns += span.length_ns();
    }
    let run_until = |t_ns: u64| {
        let next = running.partition_point(|span| span.start_ns < t_ns);
        let Some(at) = next.checked_sub(1) else { return 0 };
        before_ns[at] + t_ns.min(running[at].end_ns) - running[at].start_ns
    };
    let in_second = |from_ns: u64| run_until(from_ns + SECOND_NS) - run_until(from_ns);
    let from = |t_ns: u64| t_ns.clamp(window.start_ns, last_ns);
    let edges =
        running.iter().flat_map(|span| [from(span.start_ns), from(span.end_ns.saturating_sub(SECOND_NS))]);
    Some(edges.map(in_second).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn span(from_ms: u64, to_ms: u64) -> Span {
        Span::new(from_ms * MS, to_ms * MS)
    }

    #[test]
    fn the_fullest_second_is_found_wherever_it_lies() {
        let most = |running: &[Span], to_ms| most_in_a_second_ns(running, span(0, to_ms)).map(|ns| ns / MS);
        assert_eq!(most(&[], 5_000), Some(0));
        assert_eq!(most(&[span(0, 10)], 999), None);
        assert_eq!(most(&[span(500, 2_500)], 3_000), Some(1_000));
        // From 950 to 1950 ms.
        assert_eq!(most(&[span(100, 120), span(950, 1_000), span(1_900, 1_960)], 3_000), Some(100));
        // A span counts as far as it lies within the window's last second.
        assert_eq!(most(&[span(1_400, 1_600)], 2_000), Some(200));
        assert_eq!(most(&[span(0, 100), span(1_000, 1_100)], 1_000), Some(100));
    }

    #[test]
    fn a_steady_quota_is_kept_exactly() {
        let running: Vec<Span> = (0..50).map(|period| span(period * 100 + 30, period * 100 + 50)).collect();
        assert_eq!(most_in_a_second_ns(&running, span(0, 5_000)), Some(200 * MS));
    }
}
