//! What each frame is, and lists of blocks threaded through their first frames.
//!
//! Flat vectors in which 0 is what a frame is before it was ever touched: the host then gives them no memory, and a
//! large guest costs what it uses.

use super::{MAX_ORDER, Mobility, PAGEBLOCK_ORDER};

/// No frame: the end of a list.
const NONE: u32 = u32::MAX;

/// What the block is that begins at a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Free, on a buddy list.
    Free = 1,
    /// Free, on a CPU's list.
    Listed = 2,
    /// In use.
    Used = 3,
}

/// A block, as its first frame has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub kind: Kind,
    pub order: u8,
    /// Of the list it is on; of a block in use, what it was asked for.
    pub mobility: Mobility,
}

impl Head {
    /// Bits 6-7 kind, 4-5 mobility, 0-3 order; never 0.
    fn encode(self) -> u8 {
        (self.kind as u8) << 6 | (self.mobility as u8) << 4 | self.order
    }

    fn decode(state: u8) -> Option<Head> {
        let kind = match state >> 6 {
            0 => return None,
            1 => Kind::Free,
            2 => Kind::Listed,
            _ => Kind::Used,
        };
        Some(Head { kind, order: state & 0xf, mobility: Mobility::ALL[(state >> 4 & 3) as usize] })
    }
}

/// A doubly linked list of blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    /// A list of nothing.
    pub const EMPTY: List = List { first: NONE, last: NONE };

    /// The block at the head.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The block at the tail.
    pub fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }
}

/// All frames of a memory.
#[derive(Debug)]
pub(super) struct Frames {
    /// A [`Head`] for the first frame of a block; 0 within a block, and for a frame never touched.
    states: Vec<u8>,
    /// Before and after on the block's list. Says nothing for a block on no list.
    links: Vec<[u32; 2]>,
    /// Mobility of each pageblock.
    pageblocks: Vec<Mobility>,
}

impl Frames {
    /// Frames never touched, in movable pageblocks, as at boot.
    pub fn new(frames: u32) -> Frames {
        // Up to a whole largest block, so that a block at the end may be asked for its buddy.
        let frames = (frames as usize).next_multiple_of(1 << MAX_ORDER);
        Frames {
            states: vec![0; frames],
            links: vec![[0; 2]; frames],
            pageblocks: vec![Mobility::Movable; frames >> PAGEBLOCK_ORDER],
        }
    }

    /// The block that begins at the frame.
    pub fn head(&self, frame: u32) -> Option<Head> {
        Head::decode(*self.states.get(frame as usize)?)
    }

    /// Whether a free block of exactly that order begins at the frame.
    pub fn is_free(&self, frame: u32, order: u8) -> bool {
        self.states[frame as usize] & 0b1100_1111 == (Kind::Free as u8) << 6 | order
    }

    /// Whether a block in use of exactly that order begins at the frame.
    pub fn is_used(&self, frame: u32, order: u8) -> bool {
        self.states
            .get(frame as usize)
            .is_some_and(|state| state & 0b1100_1111 == (Kind::Used as u8) << 6 | order)
    }

    /// Makes a block begin at the frame.
    pub fn set(&mut self, frame: u32, kind: Kind, order: u8, mobility: Mobility) {
        self.states[frame as usize] = Head { kind, order, mobility }.encode();
    }

    /// Makes no block begin at the frame.
    pub fn clear(&mut self, frame: u32) {
        self.states[frame as usize] = 0;
    }

    /// Mobility of the pageblock that the frame is in.
    pub fn mobility(&self, frame: u32) -> Mobility {
        self.pageblocks[(frame >> PAGEBLOCK_ORDER) as usize]
    }

    /// Sets the mobility of the pageblock that the frame is in.
    pub fn set_mobility(&mut self, frame: u32, mobility: Mobility) {
        self.pageblocks[(frame >> PAGEBLOCK_ORDER) as usize] = mobility;
    }

    /// The block after that one on its list.
    pub fn after(&self, frame: u32) -> Option<u32> {
        let next = self.links[frame as usize][1];
        (next != NONE).then_some(next)
    }

    /// Puts a block at the head of a list.
    pub fn push_first(&mut self, list: &mut List, frame: u32) {
        self.links[frame as usize] = [NONE, list.first];
        match list.first {
            NONE => list.last = frame,
            first => self.links[first as usize][0] = frame,
        }
        list.first = frame;
    }

    /// Puts a block at the tail of a list.
    pub fn push_last(&mut self, list: &mut List, frame: u32) {
        self.links[frame as usize] = [list.last, NONE];
        match list.last {
            NONE => list.first = frame,
            last => self.links[last as usize][1] = frame,
        }
        list.last = frame;
    }

    /// Takes a block off the list it is on.
    pub fn unlink(&mut self, list: &mut List, frame: u32) {
        let [before, after] = self.links[frame as usize];
        match before {
            NONE => list.first = after,
            before => self.links[before as usize][1] = after,
        }
        match after {
            NONE => list.last = before,
            after => self.links[after as usize][0] = before,
        }
    }
}
