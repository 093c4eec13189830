//! Memory that a booted kernel holds before any workload runs.
//!
//! Most of it is large: image, page structures, hash tables. The rest is what is left of a boot that allocated much
//! and freed most of it again: single pages, unmovable and movable, with holes between.

use super::pages::Pressed;
use super::{FRAME_BYTES, MAX_ORDER, Memory, Mobility, OutOfMemory};
use crate::random::Stream;

/// One frame in so many of what is taken is a single page. Estimate.
const SCATTERED_ONE_IN: u64 = 8;
/// Of the single pages allocated during boot one in so many stays. Estimate.
const STAYS_ONE_IN: u64 = 4;

impl Memory {
    /// Takes so many bytes, rounded down to frames, for good, as a booted kernel has them; the footprint grows by
    /// exactly that. The scattered part is spread over about half as many bytes; which of its frames stay is drawn
    /// from `scatter`.
    ///
    /// # Errors
    /// When there is not so much free memory. What was taken by then stays taken.
    pub fn occupy(&mut self, bytes: u64, scatter: &mut Stream) -> Result<(), OutOfMemory> {
        let frames = bytes / FRAME_BYTES;
        let single = frames / SCATTERED_ONE_IN;
        self.take_contiguous(frames - single)?;
        self.take_scattered(single, scatter)?;
        self.pages.drain(&self.costs);
        Ok(())
    }

    /// Takes unmovable blocks, as large as they come.
    fn take_contiguous(&mut self, frames: u64) -> Result<(), OutOfMemory> {
        let mut left = frames;
        let mut order = MAX_ORDER;
        while left > 0 {
            order = order.min(left.ilog2() as u8);
            match self.pages.alloc(0, order, Mobility::Unmovable, Pressed::Drains, &self.costs) {
                Ok(_) => left -= 1 << order,
                Err(error) if order == 0 => return Err(error),
                Err(_) => order -= 1,
            }
        }
        Ok(())
    }

    /// Takes single pages, a part of which is given back in the end.
    fn take_scattered(&mut self, frames: u64, scatter: &mut Stream) -> Result<(), OutOfMemory> {
        let passing = (frames * (STAYS_ONE_IN - 1)).min(self.pages.free_frames() / 2);
        let mut taken = Vec::new();
        for at in 0..frames + passing {
            let mobility = if scatter.within(0, 1) == 0 { Mobility::Unmovable } else { Mobility::Movable };
            match self.pages.alloc(0, 0, mobility, Pressed::Drains, &self.costs) {
                Ok((frame, _)) => taken.push(frame),
                Err(_) if at >= frames => break,
                Err(error) => return Err(error),
            }
        }
        // Each choice of `frames` out of those taken is equally likely (Knuth, TAOCP 2, 3.4.2, algorithm S).
        let mut staying = frames;
        for (at, &frame) in taken.iter().enumerate() {
            if scatter.within(1, (taken.len() - at) as u64) <= staying {
                staying -= 1;
            } else {
                self.pages.free(0, frame, 0, &self.costs);
            }
        }
        Ok(())
    }
}
