//! The interface for sources of I/O events: an I/O of any task begins or ends.
//!
//! The decider takes events each time it runs, so it knows an I/O task within a beat period, without a thread or
//! wake-up just for events. Events of managed tasks become signals for the policy. Other tasks are reported to the main
//! loop, which manages them if it may. Nothing is allocated, and each run takes a limited number of events.

use reprieve_policy::signal::Signal;

use crate::migrate::link::Entry;
use crate::migrate::masks::Table;

/// The most events taken in one run.
const AT_ONCE: usize = 4096;
/// Number of unmanaged tasks remembered, so that each is reported only at intervals.
const MAX_UNMANAGED: usize = 64;
/// Least time between two reports of one unmanaged task, ns.
const AGAIN_NS: u64 = 200_000_000;

/// The kind of an event.
///
/// A source may lose events: of two beginnings in a row, the second also counts as the end of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text at each says what the fields are")]
pub enum IoKind {
    /// The task had no I/O outstanding and has issued one.
    Begin,
    /// The task's last outstanding I/O has ended; it took this long.
    End { took_ns: u64 },
}

/// An I/O event of task `tid` of process `pid`, at a time of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the text above says what the fields are")]
pub struct IoEvent {
    pub pid: i32,
    pub tid: i32,
    pub at_ns: u64,
    pub kind: IoKind,
}

/// A source of events.
pub trait Events: Send {
    /// The next event, if any. Does not wait, and allocates nothing.
    fn next(&mut self) -> Option<IoEvent>;

    /// Sets whether the source watches from now on; initially it does not. While no vCPU goes off, events are not
    /// needed, and should cost nothing.
    fn watch(&mut self, on: bool);
}

/// Sorts events into those of managed and of unmanaged tasks.
pub struct Sorter {
    events: Box<dyn Events>,
    /// The next event, already taken out of the source.
    head: Option<IoEvent>,
    /// Number of events that this run may still take.
    left: usize,
    /// For each slot, its task if it has I/O outstanding, else 0.
    begun: Vec<i32>,
    /// Unmanaged tasks, and when each was last reported, ns.
    unmanaged: [(i32, u64); MAX_UNMANAGED],
    next_unmanaged: usize,
    watches: bool,
}

impl Sorter {
    /// Sorts the events of this source, for a table of this many slots.
    pub fn new(events: Box<dyn Events>, slots: usize) -> Sorter {
        let unmanaged = [(0, 0); MAX_UNMANAGED];
        Sorter {
            events,
            head: None,
            left: 0,
            begun: vec![0; slots],
            unmanaged,
            next_unmanaged: 0,
            watches: false,
        }
    }

    /// A run of the decider begins, and may take a new batch of events.
    pub fn begin(&mut self) {
        self.left = AT_ONCE;
    }

    /// Sets whether the source watches from now on.
    pub fn watch(&mut self, on: bool) {
        if on != self.watches {
            self.watches = on;
            self.events.watch(on);
        }
    }

    /// The time of the next event, ns; `None` if there is none, or this run may take no more.
    pub fn peek_ns(&mut self) -> Option<u64> {
        if self.head.is_none() {
            self.head = self.events.next();
        }
        self.head.filter(|_| self.left > 0).map(|event| event.at_ns)
    }

    /// Takes the next event, and turns it into an entry, if it is worth one.
    pub fn pop(&mut self, table: &Table) -> Option<Entry> {
        let IoEvent { pid, tid, at_ns, kind } = self.head.take().or_else(|| self.events.next())?;
        self.left = self.left.saturating_sub(1);
        let Some(task) = table.slot_of(tid) else {
            return self.is_new(tid, at_ns).then_some(Entry::Unmanaged { pid, tid });
        };
        table.saw_io(task, at_ns);
        let begun = self.begun.get_mut(task)?;
        Some(Entry::Signal(match kind {
            IoKind::Begin if *begun == tid => {
                // Its end was lost: report the end first, and take this event again.
                *begun = 0;
                self.head = Some(IoEvent { pid, tid, at_ns, kind });
                Signal::IoEnd { task, at_ns, took_ns: None }
            }
            IoKind::Begin => {
                *begun = tid;
                Signal::IoBegin { task, at_ns }
            }
            IoKind::End { took_ns } => {
                *begun = 0;
                Signal::IoEnd { task, at_ns, took_ns: Some(took_ns) }
            }
        }))
    }

    /// Whether an unmanaged task is due to be reported.
    fn is_new(&mut self, tid: i32, at_ns: u64) -> bool {
        let known = self.unmanaged.iter_mut().find(|unmanaged| unmanaged.0 == tid);
        if let Some((_, reported_ns)) = known {
            let due = at_ns.saturating_sub(*reported_ns) >= AGAIN_NS;
            *reported_ns = if due { at_ns } else { *reported_ns };
            return due;
        }
        self.unmanaged[self.next_unmanaged] = (tid, at_ns);
        self.next_unmanaged = (self.next_unmanaged + 1) % MAX_UNMANAGED;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::masks::{Held, Saved};
    use reprieve_policy::cpus::CpuSet;

    struct Played(std::vec::IntoIter<IoEvent>);

    impl Events for Played {
        fn next(&mut self) -> Option<IoEvent> {
            self.0.next()
        }

        fn watch(&mut self, _: bool) {}
    }

    fn table(tid: i32) -> Table {
        let table = Table::new(2, None);
        let mask = CpuSet::first(2);
        let saved = Saved { pid: tid, tid, start_ticks: 1, bound_ticks: 1, mask, whole: false };
        assert!(table.fill(1, Held::new(saved, mask, None)).unwrap());
        table
    }

    fn event(tid: i32, at_ns: u64, kind: IoKind) -> IoEvent {
        IoEvent { pid: 3, tid, at_ns, kind }
    }

    #[test]
    fn events_of_managed_tasks_become_signals_and_unmanaged_tasks_are_reported_at_intervals() {
        let end = IoKind::End { took_ns: 7 };
        let events = vec![
            event(5, 10, IoKind::Begin),
            event(6, 11, IoKind::Begin),
            event(6, 12, end),
            event(5, 17, end),
            event(6, 11 + AGAIN_NS, IoKind::Begin),
            event(5, 12 + AGAIN_NS, IoKind::Begin),
            event(5, 13 + AGAIN_NS, IoKind::Begin),
        ];
        let (table, mut entries) = (table(5), Vec::new());
        let mut sorter = Sorter::new(Box::new(Played(events.into_iter())), 2);
        sorter.begin();
        assert_eq!(sorter.peek_ns(), Some(10));
        while sorter.peek_ns().is_some() {
            entries.extend(sorter.pop(&table));
        }
        let unmanaged = Entry::Unmanaged { pid: 3, tid: 6 };
        let expected = [
            Entry::Signal(Signal::IoBegin { task: 1, at_ns: 10 }),
            unmanaged,
            Entry::Signal(Signal::IoEnd { task: 1, at_ns: 17, took_ns: Some(7) }),
            unmanaged,
            Entry::Signal(Signal::IoBegin { task: 1, at_ns: 12 + AGAIN_NS }),
            // An end was lost in between.
            Entry::Signal(Signal::IoEnd { task: 1, at_ns: 13 + AGAIN_NS, took_ns: None }),
            Entry::Signal(Signal::IoBegin { task: 1, at_ns: 13 + AGAIN_NS }),
        ];
        assert_eq!(entries, expected);
        assert_eq!((table.io_ns(1), table.io_ns(0)), (13 + AGAIN_NS, 0));
    }

    #[test]
    fn a_flood_is_taken_in_batches() {
        let events: Vec<IoEvent> =
            (0..10_000).map(|at_ns| event(5, at_ns, IoKind::End { took_ns: 1 })).collect();
        let table = table(5);
        let mut sorter = Sorter::new(Box::new(Played(events.into_iter())), 2);
        for look in 0..2u64 {
            sorter.begin();
            for i in 0..AT_ONCE as u64 {
                assert_eq!(sorter.peek_ns(), Some(look * AT_ONCE as u64 + i));
                assert!(sorter.pop(&table).is_some());
            }
            assert_eq!(sorter.peek_ns(), None);
        }
    }
}
