//! When the host had each vCPU's thread on a pCPU, and when it was descheduled though it wanted to run.
//!
//! From perf's switch records where permitted. Else from schedstat: the delay that a thread suffered is booked
//! when it is switched in again, so an increase seen at one look is a stretch that ended just then.

use reprieve_linux::proc::{ProcRoot, SchedStat, SchedStatReader};
use reprieve_linux::switches::{IntervalBuilder, State, SwitchEvent, SwitchKind, SwitchRecorder};
use reprieve_study::Span;

use crate::Result;

/// Pages of each vCPU's event buffer: with 128 events a page, many times what comes between two drains.
const RING_PAGES: usize = 64;
/// Events kept of all vCPUs, at most: some 10 minutes at 15,000 a second.
const EVENTS: usize = 10_000_000;
/// Events are collected at every so many looks.
const DRAIN_EVERY: u64 = 32;

/// What the host's scheduler did to the vCPUs.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    /// Where it is known from, for captions.
    pub source: &'static str,
    /// Of each vCPU: runnable but not on a pCPU.
    pub descheduled: Vec<Vec<Span>>,
    /// Of each vCPU: on a pCPU. Empty when the source does not tell.
    pub running: Vec<Vec<Span>>,
    /// Events that were lost.
    pub lost: u64,
}

/// Collects it.
#[allow(missing_docs, reason = "their names say what the fields are")]
pub enum Watcher {
    /// From switch records. `dropped` counts those that came when no more could be kept.
    Switches { recorder: SwitchRecorder, events: Vec<SwitchEvent>, dropped: u64, vcpus: usize },
    /// From delays booked in schedstat.
    Delays { readers: Vec<SchedStatReader>, last: Vec<SchedStat>, descheduled: Vec<Vec<Span>> },
}

impl Watcher {
    /// Opens the best source for these threads of a process; the note says why it is not the best.
    pub fn open(proc_root: &ProcRoot, pid: i32, tids: &[i32]) -> Result<(Watcher, Option<String>)> {
        let refused = match SwitchRecorder::open(tids, RING_PAGES) {
            Ok(recorder) => {
                let (events, vcpus) = (Vec::new(), tids.len());
                return Ok((Watcher::Switches { recorder, events, dropped: 0, vcpus }, None));
            }
            Err(error) => error,
        };
        let watcher = Watcher::delays(proc_root, pid, tids)?;
        let note = format!("scheduling intervals come from schedstat, within one look: {refused}");
        Ok((watcher, Some(note)))
    }

    /// Opens the second-best source.
    pub fn delays(proc_root: &ProcRoot, pid: i32, tids: &[i32]) -> Result<Watcher> {
        let open = |tid: &i32| SchedStatReader::open(proc_root, pid, *tid);
        let readers = tids.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let last = readers.iter().map(SchedStatReader::read).collect::<Result<_, _>>()?;
        Ok(Watcher::Delays { descheduled: vec![Vec::new(); readers.len()], last, readers })
    }

    /// Takes note of what happened up to now.
    pub fn look(&mut self, t_ns: u64, looks: u64) {
        match self {
            Watcher::Switches { .. } if looks.is_multiple_of(DRAIN_EVERY) => self.drain(),
            Watcher::Switches { .. } => {}
            Watcher::Delays { readers, last, descheduled } => {
                for ((reader, last), spans) in readers.iter().zip(last).zip(descheduled) {
                    // A thread that has ended has no more delays.
                    let Ok(now) = reader.read() else { continue };
                    let delay_ns = now.delay_ns.saturating_sub(last.delay_ns);
                    if delay_ns > 0 {
                        spans.push(Span::new(t_ns.saturating_sub(delay_ns), t_ns));
                    }
                    *last = now;
                }
            }
        }
    }

    /// Whether what comes from now on cannot be kept.
    pub fn is_full(&self) -> bool {
        matches!(self, Watcher::Switches { dropped: 1.., .. })
    }

    fn drain(&mut self) {
        if let Watcher::Switches { recorder, events, dropped, .. } = self {
            recorder.drain(&mut |event| {
                if events.len() < EVENTS {
                    events.push(event);
                } else {
                    *dropped += 1;
                }
            });
        }
    }

    /// The spans within `window`.
    pub fn finish(mut self, window: Span) -> Scheduling {
        self.drain();
        match self {
            Watcher::Switches { recorder, mut events, dropped, vcpus } => {
                if dropped > 0 {
                    // From here on nothing is known of any vCPU.
                    let time_ns = events.last().map_or(window.start_ns, |event| event.time_ns);
                    let lost = |thread_index| SwitchEvent {
                        thread_index,
                        time_ns,
                        cpu: None,
                        kind: SwitchKind::Lost,
                    };
                    events.extend((0..vcpus).map(lost));
                }
                from_events(&events, vcpus, recorder.lost().saturating_add(dropped), window)
            }
            Watcher::Delays { descheduled, .. } => {
                // What was booked at the first looks began before them.
                let within =
                    |spans: Vec<Span>| spans.iter().filter_map(|span| span.overlap(window)).collect();
                let descheduled = descheduled.into_iter().map(within).collect();
                Scheduling { source: "schedstat", descheduled, running: Vec::new(), lost: 0 }
            }
        }
    }
}

fn from_events(events: &[SwitchEvent], vcpus: usize, lost: u64, window: Span) -> Scheduling {
    let mut builders = vec![IntervalBuilder::new(window.start_ns, None); vcpus];
    for event in events {
        builders[event.thread_index].push(event);
    }
    let mut scheduling = Scheduling { source: "perf switch records", lost, ..Scheduling::default() };
    for builder in builders {
        let intervals = builder.finish(window.end_ns);
        let spans_in = |state: State| -> Vec<Span> {
            let chosen = intervals.iter().filter(|interval| interval.state == state);
            chosen.map(|interval| Span::new(interval.start_ns, interval.end_ns)).collect()
        };
        scheduling.descheduled.push(spans_in(State::Preempted));
        scheduling.running.push(spans_in(State::Running));
    }
    scheduling
}
