//! The server of a UDP ping, as Sockperf's: takes a request, computes, answers, and waits for the next one. Its client
//! is on another machine ([`crate::world::client`]).

use crate::guest::Guest;
use crate::guest::env::Env;
use crate::guest::ids::Mode;
use crate::guest::network::Packet;
use crate::guest::task::{Op, Program};

struct Server {
    service_ns: u64,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Receive,
    /// The service is done, and the answer is sent next.
    Send(Packet),
    /// The answer was sent.
    Sent(Packet),
}

/// Adds the server, on vCPU 0.
pub fn add(guest: &mut Guest, service_ns: u64) {
    let server = guest.add_program(Box::new(Server { service_ns, step: Step::Receive }), Some(0));
    guest.set_server(server);
}

impl Program for Server {
    fn next(&mut self, env: &mut Env<'_>) -> Op {
        match self.step {
            Step::Send(request) => {
                self.step = Step::Sent(request);
                return Op::RunOn { ns: env.costs.packet_ns };
            }
            Step::Sent(request) => env.answer(request),
            Step::Receive => {}
        }
        let request = env.receive();
        self.step = request.map_or(Step::Receive, Step::Send);
        request.map_or(Op::Wait, |_| Op::Run { ns: self.service_ns, mode: Mode::User })
    }
}
