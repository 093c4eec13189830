//! The points of a space, one after the other, none of them held longer than it is needed. They are a function of the space and
//! the seed.
//!
//! Source of the Sobol sequence and its scrambling: Joe, Kuo, "Constructing Sobol sequences with better two-dimensional
//! projections", 2008; Burley, "Practical Hash-based Owen Scrambling", 2020; by the crate `sobol_burley`.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Sampling, Setting, Space};
use crate::statistics;

/// Points of a Sobol sequence that `sobol_burley` can give.
pub const MOST_SOBOL_POINTS: u64 = 1 << 16;

/// One point.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its number, from 0.
    pub number: u64,
    /// The value of each axis, in the order of the axes.
    pub values: Vec<Setting>,
}

impl Space {
    /// All points, in their order.
    pub fn each_point(&self, seed: u64) -> impl Iterator<Item = Point> + '_ {
        let mut streams: Vec<ChaCha8Rng> =
            self.axes.keys().map(|name| statistics::stream(seed, &format!("axis {name}"))).collect();
        (0..self.size())
            .map(move |number| Point { number, values: self.values_at(number, seed, &mut streams) })
    }

    fn values_at(&self, number: u64, seed: u64, streams: &mut [ChaCha8Rng]) -> Vec<Setting> {
        let axes = self.axes.values();
        match self.sampling {
            Sampling::Grid => self.combination(number),
            Sampling::List => axes.map(|axis| axis.at(number)).collect(),
            Sampling::Random => axes.zip(streams).map(|(axis, stream)| axis.drawn(stream.random())).collect(),
            Sampling::Sobol => {
                // The number of points is checked to be at most 2^16, and that of axes below 256.
                let share = |dimension: usize| {
                    f64::from(sobol_burley::sample(number as u32, dimension as u32, seed as u32))
                };
                axes.enumerate().map(|(dimension, axis)| axis.drawn(share(dimension))).collect()
            }
        }
    }

    /// The combination of that number: the last axis changes fastest.
    fn combination(&self, number: u64) -> Vec<Setting> {
        let mut left = number;
        let mut values: Vec<Setting> = self
            .axes
            .values()
            .rev()
            .map(|axis| {
                let count = axis.count();
                let value = axis.at(left % count);
                left /= count;
                value
            })
            .collect();
        values.reverse();
        values
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Range, Scale};
    use super::*;

    fn axis(values: &[i64]) -> Axis {
        Axis { values: values.iter().copied().map(Setting::Integer).collect(), ..Axis::default() }
    }

    fn unit() -> Axis {
        let range = Range { from: 0.0, to: 1.0, scale: Scale::Linear, whole: false, steps: 0 };
        Axis { range: Some(range), ..Axis::default() }
    }

    fn space(sampling: Sampling, points: u64, axes: Vec<Axis>) -> Space {
        let named = axes.into_iter().enumerate().map(|(number, axis)| (format!("a{number}"), axis));
        Space { sampling, points, axes: named.collect(), ..Space::default() }
    }

    fn numbers(space: &Space, seed: u64) -> Vec<Vec<f64>> {
        let number = |value: &Setting| value.number().unwrap();
        space.each_point(seed).map(|point| point.values.iter().map(number).collect()).collect()
    }

    #[test]
    fn a_grid_has_all_combinations_and_a_list_goes_through_all_axes_together() {
        let axes = vec![axis(&[1, 2]), axis(&[10, 20, 30])];
        let grid = space(Sampling::Grid, 0, axes);
        let expected = [[1., 10.], [1., 20.], [1., 30.], [2., 10.], [2., 20.], [2., 30.]];
        assert_eq!(numbers(&grid, 1), expected);
        let list = space(Sampling::List, 0, vec![axis(&[1, 2]), axis(&[10, 20])]);
        assert_eq!(numbers(&list, 1), [[1., 10.], [2., 20.]]);
    }

    #[test]
    fn drawn_points_are_of_the_seed() {
        for sampling in [Sampling::Random, Sampling::Sobol] {
            let space = space(sampling, 64, vec![unit(), unit()]);
            assert_eq!(numbers(&space, 1), numbers(&space, 1));
            assert_ne!(numbers(&space, 1), numbers(&space, 2));
        }
    }

    #[test]
    fn a_sobol_sequence_has_one_point_in_each_part_of_each_axis() {
        let space = space(Sampling::Sobol, 64, vec![unit(), unit(), unit()]);
        for dimension in 0..3 {
            let mut parts: Vec<u64> =
                numbers(&space, 7).iter().map(|point| (point[dimension] * 64.0) as u64).collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..64).collect::<Vec<_>>());
        }
    }
}
