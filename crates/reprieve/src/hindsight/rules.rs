//! What to do when: conditions and actions as the user wrote them.

use reprieve_linux::notify::{Process, signal_named};
use reprieve_policy::threshold::{Measured, Threshold};
use reprieve_study::units;
use rustix::process::Signal;

use crate::cli::HindsightArguments;
use crate::failure::Failure;

/// Most conditions.
const MOST: usize = 64;

/// Something to do.
#[derive(Debug)]
pub enum Action {
    /// Keep the ring.
    Dump,
    /// Signal a process.
    Signal(Process, Signal),
    /// Run a program.
    Run(Vec<String>),
}

/// A condition, and what to do when it begins to hold.
#[derive(Debug)]
pub struct Rule {
    /// The condition.
    pub threshold: Threshold,
    /// The actions, in order.
    pub actions: Vec<Action>,
}

impl Rule {
    /// The actions to do at once, and those that wait for what follows: from the first dump on.
    pub fn split(&self) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let is_dump = |action: &Action| matches!(action, Action::Dump);
        let first = self.actions.iter().position(is_dump).unwrap_or(self.actions.len());
        (0..first, first..self.actions.len())
    }
}

/// The rules of the command line. Each condition goes with the `--then` of the same number.
///
/// # Errors
/// A condition or an action is none, or a process is not there.
pub fn of(arguments: &HindsightArguments) -> Result<Vec<Rule>, Failure> {
    let (conditions, thens) = (&arguments.on_threshold, &arguments.then);
    if conditions.len() > MOST {
        return Err(Failure::Usage(format!("more than {MOST} times --on-threshold")));
    }
    if !thens.is_empty() && thens.len() != conditions.len() {
        let counts = format!("{} times --on-threshold, and {} times --then", conditions.len(), thens.len());
        return Err(Failure::Usage(format!("{counts}; write a --then after each, or none for dumps alone")));
    }
    let rule = |(at, condition): (usize, &String)| {
        let bad = |problem: String| Failure::Usage(format!("--on-threshold {condition}: {problem}"));
        let threshold = condition.parse().map_err(|error| bad(format!("{error}")))?;
        Ok(Rule { threshold, actions: actions(thens.get(at).map_or("dump", String::as_str))? })
    };
    conditions.iter().enumerate().map(rule).collect()
}

fn actions(text: &str) -> Result<Vec<Action>, Failure> {
    let bad = |problem: String| Failure::Usage(format!("--then {text}: {problem}"));
    let (mut actions, mut rest) = (Vec::new(), Some(text));
    while let Some(left) = rest {
        // A program's arguments may have commas.
        if let Some(program) = left.strip_prefix("exec:") {
            let words = shlex::split(program).filter(|words| !words.is_empty());
            let words =
                words.ok_or_else(|| bad("exec: needs a program, and quotes that are closed".into()))?;
            actions.push(Action::Run(words));
            break;
        }
        let (first, others) =
            left.split_once(',').map_or((left, None), |(first, others)| (first, Some(others)));
        actions.push(match first.split(':').collect::<Vec<&str>>()[..] {
            ["dump"] => Action::Dump,
            ["signal", pid, name] => signal(pid, name).map_err(bad)?,
            _ => {
                let known = "dump, signal:PID:USR1 and exec:PROGRAM ARGUMENTS";
                return Err(bad(format!("{first:?} is no action; there are {known}")));
            }
        });
        rest = others;
    }
    Ok(actions)
}

fn signal(pid: &str, name: &str) -> Result<Action, String> {
    let signal = signal_named(name)
        .ok_or_else(|| format!("{name:?} is no signal that can be sent; try USR1, USR2, HUP or TERM"))?;
    let pid = pid.parse().map_err(|_| format!("{pid:?} is no process ID"))?;
    Ok(Action::Signal(Process::find(pid).map_err(|error| error.to_string())?, signal))
}

/// What was measured, in words.
pub fn words(measured: Measured) -> String {
    match measured {
        Measured::Time(ns) => units::duration(ns),
        Measured::Percent(percent) => format!("{} %", units::significant(percent)),
        Measured::Bytes(bytes) => units::size(bytes),
        Measured::Cause(name) => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_in_order_and_a_program_takes_the_rest() {
        let own = std::process::id();
        let read = actions(&format!("signal:{own}:SIGUSR1,dump,exec:notify 'a b',c, d")).unwrap();
        let [Action::Signal(_, Signal::USR1), Action::Dump, Action::Run(words)] = &read[..] else {
            panic!("{read:?}")
        };
        assert_eq!(words, &["notify", "a b,c,", "d"]);
        let rule = Rule { threshold: "off>5%".parse().unwrap(), actions: read };
        assert_eq!(rule.split(), (0..1, 1..3));
    }

    #[test]
    fn what_is_no_action_is_refused() {
        for bad in ["", "dump,", "dumps", "signal:1", "signal:x:USR1", "signal:-1:USR1", "exec:", "exec:'a"] {
            assert!(actions(bad).is_err(), "{bad}");
        }
    }
}
