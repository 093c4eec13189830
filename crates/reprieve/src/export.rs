//! `reprieve export`: serves what a VM sees of itself to Prometheus, until a signal.
//!
//! One thread makes a sample a second and adds it up ([`totals`]). Others serve the totals as text ([`page`], [`server`]). They
//! share a lock that is held only while a sample is added or the text is made, so no client delays a sample.

mod page;
mod server;
mod totals;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use reprieve_linux::clock;
use reprieve_linux::proc::ProcRoot;
use reprieve_linux::signals::Interrupt;
use reprieve_policy::sample::Tier;

use crate::cli::export::ExportArguments;
use crate::failure::Failure;
use crate::look::{self, Look, Seconds};
use crate::output;
use page::Pages;
use server::Server;
use totals::{Own, Totals};

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
    // No metric comes from a higher tier.
    let look = Look::begin(&root, Tier::T0)?;
    let is_without_graces = !look.times_grace_periods();
    let totals = Arc::new(Mutex::new(Totals { is_without_graces, ..Totals::default() }));
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
    let mut seconds = Seconds::begin();
    loop {
        look::wait(seconds.next_ns(), interrupt);
        if interrupt.is_raised() {
            return;
        }
        look.sample();
        let state = look.recent().state();
        let own = own(root);
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = look.recent().last() {
            totals.add(sample);
        }
        (totals.state, totals.own) = (state, own);
    }
}

/// What this process has cost so far.
fn own(root: &ProcRoot) -> Own {
    Own { cpu_ns: clock::own_cpu_ns(), resident_bytes: root.resident_bytes(std::process::id() as i32).ok() }
}

#[cfg(test)]
mod tests;
