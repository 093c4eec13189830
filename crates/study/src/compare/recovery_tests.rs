//! Exact cases of [`super`]: all runs of a condition are equal, so that every interval is a point.

use super::*;
use crate::observe::observation::Provenance;
use crate::scenario::overrides;

const TEXT: &str = "
    name = 't'
    title = 't'
    [workload]
    kind = 'memory'
    [cases.many]
    [cases.few]
    workload = { kind = 'clone', workers = 1 }
    [conditions.nothing]
    overcommit = 1.5
    [conditions.boost]
    overcommit = 1.5
    remedies = ['boost']
    [conditions.short-slices]
    overcommit = 1.5
    set = { host.slice_us = 1_000 }
    [conditions.oracle]
    overcommit = 1.5
    remedies = ['oracle']
    [conditions.undisturbed]
";

/// Runs of one cell: case, condition, and values of the two scored metrics.
fn cell(case: &str, condition: &str, [p99, peak]: [f64; 2]) -> Vec<Observation> {
    let run = |repetition| Observation {
        case: Some(case.into()),
        metrics: [(metric::GP_P99.to_string(), p99), (metric::FOOTPRINT_PEAK.to_string(), peak)].into(),
        ..Observation::new(condition, repetition, Provenance::default())
    };
    (0..4).map(run).collect()
}

fn all_cells() -> Vec<Observation> {
    [
        cell("many", "nothing", [160.0, 900.0]),
        cell("many", "boost", [20.0, 300.0]),
        cell("many", "short-slices", [160.0, 2_700.0]),
        cell("many", "oracle", [10.0, 100.0]),
        cell("many", "undisturbed", [1.0, 1.0]),
        cell("few", "nothing", [80.0, 100.0]),
        cell("few", "boost", [10.0, 50.0]),
        cell("few", "short-slices", [40.0, 50.0]),
        cell("few", "oracle", [20.0, 100.0]),
    ]
    .concat()
}

fn recovery(observations: &[Observation]) -> Recovery {
    Recovery::of(&overrides::read(TEXT, None, &[]).unwrap(), observations).unwrap()
}

fn rounded(estimate: &Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| {
        assert!((estimate.low - estimate.high).abs() < 1e-9, "{estimate:?}");
        (estimate.value * 1e9).round() / 1e9
    })
}

#[test]
fn a_share_is_of_effects() {
    // 160 to 10 is four halvings; 20 is three of them.
    let rounded = |medians| share(medians).map(|share| (share * 1e9).round() / 1e9);
    assert_eq!(rounded(&[160.0, 20.0, 10.0]), Some(0.75));
    assert_eq!(rounded(&[160.0, 160.0, 10.0]), Some(0.0));
    assert_eq!(rounded(&[160.0, 320.0, 10.0]), Some(-0.25));
    assert_eq!(rounded(&[160.0, 5.0, 10.0]), Some(1.25));
    assert_eq!(
        (share(&[10.0, 5.0, 10.0]), share(&[10.0, 5.0, 20.0]), share(&[0.0, 5.0, 1.0])),
        (None, None, None)
    );
}

#[test]
fn of_each_remedy_the_smallest_share_counts() {
    let found = recovery(&all_cells());
    assert_eq!((found.nothing.as_str(), found.boards[0].ideal), ("nothing", Remedy::Oracle));
    assert_eq!(found.workloads, ["many", "few"]);
    let p99 = &found.boards[0];
    let shares: Vec<(&str, Vec<Option<f64>>)> = p99
        .remedies
        .iter()
        .map(|one| (one.condition.as_str(), one.shares.iter().map(rounded).collect()))
        .collect();
    let expected = [("boost", vec![Some(0.75), Some(1.5)]), ("short-slices", vec![Some(0.0), Some(0.5)])];
    assert_eq!(shares, expected, "neither the oracle nor what is undisturbed is scored");
    // 160 to 1 is 1.83 of 160 to 10.
    let [undisturbed] = &p99.references[..] else { panic!() };
    assert_eq!(undisturbed.condition, "undisturbed");
    assert_eq!(rounded(&undisturbed.shares[0]), Some(((160_f64).ln() / (16_f64).ln() * 1e9).round() / 1e9));
    assert_eq!((undisturbed.shares[1], undisturbed.smallest.clone()), (None, None), "not measured in few");
    assert!(p99.remedies.iter().all(|one| one.smallest.as_ref().unwrap().of == 2));
    let smallest: Vec<&str> =
        p99.remedies.iter().map(|one| one.smallest.as_ref().unwrap().workload.as_str()).collect();
    assert_eq!(smallest, ["many", "many"]);
    assert_eq!(rounded(&Some(p99.remedies[0].smallest.as_ref().unwrap().value)), Some(0.75));
}

#[test]
fn where_the_oracle_is_no_better_nothing_counts_as_recovered() {
    let found = recovery(&all_cells());
    let peak = &found.boards[1];
    assert_eq!(found.unclear(peak).collect::<Vec<_>>(), ["few"]);
    assert_eq!(rounded(&peak.distances[1].ratio), Some(1.0));
    let [boost, slices] = &peak.remedies[..] else { panic!() };
    // Boosts halved that peak: it is not counted.
    assert_eq!(boost.shares.iter().map(rounded).collect::<Vec<_>>(), [Some(0.5), None]);
    assert_eq!(boost.smallest.as_ref().unwrap().workload, "many");
    assert_eq!(rounded(&slices.shares[0]), Some(-0.5));
}

#[test]
fn too_few_runs_make_no_distance() {
    let mut few = all_cells();
    few.retain(|run| run.repetition < 3);
    let found = recovery(&few);
    assert!(found.boards.iter().all(|board| board.distances.iter().all(|distance| !distance.is_clear)));
    assert!(found.boards[0].remedies.iter().all(|one| one.smallest.is_none()));
}

#[test]
fn a_remedy_that_was_not_measured_everywhere_has_no_smallest_share() {
    let mut runs = all_cells();
    runs.retain(|run| run.condition != "boost" || run.case.as_deref() != Some("few"));
    let board = &recovery(&runs).boards[0];
    assert_eq!((board.remedies[0].smallest.clone(), board.remedies[0].shares[1]), (None, None));
    assert!(board.remedies[1].smallest.is_some());
}

#[test]
fn the_interval_of_the_smallest_share_is_over_all_workloads() {
    // Two workloads with the same runs: the smaller one of two draws is below one draw.
    let spread = |case: &str| {
        let runs = |condition: &str, values: [f64; 5]| -> Vec<Observation> {
            values.iter().flat_map(|value| cell(case, condition, [*value, 1.0]).into_iter().take(1)).collect()
        };
        let treated = runs("boost", [20.0, 30.0, 40.0, 50.0, 60.0]);
        [runs("nothing", [160.0; 5]), treated, runs("oracle", [10.0; 5])].concat()
    };
    let board = &recovery(&[spread("many"), spread("few")].concat()).boards[0];
    let (one, smallest) = (board.remedies[0].shares[0].unwrap(), board.remedies[0].smallest.clone().unwrap());
    assert_eq!((one.value, smallest.workload.as_str()), (smallest.value.value, "many"));
    assert!(smallest.value.low <= one.low && smallest.value.high <= one.high, "{one:?} {smallest:?}");
}

#[test]
fn the_largest_cost_counts() {
    let metrics = |run: Observation, [rate, kernel, neighbour, unusable]: [f64; 4]| Observation {
        metrics: [
            (metric::THROUGHPUT, rate),
            (metric::KERNEL_CPU, kernel),
            (metric::NEIGHBOUR_CPU, neighbour),
            (metric::UNUSABLE_PEAK, unusable),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into(),
        ..run
    };
    let cell = |case: &str, condition: &str, values: [f64; 4]| -> Vec<Observation> {
        cell(case, condition, [1.0; 2]).into_iter().map(|run| metrics(run, values)).collect()
    };
    let runs = [
        cell("many", "nothing", [100.0, 0.5, 0.8, 0.1]),
        cell("many", "boost", [80.0, 0.5, 0.8, 0.2]),
        cell("few", "nothing", [100.0, 0.5, 0.8, 0.0]),
        cell("few", "boost", [125.0, 0.5, 0.6, 0.3]),
    ];
    let cost = &recovery(&runs.concat()).costs[0];
    let largest: Vec<(&str, usize, f64)> = cost
        .largest
        .iter()
        .flatten()
        .map(|worst| (worst.workload.as_str(), worst.of, rounded(&Some(worst.value)).unwrap()))
        .collect();
    assert_eq!(
        (cost.condition.as_str(), largest),
        // As much kernel CPU for four fifths of the operations; no ratio to an index of 0.
        ("boost", vec![("many", 2, 0.2), ("many", 2, 0.25), ("few", 2, 0.25), ("many", 1, 1.0)])
    );
}

#[test]
fn where_the_distance_is_unclear_harm_is_told_by_its_ratio_to_nothing() {
    let mut runs = all_cells();
    let harmed =
        |run: &&mut Observation| run.condition == "short-slices" && run.case.as_deref() == Some("few");
    for run in runs.iter_mut().filter(harmed) {
        run.metrics.insert(metric::FOOTPRINT_PEAK.into(), 300.0);
    }
    let found = recovery(&runs);
    let [p99, peak] = &found.boards[..] else { panic!() };
    let ratios: Vec<Option<f64>> = peak.remedies.iter().map(|one| rounded(&one.ratios[1])).collect();
    assert_eq!(ratios, [Some(0.5), Some(3.0)]);
    let (condition, Worst { workload, of, value }) = found.worst_harm(peak).unwrap();
    assert_eq!(
        (condition, workload.as_str(), of, rounded(&Some(value))),
        ("short-slices", "few", 1, Some(3.0))
    );
    assert_eq!(found.worst_harm(p99), None, "both distances are clear");
    let unharmed = recovery(&all_cells());
    assert_eq!(unharmed.worst_harm(&unharmed.boards[1]), None);
}

#[test]
fn a_condition_that_a_case_s_quota_disturbs_is_scored() {
    let quota = "[cases.few]\n    quota = [{ vcpu = 1, percent = 20 }]";
    let scenario = overrides::read(&TEXT.replace("[cases.few]", quota), None, &[]).unwrap();
    let board = &Recovery::of(&scenario, &all_cells()).unwrap().boards[0];
    let names: Vec<&str> = board.remedies.iter().map(|one| one.condition.as_str()).collect();
    assert_eq!((names, board.references.len()), (vec!["boost", "short-slices", "undisturbed"], 0));
}

#[test]
fn each_ideal_has_its_boards_and_is_a_reference_on_the_other_s() {
    let even = "[conditions.even]\n    overcommit = 1.5\n    remedies = ['even-share']\n    [conditions.undisturbed]";
    let scenario = overrides::read(&TEXT.replace("[conditions.undisturbed]", even), None, &[]).unwrap();
    let runs =
        [all_cells(), cell("many", "even", [40.0, 100.0]), cell("few", "even", [20.0, 100.0])].concat();
    let found = Recovery::of(&scenario, &runs).unwrap();
    let ideals: Vec<(Remedy, &str)> = found.boards.iter().map(|board| (board.ideal, board.metric)).collect();
    let expected = Remedy::IDEALS.iter().flat_map(|ideal| SCORED.map(|metric| (*ideal, metric)));
    assert_eq!(ideals, expected.collect::<Vec<_>>());
    let of_boost = |board: &Board| rounded(&board.remedies[0].shares[0]);
    // 160 to 20: three of the four halvings to the oracle, and of the two to an even share.
    assert_eq!([of_boost(&found.boards[0]), of_boost(&found.boards[2])], [Some(0.75), Some(1.5)]);
    let references =
        |board: &Board| board.references.iter().map(|one| one.condition.clone()).collect::<Vec<_>>();
    assert_eq!(references(&found.boards[0]), ["undisturbed", "even"]);
    assert_eq!(references(&found.boards[2]), ["undisturbed", "oracle"]);
    assert!(found.boards.iter().all(|board| board.remedies.len() == 2), "no ideal is scored");
}

#[test]
fn only_a_scenario_with_an_oracle_has_a_scoreboard() {
    let text = TEXT.replace("remedies = ['oracle']", "remedies = ['oracle', 'boost']");
    assert_eq!(Recovery::of(&overrides::read(&text, None, &[]).unwrap(), &all_cells()), None);
}
