//! `reprieve watch`: who slows this VM down, on a screen, a column a second; or the same of a hindsight record, back and forth in
//! time.
//!
//! | module | does |
//! |---|---|
//! | [`moment`] | a sample as the figures that are shown |
//! | [`verdict`] | the line on top |
//! | [`model`] | what is shown, and what a key changes; no terminal, no clock |
//! | [`scale`], [`draw`] | the model as letters |
//! | [`keys`], [`screen`] | the terminal |
//! | [`replay`] | a record |
//! | [`ndjson`] | the same for machines |

mod draw;
mod keys;
mod model;
mod moment;
mod ndjson;
mod replay;
mod scale;
mod screen;
#[cfg(test)]
mod testing;
mod verdict;

use std::path::Path;

use reprieve_linux::clock;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_study::units::SECOND_NS;

use crate::cli::watch::WatchArguments;
use crate::explain;
use crate::failure::Failure;
use crate::look::{self, Look, Seconds};
use crate::output;
use model::{Model, Source};
use moment::Moment;
use replay::Replay;
use screen::{Screen, Woken};

/// Runs the verb.
pub fn watch(arguments: &WatchArguments) -> Result<(), Failure> {
    if !arguments.ndjson && !screen::is_possible() {
        let way_out = "for machines: reprieve watch --ndjson; or: reprieve explain";
        return Err(Failure::Usage(format!("watch draws on a terminal, and this is none; {way_out}")));
    }
    match (&arguments.record, arguments.ndjson) {
        (Some(record), true) => lines_of_record(record, arguments.at),
        (Some(record), false) => show_record(record, arguments.at),
        (None, true) => lines(arguments),
        (None, false) => show(arguments),
    }
}

/// How this terminal may be written to.
fn terminal() -> scale::Look {
    scale::Look {
        colour: output::options(false).colour,
        unicode: scale::is_utf8(|name: &str| std::env::var_os(name)),
    }
}

/// When to end, ns.
fn end_ns(arguments: &WatchArguments) -> u64 {
    arguments.for_ns.map_or(u64::MAX, |for_ns| clock::now_ns().saturating_add(for_ns))
}

/// Shows this VM.
fn show(arguments: &WatchArguments) -> Result<(), Failure> {
    // A second signal must not end it before the terminal is given back.
    let interrupt = Interrupt::install_patient()?;
    let mut look = Look::begin(&ProcRoot::default(), explain::tier(&arguments.tier))?;
    let (terminal, end_ns, mut seconds) = (terminal(), end_ns(arguments), Seconds::begin());
    let (mut model, mut screen) = (Model::new(Source::Live), Screen::open()?);
    let mut due_ns = seconds.next_ns();
    loop {
        if screen.draw(|area, buffer| draw::draw(&model, terminal, area, buffer)).is_err() {
            return Ok(());
        }
        match screen.wait(due_ns.min(end_ns), &interrupt) {
            Woken::End => return Ok(()),
            Woken::Keys if !press(&mut screen, &mut model) => return Ok(()),
            Woken::Keys => {}
            Woken::Time if clock::now_ns() >= end_ns => return Ok(()),
            Woken::Time if clock::now_ns() < due_ns => {}
            Woken::Time => {
                look.sample();
                push(&mut model, &look);
                due_ns = seconds.next_ns();
            }
        }
    }
}

/// The second that was just looked at.
fn push(model: &mut Model, look: &Look) {
    let Some(sample) = look.recent().last() else { return };
    let mut moment = Moment::of(sample, model.newest());
    moment.told = Some(verdict::told(look.recent()));
    model.push(moment);
}

/// Does what the keys mean; whether to go on.
fn press(screen: &mut Screen, model: &mut Model) -> bool {
    let mut goes_on = true;
    let is_there = screen.keys(|key| goes_on &= model.press(key));
    goes_on && is_there
}

/// Shows a record.
fn show_record(path: &Path, at_day_ns: Option<u64>) -> Result<(), Failure> {
    let (replay, mut model) = Replay::open(path, at_day_ns)?;
    let interrupt = Interrupt::install_patient()?;
    let (terminal, mut seconds, mut screen) = (terminal(), Seconds::begin(), Screen::open()?);
    let mut due_ns = seconds.next_ns();
    loop {
        replay.judge(&mut model);
        if screen.draw(|area, buffer| draw::draw(&model, terminal, area, buffer)).is_err() {
            return Ok(());
        }
        match screen.wait(due_ns, &interrupt) {
            Woken::End => return Ok(()),
            Woken::Keys if !press(&mut screen, &mut model) => return Ok(()),
            Woken::Keys => {}
            Woken::Time if clock::now_ns() < due_ns => {}
            // Also for a new size of the terminal.
            Woken::Time => {
                model.tick();
                due_ns = seconds.next_ns();
            }
        }
    }
}

/// Prints this VM, a line a second.
fn lines(arguments: &WatchArguments) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let mut look = Look::begin(&ProcRoot::default(), explain::tier(&arguments.tier))?;
    let (end_ns, mut seconds) = (end_ns(arguments), Seconds::begin());
    loop {
        let due_ns = seconds.next_ns();
        // The last second ends about when the time does.
        if due_ns > end_ns.saturating_add(SECOND_NS / 2) {
            return Ok(());
        }
        look::wait(due_ns, &interrupt);
        if interrupt.is_raised() {
            return Ok(());
        }
        look.sample();
        let Some(sample) = look.recent().last() else { continue };
        if !ndjson::print(sample, &verdict::told(look.recent()))? {
            return Ok(());
        }
    }
}

/// Prints a record, from this time of the day on.
fn lines_of_record(path: &Path, at_day_ns: Option<u64>) -> Result<(), Failure> {
    let (replay, model) = Replay::open(path, at_day_ns)?;
    let first = if at_day_ns.is_some() { model.at() } else { 0 };
    for (at, sample) in replay.samples().iter().enumerate().skip(first) {
        if !ndjson::print(sample, &replay.told(at))? {
            return Ok(());
        }
    }
    Ok(())
}
