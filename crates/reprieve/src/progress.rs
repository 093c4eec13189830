//! Telling the user how far things are: a bar on a terminal, a line for each run elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use reprieve_study::ground::{Progress, time_left};
use reprieve_study::observation::{Observation, Standing};
use reprieve_study::{metric, shown, units};

use crate::output;

/// A bar of so many seconds on stderr, if that is a terminal.
pub fn seconds(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} s").expect("a constant template");
    ProgressBar::new(length).with_style(style)
}

/// How many of something are done: a bar on a terminal, elsewhere a line for each tenth, and nothing for what takes no time.
pub struct Counted {
    bar: Option<ProgressBar>,
    what: &'static str,
    total: u64,
    tenths: u64,
    quiet: bool,
    started: Instant,
}

impl Counted {
    /// Of so many.
    pub fn new(total: u64, what: &'static str, quiet: bool) -> Counted {
        Counted::beginning_at(0, total, what, quiet)
    }

    /// Of so many, of which some are done.
    pub fn beginning_at(done: u64, total: u64, what: &'static str, quiet: bool) -> Counted {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template(
                "{bar:30} {human_pos}/{human_len} {prefix} {elapsed}, {eta} left",
            );
            let bar = ProgressBar::new(total).with_position(done).with_prefix(what);
            bar.reset_eta();
            bar.with_style(style.expect("a constant template"))
        });
        let tenths = done * 10 / total.max(1);
        Counted { bar, what, total, tenths, quiet, started: Instant::now() }
    }

    /// So many are done.
    pub fn at(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            return bar.set_position(done);
        }
        let tenths = done * 10 / self.total.max(1);
        if tenths > self.tenths && !self.quiet && self.started.elapsed() > Duration::from_secs(2) {
            self.tenths = tenths;
            output::say(&format!("{} of {} {}", HumanCount(done), HumanCount(self.total), self.what));
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress on stderr.
pub struct Shown {
    bar: Option<ProgressBar>,
    /// Whether only warnings are said.
    quiet: bool,
    scenario: String,
    started: Instant,
}

impl Shown {
    /// For one scenario.
    pub fn new(scenario: &str, quiet: bool) -> Shown {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {elapsed}{msg}");
            let bar = ProgressBar::new(0).with_prefix(shown::line(scenario).into_owned());
            bar.set_style(style.expect("a constant template"));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Shown { bar, quiet, scenario: shown::line(scenario).into_owned(), started: Instant::now() }
    }

    /// So many runs have ended; what goes on now.
    fn place(&self, done: usize, total: usize, now: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            let left = time_left(self.started, done, total).filter(|left| !left.is_zero());
            let left = left.map_or(String::new(), |left| format!(", about {} s left", left.as_secs()));
            bar.set_message(shown::line(&format!("{left}{now}")).into_owned());
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(text)),
            None => output::say(text),
        }
    }
}

impl Progress for Shown {
    fn preparing(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(shown::line(&format!(": {what}")).into_owned()),
            None if self.quiet => {}
            None => output::say(&format!("{}: {what}", self.scenario)),
        }
    }

    fn running(&mut self, number: usize, total: usize, condition: &str, stage: &str) {
        self.place(number - 1, total, &format!(": {condition} {stage}"));
    }

    fn ended(&mut self, number: usize, total: usize, observation: &Observation) {
        let foreign = observation.provenance.foreign_cpu_percent;
        let standing = match observation.standing {
            Standing::Accepted => String::new(),
            Standing::Redone => format!("; others used {foreign:.1} % of the machine, so it is done again"),
            Standing::Kept => format!("; others used {foreign:.1} % of the machine, kept and marked"),
        };
        let result = [(metric::GP_MEAN, "average GP"), (metric::DELAY_P50, "median delay")]
            .into_iter()
            .find_map(|(id, name)| Some((name, observation.metrics.get(id)?)));
        let result = result.map_or(String::new(), |(name, ns)| format!(", {name} {}", units::duration(*ns)));
        let is_news = self.bar.is_none() && !self.quiet || observation.standing != Standing::Accepted;
        if is_news {
            let title = observation.title();
            let title = shown::line(&title);
            self.say(&format!("{}: run {number} of {total}, {title}{result}{standing}", self.scenario));
        }
        self.place(number, total, "");
    }

    fn warning(&mut self, text: &str) {
        self.say(&format!("{}: warning: {text}", self.scenario));
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
