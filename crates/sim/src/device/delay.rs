//! A fixed delay: items come out in the order in which they went in.

use std::collections::VecDeque;

/// Items that wait, each for the same time.
#[derive(Clone, Debug)]
pub struct Delay<T> {
    delay_ns: u64,
    pub(super) under_way: VecDeque<(u64, T)>,
}

impl<T> Delay<T> {
    /// A delay of that length.
    pub fn new(delay_ns: u64) -> Delay<T> {
        Delay { delay_ns, under_way: VecDeque::new() }
    }

    /// Puts an item in.
    pub fn push(&mut self, now_ns: u64, item: T) {
        self.under_way.push_back((now_ns + self.delay_ns, item));
    }

    /// Takes the next item that has come out by now.
    pub fn pop(&mut self, now_ns: u64) -> Option<T> {
        (self.next()? <= now_ns).then(|| self.under_way.pop_front().expect("there is a next one").1)
    }

    /// When the next item comes out.
    pub fn next(&self) -> Option<u64> {
        self.under_way.front().map(|(at_ns, _)| *at_ns)
    }
}
