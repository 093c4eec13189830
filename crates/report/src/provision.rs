//! An estimate of memory in words and cells, for terminal and page alike.

use reprieve_study::provision::estimate::{FLOOR_BYTES, Input, Safe};
use reprieve_study::provision::{Against, Basis, Bound, Checked, Provision, Row, against};
use reprieve_study::scenario::Remedy;
use reprieve_study::statistics::Estimate;
use reprieve_study::units::{count, duration, significant, size};

/// Heads of the columns.
pub const HEADER: [&str; 10] = [
    "ratio",
    "remedy",
    "GP average",
    "GP p99",
    "extra p50",
    "extra p95",
    "extra p99.9",
    "largest seen",
    "unusable index",
    "throughput",
];

/// Heads of the columns beside measured runs.
pub const AGAINST_HEADER: [&str; 6] =
    ["condition", "p95 measured", "p95 predicted", "largest measured", "p99.9 predicted, at most", "verdict"];

/// How to read the cells.
pub const READING: &str = "Extra: the highest memory in use of a window beyond the median peak of undisturbed windows. Below each \
                           estimate, or median, its upper bound or its interval (95 %); * the bound is fitted, because there are \
                           too few windows to count it.";

/// One condition's cells: above, and below.
pub fn cells(row: &Row) -> [(String, String); 10] {
    let alone = |text: String| (text, String::new());
    let shown = |estimate: Option<Estimate>, show: fn(f64) -> String| match estimate {
        Some(Estimate { value, low, high }) => (show(value), format!("{} to {}", show(low), show(high))),
        None => alone("-".into()),
    };
    let [p50, p95, p999] = row.extra.map(bound);
    [
        alone(row.label.clone()),
        alone(row.remedy.map_or("-".into(), name)),
        alone(duration(row.gp_mean_ns)),
        alone(duration(row.gp_p99_ns as f64)),
        p50,
        p95,
        p999,
        alone(size(row.extra_largest_bytes)),
        shown(row.unusable_index, significant),
        shown(row.throughput_per_s, |rate| format!("{}/s", count(rate))),
    ]
}

fn bound(bound: Bound) -> (String, String) {
    let mark = if bound.basis == Basis::Fitted { "*" } else { "" };
    (size(bound.value), format!("<= {}{mark}", size(bound.upper)))
}

fn name(remedy: Remedy) -> String {
    reprieve_study::provision::arrange::remedy_name(remedy)
}

/// One measured condition's cells.
pub fn against_cells(checked: &Checked) -> [String; 6] {
    [
        checked.condition.clone(),
        size(checked.measured_p95_bytes),
        size(checked.predicted_p95_bytes),
        size(checked.measured_largest_bytes),
        size(checked.predicted_bound_bytes),
        verdict(checked).into(),
    ]
}

fn verdict(checked: &Checked) -> &'static str {
    match (checked.is_near, checked.is_bounded) {
        (true, true) if checked.is_noise => "agrees: both are noise",
        (true, true) => "agrees",
        (false, true) => "p95 is off",
        (true, false) => "the measured peak is higher",
        (false, false) => "p95 is off, and the measured peak is higher",
    }
}

/// The answer in a few sentences.
pub fn headline(answer: &Provision) -> Vec<String> {
    let mut said: Vec<String> = answer.against.iter().map(against_headline).collect();
    said.extend(match answer.budget_bytes {
        Some(budget) if !answer.safe.is_empty() => safe(answer, budget as f64),
        _ => need(answer).into_iter().collect(),
    });
    said.extend(because(answer));
    said.extend(sensitive(&answer.inputs));
    said
}

/// How to read the cells beside measured runs: how many windows a p95 is of, for its estimator depends on that.
pub fn against_reading(found: &Against) -> String {
    let numbers = |of: fn(&Checked) -> usize| {
        let (least, most) = found
            .checked
            .iter()
            .map(of)
            .fold((usize::MAX, 0), |(least, most), runs| (least.min(runs), most.max(runs)));
        if least < most { format!("{least} to {most}") } else { most.to_string() }
    };
    format!(
        "Extra memory beyond the median undisturbed peak. A p95 of 20 windows or more is counted, one of fewer is of a fitted \
         tail: here {} measured and {} predicted windows.",
        numbers(|one| one.runs),
        numbers(|one| one.predicted_runs)
    )
}

/// What measured runs say of the estimate.
fn against_headline(found: &Against) -> String {
    let (clear, noise): (Vec<&Checked>, Vec<&Checked>) = found.checked.iter().partition(|one| !one.is_noise);
    let right = |of: &[&Checked]| of.iter().filter(|one| one.is_near && one.is_bounded).count();
    format!(
        "Of {} measured conditions with clear extra memory, {} agree: the p95 is within a factor of {}, and no measured peak is \
         above the upper bound of p99.9. Of {} more, predicted and measured p95 are both below {}, which is noise{}.{}",
        clear.len(),
        right(&clear),
        against::FACTOR,
        noise.len(),
        size(found.floor_bytes),
        match noise.len() - right(&noise) {
            0 => String::new(),
            off => format!("; but {off} of them had a higher peak"),
        },
        match &found.left_out[..] {
            [] => String::new(),
            names => format!(
                " {} more left out, because the simulator cannot do them or they have no two measured peaks: {}.",
                names.len(),
                names.join(", ")
            ),
        }
    )
}

fn risk(answer: &Provision) -> String {
    // 99.9, not 99.90000000000001.
    let share = format!("{:.3}", answer.risk * 100.0);
    format!("p{}", share.trim_end_matches('0').trim_end_matches('.'))
}

/// The highest safe ratios, and why no higher one is.
fn safe(answer: &Provision, budget: f64) -> Vec<String> {
    let spare = size(budget);
    let plain = |safe: &&Safe| safe.remedy.is_none();
    let mut said = Vec::new();
    if let Some(found) = answer.safe.iter().find(plain) {
        let up_to = found
            .ratio
            .map(|ratio| answer.rows.iter().find(|row| row.ratio == Some(ratio) && row.remedy.is_none()));
        said.push(match (found.ratio, up_to.flatten()) {
            (Some(ratio), Some(row)) => format!(
                "With {spare} to spare this VM is safe up to {ratio} busy vCPUs per pCPU{}: there its memory peaks at most {} \
                 above the undisturbed peak ({} of windows of {}).",
                if found.is_largest { ", the most that was simulated" } else { "" },
                size(row.extra_at_risk.upper),
                risk(answer),
                duration(answer.window_ns as f64)
            ),
            _ => format!("With {spare} to spare this VM is safe at none of these ratios ({}).", risk(answer)),
        });
    }
    for found in answer.safe.iter().filter(|safe| safe.remedy.is_some()) {
        let remedy = found.remedy.map_or(String::new(), name);
        said.push(match found.ratio {
            Some(ratio) => format!("With {remedy} it is safe up to {ratio}."),
            None => format!("With {remedy} it is safe at none of them."),
        });
    }
    said
}

/// The largest need, where no budget is given.
fn need(answer: &Provision) -> Option<String> {
    let plain = answer.rows.iter().filter(|row| row.remedy.is_none());
    let most = plain.max_by(|a, b| a.extra_at_risk.upper.total_cmp(&b.extra_at_risk.upper))?;
    let of = |row: &Row| match row.ratio {
        Some(ratio) => format!("at {ratio} busy vCPUs per pCPU"),
        None => format!("under {}", row.label),
    };
    let same = |row: &&Row| row.ratio == most.ratio && row.label == most.label && row.remedy.is_some();
    let with: Vec<String> = answer
        .rows
        .iter()
        .filter(same)
        .map(|row| {
            format!("; with {} {}", row.remedy.map_or(String::new(), name), size(row.extra_at_risk.upper))
        })
        .collect();
    Some(format!(
        "This VM needs up to {} beyond its undisturbed peak, {} ({} of windows of {}, upper bound){}.",
        size(most.extra_at_risk.upper),
        of(most),
        risk(answer),
        duration(answer.window_ns as f64),
        with.concat()
    ))
}

/// Why the need is what it is: memory that waits is the rate of frees times the length of grace periods.
fn because(answer: &Provision) -> Option<String> {
    let base = &answer.undisturbed;
    let plain = answer.rows.iter().filter(|row| row.remedy.is_none() && row.condition != base.condition);
    let most = plain.max_by(|a, b| a.extra_median.value.total_cmp(&b.extra_median.value))?;
    let rate = most.throughput_per_s?.value / base.throughput_per_s?.value;
    let longer = most.gp_mean_ns / base.gp_mean_ns;
    (rate.is_finite() && longer.is_finite()).then(|| {
        format!(
            "Under {} grace periods last {} times as long on average (p99 {}), while the VM does {} times as much.",
            most.ratio.map_or(most.label.clone(), |ratio| format!("ratio {ratio}")),
            significant(longer),
            duration(most.gp_p99_ns as f64),
            significant(rate)
        )
    })
}

/// Which input matters most.
fn sensitive(inputs: &[Input]) -> Option<String> {
    let moved = |input: &Input| (input.after_bytes - input.before_bytes).abs();
    let most = inputs.iter().max_by(|a, b| moved(a).total_cmp(&moved(b)))?;
    let of = most.of.replace('-', " ");
    if moved(most) < FLOOR_BYTES {
        return Some(format!(
            "At {of} no input that was varied moves the median of extra memory by more than {}.",
            size(FLOOR_BYTES)
        ));
    }
    Some(format!(
        "Of the inputs that were varied at {of}, {} would change it most: the median of extra memory is {} in place of {}.",
        most.what,
        size(most.after_bytes),
        size(most.before_bytes)
    ))
}
