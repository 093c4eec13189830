//! Figures of a guest that means harm: any number in any metric and in any series. Whatever they are, the output is made,
//! and within bounds.

mod support;

use reprieve_report::html;
use reprieve_report::terminal::{self, Options};
use reprieve_study::{Record, Study};

/// What a guest can say, or an observation can hold that is made of it; JSON has no other numbers.
const WILD: [f64; 12] = [
    0.0,
    -1.0,
    f64::MIN_POSITIVE,
    1e-9,
    0.999_999_999_999,
    1e15,
    9.223_372_036_854_776e18,
    1.844_674_407_370_955_2e19,
    1e300,
    f64::MAX,
    f64::MIN,
    -1e-300,
];
/// Some times the output of an ordinary record.
const OUTPUT_BYTES: usize = 8 << 20;

/// A record in which every `nth` figure is wild.
fn wild(value: f64, nth: usize) -> Record {
    let mut record = support::record();
    let (mut count, study) = (0, record.studies.remove(0));
    let mut strike = |place: &mut f64| {
        count += 1;
        if count % nth == 0 {
            *place = value;
        }
    };
    let mut observations = study.observations;
    for observation in &mut observations {
        observation.metrics.values_mut().for_each(&mut strike);
        observation.timelines.values_mut().flat_map(|series| &mut series.values).for_each(&mut strike);
        observation.provenance.missed_gps = u64::MAX;
        observation.provenance.samples = u64::MAX;
    }
    record.studies.push(Study::new(study.scenario, observations, None));
    record
}

#[test]
fn any_figures_are_shown() {
    for value in WILD {
        // All of them, and some among others.
        for nth in [1, 3, 7] {
            let record = wild(value, nth);
            let text = terminal::render(&record, &Options { colour: false, width: 110, full: true });
            let page = html::render(&record);
            let compared = terminal::render_compare(
                &record,
                &support::record(),
                ("a", "b"),
                &Options { colour: false, width: 110, full: true },
            );
            assert!(text.contains(&format!("{} grace periods began", u64::MAX)), "{text}");
            for output in [&text, &page, &compared] {
                assert!(output.len() < OUTPUT_BYTES, "{value}, each {nth}th: {} bytes", output.len());
            }
        }
    }
}
