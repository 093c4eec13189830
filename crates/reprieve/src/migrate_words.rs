//! The output of `reprieve migrate`: sentences, or with `--json` one object per line. Decisions are data and go to
//! stdout; all other sentences go to stderr.

use std::path::Path;

use reprieve_linux::migrate::{Decision, Notice, Replayed, Restored, Source, Summary};
use reprieve_policy::guard::Advice;
use reprieve_policy::place::Policy;
use reprieve_study::shown;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::migrate::line;
use crate::output;

/// The form of the output.
pub struct Words {
    /// As JSON.
    pub json: bool,
    /// Whether decisions are carried out.
    pub apply: bool,
    /// Whether decisions are printed even then.
    pub verbose: bool,
}

impl Words {
    /// Prints the object, or the sentence to stderr.
    fn say(&self, object: Value, sentence: String) -> Result<(), Failure> {
        match self.json {
            true => json_line(&object),
            false => {
                output::say(&sentence);
                Ok(())
            }
        }
    }

    /// Prints a notice of a run.
    pub fn notice(&self, notice: &Notice) -> Result<(), Failure> {
        match notice {
            Notice::Began { vcpus, source } => {
                let mode =
                    if self.apply { "moving tasks" } else { "advisory: changes nothing without --apply" };
                let (name, hint) = (source.name(), source.hint());
                let sentence = format!("{vcpus} vCPUs; {mode}; I/O tasks are found by {name} ({hint})");
                self.say(
                    json!({"event": "began", "vcpus": vcpus, "apply": self.apply, "source": name}),
                    sentence,
                )
            }
            Notice::Warning(text) => {
                self.say(json!({"event": "warning", "text": text}), format!("warning: {text}"))
            }
            Notice::TakenIn { pid, tid, comm, mask, at_ns } => {
                let task = task(*tid, comm);
                let sentence = format!("managing {task} of process {pid}, allowed on {mask}");
                let mask = mask.to_string();
                self.say(
                    json!({"event": "task", "pid": pid, "tid": tid, "comm": comm, "mask": mask, "at_ns": at_ns}),
                    sentence,
                )
            }
            Notice::Decision { pid, tid, comm, decision } => self.decision(*pid, *tid, comm, decision),
            Notice::Advice { advice, at_ns } => {
                let (name, text) = match advice {
                    Advice::Watch => ("watch", "measuring throughput without moving tasks"),
                    Advice::Act => ("act", "moving tasks"),
                    Advice::Rest => ("rest", "throughput has fallen: masks are restored; trying again later"),
                };
                self.say(json!({"event": "advice", "advice": name, "at_ns": at_ns}), text.into())
            }
            Notice::Lost { values, at_ns } => {
                let sentence = format!(
                    "warning: {values} signals were lost, because this process got too little CPU time"
                );
                self.say(json!({"event": "lost", "values": values, "at_ns": at_ns}), sentence)
            }
        }
    }

    fn decision(&self, pid: i32, tid: i32, comm: &str, decision: &Decision) -> Result<(), Failure> {
        if self.apply && !self.verbose {
            return Ok(());
        }
        if self.json {
            let mut object = object(decision);
            object["pid"] = pid.into();
            object["tid"] = tid.into();
            object["comm"] = comm.into();
            object["applied"] = self.apply.into();
            return json_line(&object);
        }
        let task = task(tid, comm);
        let verb = if self.apply { "moves" } else { "would move" };
        let s = decision.at_ns as f64 / 1e9;
        let (target, reason) = (decision.target(), decision.reason());
        line(&format!("{s:.4} {task} {verb} to {target}: {reason}"))
    }

    /// Prints a decision of a replay.
    pub fn replayed_decision(&self, decision: &Decision) -> Result<(), Failure> {
        match self.json {
            true => json_line(&object(decision)),
            false => {
                let made = &decision.made;
                let (s, why) = (decision.at_ns as f64 / 1e9, made.why.name());
                line(&format!("{s:.4} task {} would move to {}: {why}", made.task, decision.target()))
            }
        }
    }

    /// Prints the result of a replay.
    pub fn replayed(&self, replayed: &Replayed) -> Result<(), Failure> {
        let Replayed { signals, decisions, differs, lost_at_line } = replayed;
        let same = if differs.is_none() { "the same as recorded" } else { "not all as recorded" };
        let lost = lost_at_line.map_or(String::new(), |line| {
            format!("; the recorder lost signals at line {line}, so the rest was not compared")
        });
        let sentence = format!("{signals} signals, {decisions} decisions, {same}{lost}");
        let same = differs.is_none();
        self.say(
            json!({"event": "replayed", "signals": signals, "decisions": decisions, "same": same}),
            sentence,
        )
    }

    /// Prints the result of restoring masks.
    pub fn restored(&self, restored: &Restored) -> Result<(), Failure> {
        let Restored { restored, untouched, gone, failed, in_doubt } = restored;
        let sentence = format!(
            "{restored} task(s) have their mask again, {untouched} already had it, {gone} have ended, {failed} could not be \
             changed"
        );
        let object = json!({"event": "restored", "restored": restored, "untouched": untouched, "gone": gone, "failed": failed, "in_doubt": in_doubt});
        self.say(object, sentence)?;
        if *in_doubt > 0 {
            output::say(&format!(
                "reprieve: warning: {in_doubt} task(s) descend from moved ones and are bound to one CPU. Either they \
                 inherited that or their user chose it, so they are left as they are. If no user has bound them, run: \
                 reprieve migrate --restore --in-doubt"
            ));
        }
        Ok(())
    }

    /// Prints the summary of a run.
    pub fn summary(&self, summary: &Summary) -> Result<(), Failure> {
        if self.apply {
            self.restored(&summary.restored)?;
        }
        let share = summary.cpu_ns as f64 / summary.ran_ns.max(1) as f64;
        let moves = summary.moves;
        let Summary { decisions, host_gaps, .. } = summary;
        let sentence = format!(
            "{}; {moves} change(s) of affinity; used {:.2} % of one CPU",
            self.verdict(summary),
            share * 100.0
        );
        let object = json!({
            "event": "ended", "moves": moves, "decisions": decisions, "host_gaps": host_gaps, "cpu_share": share
        });
        self.say(object, sentence)
    }

    /// What the run found: whether vCPUs were taken away, and what follows from that.
    fn verdict(&self, summary: &Summary) -> String {
        let s = summary.ran_ns as f64 / 1e9;
        let (gaps, decisions) = (summary.host_gaps, summary.decisions);
        match (gaps, decisions, self.apply) {
            (0, ..) => format!("nobody took a vCPU away in {s:.1} s, so moving tasks would not have helped"),
            (_, 0, _) => format!(
                "the host took vCPUs away {gaps} time(s) in {s:.1} s, but no I/O task was in need of another vCPU"
            ),
            (.., false) => format!(
                "the host took vCPUs away {gaps} time(s) in {s:.1} s; {decisions} move(s) would have kept I/O tasks on \
                 vCPUs that run: add --apply"
            ),
            (.., true) => format!("the host took vCPUs away {gaps} time(s) in {s:.1} s"),
        }
    }

    /// Prints what a run would use.
    pub fn plan(
        &self,
        policy: Policy,
        source: Source,
        vcpus: usize,
        permitted: bool,
        state: &Path,
    ) -> Result<(), Failure> {
        if self.json {
            let (policy, source) = (policy.name(), source.name());
            let object = json!({
                "event": "plan", "vcpus": vcpus, "policy": policy, "source": source, "may_move_all": permitted,
                "state": state.display().to_string(),
            });
            return json_line(&object);
        }
        let may = if permitted { "permitted" } else { "not permitted (run as root or with CAP_SYS_NICE)" };
        line(&format!(
            "{vcpus} vCPUs, a beat thread on each, every 1 to 4 ms\npolicy: {}\nI/O tasks are found by {} ({})\n\
             changing the affinity of any task: {may}\nmasks would be saved in {}",
            policy.name(),
            source.name(),
            source.hint(),
            shown::line(&state.display().to_string())
        ))
    }
}

/// A task in a sentence. The task chooses its name, so that is made safe to print.
fn task(tid: i32, comm: &str) -> String {
    format!("task {tid} ({})", shown::line(comm))
}

/// Prints an object on a line: exact JSON that is safe to print on a terminal.
fn json_line(object: &Value) -> Result<(), Failure> {
    line(&shown::json(&object.to_string()))
}

fn object(decision: &Decision) -> Value {
    let made = &decision.made;
    json!({
        "event": "decision",
        "at_ns": decision.at_ns,
        "task": made.task,
        "from": made.from,
        "to": match made.to {
            reprieve_policy::place::Target::Vcpu(vcpu) => json!(vcpu),
            reprieve_policy::place::Target::Home => json!("home"),
        },
        "why": made.why.name(),
        "left_here_ns": decision.left_here_ns,
        "left_there_ns": decision.left_there_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_says_whether_vcpus_were_taken_away_and_what_to_do() {
        let verdict = |host_gaps, decisions, apply| {
            let words = Words { json: false, apply, verbose: false };
            words.verdict(&Summary { host_gaps, decisions, ran_ns: 2_500_000_000, ..Summary::default() })
        };
        assert!(verdict(0, 0, false).starts_with("nobody took a vCPU away in 2.5 s"));
        assert!(verdict(7, 0, false).contains("away 7 time(s)") && !verdict(7, 0, false).contains("--apply"));
        assert!(
            verdict(7, 3, false)
                .ends_with("3 move(s) would have kept I/O tasks on vCPUs that run: add --apply")
        );
        assert!(!verdict(7, 3, true).contains("--apply"));
    }

    #[test]
    fn a_task_s_name_stays_within_its_sentence() {
        assert_eq!(task(7, "x\nwarning: \x1b[2J"), r"task 7 (x\nwarning: \x1b[2J)");
    }
}
