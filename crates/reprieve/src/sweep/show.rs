//! `reprieve sweep show`: a metric over one axis or two, as a table, a page or a figure.

use std::path::Path;

use reprieve_report::surface::{Shows, Surfaced};
use reprieve_report::{figure, html};
use reprieve_sim::VERSION;
use reprieve_study::scenario::Setting;
use reprieve_study::surface::{Question, SpaceRun, Surface};
use reprieve_study::{Metric, metric, overrides, shown};
use reprieve_sweep::part::Ended;
use reprieve_sweep::{Id, Plan, rows};

use crate::cli::sweep::ShowSweep;
use crate::failure::Failure;
use crate::output::{self, Promised};

/// A finished run.
struct Run {
    id: Id,
    point: u64,
    condition: String,
    repetition: u32,
    values: Vec<Setting>,
    /// Of each metric that was asked for.
    measured: Vec<Option<f64>>,
}

/// Runs the verb.
pub fn show(plan: &Plan, arguments: &ShowSweep) -> Result<(), Failure> {
    let metrics = arguments.metrics.iter().map(|id| found(id)).collect::<Result<Vec<_>, _>>()?;
    let (condition, mut baseline) = conditions(plan, arguments)?;
    let page = arguments.html.as_deref().map(Promised::open).transpose()?;
    let svg = arguments.svg.as_deref().map(Promised::open).transpose()?;
    let (mut runs, missing) = finished(plan, &metrics)?;
    if let Some(folder) = &arguments.versus {
        let name = format!("{condition} in {}", shown::line(&folder.display().to_string()));
        runs.retain(|run| run.condition == condition);
        runs.extend(of_another(plan, folder, &condition, &name, &metrics)?);
        baseline = Some(name);
    }
    let space = plan.scenario().space.clone().unwrap_or_default();
    let question = Question { axes: &arguments.by, condition: &condition, baseline: baseline.as_deref() };
    let surface = |number: usize| {
        let runs = runs.iter().map(|run| SpaceRun {
            id: run.id.number(),
            point: run.point,
            condition: &run.condition,
            repetition: run.repetition,
            values: &run.values,
            value: run.measured[number],
        });
        Surface::of(&space, &question, runs, plan.scenario().run.seed)
    };
    let surfaces = (0..metrics.len()).map(surface).collect::<Result<Vec<_>, _>>()?;
    let surfaced = |(metric, surface)| Surfaced {
        scenario: &plan.scenario().name,
        metric,
        axes: arguments
            .by
            .iter()
            .filter_map(|name| space.axes.get_key_value(name))
            .map(|(name, axis)| (&**name, axis))
            .collect(),
        condition: &condition,
        baseline: baseline.as_deref(),
        shows: if baseline.is_some() { Shows::Ratio } else { Shows::Value },
        surface,
    };
    let surfaced: Vec<Surfaced<'_>> = metrics.iter().copied().zip(&surfaces).map(surfaced).collect();
    if let Some(page) = page {
        let facts = format!(
            "Simulated by {}; {} rows are planned, {missing} are missing.",
            plan.simulator(),
            plan.rows()
        );
        let page_text =
            html::render_surfaces(&plan.scenario().title, &surfaced, &facts, &command(plan, arguments));
        page.write(page_text.as_bytes())?;
    }
    if let Some(svg) = svg {
        let drawn = surfaced.first().and_then(figure::surface);
        let drawn =
            drawn.ok_or_else(|| Failure::Failed("nothing was measured that could be drawn".into()))?;
        svg.write(drawn.standalone().as_bytes())?;
    }
    output::print(&surfaced.iter().map(text).collect::<Vec<_>>().join("\n"))
}

/// The finished runs with these metrics, and how many are missing.
fn finished(plan: &Plan, metrics: &[&Metric]) -> Result<(Vec<Run>, u64), Failure> {
    let mut runs: Vec<Run> = Vec::new();
    let missing = rows::each(plan, &|| Ok(()), &mut |entry, ended| {
        let measured = |metric: &&Metric| match ended {
            Ended::Result(values) => values.metrics.get(metric.id).copied(),
            Ended::Error(_) => None,
        };
        runs.push(Run {
            id: entry.id,
            point: entry.point,
            condition: entry.condition.clone(),
            repetition: entry.repetition,
            values: entry.values.clone(),
            measured: metrics.iter().map(measured).collect(),
        });
    })?;
    if missing > 0 {
        let folder = shown::line(&plan.folder().display().to_string()).into_owned();
        output::say(&format!("reprieve: {folder}: {missing} of {} rows are missing", plan.rows()));
    }
    Ok((runs, missing))
}

/// The finished runs of another sweep under a condition, which gets another name.
fn of_another(
    plan: &Plan,
    folder: &Path,
    condition: &str,
    name: &str,
    metrics: &[&Metric],
) -> Result<Vec<Run>, Failure> {
    let other = Plan::open(folder, VERSION)?;
    let points = |plan: &Plan| {
        let seed = plan.scenario().run.seed;
        plan.scenario().space.clone().map(|space| (space.axes, space.sampling, space.points, seed))
    };
    if points(plan) != points(&other) {
        return Err(Failure::Usage(format!(
            "{}: its points are others, so they do not compare; plan both with the same [space] and seed",
            folder.display()
        )));
    }
    let (mut runs, _) = finished(&other, metrics)?;
    runs.retain(|run| run.condition == condition);
    if runs.is_empty() {
        return Err(Failure::Usage(format!(
            "{}: it has no finished run under {condition}",
            folder.display()
        )));
    }
    runs.iter_mut().for_each(|run| run.condition = name.into());
    Ok(runs)
}

fn found(id: &str) -> Result<&'static Metric, Failure> {
    metric::find(id).ok_or_else(|| {
        let near = overrides::nearest(id, metric::ALL.iter().map(|metric| metric.id));
        let hint = near
            .map_or("the columns of the table that `merge` makes are their names".into(), |near| {
                format!("did you mean {near}?")
            });
        Failure::Usage(format!("there is no metric {id:?}; {hint}"))
    })
}

/// The condition, and what it is compared with: by default the last one, with the first one.
fn conditions(plan: &Plan, arguments: &ShowSweep) -> Result<(String, Option<String>), Failure> {
    let known: Vec<&str> = plan.scenario().space_conditions().collect();
    let checked = |name: &String| match known.contains(&name.as_str()) {
        true => Ok(name.clone()),
        false => Err(Failure::Usage(format!(
            "the sweep has no condition {name:?}; there are {}",
            known.join(", ")
        ))),
    };
    let last = known.last().map_or(String::new(), |name| name.to_string());
    let condition = arguments.condition.as_ref().map_or(Ok(last), checked)?;
    let first = known.first().map(|name| name.to_string()).filter(|name| *name != condition);
    let baseline = match &arguments.against {
        Some(name) => Some(checked(name)?),
        None => first,
    };
    Ok((condition, baseline.filter(|_| !arguments.value)))
}

/// The finding, and a table.
fn text(surfaced: &Surfaced<'_>) -> String {
    let lines: Vec<Vec<String>> = [surfaced.heads()].into_iter().chain(surfaced.lines()).collect();
    let columns = lines[0].len();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let row = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    format!(
        "{}.\n\n{}\n{}\n",
        surfaced.title(),
        lines.iter().map(row).collect::<String>(),
        surfaced.caption()
    )
}

fn command(plan: &Plan, arguments: &ShowSweep) -> String {
    let path = |path: &Path| path.display().to_string();
    let mut words: Vec<String> = ["reprieve", "sweep", "show"].map(String::from).into();
    words.push(path(plan.folder()));
    let mut option = |name: &str, value: String| words.extend([name.into(), value]);
    arguments.by.iter().for_each(|axis| option("--by", axis.clone()));
    arguments.metrics.iter().for_each(|metric| option("--metric", metric.clone()));
    arguments.condition.iter().for_each(|name| option("--condition", name.clone()));
    arguments.against.iter().for_each(|name| option("--against", name.clone()));
    arguments.versus.iter().for_each(|folder| option("--versus", path(folder)));
    words.extend(arguments.value.then(|| "--value".into()));
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
