//! The page: its structure, that it needs nothing from elsewhere, and that text of a record stays text.

mod support;

use reprieve_report::html::render;

/// Headings and summaries with their level, in order.
fn outline(page: &str) -> String {
    let mut lines = Vec::new();
    for part in page.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else { continue };
        let name = tag.split(' ').next().unwrap();
        if ["h1", "h2", "h3", "h4", "th", "summary"].contains(&name) {
            lines.push(format!("{name} {text}"));
        }
    }
    lines.join("\n")
}

#[test]
fn structure() {
    insta::assert_snapshot!(outline(&render(&support::record())));
}

#[test]
fn structure_of_a_simulated_study() {
    insta::assert_snapshot!(outline(&render(&support::simulated::record())));
}

#[test]
fn structure_of_a_study_on_real_threads() {
    insta::assert_snapshot!(outline(&render(&support::threads::record())));
}

#[test]
fn the_vcpu_that_was_the_last_holdout_most_often_has_the_longest_bar() {
    let page = render(&support::simulated::record());
    assert_eq!(page.matches("class=\"bar\"").count(), 3 * 8, "one for each vCPU under each condition");
    assert_eq!(page.matches("<span class=\"bar\" style=\"width:120px\"></span> 40.3 %").count(), 1);
    let mut real = support::record();
    assert!(!render(&real).contains("Last holdouts"), "where it was not counted nothing is said");
    real.studies[0].observations[2].holdouts = vec![0, 3];
    assert!(render(&real).contains("most often: overcommitted vCPU 1 (100 %)"));
}

#[test]
fn elements_are_closed_in_order() {
    let records = [support::record(), support::simulated::record(), support::threads::record()];
    let page = records.map(|record| render(&record)).concat();
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1).filter(|part| !part.starts_with('!')) {
        let name = part.split([' ', '>']).next().unwrap();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed)),
            None if ["meta", "img", "link", "br"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn needs_nothing_from_elsewhere() {
    let page = render(&support::record());
    for reference in ["http", "src=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("prefers-color-scheme:dark"));
    assert!(page.contains("reprieve run synthetic-memory"), "the command is missing");
}

#[test]
fn text_of_a_record_stays_text() {
    let attack = "</style></title>\"'><script>alert(1)</script>&";
    let mut record = support::record();
    record.program = attack.into();
    record.command = attack.into();
    let study = &mut record.studies[0];
    study.ended_early = Some(attack.into());
    study.scenario.name = attack.into();
    study.scenario.title = attack.into();
    study.scenario.published.source = attack.into();
    study.scenario.published.statements = vec![attack.into()];
    let mut conditions = std::mem::take(&mut study.scenario.conditions).into_iter();
    for name in [attack, "overcommitted", "neighbours"] {
        let (_, mut condition) = conditions.next().unwrap();
        condition.label = attack.into();
        study.scenario.conditions.insert(name.into(), condition);
    }
    for run in &mut study.observations {
        if run.condition == "baseline" {
            run.condition = attack.into();
        }
        for text in [
            &mut run.provenance.ground,
            &mut run.provenance.accelerator,
            &mut run.provenance.accelerator_reason,
            &mut run.provenance.kernel,
            &mut run.provenance.host_kernel,
            &mut run.provenance.scheduling_source,
        ] {
            *text = attack.into();
        }
        run.provenance.notes = vec![attack.into()];
    }
    for comparison in &mut study.comparisons {
        comparison.baseline = attack.into();
        comparison.rows[0].published = None;
        for row in comparison.rows.iter_mut().filter_map(|row| row.published.as_mut()) {
            row.printed = attack.into();
        }
    }
    let page = render(&record);
    assert!(!page.contains("<script") && !page.contains("\"'>"), "text became markup");
    assert!(page.matches("&lt;script&gt;").count() > 20, "the text itself is shown");
    for figure in reprieve_report::figure::all(&record.studies[0]) {
        let svg = figure.standalone();
        roxmltree::Document::parse(&svg).unwrap();
        assert!(!svg.contains("<script"));
        assert!(
            figure.slug.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-'),
            "{}",
            figure.slug
        );
    }
}

#[test]
fn a_record_without_studies_is_still_a_page() {
    assert!(render(&support::record_of(vec![])).contains("Run it again"));
}
