//! Read-ahead of one file, as Linux's on-demand read-ahead (`mm/readahead.c`, behaviour of 6.1).
//!
//! A miss at the place where the last read ended, or at the start of the file, begins a window: twice to four times what was
//! asked for, up to the limit. A mark stands in it; the read that comes to the mark has the next window fetched, twice as
//! large, while the present one is still being read. Another miss is random: what was asked for is read, and nothing ahead.

use super::Pages;

/// What is known of a file's reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAhead {
    /// First page of the window.
    start: u32,
    /// Its pages; 0 for none.
    size: u32,
    /// The page whose read has the next window fetched.
    mark: u32,
    /// Behind the last read.
    next: u32,
}

impl ReadAhead {
    /// A read; `absent` is the first of its pages that neither is there nor is on its way. Returns what should be fetched: the
    /// rest of what was asked for with its window, and the next window. Ranges may hold pages that are there.
    pub fn read(
        &mut self,
        pages: Pages,
        absent: Option<u32>,
        file_pages: u32,
        limit: u32,
    ) -> [Option<Pages>; 2] {
        let Pages { file, first, count } = pages;
        let end = first + count;
        let sequential = first == self.next || first == 0;
        // A task that waited asks again for the same pages.
        self.next = end;
        let range = |start: u32, size: u32| {
            let count = size.min(file_pages.saturating_sub(start));
            (count > 0).then_some(Pages { file, first: start, count })
        };
        let mut sync = None;
        if let Some(absent) = absent {
            let asked = end - absent;
            if !sequential || limit <= asked {
                self.size = 0;
                if !sequential || limit == 0 {
                    return [range(absent, asked), None];
                }
            }
            self.start = absent;
            self.size = initial(asked, limit).max(asked);
            self.mark = if self.size > asked { end } else { absent };
            sync = range(self.start, self.size);
        }
        let comes_to_mark = self.size > 0 && (first..end).contains(&self.mark);
        let at_once = sync.is_some() && self.mark >= end;
        if !comes_to_mark || at_once {
            return [sync, None];
        }
        let start = self.start + self.size;
        self.size = grown(self.size, limit);
        self.start = start;
        self.mark = start;
        [sync, range(start, self.size)]
    }
}

/// The first window (`get_init_ra_size`).
fn initial(asked: u32, limit: u32) -> u32 {
    let size = asked.next_power_of_two();
    if size <= limit / 32 {
        size * 4
    } else if size <= limit / 4 {
        size * 2
    } else {
        limit
    }
}

/// The next one (`get_next_ra_size`).
fn grown(size: u32, limit: u32) -> u32 {
    if size < limit / 16 {
        size * 4
    } else if size <= limit / 2 {
        size * 2
    } else {
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::FileId;
    use super::*;

    fn pages(first: u32, count: u32) -> Pages {
        Pages { file: FileId(0), first, count }
    }

    #[test]
    fn a_sequential_reader_is_always_one_window_ahead() {
        let mut ahead = ReadAhead::default();
        let mut fetched = 0;
        for first in 0..1000 {
            let absent = (first >= fetched).then_some(first);
            for range in ahead.read(pages(first, 1), absent, 4096, 32).into_iter().flatten() {
                assert_eq!(range.first, fetched, "no page is left out");
                fetched = range.first + range.count;
            }
            assert!(fetched > first);
            assert!(first < 100 || absent.is_none(), "a miss at {first}");
            assert!(fetched - first <= 65, "at most the present window and the next");
        }
    }

    #[test]
    fn a_random_reader_gets_what_it_asked_for() {
        let mut ahead = ReadAhead::default();
        for first in [400, 8, 77, 1000] {
            assert_eq!(ahead.read(pages(first, 4), Some(first), 4096, 32), [Some(pages(first, 4)), None]);
        }
    }

    #[test]
    fn nothing_is_read_behind_the_end_or_without_a_limit() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.read(pages(0, 2), Some(0), 3, 32)[0], Some(pages(0, 3)));
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.read(pages(0, 2), Some(0), 100, 0), [Some(pages(0, 2)), None]);
    }
}
