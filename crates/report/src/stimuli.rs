//! Reports a study whose cases are disturbances by the host, and whose conditions are settings of the guest.
//!
//! A change is clear if its whole interval is further than [`NO_EFFECT`] from 1 and its p-value is below 0.05 after
//! Bonferroni's correction for all settings. Of a setting with too few runs for such a test nothing else is said.

use reprieve_study::comparison::{NO_EFFECT, SIGNIFICANT_BELOW};
use reprieve_study::statistics::{self, Estimate};
use reprieve_study::units::significant;
use reprieve_study::{Row, Study, metric};

use crate::quantity::Spread;
use crate::side_by_side::{Column, Group, SideBySide};

/// The columns of a table: heading and metric.
const COLUMNS: [(&str, &str); 7] = [
    ("GP average", metric::GP_MEAN),
    ("GP p99", metric::GP_P99),
    ("backlog peak", metric::BACKLOG_PEAK),
    ("memory peak", metric::FOOTPRINT_PEAK),
    ("sync average", metric::SYNC_MEAN),
    ("throughput", metric::THROUGHPUT),
    ("user loops", metric::COMPUTING_LOOPS),
];
const THROUGHPUT: &str = "throughput";
/// What a setting may cost where the host does nothing: its name in a sentence, and metric.
const COSTS: [(&str, &str); 2] = [(THROUGHPUT, metric::THROUGHPUT), ("GP average", metric::GP_MEAN)];
/// Settings that a sentence names with their ratios.
const NAMED: usize = 3;

/// Whether a study is of this kind.
pub fn is_of(study: &Study) -> bool {
    let cases = &study.scenario.cases;
    study.scenario.workload.loads_rcu() && cases.values().any(|case| !case.quota.is_empty())
}

/// A group of columns for each case.
pub fn table(study: &Study) -> SideBySide {
    let baseline = study.scenario.baseline();
    let names: Vec<&String> = study.scenario.chosen().map(|(name, _)| name).collect();
    let group = |(case, of_case): (String, Study)| {
        let column = |(name, id): &(&'static str, &'static str)| {
            let metric = metric::find(id)?;
            let cells: Vec<Option<Spread>> = names.iter().map(|name| cell(&of_case, id, name)).collect();
            cells.iter().any(Option::is_some).then_some(Column { name, definition: metric.definition, cells })
        };
        Group { name: case, columns: COLUMNS.iter().filter_map(column).collect() }
    };
    let remarks = vec![
        format!(
            "{baseline}: medians. The others: ratios of medians to {baseline}'s, with their 95 % bootstrap intervals. GP is a \
             grace period; backlog is callbacks that wait for one; sync is synchronize_rcu(), as membarrier() shows it."
        ),
        format!(
            "A change is called clear if its interval is more than 2 % away from 1 and its p is below {SIGNIFICANT_BELOW} after \
             Bonferroni's correction for {} settings.",
            names.len().saturating_sub(1)
        ),
    ];
    let groups = study.of_cases().into_iter().map(group).filter(|group| !group.columns.is_empty()).collect();
    let rows = names.into_iter().cloned().collect();
    SideBySide { title: format!("By case, over {baseline}"), rows, groups, are_apart: true, remarks }
}

/// The baseline's median, or another condition's ratio to it.
fn cell(of_case: &Study, id: &str, condition: &str) -> Option<Spread> {
    if condition == of_case.scenario.baseline() {
        let values: Vec<f64> =
            of_case.runs_of(condition).filter_map(|run| run.metrics.get(id).copied()).collect();
        return Spread::of(metric::find(id)?.unit, &values)
            .map(|spread| Spread { range: String::new(), ..spread });
    }
    let Estimate { value, low, high } = row(of_case, condition, id)?.ratio?;
    let range =
        if low == high { String::new() } else { format!("[{}, {}]", significant(low), significant(high)) };
    Some(Spread { median: significant(value), range })
}

fn row<'a>(of_case: &'a Study, condition: &str, id: &str) -> Option<&'a Row> {
    of_case.comparisons.iter().find(|one| one.condition == condition)?.row(id)
}

/// The answer in sentences, for each case in which the host disturbs the guest.
pub fn sentences(study: &Study) -> Vec<String> {
    let cases = study.of_cases();
    let is_disturbed = |name: &str| study.scenario.cases.get(name).is_some_and(|case| !case.quota.is_empty());
    let calm = cases.iter().find(|(name, _)| !is_disturbed(name)).map(|(_, of_case)| of_case);
    let told = cases.iter().filter(|(name, _)| is_disturbed(name));
    told.flat_map(|(name, of_case)| of_one(name, of_case, calm)).collect()
}

fn of_one(name: &str, of_case: &Study, calm: Option<&Study>) -> Vec<String> {
    let found = Effects::on(metric::GP_P99, of_case);
    if found.is_empty() {
        return Vec::new();
    }
    if found.is_of_few_runs() {
        return vec![format!("{name}: too few runs for a test of any setting (--repeat 10).")];
    }
    let mut said = vec![match found.less.first() {
        None => format!("{name}: no setting clearly shortens the longest grace periods (p99)."),
        Some((best, ratio)) => format!(
            "{name}: {best} helps most: GP p99 x{}{}; {}.",
            significant(ratio.value),
            interval(*ratio),
            cost(best, calm)
        ),
    }];
    let others = |head: &str, effects: &[(&str, Estimate)], with_cost: bool| {
        let one = |(name, ratio): &(&str, Estimate)| {
            let cost = if with_cost { format!(" ({})", cost(name, calm)) } else { String::new() };
            format!("{name} x{}{cost}", significant(ratio.value))
        };
        let named: Vec<String> = effects.iter().take(NAMED).map(one).collect();
        let more = effects.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        (!named.is_empty()).then(|| format!("{head}: {}{more}.", named.join(", ")))
    };
    said.extend(others("Also shorter GP p99", found.less.get(1..).unwrap_or_default(), true));
    said.extend(others("Longer GP p99", &found.more, false));
    if !found.unclear.is_empty() {
        said.push(format!("No clear change of GP p99: {}.", found.unclear.join(", ")));
    }
    if !found.few.is_empty() {
        said.push(format!("Too few runs: {}.", found.few.join(", ")));
    }
    if !found.unmeasured.is_empty() {
        said.push(format!("Not measured: {}.", found.unmeasured.join(", ")));
    }
    let sync = Effects::on(metric::SYNC_MEAN, of_case);
    said.extend(others("Shorter synchronize_rcu()", &sync.less, false));
    said.extend(others("Longer synchronize_rcu()", &sync.more, false));
    vec![said.join(" ")]
}

/// An interval for a sentence. Empty for single runs, which have no interval.
fn interval(Estimate { low, high, .. }: Estimate) -> String {
    if low == high {
        String::new()
    } else {
        format!(" (95 %: {} to {})", significant(low), significant(high))
    }
}

/// The cost of a setting where the host does not disturb the guest.
fn cost(condition: &str, calm: Option<&Study>) -> String {
    let Some(calm) = calm else { return "its cost undisturbed was not measured".into() };
    let settings = settings_of(calm);
    let costs = COSTS.map(|(name, id)| (name, Change::of(row(calm, condition, id), settings)));
    let names = || COSTS.map(|(name, _)| name);
    if costs.iter().all(|(_, change)| matches!(change, Change::Unmeasured)) {
        return format!("undisturbed {} were not measured", names().join(" and "));
    }
    if costs.iter().all(|(_, change)| matches!(change, Change::Unclear)) {
        return format!("undisturbed no clear change of {}", names().join(" or "));
    }
    let said = costs.map(|(name, change)| match change {
        Change::Clear(ratio) => cost_in(name, ratio),
        Change::Unclear => format!("no clear change of {name}"),
        Change::OfFewRuns => format!("too few runs to tell of {name}"),
        Change::Unmeasured => format!("{name} not measured"),
    });
    format!("undisturbed {}", said.join(" and "))
}

fn cost_in(name: &str, ratio: Estimate) -> String {
    match name {
        THROUGHPUT if ratio.value < 1.0 => {
            format!("{} % less {name}", significant((1.0 - ratio.value) * 100.0))
        }
        _ => format!("{name} x{}", significant(ratio.value)),
    }
}

/// The conditions of a case, grouped by their effect on a metric. The largest effect comes first.
#[derive(Default)]
struct Effects<'a> {
    less: Vec<(&'a str, Estimate)>,
    more: Vec<(&'a str, Estimate)>,
    unclear: Vec<&'a str>,
    /// Too few runs for a test.
    few: Vec<&'a str>,
    unmeasured: Vec<&'a str>,
}

impl<'a> Effects<'a> {
    fn on(id: &str, of_case: &'a Study) -> Effects<'a> {
        let (settings, mut found) = (settings_of(of_case), Effects::default());
        for name in of_case.scenario.chosen().skip(1).map(|(name, _)| name.as_str()) {
            match Change::of(row(of_case, name, id), settings) {
                Change::Unmeasured => found.unmeasured.push(name),
                Change::OfFewRuns => found.few.push(name),
                Change::Unclear => found.unclear.push(name),
                Change::Clear(ratio) if ratio.value < 1.0 => found.less.push((name, ratio)),
                Change::Clear(ratio) => found.more.push((name, ratio)),
            }
        }
        found.less.sort_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
        found.more.sort_by(|(_, a), (_, b)| b.value.total_cmp(&a.value));
        found
    }

    /// Whether no setting was measured.
    fn is_empty(&self) -> bool {
        self.is_untested() && self.few.is_empty()
    }

    fn is_of_few_runs(&self) -> bool {
        self.is_untested() && !self.few.is_empty()
    }

    fn is_untested(&self) -> bool {
        self.less.is_empty() && self.more.is_empty() && self.unclear.is_empty()
    }
}

fn settings_of(of_case: &Study) -> usize {
    of_case.scenario.chosen().count().saturating_sub(1).max(1)
}

/// Whether there are enough runs for a test to find anything after the correction.
fn has_enough_runs(row: &Row, settings: usize) -> bool {
    statistics::least_p(row.treated.len(), row.baseline.len()) * (settings as f64) < SIGNIFICANT_BELOW
}

/// What a setting does to a metric.
enum Change {
    Unmeasured,
    OfFewRuns,
    Unclear,
    /// By this ratio to the baseline.
    Clear(Estimate),
}

impl Change {
    fn of(row: Option<&Row>, settings: usize) -> Change {
        let Some((row, ratio)) = row.and_then(|row| Some((row, row.ratio?))) else {
            return Change::Unmeasured;
        };
        if !has_enough_runs(row, settings) {
            return Change::OfFewRuns;
        }
        let is_apart = ratio.low > NO_EFFECT || ratio.high < 1.0 / NO_EFFECT;
        let passes = row.p_value.is_some_and(|p| p * (settings as f64) < SIGNIFICANT_BELOW);
        if is_apart && passes { Change::Clear(ratio) } else { Change::Unclear }
    }
}

#[cfg(test)]
mod tests {
    use reprieve_study::observation::{Provenance, Standing};
    use reprieve_study::{Observation, overrides};

    use super::*;

    const TEXT: &str = "
        name = 't'
        title = 't'
        workload = { kind = 'memory' }
        [cases.calm]
        [cases.kept-off]
        quota = [{ vcpu = 1, percent = 20 }]
        [conditions.none]
        [conditions.good]
        [conditions.idle]
        [conditions.bad]
    ";

    fn run(case: &str, condition: &str, repetition: u32, values: [f64; 3]) -> Observation {
        let mut out = Observation::new(condition, repetition, Provenance::default());
        let ids = [metric::GP_P99, metric::THROUGHPUT, metric::SYNC_MEAN];
        out.metrics = ids.iter().zip(values).map(|(id, value)| (id.to_string(), value)).collect();
        Observation { case: Some(case.into()), standing: Standing::Accepted, ..out }
    }

    /// Values of GP p99, throughput and synchronize_rcu(), as shares of those of `none`. Repetitions differ by 1 %.
    fn study(repeat: u32) -> Study {
        let all = [
            ("calm", "none", [1.0, 1.0, 1.0]),
            ("calm", "good", [1.0, 0.75, 1.0]),
            ("calm", "idle", [1.0, 1.0, 1.0]),
            ("calm", "bad", [1.0, 1.0, 1.0]),
            ("kept-off", "none", [10.0, 1.0, 10.0]),
            ("kept-off", "good", [5.0, 1.0, 10.0]),
            ("kept-off", "idle", [10.0, 1.0, 1.0]),
            ("kept-off", "bad", [30.0, 1.0, 20.0]),
        ];
        let runs = (0..repeat).flat_map(|repetition| {
            let drift = 1.0 + f64::from(repetition % 3) / 100.0;
            all.map(|(case, condition, values)| {
                run(case, condition, repetition, values.map(|value| value * drift))
            })
        });
        Study::new(overrides::read(TEXT, None, &[]).unwrap(), runs.collect(), None)
    }

    #[test]
    fn the_answer_names_what_helps_what_it_costs_and_what_does_nothing() {
        let said = sentences(&study(10));
        let [said] = &said[..] else { panic!("one disturbed case: {said:?}") };
        assert!(said.starts_with("kept-off: good helps most: GP p99 x0.500 (95 %: 0.4"), "{said}");
        assert!(said.contains("; undisturbed 25.0 % less throughput and GP average not measured."), "{said}");
        assert!(said.contains("Longer GP p99: bad x3.00."), "{said}");
        assert!(said.contains("No clear change of GP p99: idle."), "{said}");
        assert!(said.contains("Shorter synchronize_rcu(): idle x0.100."), "{said}");
        assert!(said.ends_with("Longer synchronize_rcu(): bad x2.00."), "{said}");
        let few = sentences(&study(2));
        assert_eq!(few, ["kept-off: too few runs for a test of any setting (--repeat 10)."]);
    }

    #[test]
    fn what_was_not_measured_or_too_seldom_is_not_told_as_no_effect() {
        let mut runs = study(10).observations;
        // Good has no run in the calm case; idle has one in the other one, and bad has none.
        runs.retain(|run| match (run.case.as_deref(), run.condition.as_str()) {
            (Some("calm"), "good") | (Some("kept-off"), "bad") => false,
            (Some("kept-off"), "idle") => run.repetition < 1,
            _ => true,
        });
        let said = sentences(&Study::new(overrides::read(TEXT, None, &[]).unwrap(), runs, None));
        let [said] = &said[..] else { panic!("one disturbed case: {said:?}") };
        assert!(said.contains("; undisturbed throughput and GP average were not measured."), "{said}");
        assert!(said.ends_with("Too few runs: idle. Not measured: bad."), "{said}");
    }

    #[test]
    fn each_case_has_a_table_with_values_of_the_baseline_and_ratios_of_the_others() {
        let side = table(&study(10));
        assert!(side.are_apart);
        assert_eq!(side.rows, ["none", "good", "idle", "bad"]);
        let groups: Vec<&str> = side.groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(groups, ["calm", "kept-off"]);
        let p99 = &side.groups[1].columns[0];
        assert_eq!(p99.name, "GP p99", "the average was not measured");
        let medians: Vec<&str> =
            p99.cells.iter().map(|cell| cell.as_ref().unwrap().median.as_str()).collect();
        assert_eq!(medians, ["10.1 ns", "0.500", "1.00", "3.00"]);
    }

    #[test]
    fn only_a_case_with_a_disturbance_makes_such_a_study() {
        assert!(is_of(&study(1)));
        let calm = TEXT.replace("quota", "label = 'x' #");
        assert!(!is_of(&Study::new(overrides::read(&calm, None, &[]).unwrap(), Vec::new(), None)));
    }
}
