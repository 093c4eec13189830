//! The figures: well-formed, every label on the drawing and clear of every other, and nothing drawn that was
//! not measured.

mod support;

use reprieve_report::figure;
use reprieve_study::observation::{FOOTPRINT, GP_DURATIONS, GP_OVER_TIME};
use reprieve_study::{Record, Study};

/// A box around a text, by generous estimates of a 12 px letter.
#[derive(Debug)]
struct Label {
    text: String,
    left: f64,
    right: f64,
    base: f64,
}

impl Label {
    fn overlaps(&self, other: &Label) -> bool {
        self.left < other.right && other.left < self.right && (self.base - other.base).abs() < 11.0
    }
}

fn labels(svg: &str) -> Vec<Label> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| {
            let number = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
            let text = node.text().unwrap_or_default().to_string();
            let letter =
                if node.attribute("style").is_some_and(|style| style.contains("11px")) { 6.6 } else { 6.9 };
            let width = text.chars().count() as f64 * letter;
            let left = match node.attribute("text-anchor") {
                Some("end") => number("x") - width,
                Some("middle") => number("x") - width / 2.0,
                _ => number("x"),
            };
            let moved = if node.parent_element().unwrap().has_tag_name("g") { 30.0 } else { 0.0 };
            Label { text, left, right: left + width, base: number("y") + moved }
        })
        .collect()
}

fn check(svg: &str) {
    let document = roxmltree::Document::parse(svg).unwrap();
    let height: f64 = document.root_element().attribute("height").unwrap().parse().unwrap();
    let labels = labels(svg);
    assert!(labels.len() > 5 && labels.iter().all(|label| !label.text.is_empty()));
    for (index, label) in labels.iter().enumerate() {
        assert!(label.left >= 0.0 && label.right <= 770.0, "off the drawing: {label:?}");
        assert!(label.base >= 10.0 && label.base <= height - 2.0, "off the drawing: {label:?}");
        let other = labels[..index].iter().find(|other| other.overlaps(label));
        assert!(other.is_none(), "{label:?} on {other:?}");
    }
    for number in ["NaN", "inf"] {
        assert!(!svg.contains(number), "{number} in the drawing");
    }
}

/// The synthetic study with all durations, sizes and ratios changed by a factor.
fn stretched(factor: f64) -> Study {
    let mut study = support::record().studies.remove(0);
    for run in &mut study.observations {
        for timeline in run.timelines.values_mut() {
            timeline.values.iter_mut().for_each(|value| *value *= factor);
        }
        if run.condition != "baseline" {
            run.metrics.values_mut().for_each(|value| *value *= factor);
        }
    }
    Study::new(study.scenario, study.observations, None)
}

#[test]
fn every_figure_is_well_formed_and_its_labels_are_clear_of_each_other() {
    let figures = figure::all(&support::record().studies[0]);
    let slugs: Vec<&str> = figures.iter().map(|figure| figure.slug.as_str()).collect();
    insta::assert_snapshot!(slugs.join("\n"));
    for figure in &figures {
        check(&figure.standalone());
        assert!(figure.caption.contains("6.1.0-synthetic") && figure.caption.contains("2 vCPUs"));
    }
}

#[test]
fn a_sweep_is_a_figure_and_a_part_of_a_loss_is_none() {
    let mut study = support::simulated::record().studies.remove(0);
    let figures = figure::all(&study);
    let slugs: Vec<&str> = figures.iter().map(|figure| figure.slug.as_str()).collect();
    insta::assert_snapshot!(slugs.join("\n"));
    for figure in &figures {
        let svg = figure.standalone();
        check(&svg);
        assert!(!svg.contains("without-"), "{svg}");
        assert!(
            figure.caption.contains(" Simulated: 8 vCPUs") && figure.caption.contains("; 8 pCPUs, CFS; ")
        );
    }
    let svg = figure::sweep(&study, "rate").unwrap().standalone();
    // Three panels, two conditions, six values; every value has its tick.
    assert_eq!(svg.matches("<circle").count(), 36);
    let texts: Vec<String> = labels(&svg).into_iter().map(|label| label.text).collect();
    assert!(["0", "10", "30", "100", "300", "1000"].iter().all(|value| texts.contains(&value.to_string())));
    study.observations.retain(|run| run.sweep.is_none());
    assert!(figure::sweep(&study, "rate").is_none() && figure::sweep(&study, "no such sweep").is_none());
}

#[test]
fn many_conditions_are_lines_with_their_names_beside_them() {
    let mut study = support::threads::record().studies.remove(0);
    let figures = figure::all(&study);
    let slugs: Vec<&str> = figures.iter().map(|figure| figure.slug.as_str()).collect();
    assert_eq!(slugs, ["synthetic-threads-delay-readers", "synthetic-threads-published"]);
    figures.iter().for_each(|figure| check(&figure.standalone()));
    let svg = figures[0].standalone();
    assert!(
        figures[0].caption.contains("real threads on 2 CPUs, Linux 6.12.0-synthetic; 8 readers on CPU 0")
    );
    let texts: Vec<String> = labels(&svg).into_iter().map(|label| label.text).collect();
    // 12 of 13 conditions free something; all values of the sweep have a dot.
    let named = |name: &String| texts.iter().filter(|text| *text == name).count();
    let names: Vec<String> = study.scenario.conditions.keys().cloned().collect();
    assert!(names[..12].iter().all(|name| named(name) == 1) && named(&names[12]) == 0, "{texts:?}");
    assert_eq!(svg.matches("<circle").count(), 12 * 4);
    assert!(["1 us", "1 ms", "100 ms"].iter().all(|tick| texts.contains(&tick.to_string())), "{texts:?}");
    study.observations.iter_mut().for_each(|run| run.metrics.retain(|id, _| id != "delay_p50_ns"));
    assert!(figure::delay(&study, "readers").is_none() && figure::delay(&study, "no such sweep").is_none());
}

#[test]
fn published_ratios_stand_beside_those_of_their_condition_alone() {
    let mut study = support::record().studies.remove(0);
    let svg = figure::published(&study).unwrap().standalone();
    let texts: Vec<String> = labels(&svg).into_iter().map(|label| label.text).collect();
    let has = |text: &str| texts.iter().any(|label| label == text);
    assert!(has("Throughput") && has("overcommitted") && !has("neighbours") && !has("GP duration, median"));
    // One for each published ratio that was measured here or not, and the legend's.
    let rows = study.comparisons[0].rows.iter().filter(|row| row.published.is_some()).count();
    assert_eq!(svg.matches("class=\"reference\"").count(), rows + 1);
    study.scenario.published.ratios.clear();
    let unpublished = Study::new(study.scenario, study.observations, None);
    assert!(figure::published(&unpublished).is_none() && figure::ratios(&unpublished).is_some());
}

#[test]
fn whatever_the_magnitude() {
    for factor in [1e-9, 0.01, 0.37, 70.0, 1e7] {
        for figure in figure::all(&stretched(factor)) {
            check(&figure.standalone());
        }
    }
}

#[test]
fn the_check_of_labels_can_fail() {
    let svg = figure::footprint(&support::record().studies[0]).unwrap().standalone();
    let crowded = svg.replacen("<g ", "<text x=\"12\" y=\"24\">on top</text><g ", 1);
    assert!(std::panic::catch_unwind(|| check(&crowded)).is_err());
}

#[test]
fn what_was_not_measured_is_not_drawn() {
    let mut study = support::record().studies.remove(0);
    for run in &mut study.observations {
        run.timelines.remove(FOOTPRINT);
        run.distributions.remove(GP_DURATIONS);
    }
    assert!(figure::footprint(&study).is_none());
    assert!(figure::footprint_and_gp(&study, "overcommitted").is_none());
    assert!(figure::gp_distribution(&study).is_none());
    assert!(figure::backlog(&study).is_some());
    assert!(figure::footprint_and_gp(&study, "no such condition").is_none());
    study.comparisons.clear();
    assert!(figure::ratios(&study).is_none() && figure::published(&study).is_none());
    let empty = Study::new(study.scenario, Vec::new(), None);
    assert!(figure::all(&empty).is_empty());
}

#[test]
fn a_compact_record_on_disk_gives_the_same_set_of_figures() {
    let record = support::record();
    let read = Record::from_json(&record.compact().to_json()).unwrap();
    let slugs = |record: &Record| -> Vec<String> {
        figure::all(&record.studies[0]).into_iter().map(|figure| figure.slug).collect()
    };
    assert_eq!(slugs(&record), slugs(&read));
}

#[test]
fn a_redone_run_is_never_shown() {
    let mut study = support::record().studies.remove(0);
    let redone = study.observations.iter_mut().find(|run| !run.standing.counts()).unwrap();
    // Were it shown, it would stretch the axis.
    redone.timelines.get_mut(GP_OVER_TIME).unwrap().values[0] = 1e15;
    let svg = figure::footprint_and_gp(&study, "baseline").unwrap().standalone();
    assert!(svg.contains("each at its end, ms"), "{svg}");
}
