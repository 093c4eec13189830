//! What `reprieve sweep` says.

use std::path::PathBuf;

use indicatif::HumanCount;
use reprieve_study::units;
use reprieve_sweep::shard::Standing;
use reprieve_sweep::status::Status;
use reprieve_sweep::{Id, Plan, Shard};
use serde_json::json;

/// Errors that are shown.
const ERRORS: usize = 10;

pub fn of_plan(plan: &Plan) -> String {
    let folder = plan.folder().display();
    let (rows, runs) = (plan.rows(), plan.runs());
    let same = match rows - runs {
        0 => String::new(),
        same => format!("; {} rows repeat a run of another row", HumanCount(same)),
    };
    format!(
        "{} rows are planned, {} different runs{same}.\nDo them all here:      reprieve sweep run {folder}\nOne of ten shards:     \
         reprieve sweep run {folder} --shard 1/10\n",
        HumanCount(rows),
        HumanCount(runs)
    )
}

pub fn of_run(plan: &Plan, shard: Shard, standing: Standing) -> String {
    let Standing { runs, before, failed, .. } = standing;
    let of = if shard == Shard::ALL { String::new() } else { format!(" of shard {shard}") };
    let earlier =
        if before > 0 { format!("; {} were done before", HumanCount(before)) } else { String::new() };
    let bad = if failed > 0 { format!("; {} failed now", HumanCount(failed)) } else { String::new() };
    let folder = plan.folder().display();
    format!(
        "All {} runs{of} are done{earlier}{bad}.\nWhen all shards are done: reprieve sweep merge {folder}\n",
        HumanCount(runs)
    )
}

pub fn of_damaged(lines: u64) -> String {
    format!(
        "reprieve: {} damaged lines of earlier attempts are left out, and their runs are done again",
        HumanCount(lines)
    )
}

pub fn of_status(plan: &Plan, status: &Status) -> String {
    let Status { runs, done, failed, foreign, damaged, ended_early, .. } = *status;
    let missing = runs - done;
    let left = status
        .left
        .map_or(String::new(), |left| format!(", about {} left", units::duration(left.as_nanos() as f64)));
    let mut text = match missing {
        0 => format!("All {} runs are done", HumanCount(runs)),
        _ => format!(
            "{} of {} runs are done, {} are missing{left}",
            HumanCount(done),
            HumanCount(runs),
            HumanCount(missing)
        ),
    };
    text += &match failed {
        0 => ".\n".into(),
        _ => format!("; {} finished runs failed.\n", HumanCount(failed)),
    };
    for part in &status.running {
        let by = part.attempt.as_ref().map_or(String::new(), |attempt| {
            format!("shard {} on {} (process {}), ", attempt.shard, attempt.host, attempt.pid)
        });
        text += &format!("running: {by}{} runs so far\n", HumanCount(part.runs));
    }
    for (error, runs) in status.errors.iter().take(ERRORS) {
        text += &format!("failed, {} times: {error}\n", HumanCount(*runs));
    }
    if status.errors.len() > ERRORS {
        text += "... and other errors: the table has them all\n";
    }
    if damaged > 0 {
        text += &format!("{} lines are damaged; their runs are done again\n", HumanCount(damaged));
    }
    if foreign > 0 {
        text += &format!("{} finished runs are not of this plan, and are left out\n", HumanCount(foreign));
    }
    if ended_early > 0 && missing > 0 {
        text += &format!("{} attempts ended before their shard was done\n", HumanCount(ended_early));
    }
    let folder = plan.folder().display();
    text + &match missing {
        0 => format!("The table: reprieve sweep merge {folder}\n"),
        _ => format!("The rest:  reprieve sweep run {folder}\n"),
    }
}

pub fn json(status: &Status) -> String {
    let running = status.running.iter().map(|part| {
        json!({ "file": part.path.display().to_string(), "runs": part.runs, "shard": part.attempt.as_ref().map(|attempt| attempt.shard.to_string()) })
    });
    let object = json!({
        "rows": status.rows,
        "runs": status.runs,
        "done": status.done,
        "failed": status.failed,
        "errors": status.errors,
        "foreign": status.foreign,
        "damaged": status.damaged,
        "ended_early": status.ended_early,
        "running": running.collect::<Vec<_>>(),
        "left_s": status.left.map(|left| left.as_secs()),
    });
    format!("{object}\n")
}

pub fn of_table(files: &[PathBuf], rows: u64, failed: u64) -> String {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    format!("{} rows, {} of them failed runs: {}\n", HumanCount(rows), HumanCount(failed), files.join(", "))
}

pub fn of_missing(plan: &Plan, runs: u64, first: &[Id]) -> String {
    let mut ids: Vec<String> = first.iter().map(Id::to_string).collect();
    if (ids.len() as u64) < runs {
        ids.push("...".into());
    }
    format!(
        "no table is made: {} of {} runs are missing; do them with: reprieve sweep run {}\n{}",
        HumanCount(runs),
        HumanCount(plan.runs()),
        plan.folder().display(),
        ids.join("\n")
    )
}
