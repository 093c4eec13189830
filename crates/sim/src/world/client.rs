//! The client of a guest's server, on another machine. It sends requests and measures when the answers come.

use reprieve_study::Span;

use crate::guest::network::Packet;
use crate::queue::{Class, Queue, Timer};
use crate::random::Stream;
use crate::workload::Spread;

/// When a client sends its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// This long after an answer.
    Closed(Spread),
    /// This long after the last request, answered or not.
    Open(Spread),
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// The guest whose server it asks.
    pub(super) guest: usize,
    /// Expires when the next request reaches the guest.
    pub(super) timer: Timer,
    sends: Loop,
    network_ns: u64,
    stream: Stream,
    /// When it sends the next request.
    sent_ns: u64,
}

impl Client {
    /// A client that has sent nothing yet. `network_ns` is the delay of the network in one direction.
    pub fn new(guest: usize, sends: Loop, network_ns: u64, stream: Stream, queue: &mut Queue) -> Client {
        let timer = queue.add(Class::Stimulus);
        Client { guest, timer, sends, network_ns, stream, sent_ns: 0 }
    }

    /// Sends the first request after a gap.
    pub(super) fn start(&mut self, now_ns: u64, queue: &mut Queue) {
        let (Loop::Closed(gap) | Loop::Open(gap)) = self.sends;
        let first_ns = now_ns + gap.draw(&mut self.stream);
        self.send(first_ns, queue);
    }

    fn send(&mut self, at_ns: u64, queue: &mut Queue) {
        self.sent_ns = at_ns;
        queue.arm(self.timer, at_ns + self.network_ns);
    }

    /// A request has reached the guest.
    pub(super) fn arrived(&mut self, now_ns: u64, queue: &mut Queue) -> Packet {
        let packet = Packet { sent_ns: self.sent_ns, arrived_ns: now_ns };
        if let Loop::Open(gap) = self.sends {
            let next_ns = self.sent_ns + gap.draw(&mut self.stream);
            self.send(next_ns, queue);
        }
        packet
    }

    /// An answer leaves the guest. Returns the time that the guest took, and the delay of the network.
    pub(super) fn answered(&mut self, now_ns: u64, request: Packet, queue: &mut Queue) -> (Span, u64) {
        if let Loop::Closed(gap) = self.sends {
            let next_ns = now_ns + self.network_ns + gap.draw(&mut self.stream);
            self.send(next_ns, queue);
        }
        (Span::new(request.arrived_ns, now_ns), 2 * self.network_ns)
    }
}
