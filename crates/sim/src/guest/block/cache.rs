//! The page cache: which pages of which files are present, and which are evicted when it is full.
//!
//! Pages are evicted in the order in which they came, except that a page used more than once gets a second chance (the
//! clock algorithm: Corbató, "A Paging Experiment with the Multics System", 1968). As in Linux, the first use of a page
//! does not count: a page read once is not worth keeping.

use std::collections::VecDeque;

/// A file, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub u32);

/// A page's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not in the cache.
    Absent,
    /// A request for it is pending.
    Pending,
    /// Present and not used.
    Present,
    /// Present and used once.
    Used,
    /// Present, and used again since its last chance.
    Referenced,
}

#[derive(Clone, Debug)]
struct File {
    start_byte: u64,
    pages: Vec<State>,
}

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    files: Vec<File>,
    /// Cached and pending pages; the next to be evicted is first.
    resident: VecDeque<(u32, u32)>,
    /// How many of them are pending.
    pending: usize,
    capacity: usize,
    /// Steps of long loops (the simulator's cost, not the guest's).
    work: u64,
}

impl Cache {
    /// An empty cache of that many pages.
    pub fn new(capacity: usize) -> Cache {
        Cache { files: Vec::new(), resident: VecDeque::new(), pending: 0, capacity: capacity.max(1), work: 0 }
    }

    /// Adds a file with no page present.
    pub fn add_file(&mut self, start_byte: u64, pages: u32) -> FileId {
        self.files.push(File { start_byte, pages: vec![State::Absent; pages as usize] });
        FileId(self.files.len() as u32 - 1)
    }

    /// Where on the disk a file begins.
    pub fn start_of(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].start_byte
    }

    /// Size of a file.
    pub fn pages_of(&self, file: FileId) -> u32 {
        self.files[file.0 as usize].pages.len() as u32
    }

    /// A page's state.
    pub fn state(&self, file: FileId, page: u32) -> State {
        self.files[file.0 as usize].pages[page as usize]
    }

    fn state_mut(&mut self, file: FileId, page: u32) -> &mut State {
        &mut self.files[file.0 as usize].pages[page as usize]
    }

    /// A page becomes pending. Others are evicted to make room for it, unless all are pending.
    pub fn begin(&mut self, file: FileId, page: u32) {
        self.work += 1;
        if *self.state_mut(file, page) == State::Absent {
            self.make_room();
            self.resident.push_back((file.0, page));
        }
        if std::mem::replace(self.state_mut(file, page), State::Pending) != State::Pending {
            self.pending += 1;
        }
    }

    fn make_room(&mut self) {
        // After two rounds each page has had its second chance.
        let most = 2 * self.resident.len();
        for done in 0..most {
            if self.resident.len() < self.capacity {
                return;
            }
            if self.pending == self.resident.len() {
                // No page can be evicted: the rest of the rounds only rotates the queue.
                return self.turn(most - done);
            }
            self.work += 1;
            let Some((file, page)) = self.resident.pop_front() else { return };
            let state = self.state_mut(FileId(file), page);
            match state {
                State::Present | State::Used => *state = State::Absent,
                State::Referenced => {
                    *state = State::Used;
                    self.resident.push_back((file, page));
                }
                State::Pending | State::Absent => self.resident.push_back((file, page)),
            }
        }
    }

    /// Moves that many pages from the front to the back.
    fn turn(&mut self, by: usize) {
        let by = by % self.resident.len().max(1);
        self.work += by as u64;
        self.resident.rotate_left(by);
    }

    /// Memory of the order of its pages.
    pub(super) fn held_bytes(&self) -> usize {
        self.resident.len() * size_of::<(u32, u32)>()
    }

    /// Takes the steps of long loops since the last call.
    pub(super) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// The request for the page is completed.
    pub fn end(&mut self, file: FileId, page: u32) {
        debug_assert_eq!(self.state(file, page), State::Pending);
        self.pending -= 1;
        *self.state_mut(file, page) = State::Present;
    }

    /// A task uses the page.
    pub fn touch(&mut self, file: FileId, page: u32) {
        let state = self.state_mut(file, page);
        *state = match *state {
            State::Present => State::Used,
            State::Used => State::Referenced,
            other => other,
        };
    }

    /// Checks that the queue and the files agree.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self) -> Result<(), String> {
        let states = || self.files.iter().flat_map(|file| &file.pages);
        let counted = states().filter(|state| **state != State::Absent).count();
        let pending = states().filter(|state| **state == State::Pending).count();
        if pending != self.pending {
            return Err(format!("{pending} pages are on their way, and {} are counted", self.pending));
        }
        if counted != self.resident.len() {
            return Err(format!(
                "{counted} pages are in the cache, and {} in its order",
                self.resident.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(capacity: usize, pages: u32) -> (Cache, FileId) {
        let mut cache = Cache::new(capacity);
        let file = cache.add_file(0, 16);
        for page in 0..pages {
            cache.begin(file, page);
            cache.end(file, page);
        }
        (cache, file)
    }

    #[test]
    fn the_oldest_page_goes_and_one_that_was_used_again_stays() {
        let (mut cache, file) = filled(3, 3);
        (0..2).for_each(|_| cache.touch(file, 0));
        cache.touch(file, 1);
        cache.begin(file, 3);
        assert_eq!(cache.state(file, 1), State::Absent, "the oldest that was not used again");
        assert_eq!(cache.state(file, 0), State::Used, "its second chance is taken");
        assert_eq!(cache.state(file, 3), State::Pending);
        cache.end(file, 3);
        cache.begin(file, 4);
        assert_eq!((cache.state(file, 2), cache.state(file, 0)), (State::Absent, State::Used));
        cache.check().unwrap();
    }

    /// More pending pages than the cache holds must not make each further one slower.
    #[test]
    fn a_full_cache_of_pending_pages_is_not_searched_for_each_further_one() {
        let work = |pages: u32| {
            let mut cache = Cache::new(64);
            let file = cache.add_file(0, pages);
            (0..pages).for_each(|page| cache.begin(file, page));
            cache.check().unwrap();
            cache.take_work()
        };
        assert_eq!((work(1_000), work(10_000)), (1_000, 10_000));
    }

    #[test]
    fn pending_pages_never_go() {
        let mut cache = Cache::new(2);
        let file = cache.add_file(0, 16);
        (0..4).for_each(|page| cache.begin(file, page));
        assert!((0..4).all(|page| cache.state(file, page) == State::Pending));
        (0..4).for_each(|page| cache.end(file, page));
        cache.begin(file, 5);
        let there = (0..16).filter(|page| cache.state(file, *page) != State::Absent).count();
        assert_eq!(there, 2, "as many as it holds");
        cache.check().unwrap();
    }
}
