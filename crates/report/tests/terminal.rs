//! What the terminal shows: golden text, width, colour, and untrusted text. Accept a wanted change with
//! `INSTA_UPDATE=always`, and look at the difference.

mod support;

use reprieve_report::terminal::{Options, render, render_compare};
use reprieve_study::scenario::{Postmark, Workload};

fn plain(width: usize) -> Options {
    Options { colour: false, width, full: true }
}

#[test]
fn the_whole_output_at_110_columns() {
    insta::assert_snapshot!(render(&support::record(), &plain(110)));
}

/// What is shown unless everything is asked for: it fits a narrow terminal (tables of many schemes do not), and no comparison takes
/// more than 25 lines.
#[test]
fn the_short_form_at_80_columns() {
    for (name, record) in [
        ("real", support::record()),
        ("simulated", support::simulated::record()),
        ("threads", support::threads::record()),
    ] {
        let text = render(&record, &Options { colour: false, width: 80, full: false });
        let wide = text.lines().filter(|line| line.chars().count() > 80).count();
        assert!(wide == 0 || name == "threads", "{text}");
        let compared: usize = record.studies.iter().map(|study| study.comparisons.len().max(1)).sum();
        insta::assert_snapshot!(format!("the_short_form_{name}"), text);
        // What the study was, and what was published, comes on top.
        let lines = text.lines().count();
        assert!(lines <= 25 * compared + 8 * record.studies.len(), "{lines} lines for {compared}");
    }
}

/// A change is claimed only if its interval excludes none, and the runs are enough for a test to tell.
#[test]
fn the_headline_claims_what_the_intervals_carry() {
    let mut record = support::simulated::record();
    let study = &mut record.studies[0];
    let name = study.comparisons[0].condition.clone();
    let row = |study: &mut reprieve_study::Study, values: [&[f64]; 2]| {
        let [base, treated] = values.map(<[f64]>::to_vec);
        study.comparisons.truncate(1);
        study.comparisons[0].rows = vec![reprieve_study::Row::new("gp_mean_ns", base, treated, None, 1)];
        reprieve_report::headline::of(study).into_iter().find(|sentence| sentence.starts_with(&name)).unwrap()
    };
    let clear = row(study, [&[1.0, 1.1, 0.9, 1.0, 1.05], &[2.0, 2.1, 1.9, 2.0, 2.05]]);
    assert!(clear.contains("grace periods lasted 2.00 times as long on average (95 %: "), "{clear}");
    let few = row(study, [&[1.0, 1.1], &[2.0, 2.1]]);
    assert!(
        few.contains("too few runs for a test (--repeat 10); in these, grace periods lasted 1.95 times"),
        "{few}"
    );
    let none = row(study, [&[1.0, 1.1, 0.9, 1.0, 1.05], &[1.0, 1.1, 0.9, 1.05, 0.95]]);
    assert!(none.ends_with("no clear change."), "{none}");
}

#[test]
fn a_simulated_study_at_110_columns() {
    insta::assert_snapshot!(render(&support::simulated::record(), &plain(110)));
}

#[test]
fn all_conditions_side_by_side_at_110_columns() {
    insta::assert_snapshot!(render(&support::threads::record(), &plain(110)));
}

/// One table where there is room for it, and each ratio within its repetition.
#[test]
fn all_conditions_side_by_side_in_one_table() {
    let text = render(&support::threads::record(), &plain(220));
    let table = text.split_once("Side by side").unwrap().1.split_once("Medians over").unwrap().0;
    assert_eq!(table.matches("condition").count(), 1);
    insta::assert_snapshot!(table);
    let mut halved = support::threads::record();
    let first = |run: &&mut reprieve_study::Observation| run.condition == "first" && run.repetition == 2;
    halved.studies[0].observations.iter_mut().filter(first).for_each(|run| run.metrics.clear());
    let without = render(&halved, &plain(220)).split_once("Medians over").unwrap().0.to_string();
    let row = |text: &str| text[text.rfind("\nlate  ").unwrap()..].lines().take(3).collect::<String>();
    assert_ne!(row(table), row(&without), "a repetition without the baseline gives no ratio");
}

/// The writer's lateness and membarrier are shown where a program told them, with how to read them.
#[test]
fn what_keeps_the_writer_is_shown_where_it_is_known() {
    let with = |metrics: &[(&str, f64)]| {
        let mut record = support::threads::record();
        let prompt = |run: &&mut reprieve_study::Observation| run.condition == "prompt";
        for run in record.studies[0].observations.iter_mut().filter(prompt) {
            run.metrics.extend(metrics.iter().map(|(id, value)| (id.to_string(), *value)));
        }
        render(&record, &plain(110))
    };
    let (heading, legend) = ("How long the writer is kept:", "switches are an adaptive domain's");
    let text =
        with(&[("writer_late_mean_ns", 31e6), ("membarrier_p99_ns", 79e6), ("fence_switches_count", 2.0)]);
    let group = text.split_once(heading).expect("the group").1;
    let row = group.lines().find(|line| line.starts_with("prompt ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["prompt", "31.0", "ms", "79.0", "ms", "2.00"]);
    let header = group.lines().find(|line| line.starts_with("condition ")).unwrap();
    assert!(header.contains("late") && !header.contains("latest"), "{header}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).contains(legend));
    let without = with(&[]);
    assert!(!without.contains(heading) && !words(&without).contains(legend));
}

/// A name of a fact that is longer than its column is kept apart from the text.
#[test]
fn a_long_name_of_a_condition_is_kept_apart() {
    let mut record = support::threads::record();
    let study = &mut record.studies[0];
    let name = "a-condition-with-a-long-name";
    let at = study.scenario.conditions.get_index_of("late").unwrap();
    study.scenario.conditions.replace_index(at, name.into()).unwrap();
    study
        .observations
        .iter_mut()
        .filter(|run| run.condition == "late")
        .for_each(|run| run.condition = name.into());
    assert!(render(&record, &plain(110)).contains("\na-condition-with-a-long-name  the scheme late"));
}

#[test]
fn two_records_at_110_columns() {
    insta::assert_snapshot!(render_compare(
        &support::record(),
        &support::slower(1.5),
        ("before", "after"),
        &plain(110)
    ));
}

/// The made-up simulation with its runs said to be those of real guests, a tenth slower.
fn as_if_real() -> reprieve_study::Record {
    let mut record = support::simulated::record();
    for run in &mut record.studies[0].observations {
        run.provenance.ground = "vm, QEMU 0.0.0 (synthetic)".into();
        run.metrics.values_mut().for_each(|value| *value *= 1.1);
    }
    record
}

#[test]
fn a_simulated_record_and_a_real_one_at_110_columns() {
    let (real, simulated) = (as_if_real(), support::simulated::record());
    let text = render_compare(&real, &simulated, ("real", "simulated"), &plain(110));
    let table = |text: &str| text.split_once("\n\n").unwrap().1.to_string();
    insta::assert_snapshot!(text);
    let other_way = render_compare(&simulated, &real, ("simulated", "real"), &plain(110));
    assert_eq!(table(&text), table(&other_way));
    let mut alone = as_if_real();
    alone.studies[0].observations.retain(|run| run.condition == "baseline");
    let text = render_compare(&alone, &simulated, ("real", "simulated"), &plain(110));
    assert!(text.contains("only the baseline has runs of both"), "{text}");
    alone.studies[0].observations.retain(|run| run.sweep.is_some());
    let text = render_compare(&alone, &simulated, ("real", "simulated"), &plain(110));
    assert!(text.contains("no condition has runs of both"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [100, 110, 120, 140, 200] {
        let all = [support::record(), support::simulated::record(), support::threads::record()];
        for line in all.iter().map(|record| render(record, &plain(width))).collect::<String>().lines() {
            let columns = line.chars().count();
            assert!(columns <= width, "{columns} columns of {width}: {line}");
        }
    }
}

#[test]
fn ranges_stand_beside_their_median_where_there_is_room() {
    let median_and_range = "10.5 ms (10.5–10.6)";
    assert!(render(&support::record(), &plain(140)).contains(median_and_range));
    let table = |width| {
        let text = render(&support::record(), &plain(width));
        text.split("neighbours against").next().unwrap().to_string()
    };
    assert!(!table(100).contains(median_and_range));
}

#[test]
fn colour_only_when_asked_for() {
    let coloured = Options { colour: true, width: 110, full: true };
    assert!(render(&support::record(), &coloured).contains('\x1b'));
    assert!(!render(&support::record(), &plain(110)).contains('\x1b'));
}

#[test]
fn untrusted_text_cannot_send_escape_sequences() {
    let mut record = support::record();
    let study = &mut record.studies[0];
    study.scenario.title = "a\x1b[2J".into();
    study.scenario.published.statements = vec!["b\x1b]0;c\x07".into()];
    study.observations[0].provenance.notes = vec!["d\x1b[31m".into()];
    study.comparisons[0].rows[0].published.as_mut().unwrap().printed = "e\x1b[5m".into();
    study.comparisons[0].condition = "f\x1b[5m".into();
    let text = render(&record, &plain(110));
    assert!(
        text.contains(r"a\x1b[2J") && !text.contains(|letter: char| letter.is_control() && letter != '\n')
    );
}

#[test]
fn the_mark_follows_the_adjusted_p_not_the_raw_one() {
    let mut record = support::record();
    let comparison = &mut record.studies[0].comparisons[0];
    comparison.rows.truncate(2);
    (comparison.rows[0].p_value, comparison.rows[0].p_holm) = (Some(0.011), Some(0.022));
    (comparison.rows[1].p_value, comparison.rows[1].p_holm) = (Some(0.044), Some(0.088));
    let text = render(&record, &plain(110));
    assert!(text.contains("0.011*") && text.contains("0.044") && !text.contains("0.044*"), "{text}");
}

#[test]
fn a_record_without_conditions_to_compare_says_so() {
    let mut record = support::record();
    record.studies[0].comparisons.clear();
    assert!(render(&record, &plain(100)).contains("Nothing to compare"));
    let other = support::record_of(vec![]);
    assert_eq!(
        render_compare(&record, &other, ("a", "b"), &plain(100)),
        "The two records have no scenario in common.\n"
    );
}

#[test]
fn published_ratios_without_a_row_are_named() {
    let mut record = support::record();
    let text = render(&record, &plain(110));
    assert!(text.contains("Published but not measured here: CPU time per GP (x2.9)."));
    record.studies[0].comparisons.retain(|comparison| comparison.condition != "overcommitted");
    let text = render(&record, &plain(110));
    assert!(text.contains("for the condition overcommitted, which was not compared"), "{text}");
}

#[test]
fn a_smaller_postmark_says_what_that_means() {
    let mut record = support::record();
    let mut size = |files| {
        let postmark = Postmark { files, transactions: 1_000, ..Postmark::default() };
        record.studies[0].scenario.workload = Workload::Postmark(postmark);
        render(&record, &plain(110))
    };
    assert!(size(8_000).contains("8000 files at the start, published were 128K"));
    assert!(!size(128_000).contains("published were 128K"));
}
