//! `reprieve record --hindsight`: keeps the last minutes of a VM on disk, from inside it, and acts when a condition begins to hold.
//!
//! The main loop takes a sample a second, writes it, and judges the conditions. A second thread acts, so that a slow disk for dumps
//! or a slow program does not delay a sample.

mod act;
mod rules;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use reprieve_hindsight::disk::Folder;
use reprieve_hindsight::line::{Header, Trigger};
use reprieve_hindsight::{Limits, Ring};
use reprieve_linux::clock;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_policy::explain::State;
use reprieve_study::units::SECOND_NS;

use crate::cli::HindsightArguments;
use crate::explain;
use crate::failure::Failure;
use crate::look::{self, Look, Seconds};
use crate::output;
use act::{Actor, Job};
use rules::Rule;

/// Outages of the disk are told at most so often, ns.
const TELL_EVERY_NS: u64 = 60 * SECOND_NS;

/// Runs `record --hindsight`.
pub fn record(arguments: &HindsightArguments, folder: &Path) -> Result<(), Failure> {
    let rules = rules::of(arguments)?;
    let interrupt = Interrupt::install()?;
    let root = ProcRoot::default();
    let limits = Limits { keep_ns: arguments.keep, bytes: arguments.disk };
    let ring = Ring::open(folder, header(&root), limits).map_err(|error| refused(folder, &error))?;
    let look = Look::begin(&root, explain::tier(&arguments.tier))?;
    let actor = Actor::start(folder, arguments.dumps.into(), &interrupt)?;
    output::say(&format!(
        "keeps the last minutes in {}; judge them by: reprieve explain {0}",
        folder.display()
    ));
    let recorder = Recorder {
        ring: Kept { ring, lost: 0, told_ns: None, is_told: false },
        look,
        rules: rules.into_iter().map(Watched::new).collect(),
        after_ns: arguments.after,
        actor,
        scratch: Vec::new(),
    };
    recorder.run(&interrupt);
    Ok(())
}

/// Where a record is made.
pub fn header(root: &ProcRoot) -> Header {
    let system = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    Header {
        boot_id: root.boot_id().unwrap_or_default(),
        host: text(system.nodename()),
        kernel: text(system.release()),
        program: env!("CARGO_PKG_VERSION").into(),
    }
}

fn refused(folder: &Path, error: &std::io::Error) -> Failure {
    let folder = folder.display();
    match error.kind() {
        ErrorKind::WouldBlock => Failure::Usage(format!(
            "{folder}: another process records into it; end that one, or name another folder"
        )),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Failure::Failed(format!("{folder}: {error}")),
        _ => Failure::Usage(format!(
            "{folder}: {error}; name a folder to write to, or a new one in a folder that is there"
        )),
    }
}

/// A rule, and where it stands.
struct Watched {
    rule: Arc<Rule>,
    is_crossed: bool,
    /// What is still to be done, and when, ns.
    due: Option<(u64, Job)>,
}

impl Watched {
    fn new(rule: Rule) -> Watched {
        Watched { rule: Arc::new(rule), is_crossed: false, due: None }
    }
}

struct Recorder {
    ring: Kept,
    look: Look,
    rules: Vec<Watched>,
    after_ns: u64,
    actor: Actor,
    scratch: Vec<u64>,
}

impl Recorder {
    fn run(mut self, interrupt: &Interrupt) {
        let mut seconds = Seconds::begin();
        while !interrupt.is_raised() {
            look::wait(seconds.next_ns(), interrupt);
            if interrupt.is_raised() {
                break;
            }
            self.sample();
            let state = self.look.recent().state();
            self.judge(&state);
            self.act(clock::now_ns());
        }
        // What was to come later comes now, or never.
        self.act(u64::MAX);
        self.actor.end();
    }

    fn sample(&mut self) {
        self.look.sample();
        if let Some(sample) = self.look.recent().last() {
            self.ring.push(|ring| ring.push(sample));
        }
    }

    fn judge(&mut self, state: &State) {
        let recent = self.look.recent();
        let Some((at_ns, day_ns)) = recent.last().map(|sample| (sample.at_ns, sample.day_ns)) else {
            return;
        };
        for watched in &mut self.rules {
            let rule = &watched.rule;
            let measured = rule.threshold.crossed(recent.samples(), state, &mut self.scratch);
            let begins = measured.filter(|_| !watched.is_crossed && watched.due.is_none());
            watched.is_crossed = measured.is_some();
            let Some(measured) = begins else { continue };
            let value = rules::words(measured);
            output::say(&format!("reprieve: {}: {value}", rule.threshold.text()));
            let trigger = Trigger { at_ns, threshold: rule.threshold.text().into(), value: value.clone() };
            self.ring.push(|ring| ring.push_trigger(&trigger));
            let (now, later) = rule.split();
            self.actor.take(Job { rule: rule.clone(), actions: now, value: value.clone(), day_ns });
            let job = Job { rule: rule.clone(), actions: later, value, day_ns };
            watched.due = Some((at_ns.saturating_add(self.after_ns), job));
        }
    }

    fn act(&mut self, now_ns: u64) {
        for watched in &mut self.rules {
            if let Some((_, job)) = watched.due.take_if(|(due_ns, _)| *due_ns <= now_ns) {
                self.actor.take(job);
            }
        }
    }
}

/// The ring; goes on without it while it cannot be written.
struct Kept {
    ring: Ring<Folder>,
    /// Lines that could not be written since the last one that was.
    lost: u64,
    /// When an outage was told last, ns.
    told_ns: Option<u64>,
    /// Whether this one was.
    is_told: bool,
}

impl Kept {
    fn push(&mut self, push: impl FnOnce(&mut Ring<Folder>) -> std::io::Result<()>) {
        let done = push(&mut self.ring);
        let folder = self.ring.path().display();
        match done {
            Ok(()) if self.lost > 0 => {
                if self.is_told {
                    output::say(&format!(
                        "reprieve: {folder}: records again; {} samples are missing",
                        self.lost
                    ));
                }
                (self.lost, self.is_told) = (0, false);
            }
            Ok(()) => {}
            Err(error) => {
                self.lost += 1;
                let now_ns = clock::now_ns();
                let is_long_ago = self.told_ns.is_none_or(|told_ns| now_ns - told_ns >= TELL_EVERY_NS);
                if !self.is_told && is_long_ago {
                    let goes_on = "watches on, and records again as soon as that is possible";
                    output::say(&format!("reprieve: {folder}: {error}; {goes_on}"));
                    (self.told_ns, self.is_told) = (Some(now_ns), true);
                }
            }
        }
    }
}
