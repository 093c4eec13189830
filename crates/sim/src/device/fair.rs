//! The host's I/O scheduler: decides which VM's request comes next.
//!
//! Each VM has a queue, served in order. The VM with the least service by weight comes next, and is served until its
//! slice ends. If its queue empties earlier, the drive idles for a while in case another request follows; otherwise a
//! disk would seek back and forth between VMs that read sequentially. A slice is wall time, so a VM pays for the
//! idling. Without slices the scheduler chooses again for each request, and service is the drive's time. A VM that
//! returns after a break does not catch up: its service is set to that of the VM being served.
//!
//! Source: behaviour of Linux's CFQ (slices, idling, `vdisktime`) and BFQ (budgets, virtual time of service).

use std::collections::VecDeque;

use super::DiskRequest;

/// The default weight of a VM.
pub const WEIGHT: u64 = 100;

/// The parameters of the scheduler.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// Length of a slice; 0 to choose again for each request.
    pub slice_ns: u64,
    /// How long the drive idles for the VM of the slice.
    pub idle_ns: u64,
    /// Weights of the VMs; missing ones are [`WEIGHT`].
    pub weights: Vec<u64>,
}

/// A VM's queue.
#[derive(Clone, Debug)]
struct Client {
    waiting: VecDeque<DiskRequest>,
    weight: u64,
    /// Service so far, by weight: ns x [`WEIGHT`] / weight.
    service_ns: u64,
    in_service: usize,
}

/// The slice of the VM being served.
#[derive(Clone, Copy, Debug)]
struct Slice {
    client: usize,
    began_ns: u64,
    /// When its queue emptied and the drive began to idle.
    idle_since_ns: Option<u64>,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Fair {
    params: Params,
    clients: Vec<Client>,
    slice: Option<Slice>,
    /// Requests that wait, of all VMs.
    pub(super) waiting: usize,
    /// Service of the VM chosen last; a VM that returns starts from here at least.
    floor_ns: u64,
}

impl Fair {
    /// A scheduler for that many VMs.
    pub fn new(params: Params, guests: usize) -> Fair {
        let client = |guest| Client {
            waiting: VecDeque::new(),
            weight: params.weights.get(guest).copied().unwrap_or(WEIGHT).max(1),
            service_ns: 0,
            in_service: 0,
        };
        let clients = (0..guests).map(client).collect();
        Fair { params, clients, slice: None, waiting: 0, floor_ns: 0 }
    }

    /// A request comes.
    pub fn push(&mut self, request: DiskRequest) {
        let client = &mut self.clients[request.guest];
        if client.waiting.is_empty() && client.in_service == 0 {
            client.service_ns = client.service_ns.max(self.floor_ns);
        }
        client.waiting.push_back(request);
        self.waiting += 1;
    }

    /// The request that the drive should begin now, if any.
    pub fn next(&mut self, now_ns: u64) -> Option<DiskRequest> {
        let chosen = match self.slice {
            Some(slice) if self.keeps(now_ns, slice) => slice.client,
            _ => {
                self.end_slice(now_ns);
                let client = self.least_served()?;
                let slice = Slice { client, began_ns: now_ns, idle_since_ns: None };
                self.slice = (self.params.slice_ns > 0).then_some(slice);
                client
            }
        };
        let client = &mut self.clients[chosen];
        let request = client.waiting.pop_front()?;
        client.in_service += 1;
        self.waiting -= 1;
        self.floor_ns = self.floor_ns.max(client.service_ns);
        if let Some(slice) = &mut self.slice {
            slice.idle_since_ns = None;
        }
        Some(request)
    }

    /// Whether the slice goes on.
    fn keeps(&self, now_ns: u64, slice: Slice) -> bool {
        let client = &self.clients[slice.client];
        let hopes = slice.idle_since_ns.is_some_and(|since_ns| now_ns < since_ns + self.params.idle_ns);
        let wants = !client.waiting.is_empty() || client.in_service > 0 || hopes;
        wants && now_ns < slice.began_ns + self.params.slice_ns
    }

    /// Ends the slice; the VM pays for it, up to the end of the idling.
    fn end_slice(&mut self, now_ns: u64) {
        let Some(slice) = self.slice.take() else { return };
        let hoped_ns = slice.idle_since_ns.map_or(now_ns, |since_ns| since_ns + self.params.idle_ns);
        let had_ns = hoped_ns.min(now_ns) - slice.began_ns;
        self.serve(slice.client, had_ns);
    }

    fn serve(&mut self, client: usize, ns: u64) {
        let client = &mut self.clients[client];
        client.service_ns += ns * WEIGHT / client.weight;
    }

    fn least_served(&self) -> Option<usize> {
        let wanting = (0..self.clients.len()).filter(|client| !self.clients[*client].waiting.is_empty());
        wanting.min_by_key(|client| self.clients[*client].service_ns)
    }

    /// The drive has begun a request of that VM, at that cost.
    pub fn charge(&mut self, guest: usize, cost_ns: u64) {
        if self.params.slice_ns == 0 {
            self.serve(guest, cost_ns);
        }
    }

    /// A request of that VM is done.
    pub fn ended(&mut self, now_ns: u64, guest: usize) {
        let client = &mut self.clients[guest];
        client.in_service -= 1;
        let is_empty = client.in_service == 0 && client.waiting.is_empty();
        if let Some(slice) = self.slice.as_mut().filter(|slice| slice.client == guest && is_empty) {
            slice.idle_since_ns = Some(now_ns);
        }
    }

    /// When the idling or the slice ends, if other VMs wait.
    pub fn decides_ns(&self) -> Option<u64> {
        let slice = self.slice?;
        let hoped_ns = slice.idle_since_ns? + self.params.idle_ns;
        (self.waiting > 0).then_some(hoped_ns.min(slice.began_ns + self.params.slice_ns))
    }
}
