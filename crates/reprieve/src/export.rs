//! `reprieve export`: serves what a VM sees of itself to Prometheus, until a signal.
//!
//! One thread makes a sample a second and adds it up ([`totals`]). Others serve the totals as text ([`page`], [`server`]). They
//! share a lock that is held only while a sample is added or the text is made, so no client delays a sample.

mod page;
mod server;
mod totals;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reprieve_linux::clock;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_policy::sample::Tier;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cli::export::ExportArguments;
use crate::failure::Failure;
use crate::look::Look;
use crate::output;
use page::Pages;
use server::Server;
use totals::{Own, Totals};

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Runs the verb.
pub fn export(arguments: &ExportArguments) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let server = Server::bind(arguments.listen)?;
    let address = server.address();
    if !address.ip().is_loopback() {
        output::say(&format!(
            "reprieve: warning: everybody who reaches {address} can read these metrics, and without encryption; a firewall or \
             a proxy with TLS keeps them in"
        ));
    }
    let root = ProcRoot::default();
    let look = Look::begin(&root, Tier::T2)?;
    let totals = Arc::new(Mutex::new(Totals::default()));
    server.serve(Arc::new(Pages::of(Arc::clone(&totals))))?;
    output::say(&format!("serves {}", link(address)));
    watch(&root, look, &totals, &interrupt);
    Ok(())
}

fn link(address: SocketAddr) -> String {
    format!("http://{address}/metrics")
}

/// Makes samples and adds them up, until a signal.
fn watch(root: &ProcRoot, mut look: Look, totals: &Mutex<Totals>, interrupt: &Interrupt) {
    let mut next = Instant::now() + SAMPLE_EVERY;
    while !is_raised_before(interrupt, next) {
        look.sample();
        let state = look.recent().state();
        let own = own(root);
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = look.recent().last() {
            totals.add(sample);
        }
        (totals.state, totals.own) = (state, own);
        drop(totals);
        // After a pause of the VM, samples are not made up for.
        next = (next + SAMPLE_EVERY).max(Instant::now());
    }
}

/// What this process has cost so far.
fn own(root: &ProcRoot) -> Own {
    Own { cpu_ns: clock::own_cpu_ns(), resident_bytes: root.resident_bytes(std::process::id() as i32).ok() }
}

/// Waits until then; whether a signal came first.
fn is_raised_before(interrupt: &Interrupt, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt.is_raised() || left.is_zero() {
            return interrupt.is_raised();
        }
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // Whatever ends the wait, what counts is looked at again.
        let _ = poll(&mut [PollFd::new(interrupt, PollFlags::IN)], Some(&left));
    }
}

#[cfg(test)]
mod tests;
