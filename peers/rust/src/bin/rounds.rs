//! Compares look-ups or value reads: runs programs in interleaved rounds and tells what each costs beyond the zero of the
//! same round. Machines drift by more than a read costs; a difference within a round does not see it.
//!
//!     rounds --zero value-bare value-arc-swap value-reprieve
//!     rounds --rounds 5 --json FILE --zero lookup-std lookup-papaya lookup-scc -- --threads 2
//!
//! What follows `--` goes to every program. Programs are found beside this one.

use clap::Parser;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Parser)]
#[command(about = "Runs programs in interleaved rounds and prints their cost beyond the zero's")]
struct Arguments {
    /// The program whose cost is subtracted, within each round
    #[arg(long)]
    zero: String,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Write every program's line of every round to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Programs to compare
    #[arg(required = true)]
    programs: Vec<String>,
    /// Options of every program
    #[arg(last = true)]
    options: Vec<String>,
}

/// The median of some numbers, and the least and the greatest.
fn spread(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    ((low + high) / 2.0, all[0], all[all.len() - 1])
}

/// CPU nanoseconds per read or look-up.
fn cost(line: &Value) -> Result<f64, String> {
    let keys = ["/cpu_ns_per_read", "/cpu_ns_per_lookup", "/readers/cpu_ns_per_lookup"];
    let found = keys.iter().find_map(|key| line.pointer(key)?.as_f64());
    found.ok_or_else(|| format!("no {} in {line}", keys.join(" or ")))
}

fn run(program: &Path, options: &[String]) -> Result<Value, String> {
    let failed = |what: String| format!("{}: {what}", program.display());
    let output = Command::new(program).args(options).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// All rounds; each begins with another program.
fn measure(programs: &[PathBuf], arguments: &Arguments) -> Result<Vec<Vec<Value>>, String> {
    let mut rounds = Vec::new();
    for round in 0..arguments.rounds as usize {
        eprintln!("round {} of {}", round + 1, arguments.rounds);
        let mut lines = vec![Value::Null; programs.len()];
        for turn in 0..programs.len() {
            let i = (round + turn) % programs.len();
            lines[i] = run(&programs[i], &arguments.options)?;
        }
        rounds.push(lines);
    }
    Ok(rounds)
}

fn print(names: &[&String], rounds: &[Vec<Value>]) -> Result<(), String> {
    println!("{:<28}{:>10}{:>12}   least to greatest", "CPU ns, medians", "itself", "beyond zero");
    for (i, name) in names.iter().enumerate() {
        let own = rounds.iter().map(|lines| cost(&lines[i])).collect::<Result<Vec<_>, _>>()?;
        let zero = rounds.iter().map(|lines| cost(&lines[0])).collect::<Result<Vec<_>, _>>()?;
        let (median, ..) = spread(own.clone());
        let (beyond, least, greatest) = spread(own.iter().zip(&zero).map(|(own, zero)| own - zero).collect());
        println!("{name:<28}{median:>10.2}{beyond:>12.2}   {least:.2} to {greatest:.2}");
    }
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let names: Vec<_> = std::iter::once(&arguments.zero).chain(&arguments.programs).collect();
    let programs: Vec<_> = names.iter().map(|name| own.with_file_name(name)).collect();
    let rounds = measure(&programs, arguments)?;
    print(&names, &rounds)?;
    if let Some(file) = &arguments.json {
        let record = json!({ "zero": arguments.zero, "options": arguments.options, "rounds": rounds });
        let text = serde_json::to_string_pretty(&record).expect("numbers and strings are JSON") + "\n";
        std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("rounds: {problem}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_between_the_middle_two() {
        assert_eq!(spread(vec![4.0, 1.0, 2.0]), (2.0, 1.0, 4.0));
        assert_eq!(spread(vec![4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
    }

    #[test]
    fn reads_and_look_ups_have_a_cost_and_others_none() {
        assert_eq!(cost(&json!({ "cpu_ns_per_read": 1.5 })), Ok(1.5));
        assert_eq!(cost(&json!({ "cpu_ns_per_lookup": 2 })), Ok(2.0));
        assert!(cost(&json!({ "readers": {} })).is_err());
    }
}
