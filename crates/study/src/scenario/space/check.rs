//! Refuses spaces that cannot be run, before anything is expanded. Whether each point can be run, and whether each key has an
//! effect, is known once all of them are expanded: see [`super::expand`].

use super::points::MOST_SOBOL_POINTS;
use super::{Axis, Range, Sampling, Scale, Space};
use crate::observe::metric;
use crate::scenario::check::{OF_ONE_RUN, bad, of_one_run, refuse_if, within};
use crate::scenario::{GroundKind, Result, Scenario, Setting, limits};

impl Scenario {
    /// Refuses a space that is too large, or whose axes contradict each other.
    pub(in crate::scenario) fn check_space(&self) -> Result {
        let Some(space) = &self.space else { return Ok(()) };
        let problem = "only simulated runs repeat exactly; run the space with ground = \"sim\"";
        refuse_if(self.ground != GroundKind::Sim, "space", problem)?;
        let problem = "[space] and [cases] exclude each other; make the cases' keys axes";
        refuse_if(!self.cases.is_empty(), "space", problem)?;
        let replays = self.conditions.iter().find(|(_, condition)| !condition.replay.is_empty());
        if let Some((name, _)) = replays {
            return bad(format!("conditions.{name}.replay"), "a space cannot replay recordings; remove it");
        }
        within("space.axes", space.axes.len(), 1, limits::AXES)?;
        self.check_names("space.conditions", &space.conditions)?;
        let twice = space
            .conditions
            .iter()
            .enumerate()
            .find(|(number, name)| space.conditions[..*number].contains(name));
        refuse_if(twice.is_some(), "space.conditions", "names a condition twice")?;
        for (name, axis) in &space.axes {
            self.check_axis(space, name, axis)?;
        }
        self.check_keys(space)?;
        space.check_size()?;
        let runs = self.space_runs();
        let problem =
            format!("points by conditions by run.repeat are {runs} runs, more than {}", limits::SPACE_RUNS);
        refuse_if(runs > limits::SPACE_RUNS, "space", problem)
    }

    /// Number of runs of the space, those that are the same run counted several times.
    pub fn space_runs(&self) -> u64 {
        let Some(space) = &self.space else { return 0 };
        let conditions = self.space_conditions().count() as u64;
        space.size().saturating_mul(conditions).saturating_mul(self.run.repeat.into())
    }

    /// The conditions that are run at each point.
    pub fn space_conditions(&self) -> impl Iterator<Item = &str> {
        let named = self.space.iter().flat_map(|space| &space.conditions);
        let has_none = self.space.as_ref().is_none_or(|space| space.conditions.is_empty());
        let chosen = self.chosen().map(|(name, _)| name).filter(move |_| has_none);
        named.chain(chosen).map(String::as_str)
    }

    /// Refuses axes that give one key two values.
    fn check_keys(&self, space: &Space) -> Result {
        for condition in self.space_conditions() {
            let mut keys: Vec<(String, &String)> =
                space.axes.iter().map(|(name, axis)| (axis.key.replace('*', condition), name)).collect();
            keys.sort();
            if let Some(pair) = keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let problem = format!("{} is the key of {} and of {}", pair[0].0, pair[0].1, pair[1].1);
                return bad("space.axes", problem);
            }
        }
        Ok(())
    }

    fn check_axis(&self, space: &Space, name: &str, axis: &Axis) -> Result {
        let at = |key: &str| format!("space.axes.{name}.{key}");
        let is_known = of_one_run(&axis.key) || axis.key.starts_with("conditions.");
        let problem = format!(
            "{:?} cannot be varied; choose a key under conditions., {}",
            axis.key,
            OF_ONE_RUN.join(", ")
        );
        refuse_if(!is_known, at("key"), problem)?;
        let is_words = axis.key == "observe.rows" || axis.key.ends_with(".label");
        refuse_if(is_words, at("key"), format!("{:?} changes no run", axis.key))?;
        let is_finite = axis.values.iter().all(|value| value.number().is_none_or(f64::is_finite));
        refuse_if(!is_finite, at("values"), "every number must be finite")?;
        let problem = "is taken: the table that is made has a column of that name";
        let is_taken = COLUMNS.contains(&name) || metric::find(name).is_some();
        refuse_if(is_taken, format!("space.axes.{name}"), problem)?;
        match &axis.range {
            None => within(&at("values"), axis.values.len(), 1, limits::AXIS_VALUES),
            Some(_) if !axis.values.is_empty() => bad(at("range"), "an axis has values or a range, not both"),
            Some(range) => check_range(space, &at("range"), range),
        }
    }
}

/// Columns of the table of results that are of no axis and no metric.
pub const COLUMNS: [&str; 12] = [
    "id",
    "point",
    "condition",
    "repetition",
    "seed",
    "scenario",
    "ground",
    "simulator",
    "events",
    "result_hash",
    "error",
    "note",
];

impl Space {
    fn check_size(&self) -> Result {
        let size = self.size();
        match self.sampling {
            Sampling::Grid => {}
            Sampling::List => {
                let counts: Vec<u64> = self.axes.values().map(Axis::count).collect();
                let problem = format!(
                    "sampling = \"list\" needs equally many values on every axis; there are {counts:?}"
                );
                refuse_if(counts.iter().any(|count| *count != size), "space.axes", problem)?;
            }
            Sampling::Random => within("space.points", size, 1, limits::SPACE_RUNS)?,
            Sampling::Sobol => within("space.points", size, 1, MOST_SOBOL_POINTS)?,
        }
        let counts_itself = matches!(self.sampling, Sampling::Grid | Sampling::List);
        let problem = "has no effect here: a grid and a list have as many points as their values say";
        refuse_if(counts_itself && self.points > 0, "space.points", problem)
    }
}

fn check_range(space: &Space, at: &str, range: &Range) -> Result {
    let Range { from, to, scale, whole, steps } = *range;
    let is_range = from < to && (to - from).is_finite();
    refuse_if(!is_range, at, format!("from {from} must be less than to {to}"))?;
    let problem = "a log scale needs from above 0";
    refuse_if(scale == Scale::Log && from <= 0.0, format!("{at}.from"), problem)?;
    let problem = "with whole = true, from and to must be whole";
    refuse_if(whole && (from.fract() != 0.0 || to.fract() != 0.0), at, problem)?;
    let is_drawn = matches!(space.sampling, Sampling::Random | Sampling::Sobol);
    let at = format!("{at}.steps");
    if is_drawn {
        let problem = "has no effect here: points are drawn from the whole range";
        return refuse_if(steps > 0, at, problem);
    }
    let problem = format!("{steps} is not within 2 to {}", limits::AXIS_VALUES);
    refuse_if(!(2..=limits::AXIS_VALUES as u64).contains(&steps), &at, problem)?;
    let problem = format!("there are fewer than {steps} whole numbers from {from} to {to}");
    refuse_if(whole && (to - from + 1.0) < steps as f64, &at, problem)?;
    // Whole numbers on a log scale lie close together at first, and others are rounded to six digits.
    let values: Vec<Setting> =
        (0..steps).map(|number| range.at(number as f64 / (steps - 1) as f64)).collect();
    let problem = format!("{steps} steps give the same number twice; choose fewer");
    refuse_if(values.windows(2).any(|pair| pair[0] == pair[1]), at, problem)
}

#[cfg(test)]
mod tests {
    use crate::scenario::overrides;

    fn refusal(space: &str) -> String {
        let text = format!(
            "name = 't'
            title = 't'
            workload = {{ kind = 'memory' }}
            [conditions.a]
            [conditions.b]
            {space}"
        );
        overrides::read(&text, None, &[]).map(|_| String::new()).unwrap_or_else(|error| error.to_string())
    }

    fn of_axis(axis: &str) -> String {
        refusal(&format!("[space.axes.x]\n{axis}"))
    }

    #[test]
    fn a_slip_is_refused_with_its_key() {
        assert_eq!(of_axis("key = 'guest.vcpus'\nvalues = [1, 2]"), "");
        assert!(
            of_axis("key = 'run.seed'\nvalues = [1]")
                .starts_with("space.axes.x.key: \"run.seed\" cannot be varied")
        );
        assert_eq!(of_axis("key = 'guest.vcpus'"), "space.axes.x.values: 0 is not within 1 to 100000");
        let ranged = |range: &str| of_axis(&format!("key = 'guest.vcpus'\nrange = {{ {range} }}"));
        assert_eq!(ranged("from = 1, to = 4, whole = true, steps = 4"), "");
        assert!(ranged("from = 4, to = 4").contains("from 4 must be less than to 4"));
        assert!(
            ranged("from = 0, to = 4, scale = 'log', steps = 2").contains("a log scale needs from above 0")
        );
        assert!(ranged("from = 1, to = 4").ends_with("steps: 0 is not within 2 to 100000"));
        assert!(ranged("from = 1, to = 4, whole = true, steps = 5").contains("fewer than 5 whole numbers"));
        assert!(
            ranged("from = 1, to = 8, scale = 'log', whole = true, steps = 8").contains("same number twice")
        );
        assert!(ranged("from = 1.5, to = 4, whole = true, steps = 2").contains("from and to must be whole"));
    }

    #[test]
    fn what_the_sampling_does_not_read_is_refused() {
        let with = |head: &str, axis: &str| {
            refusal(&format!("[space]\n{head}\n[space.axes.x]\nkey = 'guest.vcpus'\n{axis}"))
        };
        assert!(with("points = 3", "values = [1]").starts_with("space.points: has no effect here"));
        let drawn = |head| with(head, "range = { from = 1, to = 4, whole = true }");
        assert_eq!(drawn("sampling = 'random'\npoints = 9"), "");
        assert_eq!(drawn("sampling = 'random'"), "space.points: 0 is not within 1 to 1000000");
        assert_eq!(
            drawn("sampling = 'sobol'\npoints = 65537"),
            "space.points: 65537 is not within 1 to 65536"
        );
        let stepped = with("sampling = 'random'\npoints = 9", "range = { from = 1, to = 4, steps = 2 }");
        assert!(stepped.starts_with("space.axes.x.range.steps: has no effect here"));
        assert!(
            refusal("[space]\nconditions = ['c']\n[space.axes.x]\nkey = 'guest.vcpus'\nvalues = [1]")
                .contains("no condition \"c\"")
        );
        let twice = "[space.axes.x]\nkey = 'conditions.*.overcommit'\nvalues = [1]\n[space.axes.y]\nkey = 'conditions.b.overcommit'\nvalues = [2]";
        assert_eq!(refusal(twice), "space.axes: conditions.b.overcommit is the key of x and of y");
        assert!(of_axis("key = 'conditions.b.label'\nvalues = ['x']").contains("changes no run"));
        assert!(of_axis("key = 'guest.speed'\nvalues = [nan]").contains("must be finite"));
        assert!(refusal("[space]").starts_with("space.axes: 0 is not within 1 to"));
    }
}
