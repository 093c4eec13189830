//! The scoreboard of remedies, from made-up runs whose medians are round: what is said first, and what stands in no table
//! as recovered.

use reprieve_report::{figure, headline, recovery, terminal};
use reprieve_study::{Observation, Provenance, Record, Study, metric, overrides};

const TEXT: &str = "
    name = 'remedies'
    title = 't'
    [workload]
    kind = 'memory'
    [cases.many]
    [cases.few]
    [conditions.nothing]
    overcommit = 1.5
    [conditions.boost]
    overcommit = 1.5
    remedies = ['boost']
    [conditions.all]
    overcommit = 1.5
    remedies = ['boost', 'short-slices']
    [conditions.oracle]
    overcommit = 1.5
    remedies = ['oracle']
    [conditions.undisturbed]
";

fn study() -> Study {
    // 99th percentile of grace periods, peak footprint, throughput, kernel CPU, neighbours. Few has no index of
    // fragmentation.
    let cells = [
        ("many", "nothing", [160.0, 400.0, 100.0, 0.5, 0.8]),
        ("many", "boost", [20.0, 200.0, 98.0, 0.5, 0.8]),
        ("many", "all", [10.0, 100.0, 90.0, 0.6, 0.78]),
        ("many", "oracle", [10.0, 100.0, 100.0, 0.5, 0.8]),
        ("many", "undisturbed", [5.0, 100.0, 100.0, 0.5, 1.0]),
        ("few", "nothing", [80.0, 100.0, 100.0, 0.5, 0.8]),
        ("few", "boost", [80.0, 50.0, 100.0, 0.5, 0.8]),
        ("few", "all", [40.0, 150.0, 100.0, 0.5, 0.8]),
        ("few", "oracle", [20.0, 100.0, 100.0, 0.5, 0.8]),
        ("few", "undisturbed", [20.0, 25.0, 100.0, 0.5, 1.0]),
    ];
    let ids = [
        metric::GP_P99,
        metric::FOOTPRINT_PEAK,
        metric::THROUGHPUT,
        metric::KERNEL_CPU,
        metric::NEIGHBOUR_CPU,
    ];
    let runs = cells.iter().flat_map(|(case, condition, values)| {
        (0..4).map(move |repetition| Observation {
            case: Some(case.to_string()),
            metrics: ids
                .iter()
                .map(|id| id.to_string())
                .zip(values.iter().copied())
                .chain((*case == "many").then(|| (metric::UNUSABLE_PEAK.to_string(), 0.25)))
                .collect(),
            ..Observation::new(condition, repetition, Provenance::default())
        })
    });
    Study::new(overrides::read(TEXT, None, &[]).unwrap(), runs.collect(), None)
}

#[test]
fn the_headline_has_the_least_of_all_remedies_and_of_each() {
    let said = headline::of(&study());
    assert_eq!(
        said,
        [
            "Of the distance from nothing to the oracle, all remedies together recover at least 50 % in 2 of 2 workloads \
             (95 %: 50 to 50; least under few) for the 99th percentile of grace periods; at least 100 % in 1 of 2 workloads \
             (95 %: 100 to 100; least under many) for the footprint's peak.",
            "The smallest share of the way to the oracle over the workloads with a clear distance, of the 99th percentile of grace \
             periods and of the footprint's peak: boost 0 % and 50 %.",
            "Not counted, because the distance to the oracle is not clear: the footprint's peak under few.",
            "The worst harm where the distance to the oracle is not clear, against nothing: the footprint's peak x1.50 (95 %: 1.50 to 1.50) with all \
             under few.",
            "With all remedies, neighbour VMs lose at most 2.5 % (95 %: 2.5 to 2.5; most under many) of their CPU time.",
        ]
    );
}

#[test]
fn the_tables_keep_what_is_not_recovered() {
    let tables = recovery::tables(&study().recovery().unwrap());
    let [p99, peak, costs] = &tables[..] else { panic!() };
    assert_eq!(p99.header, ["remedy", "smallest share [95 %]", "under", "many", "few"]);
    assert_eq!(p99.rows[1], ["boost", "0 % [0, 0]", "few", "75 %", "0 %"]);
    assert_eq!(peak.rows[0], ["nothing over the oracle", "", "", "x4.00", "(x1.00)"]);
    assert_eq!(peak.rows[2], ["all", "100 % [100, 100]", "many", "100 %", "(x1.50)"]);
    assert_eq!(peak.rows[3], ["undisturbed", "100 % [100, 100]", "many", "100 %", "(x0.250)"]);
    assert_eq!(p99.rows[3], ["undisturbed", "100 % [100, 100]", "few", "125 %", "100 %"]);
    assert_eq!(costs.header[2], "Kernel CPU utilisation per operation, more [95 %]");
    assert_eq!(
        costs.rows[1][1..],
        [
            "10.0 % [10.0, 10.0] many",
            "33.3 % [33.3, 33.3] many",
            "2.5 % [2.5, 2.5] many",
            "0.0 % [0.0, 0.0] many in 1 of 2 workloads"
        ]
    );
}

#[test]
fn terminal_and_figure_show_them() {
    let study = study();
    let figure = figure::recovered(&study).unwrap();
    assert_eq!(
        figure.title,
        "All remedies recover at least 50 % of GP p99 in 2 of 2, 100 % of peak footprint in 1 of 2 workloads"
    );
    assert_eq!(figure.slug, "remedies-recovered");
    let record = Record { schema_version: 1, program: "".into(), command: "".into(), studies: vec![study] };
    for full in [false, true] {
        let text = terminal::render(&record, &terminal::Options { colour: false, width: 100, full });
        let shown = |title: &str| text.contains(title);
        assert!(shown("to the oracle: GP duration, p99") && shown("What it costs"), "{text}");
        // The page and the whole output have the cases in full.
        assert_eq!(shown("Case many"), full, "{text}");
    }
}
