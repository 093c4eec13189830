//! Could a writer call membarrier only for the CPU that a reader runs on? No, as this model of a machine with store
//! buffers shows by trying every interleaving.
//!
//! The kernel writes the number of a thread's CPU into its rseq area when the thread returns to user mode. A writer
//! could read that number, and call membarrier for that CPU alone (MEMBARRIER_CMD_FLAG_CPU). But there is no fence
//! between the kernel's store of the number and the reader's loads. So the writer may read the number of the CPU that
//! the reader has left, and the reader may load the pointer that the writer has replaced. Asking all CPUs, one after
//! another, has no such gap: a thread that leaves a CPU before that CPU is asked goes through a context switch, which
//! is a fence and restarts its section.
//!
//! So the crate never relies on a call for one CPU. The thread in `thread.rs` uses such calls to find out which CPU
//! is late.

use std::collections::HashSet;

/// How the writer calls membarrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Calls {
    /// For the CPU that the reader's number names.
    Aimed,
    /// As `Aimed`, but the kernel executes a fence after it has written the number.
    AimedWithFence,
    /// For CPU 0, then for CPU 1.
    InTurn,
    /// For CPU 0 alone, as a control.
    One,
}

/// One reader, which moves to the other CPU once, and one writer. The reader's store of its number may wait in a
/// store buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Machine {
    linked: bool,
    freed: bool,
    /// The CPU on which the reader runs.
    cpu: u8,
    /// The reader's number, in memory and in the reader's store buffer.
    number: u8,
    queued: Option<u8>,
    moved: bool,
    reader: u8,
    writer: u8,
}

const DONE: u8 = 99;

impl Machine {
    fn drain(&mut self) {
        if let Some(number) = self.queued.take() {
            self.number = number;
        }
    }

    /// Restarts the reader's section. The switch or interrupt that does so executes a fence.
    fn interrupt(&mut self) {
        self.drain();
        if self.reader == 2 {
            self.reader = 0;
        }
    }

    fn ask(&mut self, cpu: u8) {
        if self.cpu == cpu {
            self.interrupt();
        }
    }

    /// The scheduler moves the reader to the other CPU, where the kernel returns to user mode.
    fn migrate(&mut self) -> bool {
        if self.moved {
            return false;
        }
        self.interrupt();
        (self.moved, self.cpu) = (true, 1 - self.cpu);
        self.queued = Some(self.cpu);
        true
    }

    /// The reader loads the pointer, and then uses the object. Returns false if it must wait, and an error if it uses
    /// a freed object.
    fn read(&mut self, calls: Calls) -> Result<bool, ()> {
        match self.reader {
            0 if calls == Calls::AimedWithFence && self.queued.is_some() => return Ok(false),
            0 => self.reader = if self.linked { 2 } else { DONE },
            2 if self.freed => return Err(()),
            2 => self.reader = DONE,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write(&mut self, calls: Calls) -> bool {
        match (self.writer, calls) {
            // The store and a fence.
            (0, _) => (self.linked, self.writer) = (false, 1),
            (1, Calls::Aimed | Calls::AimedWithFence) => self.writer = 2 + self.number,
            (1, Calls::InTurn | Calls::One) => self.writer = 2,
            (2, _) => {
                self.ask(0);
                self.writer = if calls == Calls::InTurn { 3 } else { 4 };
            }
            (3, _) => {
                self.ask(1);
                self.writer = 4;
            }
            (4, _) => (self.freed, self.writer) = (true, DONE),
            _ => return false,
        }
        true
    }
}

/// Whether the reader never uses a freed object.
fn holds(calls: Calls) -> bool {
    let first = |cpu| Machine {
        linked: true,
        freed: false,
        cpu,
        number: cpu,
        queued: None,
        moved: false,
        reader: 0,
        writer: 0,
    };
    let mut open = vec![first(0), first(1)];
    let mut seen: HashSet<Machine> = open.iter().copied().collect();
    while let Some(machine) = open.pop() {
        let [mut drained, mut migrated, mut read, mut written] = [machine; 4];
        drained.drain();
        let moves = migrated.migrate().then_some(migrated);
        let Ok(reads) = read.read(calls) else { return false };
        let writes = written.write(calls).then_some(written);
        let next = [Some(drained), moves, reads.then_some(read), writes];
        open.extend(next.into_iter().flatten().filter(|m| seen.insert(*m)));
    }
    assert!(seen.iter().any(|m| m.freed && m.reader == DONE && m.moved));
    true
}

#[test]
fn a_number_may_be_stale_and_then_the_wrong_cpu_is_asked() {
    assert!(!holds(Calls::Aimed));
    assert!(holds(Calls::AimedWithFence), "the gap is the missing fence");
}

#[test]
fn all_cpus_in_turn_miss_nobody() {
    assert!(holds(Calls::InTurn));
    assert!(!holds(Calls::One));
}
