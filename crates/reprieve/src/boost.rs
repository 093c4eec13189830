//! `reprieve boost`: on the host, sees how long RCU grace periods of guests wait for vCPUs that are off, and lets such vCPUs
//! run for a moment.
//!
//! `work` watches guests from their arrival to their end. `guest` is one of them, `guards` puts quotas back whatever happens,
//! `words` and `metrics` tell what was seen.

mod guards;
mod guest;
mod metrics;
mod words;
mod work;

use std::time::Duration;

use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_vm::attach::{Given, Qemu};

use crate::cli::BoostArguments;
use crate::failure::Failure;
use crate::guests::{failure, find};
use guards::Guards;
use words::Words;
use work::{Guests, Work, waiting};

/// Runs the verb.
pub fn boost(arguments: &BoostArguments) -> Result<(), Failure> {
    let root = ProcRoot::default();
    let words = Words { json: arguments.json, apply: arguments.apply };
    let found = find(&root, &arguments.pids)?;
    // A second ^C does not hurry the end: quotas are put back, which takes no time.
    let interrupt = Interrupt::install_patient()?;
    let guards = arguments.apply.then(Guards::new).transpose()?;
    let given = Given { btf: arguments.btf.clone(), symbols: arguments.symbols.clone() };
    let takes_all = arguments.pids.is_empty();
    let work = Work { root, given, guards, takes_all, words: &words, interrupt: &interrupt };
    let (mut guests, refused) = attach_all(&work, found)?;
    let seconds =
        if arguments.apply { arguments.limit_s } else { arguments.limit_s.or(Some(arguments.for_s)) };
    words.began(&guests.present, seconds)?;
    let watched = work.watch(&mut guests, arguments, seconds.map(Duration::from_secs));
    // Quotas are put back also if nobody reads what is printed any more.
    let notes: Vec<String> = guests.present.iter_mut().filter_map(|guest| work.end(guest, "")).collect();
    notes.iter().for_each(|note| words.warn(note));
    watched?;
    guests.present.iter().try_for_each(|guest| words.guest(guest))?;
    words.verdict(&guests)?;
    match refused {
        1.. if !takes_all => {
            Err(Failure::Failed(format!("{refused} of {} guests could not be watched", arguments.pids.len())))
        }
        _ => Ok(()),
    }
}

/// Attaches to all guests, and gives the number of those that refused. These are tried again, unless they were named.
fn attach_all(work: &Work, found: Vec<Qemu>) -> Result<(Guests, usize), Failure> {
    let count = found.len();
    let (mut guests, mut refused, mut failures) = (Guests::default(), Vec::new(), Vec::new());
    for qemu in found {
        match work.attach(qemu, count) {
            (guest, None) => guests.present.push(guest),
            (guest, Some(error)) => {
                failures.push(failure(&work.words.name(&guest.qemu), error));
                refused.push(guest);
            }
        }
    }
    if count > 1 {
        failures.iter().for_each(|failure| work.words.warn(&failure.to_string()));
    }
    if guests.present.is_empty() {
        // There is at least one guest, so at least one has failed.
        failures.truncate(1);
        return Err(failures.remove(0));
    }
    if work.takes_all {
        guests.present.extend(refused.into_iter().map(waiting));
    }
    Ok((guests, failures.len()))
}
