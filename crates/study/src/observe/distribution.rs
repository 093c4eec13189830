//! A distribution of durations: an HdrHistogram with three significant digits from 1 us to 1 h, so that a
//! percentile is never off by more than 0.1 %, plus the exact extremes and sum.

use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize, de::Error as _, ser::Error as _};

const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 3_600_000_000_000;

/// Durations in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum_ns: u64,
    /// Exact maximum; 0 when empty.
    pub max_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3).expect("constant bounds are valid");
        Distribution { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Distribution {
    /// Adds one duration; beyond one hour it counts as one hour in the percentiles.
    pub fn record(&mut self, duration_ns: u64) {
        self.histogram.saturating_record(duration_ns);
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Exact mean, `None` when empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// The duration that a share `quantile` (0 to 1) of all durations does not exceed; `None` when empty.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram.value_at_quantile(quantile).min(self.max_ns))
    }

    /// How many durations are longer, with an error of at most a bucket's 0.1 %.
    pub fn count_above(&self, ns: u64) -> u64 {
        let longer = self.histogram.iter_recorded().filter(|step| step.value_iterated_to() > ns);
        longer.map(|step| step.count_since_last_iteration()).sum()
    }

    /// Adds all of another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("same bounds");
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Points `(duration_ns, share of durations at or below it)`, one for each occupied bucket.
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        let total = self.count() as f64;
        let mut below = 0;
        self.histogram
            .iter_recorded()
            .map(|step| {
                below += step.count_since_last_iteration();
                (step.value_iterated_to(), below as f64 / total)
            })
            .collect()
    }
}

impl Extend<u64> for Distribution {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, durations: I) {
        durations.into_iter().for_each(|duration_ns| self.record(duration_ns));
    }
}

/// The form in JSON: the exact figures, and the histogram in HdrHistogram's compressed V2 format.
#[derive(Serialize, Deserialize)]
struct Encoded {
    count: u64,
    sum_ns: u64,
    max_ns: u64,
    hdr_v2_deflate_base64: String,
}

impl Serialize for Distribution {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes).map_err(S::Error::custom)?;
        let (count, sum_ns, max_ns) = (self.count(), self.sum_ns, self.max_ns);
        Encoded { count, sum_ns, max_ns, hdr_v2_deflate_base64: STANDARD.encode(bytes) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = Encoded::deserialize(deserializer)?;
        let bytes = STANDARD.decode(encoded.hdr_v2_deflate_base64).map_err(D::Error::custom)?;
        let read: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(D::Error::custom)?;
        let mut distribution =
            Distribution { sum_ns: encoded.sum_ns, max_ns: encoded.max_ns, ..Self::default() };
        distribution.histogram.add(&read).map_err(D::Error::custom)?;
        if distribution.count() != encoded.count {
            return Err(D::Error::custom("the histogram's length is not the count beside it"));
        }
        Ok(distribution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Distribution {
        let mut distribution = Distribution::default();
        distribution.extend((1..=1000).map(|step| step * 10_000));
        distribution
    }

    #[test]
    fn percentiles_are_exact_to_three_digits() {
        let distribution = sample();
        assert_eq!(distribution.mean_ns(), Some(5_005_000.0));
        let p99 = distribution.quantile_ns(0.99).unwrap() as f64;
        assert!((p99 / 9_900_000.0 - 1.0).abs() < 1e-3, "{p99}");
        assert_eq!(distribution.quantile_ns(1.0), Some(10_000_000));
        assert_eq!(Distribution::default().quantile_ns(0.5), None);
    }

    #[test]
    fn survives_json_and_refuses_a_false_count() {
        let text = serde_json::to_string(&sample()).unwrap();
        assert_eq!(serde_json::from_str::<Distribution>(&text).unwrap(), sample());
        let forged = text.replacen("1000", "1001", 1);
        assert!(serde_json::from_str::<Distribution>(&forged).is_err());
    }

    #[test]
    fn cumulative_ends_at_one() {
        let points = sample().cumulative();
        assert_eq!(points.last().unwrap().1, 1.0);
        assert!(points.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn those_above_are_counted() {
        let mut all = Distribution::default();
        all.extend([1_000_000, 4_900_000, 5_100_000, 60_000_000]);
        assert_eq!([0, 5_000_000, 60_000_000 * 2].map(|ns| all.count_above(ns)), [4, 2, 0]);
    }
}
