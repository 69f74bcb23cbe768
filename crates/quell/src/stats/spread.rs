//! Median and percentiles.

use serde::{Deserialize, Serialize};

/// The distribution of values: seconds, or shares of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// The number of values.
    pub count: u64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of values in any order; none without values.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        // The nearest rank: always a value that was measured.
        let rank = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        Some(Self { count: values.len() as u64, median: rank(50), p90: rank(90), max })
    }
}

/// The grace of the jobs that were asked to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Graces {
    given: Vec<f64>,
    used: Vec<f64>,
}

impl Graces {
    /// Adds a job.
    pub fn add(&mut self, given: f64, used: f64) {
        self.given.push(given);
        self.used.push(used);
    }

    /// The used grace, the given grace, and the used share of jobs with a grace.
    pub fn spreads(self) -> [Option<Spread>; 3] {
        let share = self.used.iter().zip(&self.given).filter(|(_, given)| **given > 0.0);
        let share = share.map(|(used, given)| used / given).collect();
        [self.used, self.given, share].map(Spread::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_values_that_were_measured() {
        assert_eq!(Spread::of(Vec::new()), None);
        let one = Spread::of(vec![2.0]).unwrap();
        assert_eq!((one.median, one.p90, one.max), (2.0, 2.0, 2.0));
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let ten = Spread::of(ten).unwrap();
        assert_eq!((ten.count, ten.median, ten.p90, ten.max), (10, 5.0, 9.0, 10.0));
    }

    #[test]
    fn a_share_is_of_the_same_job_and_none_of_no_grace() {
        let mut graces = Graces::default();
        for (given, used) in [(10.0, 1.0), (1.0, 1.0), (0.0, 0.0), (4.0, 2.0)] {
            graces.add(given, used);
        }
        let [used, given, share] = graces.spreads().map(Option::unwrap);
        assert_eq!((used.count, used.median, used.max), (4, 1.0, 2.0));
        assert_eq!((given.count, given.median, given.max), (4, 1.0, 10.0));
        assert_eq!((share.count, share.median, share.p90), (3, 0.5, 1.0));
        let mut none = Graces::default();
        none.add(0.0, 0.0);
        assert_eq!(none.spreads()[2], None);
        assert_eq!(Graces::default().spreads(), [None; 3]);
    }
}
