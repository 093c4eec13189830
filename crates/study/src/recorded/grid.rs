//! Cases by conditions: the values of one metric under each condition in each case. Published ratios of one condition
//! to another stand beside ours, and published orders of conditions are checked.

use crate::compare::comparison::Verdict;
use crate::observe::observation::Observation;
use crate::recorded::record::Study;
use crate::scenario::{PublishedOrder, PublishedPair};
use crate::statistics;

/// One metric, cases by conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Identifier of the metric.
    pub metric: String,
    /// Names of the conditions, the columns.
    pub conditions: Vec<String>,
    /// A row for each case.
    pub rows: Vec<GridRow>,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct GridRow {
    /// Its name.
    pub case: String,
    /// For each condition, the values of its repetitions; empty where nothing was measured.
    pub cells: Vec<Vec<f64>>,
}

/// A published ratio and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The published ratio or order.
    pub published: PublishedPair,
    /// Our ratio of medians, or the mean of the cases' ratios if the published one is for all cases. `None` if a part
    /// was not measured.
    pub ratio: Option<f64>,
    /// The larger of ours over theirs and theirs over ours, if both are on the same side of 1.
    pub verdict: Verdict,
}

/// A published order of conditions, and the cases in which it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What was published.
    pub published: PublishedOrder,
    /// Cases in which the medians rise in that order.
    pub holds: Vec<String>,
    /// Cases in which the medians do not rise in that order.
    pub fails: Vec<String>,
}

impl Study {
    /// The grid of a metric; `None` if the scenario has no cases, or no case has it.
    pub fn grid(&self, metric: &str) -> Option<Grid> {
        let conditions: Vec<String> = self.scenario.chosen().map(|(name, _)| name.clone()).collect();
        let row = |case: &String| GridRow {
            case: case.clone(),
            cells: conditions.iter().map(|condition| self.values(case, condition, metric)).collect(),
        };
        let rows: Vec<GridRow> = self.scenario.cases.keys().map(row).collect();
        let measured = rows.iter().any(|row| row.cells.iter().any(|cell| !cell.is_empty()));
        measured.then(|| Grid { metric: metric.into(), conditions, rows })
    }

    /// The published pairs with ours.
    pub fn published_pairs(&self) -> Vec<Pair> {
        self.scenario.published.pairs.iter().map(|published| self.pair(published)).collect()
    }

    fn pair(&self, published: &PublishedPair) -> Pair {
        let ratio = match published.case.as_str() {
            "" => self.mean_ratio(published),
            case => self.ratio(case, published),
        };
        let verdict = ratio.map_or(Verdict::NotMeasured, |ours| Verdict::between(ours, published.ratio));
        Pair { published: published.clone(), ratio, verdict }
    }

    /// The published orders of conditions; a case in which some condition was not measured is in neither list.
    pub fn published_orders(&self) -> Vec<Order> {
        self.scenario.published.orders.iter().map(|published| self.order(published)).collect()
    }

    fn order(&self, published: &PublishedOrder) -> Order {
        let mut order = Order { published: published.clone(), holds: Vec::new(), fails: Vec::new() };
        let of = |case: &&String| published.case.is_empty() || **case == published.case;
        for case in self.scenario.cases.keys().filter(of) {
            let medians = published.rising.iter().map(|name| self.median(case, name, &published.metric));
            let Some(medians) = medians.collect::<Option<Vec<f64>>>() else { continue };
            let rises = medians.windows(2).all(|pair| pair[0] < pair[1]);
            if rises { &mut order.holds } else { &mut order.fails }.push(case.clone());
        }
        order
    }

    fn mean_ratio(&self, pair: &PublishedPair) -> Option<f64> {
        let ratios = self.scenario.cases.keys().map(|case| self.ratio(case, pair));
        statistics::mean(&ratios.collect::<Option<Vec<f64>>>()?)
    }

    fn ratio(&self, case: &str, pair: &PublishedPair) -> Option<f64> {
        let median = |condition: &str| self.median(case, condition, &pair.metric);
        let (above, below) = (median(&pair.condition)?, median(&pair.against)?);
        (below > 0.0).then(|| above / below)
    }

    fn median(&self, case: &str, condition: &str, metric: &str) -> Option<f64> {
        statistics::median(&self.values(case, condition, metric))
    }

    fn values(&self, case: &str, condition: &str, metric: &str) -> Vec<f64> {
        let of = |run: &&Observation| run.is_of_case(Some(case), condition);
        self.observations.iter().filter(of).filter_map(|run| run.value(metric)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::metric;
    use crate::observe::observation::Provenance;
    use crate::scenario::{Workload, overrides};

    const TEXT: &str = "
        name = 't'
        title = 't'
        [workload]
        kind = 'memory'
        [cases.small]
        set = { workload.burst = 1 }
        [cases.large]
        set = { workload.burst = 100 }
        [conditions.a]
        [conditions.b]
        [published]
        source = 's'
        pairs = [
            { metric = 'throughput_per_s', condition = 'b', against = 'a', ratio = 2.0, printed = '+100 %' },
            { case = 'small', metric = 'throughput_per_s', condition = 'b', against = 'a', ratio = 0.5, printed = 'x' },
        ]
        orders = [
            { metric = 'throughput_per_s', rising = ['a', 'b'] },
            { case = 'large', metric = 'throughput_per_s', rising = ['b', 'a'] },
        ]
    ";

    fn observed(case: &str, condition: &str, value: f64) -> Observation {
        Observation {
            case: Some(case.into()),
            metrics: [(metric::THROUGHPUT.to_string(), value)].into(),
            ..Observation::new(condition, 0, Provenance::default())
        }
    }

    #[test]
    fn cases_are_planned_under_all_conditions_and_compared_each_within_itself() {
        let scenario = overrides::read(TEXT, None, &[]).unwrap();
        let plan = scenario.plan().unwrap();
        let of = |case: &str| plan.iter().filter(|run| run.case.as_deref() == Some(case)).count() as u32;
        assert_eq!(
            (of("small"), of("large"), plan.len()),
            (2 * scenario.run.repeat, 2 * scenario.run.repeat, 12)
        );
        let large = plan.iter().find(|run| run.title() == "large, b").unwrap();
        let Workload::Memory(memory) = &large.scenario.workload else { panic!() };
        assert_eq!(memory.burst, 100);
        let runs = vec![
            observed("small", "a", 10.0),
            observed("small", "b", 30.0),
            observed("large", "a", 100.0),
            observed("large", "b", 200.0),
        ];
        let study = Study::new(scenario, runs, None);
        assert!(study.comparisons.is_empty(), "the baseline of one case is none of another");
        let pairs = study.published_pairs();
        assert_eq!(pairs[0].ratio, Some(2.5));
        assert_eq!(pairs[0].verdict, Verdict::between(2.5, pairs[0].published.ratio));
        assert_eq!((pairs[1].ratio, pairs[1].verdict), (Some(3.0), Verdict::OppositeDirection));
        let orders = study.published_orders();
        assert_eq!(
            (&*orders[0].holds, orders[0].fails.len()),
            (&["small".to_string(), "large".into()][..], 0)
        );
        assert_eq!((orders[1].holds.len(), &*orders[1].fails), (0, &["large".to_string()][..]));
        let grid = study.grid(metric::THROUGHPUT).unwrap();
        assert_eq!(grid.rows[1].cells, [[100.0], [200.0]]);
        assert_eq!(study.grid(metric::GP_MEAN), None);
    }

    #[test]
    fn a_case_that_sets_what_there_is_not_is_refused() {
        let refused = |key: &str| {
            let text = TEXT.replace("workload.burst = 100", key);
            overrides::read(&text, None, &[]).unwrap_err().to_string()
        };
        assert!(refused("workload.brust = 1").contains("did you mean workload.burst?"));
        assert!(refused("run.repeat = 1").contains("run.repeat cannot be set"));
        let text = TEXT.replace("case = 'small'", "case = 'tiny'");
        assert!(overrides::read(&text, None, &[]).unwrap_err().to_string().contains("no case \"tiny\""));
    }
}
