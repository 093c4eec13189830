//! The protocol on a model of a machine with store buffers, trying every interleaving.
//!
//! The model is x86's memory model. A thread's stores wait in a queue of its own and reach memory in order. Loads
//! look at the thread's own queue first, then at memory. Read-modify-writes and fences wait until the queue is empty.
//! membarrier is an interrupt that empties the reader's queue; its RSEQ variant also restarts an armed section.
//!
//! One writer unlinks and frees, one reader reads by either kind of section, and one switcher moves the domain
//! between its modes. The property is that the reader never uses the object after it is freed. Each ordering on which
//! the argument rests is also taken away, and then the model must find a violation.

use std::collections::HashSet;

const WRITER: usize = 0;
const READER: usize = 1;
const SWITCHER: usize = 2;

/// Shared variables.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Var {
    /// 1 while the object is linked.
    Link,
    Token,
    Word,
    Mode,
    State,
}
use Var::{Link, Mode, State, Token, Word};

const ASYMMETRIC: u8 = 0;
const FENCED: u8 = 1;

/// What is taken away from the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// Writers never call membarrier.
    Membarrier,
    /// membarrier does not restart sections.
    Rseq,
    /// Readers in the fenced mode do not execute the fence.
    ReaderFence,
    /// A restartable section reads the mode before it is armed.
    ArmBeforeMode,
    /// An epoch section reads the mode before it stores its word.
    WordBeforeMode,
    /// Writers read the state before they unlink.
    UnlinkBeforeState,
    /// The switch to fenced does not call membarrier.
    SwitchBarrier,
    /// The switch back sets the mode before the state.
    StateBeforeMode,
    /// Writers do not wait for epochs.
    Scan,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Machine {
    memory: [u8; 5],
    queues: [[Option<(Var, u8)>; 3]; 3],
    at: [u8; 3],
    held: [u8; 3],
    armed: bool,
    freed: bool,
}

const DONE: u8 = 99;
/// Where the reader's epoch program begins. Its restartable program begins at 0.
const EPOCH: u8 = 20;

impl Machine {
    fn load(&self, thread: usize, var: Var) -> u8 {
        let own = self.queues[thread].iter().flatten().rev().find(|(v, _)| *v == var);
        own.map_or(self.memory[var as usize], |(_, value)| *value)
    }

    fn store(&mut self, thread: usize, var: Var, value: u8) {
        let place = self.queues[thread].iter_mut().find(|p| p.is_none()).expect("a short queue");
        *place = Some((var, value));
    }

    fn is_drained(&self, thread: usize) -> bool {
        self.queues[thread][0].is_none()
    }

    /// The oldest store of `thread` reaches memory.
    fn drain_one(&mut self, thread: usize) {
        if let Some((var, value)) = self.queues[thread][0].take() {
            self.memory[var as usize] = value;
            self.queues[thread].rotate_left(1);
        }
    }

    fn interrupt_reader(&mut self, without: Without) {
        while !self.is_drained(READER) {
            self.drain_one(READER);
        }
        if self.armed && without != Without::Rseq {
            (self.armed, self.at[READER]) = (false, 0);
        }
    }

    fn tick(&mut self) {
        self.memory[Token as usize] += 1;
        self.held[WRITER] = self.memory[Token as usize];
    }

    fn passed(&self) -> bool {
        let word = self.load(WRITER, Word);
        word == 0 || word >= self.held[WRITER]
    }

    /// One step of `thread`. Returns false if it must wait, and an error if it uses the object after it was freed.
    fn step(&mut self, thread: usize, leave: bool, without: Without) -> Result<bool, ()> {
        Ok(match thread {
            WRITER => self.write(without),
            READER => return self.read(without),
            _ if leave => self.switch_to_fenced(without),
            _ => self.switch_back(without),
        })
    }

    fn go(&mut self, thread: usize, to: u8) -> bool {
        self.at[thread] = to;
        true
    }

    fn write(&mut self, without: Without) -> bool {
        let early = without == Without::UnlinkBeforeState;
        match self.at[WRITER] {
            0 if early => {
                self.held[WRITER] = self.load(WRITER, State);
                self.go(WRITER, 1)
            }
            0 | 1 => {
                let state = self.held[WRITER];
                self.store(WRITER, Link, 0);
                self.go(
                    WRITER,
                    if !early {
                        2
                    } else if state == FENCED {
                        4
                    } else {
                        3
                    },
                )
            }
            // A read-modify-write, which waits for the queue.
            2..=4 if !self.is_drained(WRITER) => false,
            2 => {
                self.tick();
                let barrier = self.load(WRITER, State) != FENCED;
                self.go(WRITER, if barrier { 5 } else { 6 })
            }
            3 | 4 => {
                let to = if self.at[WRITER] == 3 { 5 } else { 6 };
                self.tick();
                self.go(WRITER, to)
            }
            5 => {
                if without != Without::Membarrier {
                    self.interrupt_reader(without);
                }
                self.go(WRITER, 6)
            }
            6 if self.passed() || without == Without::Scan => {
                self.freed = true;
                self.go(WRITER, DONE)
            }
            _ => false,
        }
    }

    fn read(&mut self, without: Without) -> Result<bool, ()> {
        let mode_first = without == Without::ArmBeforeMode;
        Ok(match self.at[READER] {
            // Restartable: arm, mode, link, use, disarm.
            0 if mode_first => {
                let to = if self.load(READER, Mode) == FENCED { EPOCH } else { 1 };
                self.go(READER, to)
            }
            0 => {
                self.armed = true;
                self.go(READER, 2)
            }
            1 => {
                self.armed = true;
                self.go(READER, 3)
            }
            2 if self.load(READER, Mode) == FENCED => {
                self.armed = false;
                self.go(READER, EPOCH)
            }
            2 => self.go(READER, 3),
            3 => {
                let to = if self.load(READER, Link) == 1 { 4 } else { 5 };
                self.go(READER, to)
            }
            4 if self.freed => return Err(()),
            4 => self.go(READER, 5),
            5 => {
                self.armed = false;
                self.go(READER, DONE)
            }
            _ => return self.read_in_epoch(without),
        })
    }

    fn read_in_epoch(&mut self, without: Without) -> Result<bool, ()> {
        let at = self.at[READER].wrapping_sub(EPOCH);
        let mode_first = without == Without::WordBeforeMode;
        Ok(match at {
            0 => {
                self.held[READER] = self.load(READER, Token);
                self.go(READER, EPOCH + if mode_first { 7 } else { 1 })
            }
            1 => {
                self.store(READER, Word, self.held[READER]);
                self.go(READER, EPOCH + 2)
            }
            2 => {
                let fence = self.load(READER, Mode) == FENCED && without != Without::ReaderFence;
                self.go(READER, EPOCH + if fence { 3 } else { 4 })
            }
            3 if !self.is_drained(READER) => false,
            3 => self.go(READER, EPOCH + 4),
            4 => {
                let to = if self.load(READER, Link) == 1 { 5 } else { 6 };
                self.go(READER, EPOCH + to)
            }
            5 if self.freed => return Err(()),
            5 => self.go(READER, EPOCH + 6),
            6 => {
                self.store(READER, Word, 0);
                self.go(READER, DONE)
            }
            // Reads the mode too early.
            7 => {
                let fence = self.load(READER, Mode) == FENCED;
                self.go(READER, EPOCH + if fence { 8 } else { 9 })
            }
            8 | 9 => {
                self.store(READER, Word, self.held[READER]);
                self.go(READER, EPOCH + if at == 8 { 3 } else { 4 })
            }
            _ => false,
        })
    }

    fn switch_to_fenced(&mut self, without: Without) -> bool {
        match self.at[SWITCHER] {
            0 => {
                self.store(SWITCHER, Mode, FENCED);
                self.go(SWITCHER, 1)
            }
            1 if !self.is_drained(SWITCHER) => false,
            1 => {
                if without != Without::SwitchBarrier {
                    self.interrupt_reader(without);
                }
                self.go(SWITCHER, 2)
            }
            2 => {
                self.store(SWITCHER, State, FENCED);
                self.go(SWITCHER, DONE)
            }
            _ => false,
        }
    }

    fn switch_back(&mut self, without: Without) -> bool {
        let (first, second) = if without == Without::StateBeforeMode { (Mode, State) } else { (State, Mode) };
        match self.at[SWITCHER] {
            0 => {
                self.store(SWITCHER, first, ASYMMETRIC);
                self.go(SWITCHER, 1)
            }
            1 if !self.is_drained(SWITCHER) => false,
            1 => {
                self.store(SWITCHER, second, ASYMMETRIC);
                self.go(SWITCHER, DONE)
            }
            _ => false,
        }
    }
}

/// What the three threads do.
#[derive(Clone, Copy, Debug)]
struct Case {
    restartable: bool,
    /// The domain's mode at first.
    mode: u8,
    /// Whether the switcher moves the domain to the other mode.
    switches: bool,
}

/// Whether the property holds in every interleaving.
fn holds(case: Case, without: Without) -> bool {
    let mut first = Machine {
        memory: [1, 1, 0, case.mode, case.mode],
        queues: [[None; 3]; 3],
        at: [0, if case.restartable { 0 } else { EPOCH }, if case.switches { 0 } else { DONE }],
        held: [0; 3],
        armed: false,
        freed: false,
    };
    first.memory[Link as usize] = 1;
    let (mut seen, mut open) = (HashSet::from([first]), vec![first]);
    while let Some(machine) = open.pop() {
        for thread in 0..3 {
            let mut drained = machine;
            drained.drain_one(thread);
            let mut stepped = machine;
            match stepped.step(thread, case.mode == ASYMMETRIC, without) {
                Err(()) => return false,
                Ok(moved) => {
                    let next = [Some(drained), moved.then_some(stepped)];
                    open.extend(next.into_iter().flatten().filter(|m| seen.insert(*m)));
                }
            }
        }
    }
    // The writer must be able to finish, or the property would hold for want of a free.
    assert!(seen.iter().any(|m| m.freed), "{case:?}");
    true
}

fn cases() -> impl Iterator<Item = Case> {
    let kinds = [true, false].into_iter();
    let modes = move |restartable| [ASYMMETRIC, FENCED].into_iter().map(move |mode| (restartable, mode));
    kinds.flat_map(modes).flat_map(|(restartable, mode)| {
        [true, false].into_iter().map(move |switches| Case { restartable, mode, switches })
    })
}

#[test]
fn the_protocol_holds_in_every_interleaving() {
    for case in cases() {
        assert!(holds(case, Without::Nothing), "{case:?}");
    }
}

#[test]
fn every_part_of_the_protocol_is_needed() {
    let parts = [
        Without::Membarrier,
        Without::Rseq,
        Without::ReaderFence,
        Without::ArmBeforeMode,
        Without::WordBeforeMode,
        Without::UnlinkBeforeState,
        Without::SwitchBarrier,
        Without::StateBeforeMode,
        Without::Scan,
    ];
    for part in parts {
        assert!(cases().any(|case| !holds(case, part)), "no violation without {part:?}");
    }
}
