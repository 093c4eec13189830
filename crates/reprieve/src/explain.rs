//! `reprieve explain`: who slowed this VM down: the host, the VM itself, or the clock. By a look at the VM from inside, or by
//! its kernel's log alone, or of a hindsight record.

mod outside;
pub(crate) mod replay;
pub(crate) mod words;

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use reprieve_hindsight::line;
use reprieve_linux::observe::{Collector, Pace};
use reprieve_linux::proc::{self, ProcRoot};
use reprieve_linux::signals::Interrupt;
use reprieve_policy::explain::{self, Evidence, log};
use reprieve_policy::kernel_log;
use reprieve_policy::sample::{Sample, Tier};

use crate::cli::ExplainArguments;
use crate::failure::Failure;
use crate::output::Promised;
use crate::{input, output, progress};

/// Time between two looks at whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The most of a log that is read, in bytes.
const MOST_LOG_BYTES: usize = 64 << 20;
/// An input of so many times that has no end.
const MOST_LOGS: usize = 64;

/// Runs the verb.
pub fn explain(arguments: &ExplainArguments) -> Result<(), Failure> {
    if let Some(path) = &arguments.replay.record {
        return replay::replay(path, arguments);
    }
    if let Some(path) = &arguments.dmesg {
        let text = read_log(path)?;
        let events = kernel_log::events(&text);
        if events.is_empty() && !kernel_log::is_one(&text) {
            let way_out = "is it a kernel's log? dmesg may need root; or try journalctl -k";
            let path = path.display();
            return Err(Failure::Usage(format!("{path}: no line with a time; {way_out}")));
        }
        let verdict = log::judge(&events);
        return output::print(&words::of_log(&verdict, arguments.json));
    }
    if let Some(pid) = arguments.pid {
        return outside::explain(pid, arguments.for_s, arguments.json);
    }
    // Promised before anything is measured.
    let save = arguments.save.as_deref().map(Promised::open).transpose()?;
    let samples = watch(arguments.for_s, tier(&arguments.tier))?;
    if let Some(save) = save {
        save.write(&line::segment(&crate::hindsight::header(&ProcRoot::default()), &samples))?;
    }
    let seen = Evidence::of(&samples);
    output::print(&words::of(&seen, &explain::judge(&seen), arguments.json))
}

/// The tier of this name.
pub(crate) fn tier(name: &str) -> Tier {
    [Tier::T0, Tier::T1].into_iter().find(|tier| tier.name() == name).unwrap_or(Tier::T2)
}

/// Looks at this VM from inside.
fn watch(for_s: u64, highest: Tier) -> Result<Vec<Sample>, Failure> {
    let root = ProcRoot::default();
    let interrupt = Interrupt::install()?;
    let mut collector = Collector::begin_in(&root, &proc::allowed_cpus()?, Pace::Close, highest)?;
    if let Some(refusal) = collector.refusal() {
        output::say(&format!("reprieve: tier T2 is closed: {refusal}"));
    }
    let (began, bar) = (Instant::now(), progress::seconds(for_s));
    let mut samples = Vec::new();
    while !interrupt.is_raised() && began.elapsed() < Duration::from_secs(for_s) {
        std::thread::sleep(LOOK_EVERY);
        let seconds = began.elapsed().as_secs();
        bar.set_position(seconds);
        if seconds > samples.len() as u64 {
            samples.push(sample(&mut collector));
        }
    }
    bar.finish_and_clear();
    samples.push(sample(&mut collector));
    Ok(samples)
}

fn sample(collector: &mut Collector) -> Sample {
    let mut sample = Sample::default();
    collector.sample(&mut sample);
    sample
}

/// A log, from a file or from standard input: the end of a long one.
fn read_log(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let opened = if path.as_os_str() == "-" { input::standard() } else { input::open(path) };
    let read = opened.and_then(|mut input| read_end(&mut input, MOST_LOG_BYTES, &mut bytes));
    read.map_err(|error| {
        let way_out = "name a file with a kernel's log, or: dmesg | reprieve explain --dmesg -";
        Failure::Usage(format!("{}: {error}; {way_out}", path.display()))
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Keeps the last so many bytes of an input.
fn read_end(input: &mut impl Read, most_bytes: usize, into: &mut Vec<u8>) -> std::io::Result<()> {
    for _ in 0..MOST_LOGS {
        if input.by_ref().take(most_bytes as u64).read_to_end(into)? == 0 {
            return Ok(());
        }
        into.drain(..into.len().saturating_sub(most_bytes));
    }
    Err(std::io::Error::other("it does not end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_kept_and_one_without_an_end_is_refused() {
        let end = |mut input: &[u8]| {
            let mut kept = Vec::new();
            read_end(&mut input, 4, &mut kept).unwrap();
            kept
        };
        assert_eq!((end(b""), end(b"abc"), end(b"abcdefghij")), (b"".into(), b"abc".into(), b"ghij".into()));
        let mut kept = Vec::new();
        assert!(read_end(&mut std::io::repeat(b'x'), 4, &mut kept).is_err());
        assert_eq!(kept.len(), 4);
    }
}
