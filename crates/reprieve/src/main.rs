//! The command: parse, choose a ground, run, render. Nothing else.

// They panic where stdout or stderr is closed or full: `output` writes to both.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backlog;
mod boost;
mod catalog;
mod cli;
mod compare;
mod doctor;
mod dry_run;
mod explain;
mod export;
mod failure;
mod grounds;
mod guests;
mod hindsight;
mod input;
mod list;
mod look;
mod migrate;
mod migrate_words;
mod output;
mod plan;
mod profile;
mod progress;
mod record;
mod record_file;
mod report;
mod run;
mod sizes;
mod sweep;
mod tapes;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use cli::{Cli, Verb};
use failure::Failure;
use reprieve_linux::{hogs, proc::ProcRoot, warden};

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => dispatch(cli.verb),
        Err(told) if told.use_stderr() => {
            output::say_lines(told.to_string().trim_end());
            return ExitCode::from(2);
        }
        // Help and the version are output like any other.
        Err(told) => output::print_help(&told.render()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(&format!("reprieve: {failure}"));
            failure.code()
        }
    }
}

fn dispatch(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::List { scenarios } => output::print(&list::list(&scenarios)?),
        Verb::Show { scenario } => output::print(&catalog::text(&scenario)?),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Sweep { verb } => sweep::sweep(&verb),
        Verb::Compare(arguments) => compare::compare(&arguments),
        Verb::Report(arguments) => report::report(&arguments),
        Verb::Record(arguments) => record::record(&arguments),
        Verb::Plan(arguments) => plan::plan(&arguments),
        Verb::Profile(arguments) => profile::profile(&arguments),
        Verb::Migrate(arguments) => migrate::migrate(&arguments),
        Verb::Boost(arguments) => boost::boost(&arguments),
        Verb::Backlog(arguments) => backlog::backlog(&arguments),
        Verb::Explain(arguments) => explain::explain(&arguments),
        Verb::Watch(arguments) => watch::watch(&arguments),
        Verb::Export(arguments) => export::export(&arguments),
        Verb::Doctor => doctor::doctor(),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "reprieve", &mut text);
            output::print_made(&String::from_utf8_lossy(&text))
        }
        Verb::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text).map_err(Failure::output)?;
            output::print_made(&String::from_utf8_lossy(&text))
        }
        Verb::Warden => {
            warden::run(std::io::stdin(), &ProcRoot::default());
            Ok(())
        }
        Verb::Hog => hogs::spin(),
    }
}
