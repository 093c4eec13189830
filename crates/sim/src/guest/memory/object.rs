//! The handle of an object, in 64 bits. Two forms, told apart by the lowest bit:
//!
//! | bits | object of a slab | object that is a block of pages |
//! |---|---|---|
//! | 0 | 0 | 1 |
//! | 1-26 | slab, numbered within its cache | order |
//! | 27-38 | object within the slab | |
//! | 39-48 | cache | bits 32-57: first frame |
//! | 49-61 | generation of the slab's number, so that a handle kept too long is recognised | |
//! | 62-63 | 0: an RCU callback says there what it is | |

use super::{Cache, Frame};

/// Caches that a handle can name.
pub(super) const CACHES: usize = 1 << 10;
/// Generations that a handle tells apart.
pub(super) const GENERATIONS: u16 = 1 << 13;

/// An object of a slab cache: 8 bytes, because callbacks carry it by the hundred thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub u64);

/// What a handle says.
pub(super) enum Place {
    Slab { cache: usize, slab: u32, number: u16, generation: u16 },
    Pages { frame: Frame, order: u8 },
}

impl Object {
    /// The object of that number of a slab.
    pub(super) fn of_slab(cache: usize, slab: u32, number: u16, generation: u16) -> Object {
        Object(
            u64::from(slab) << 1
                | u64::from(number) << 27
                | (cache as u64) << 39
                | u64::from(generation) << 49,
        )
    }

    /// The object that is this block.
    pub(super) fn of_pages(frame: Frame, order: u8) -> Object {
        Object(u64::from(frame.0) << 32 | u64::from(order) << 1 | 1)
    }

    /// The cache of an object of a slab.
    pub fn cache(self) -> Option<Cache> {
        match self.place() {
            Place::Slab { cache, .. } => Some(Cache(cache as u16)),
            Place::Pages { .. } => None,
        }
    }

    /// Where the object is.
    pub(super) fn place(self) -> Place {
        if self.0 & 1 == 1 {
            return Place::Pages { frame: Frame((self.0 >> 32) as u32), order: (self.0 >> 1 & 0xf) as u8 };
        }
        Place::Slab {
            cache: (self.0 >> 39 & 0x3ff) as usize,
            slab: (self.0 >> 1 & 0x3ff_ffff) as u32,
            number: (self.0 >> 27 & 0xfff) as u16,
            generation: (self.0 >> 49) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_handles_leave_two_bits_to_callbacks() {
        let object = Object::of_slab(CACHES - 1, (1 << 26) - 1, (1 << 12) - 1, GENERATIONS - 1);
        assert_eq!(object.0 >> 62, 0);
        let Place::Slab { cache, slab, number, generation } = object.place() else { panic!("of a slab") };
        assert_eq!((cache, slab), (CACHES - 1, (1 << 26) - 1));
        assert_eq!((number, generation), ((1 << 12) - 1, GENERATIONS - 1));
        let frames = (256 << 30) / super::super::FRAME_BYTES;
        assert_eq!(Object::of_pages(Frame(frames as u32 - 1), super::super::MAX_ORDER).0 >> 62, 0);
    }
}
