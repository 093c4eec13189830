//! `reprieve plan`: a profile or a scenario in, how much memory it needs at each overcommit ratio out.

use std::path::Path;
use std::time::{Duration, Instant};

use reprieve_report::{html, provision, terminal};
use reprieve_study::provision::arrange::{self, Arranged, Wishes};
use reprieve_study::provision::estimate::Asked;
use reprieve_study::provision::{Against, Profile, Provision, beyond, profile};
use reprieve_study::scenario::{BadScenario, Remedy, Setting};
use reprieve_study::{GroundKind, Scenario, Study, Workload, metric, overrides};

use crate::cli::PlanArguments;
use crate::failure::Failure;
use crate::output::{self, Promised};
use crate::progress::Shown;
use crate::{catalog, grounds, input, record_file};

/// Length of the run that tells how long the others take, in ms.
const PILOT_MS: u64 = 500;

/// Runs the verb.
pub fn plan(arguments: &PlanArguments) -> Result<(), Failure> {
    let planned = Planned::read(arguments)?;
    if arguments.dry_run {
        return output::print(&planned.dry_run(arguments.jobs)?);
    }
    let promise = |path: &Option<std::path::PathBuf>| path.as_deref().map(Promised::open).transpose();
    let (json, page) = (promise(&arguments.json)?, promise(&arguments.html)?);
    let study = simulate(planned.arranged.scenario.clone(), arguments.jobs, arguments.quiet)?;
    let answer = planned.answer(&study, arguments)?;
    output::first_failure([
        json.map_or(Ok(()), |json| json.write(answer.to_json().as_bytes())),
        page.map_or(Ok(()), |page| {
            page.write(html::render_provision(&answer, &command(arguments)).as_bytes())
        }),
        output::print_made(&terminal::render_provision(&answer, &output::options(false))),
    ])?;
    let wrong = answer.against.as_ref().map_or(0, |against| against.wrong().count());
    match wrong {
        0 => Ok(()),
        wrong => Err(Failure::Failed(format!("{wrong} measured condition(s) do not agree with the plan"))),
    }
}

/// What is to be simulated, and what for.
struct Planned {
    source: String,
    profile: Option<Profile>,
    measured: Option<Study>,
    arranged: Arranged,
}

impl Planned {
    fn read(arguments: &PlanArguments) -> Result<Planned, Failure> {
        let (source, profile, base) = base(arguments)?;
        let measured = arguments.against.as_deref().map(|path| record_file::study(path, None)).transpose()?;
        if let Some(measured) = &measured {
            measured.scenario.of_case(case_of(&measured.scenario, arguments))?;
        }
        let wishes = Wishes {
            ratios: arguments.ratios.clone(),
            remedies: arguments.remedies.as_deref().map(remedies).transpose()?,
            varied: !arguments.no_inputs,
            repeat: arguments.repeat,
            seed: arguments.seed,
        };
        let arranged = match &measured {
            Some(measured) => {
                arrange::as_measured(&base, measured, case_of(&measured.scenario, arguments), &wishes)?
            }
            None => arrange::ratios(&base, &wishes)?,
        };
        Ok(Planned { source, profile, measured, arranged })
    }

    /// What would be simulated, and how long it takes by one run that is shorter.
    fn dry_run(&self, jobs: Option<u16>) -> Result<String, Failure> {
        let scenario = &self.arranged.scenario;
        let mut text = format!("plan for {}\n", self.source);
        for name in scenario.conditions.keys() {
            text += &format!("  {name}\n");
        }
        let mut pilot = scenario.clone();
        (pilot.run.repeat, pilot.run.warmup_ms, pilot.run.window_ms) = (1, 0, PILOT_MS);
        let names = scenario.conditions.keys();
        let last = names.clone().next_back().filter(|_| names.len() > 1);
        pilot.run.conditions = names.take(1).chain(last).cloned().collect();
        let tried = pilot.run.conditions.len() as f64;
        let started = Instant::now();
        simulate(pilot, Some(1), true)?;
        let is_fixed_work = matches!(scenario.workload, Workload::Postmark(_));
        let simulated_ms = scenario.run.warmup_ms + scenario.run.window_ms;
        let times = if is_fixed_work { 1.0 } else { simulated_ms as f64 / PILOT_MS as f64 };
        let (runs, jobs) = (scenario.runs(), jobs.map_or_else(grounds::pcpus, usize::from));
        let seconds = started.elapsed().as_secs_f64() / tried * times * runs as f64 / jobs as f64;
        let seconds = Duration::from_secs_f64(seconds.min(1e9)).as_secs().max(1);
        text += &format!(
            "{runs} runs, {jobs} at a time: about {seconds} s, by a short run of the first and the last condition\n"
        );
        Ok(text)
    }

    /// What the finished runs say.
    fn answer(&self, study: &Study, arguments: &PlanArguments) -> Result<Provision, Failure> {
        let asked =
            Asked { source: self.source.clone(), risk: arguments.risk, budget_bytes: arguments.budget };
        let mut answer = Provision::of(study, &self.arranged.cells, &asked)?;
        if let Some(measured) = &self.measured {
            answer.against = Some(Against::of(&answer, measured, case_of(&measured.scenario, arguments))?);
        }
        let peaks = study.observations.iter().filter_map(|run| run.value(metric::FOOTPRINT_PEAK));
        let peak_bytes = peaks.fold(0.0, f64::max);
        answer.flags = beyond::flags(&answer, &study.scenario, self.profile.as_ref(), peak_bytes);
        answer.headline = provision::headline(&answer);
        Ok(answer)
    }
}

/// The case, if the scenario has some: only one of plan's two inputs may have them.
fn case_of<'a>(scenario: &Scenario, arguments: &'a PlanArguments) -> Option<&'a str> {
    arguments.case.as_deref().filter(|_| !scenario.cases.is_empty())
}

/// What to plan for: its source, its profile if it has one, and its scenario, of whose conditions nothing is used.
fn base(arguments: &PlanArguments) -> Result<(String, Option<Profile>, Scenario), Failure> {
    let name = &arguments.input;
    let (source, profile, base) = if name.ends_with(".json") {
        let bad = |error: BadScenario| Failure::Usage(format!("{name}: {error}"));
        let text = input::read_text(Path::new(name), profile::FILE_BYTES, "profile")?;
        if arguments.case.is_some() && arguments.against.is_none() {
            return Err(Failure::Usage(
                "--case: a profile has none; it was chosen when the profile was made".into(),
            ));
        }
        let profile = Profile::from_json(&text).map_err(bad)?;
        let scenario = profile.scenario().map_err(bad)?;
        (profile.source.clone(), Some(profile), scenario)
    } else {
        let scenario = catalog::read(name, Some(GroundKind::Sim), &[])?;
        let given = arguments.case.as_deref();
        // With --against it may be the record's alone.
        let case = if arguments.against.is_some() { case_of(&scenario, arguments) } else { given };
        let of_case = case.map_or(String::new(), |case| format!(", case {case}"));
        (format!("scenario {}{of_case}", scenario.name), None, scenario.of_case(case)?)
    };
    let mut settings = Vec::new();
    for assignment in &arguments.assignments {
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(Failure::Usage(format!("{assignment}: write it as key=value")));
        };
        settings.push((key.trim(), Setting::parse(value.trim())));
    }
    let base = overrides::apply(&base, settings.iter().map(|(key, value)| (*key, value)))?;
    Ok((source, profile, base))
}

/// The remedies of these names.
fn remedies(names: &[String]) -> Result<Vec<Remedy>, Failure> {
    if names == ["none"] {
        return Ok(Vec::new());
    }
    let known: Vec<String> = Remedy::ALL.iter().map(|remedy| arrange::remedy_name(*remedy)).collect();
    let find = |name: &String| {
        let found = known.iter().position(|known| known == name).map(|index| Remedy::ALL[index]);
        found.ok_or_else(|| {
            Failure::Usage(format!(
                "--remedies: there is no {name:?}; there are {}, and none for no remedy",
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

fn simulate(scenario: Scenario, jobs: Option<u16>, quiet: bool) -> Result<Study, Failure> {
    let ready = grounds::prepare(vec![scenario], jobs)?.remove(0);
    let mut shown = Shown::new("plan", quiet);
    let finished = ready.run(&mut shown);
    drop(shown);
    match finished.error {
        Some(failure) => Err(failure),
        None => Ok(Study::new(finished.scenario, finished.observations, None)),
    }
}

/// The command that makes the answer again, without the names of its outputs.
fn command(arguments: &PlanArguments) -> String {
    let mut words = vec![format!("reprieve plan {}", arguments.input)];
    match &arguments.against {
        Some(record) => words.push(format!("--against {}", record.display())),
        None => {
            let ratios: Vec<String> = arguments.ratios.iter().map(f64::to_string).collect();
            words.push(format!("--ratios {}", ratios.join(",")));
        }
    }
    words.extend(arguments.remedies.iter().map(|names| format!("--remedies {}", names.join(","))));
    words.extend(arguments.case.iter().map(|case| format!("--case {case}")));
    words.extend(arguments.budget.map(|bytes| format!("--budget {}KiB", bytes >> 10)));
    words.push(format!("--risk p{}", arguments.risk * 100.0));
    words.extend(arguments.assignments.iter().map(|assignment| format!("--set '{assignment}'")));
    words.extend(arguments.no_inputs.then(|| "--no-inputs".to_string()));
    words.push(format!("--repeat {} --seed {}", arguments.repeat, arguments.seed));
    words.join(" ")
}
