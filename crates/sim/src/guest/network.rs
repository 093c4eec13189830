//! The guest's network device and the socket of its one server: requests come in through an event channel and a softirq,
//! and wake the server.
//!
//! The path of a request: the device puts it into its ring and raises the event channel of vCPU 0; that vCPU, once it runs,
//! takes the interrupt, and the softirq after it moves the packets to the socket and wakes the server's task.

use std::collections::VecDeque;

use crate::guest::ids::TaskId;
use crate::guest::vcpu::interrupt;
use crate::guest::{Clock, Guest, Request};

/// Packets that wait at most; further ones are lost, as in a socket whose buffer is full. Linux's default receive buffer
/// (net.core.rmem_default, 212,992 bytes) holds 277 packets of its smallest size (768 bytes with their bookkeeping).
const MOST_PACKETS: usize = 277;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When the client sent it.
    pub sent_ns: u64,
    /// When it came to the guest's device.
    pub arrived_ns: u64,
}

/// Device and socket.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Packets in the device's ring.
    ring: Vec<Packet>,
    /// Packets in the server's socket.
    pub socket: VecDeque<Packet>,
    /// Answers that leave.
    pub answers: Vec<Packet>,
    server: Option<TaskId>,
    lost: u64,
}

impl Guest {
    /// The task that requests wake.
    pub fn set_server(&mut self, task: TaskId) {
        self.io.network.server = Some(task);
    }

    /// A request comes to the device.
    pub fn deliver(&mut self, packet: Packet) {
        let network = &mut self.io.network;
        if network.ring.len() + network.socket.len() >= MOST_PACKETS {
            network.lost += 1;
            return;
        }
        network.ring.push(packet);
        self.vcpus[0].pending |= interrupt::EVENT;
        self.requests.push(Request::Kick(0));
    }

    /// Requests that were lost because too many waited.
    pub fn lost_requests(&self) -> u64 {
        self.io.network.lost
    }

    /// The softirq: packets go from the ring to the socket, and the server is woken. Returns the CPU time.
    pub(super) fn receive_packets(&mut self, clock: &mut Clock<'_>, v: usize) -> u64 {
        let network = &mut self.io.network;
        let packets = network.ring.len() as u64;
        network.socket.extend(network.ring.drain(..));
        let Some(server) = network.server.filter(|_| packets > 0) else { return 0 };
        self.notify(clock, server, v);
        packets * self.costs.packet_ns + self.costs.wake_ns
    }

    /// Hands the answers that a program made to the network.
    pub(super) fn send_answers(&mut self) {
        self.requests.extend(self.io.network.answers.drain(..).map(Request::Answer));
    }
}
