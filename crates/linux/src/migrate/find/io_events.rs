//! The seam for sources of I/O events: an I/O begins, an I/O ends, of whatever task.
//!
//! Events are taken by the decider at each of its looks, so that an I/O task is known within a period of beats, without a
//! thread or a wake-up of its own. Those of tasks that are looked after become signals for the policy; of the others the
//! house thread is told, which takes them in if it may. Nothing is allocated, and a look takes in so many at most.

use reprieve_policy::signal::Signal;

use crate::migrate::link::entry::Entry;
use crate::migrate::masks::table::Table;

/// Events taken in at one look.
const AT_ONCE: usize = 4096;
/// Strangers remembered, so that the house thread is told of each once in a while only.
const MAX_UNMANAGED: usize = 64;
/// It is told again after so long, ns.
const AGAIN_NS: u64 = 200_000_000;

/// What happened.
///
/// A source may lose events: of two beginnings in a row the second is taken for the first's end, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// The task had no I/O outstanding, and has issued one.
    Begin,
    /// The task's last outstanding I/O has ended.
    End {
        /// How long that one took, ns.
        took_ns: u64,
    },
}

/// An I/O of some task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEvent {
    /// The task's process.
    pub pid: i32,
    /// The task.
    pub tid: i32,
    /// When, ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What.
    pub kind: IoKind,
}

/// A source of events.
pub trait Events: Send {
    /// The next event, if there is one. Does not wait, and allocates nothing.
    fn next(&mut self) -> Option<IoEvent>;

    /// Whether events are wanted from now on: where nothing is wrong they are not, and should cost nothing. Not at first.
    fn watch(&mut self, on: bool);
}

/// Events, sorted by whom they are about.
pub struct Sorter {
    events: Box<dyn Events>,
    /// The next event, taken out of the source already.
    head: Option<IoEvent>,
    left: usize,
    /// The task of each slot that has I/O outstanding; 0 where none has.
    begun: Vec<i32>,
    unmanaged: [(i32, u64); MAX_UNMANAGED],
    next_unmanaged: usize,
    watches: bool,
}

impl Sorter {
    /// Of this source, for a table of so many slots.
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

    /// A look begins: so many events more are taken in.
    pub fn begin(&mut self) {
        self.left = AT_ONCE;
    }

    /// Whether events are wanted from now on.
    pub fn watch(&mut self, on: bool) {
        if on != self.watches {
            self.watches = on;
            self.events.watch(on);
        }
    }

    /// When the next event was, ns, if there is one and it is for this look.
    pub fn peek_ns(&mut self) -> Option<u64> {
        if self.head.is_none() {
            self.head = self.events.next();
        }
        self.head.filter(|_| self.left > 0).map(|event| event.at_ns)
    }

    /// Takes the next event: what it tells, if anything.
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
                // Its end was lost: that first, and then this again.
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

    fn is_new(&mut self, tid: i32, at_ns: u64) -> bool {
        let known = self.unmanaged.iter_mut().find(|unmanaged| unmanaged.0 == tid);
        if let Some((_, told_ns)) = known {
            let due = at_ns.saturating_sub(*told_ns) >= AGAIN_NS;
            *told_ns = if due { at_ns } else { *told_ns };
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
    use crate::migrate::masks::state_record::Saved;
    use crate::migrate::masks::table::Held;
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
    fn members_become_signals_and_of_strangers_is_told_once_in_a_while() {
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
        let (table, mut told) = (table(5), Vec::new());
        let mut sorter = Sorter::new(Box::new(Played(events.into_iter())), 2);
        sorter.begin();
        assert_eq!(sorter.peek_ns(), Some(10));
        while sorter.peek_ns().is_some() {
            told.extend(sorter.pop(&table));
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
        assert_eq!(told, expected);
        assert_eq!((table.io_ns(1), table.io_ns(0)), (13 + AGAIN_NS, 0));
    }

    #[test]
    fn a_flood_is_taken_in_by_parts() {
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
