//! No reclamation: readers take no part, and deleted nodes are never freed. It shows what a look-up costs by itself in
//! the Rust body, the zero of every read cost.

use reprieve_peers::{
    Found, Identity, Node, Options, Reader, Scheme, Section, Sleep, Table, Writer, table::acquire,
};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::Mutex;

/// The deleted nodes, as addresses: whoever turns them back owns them.
#[derive(Default)]
struct NoReclamation(Mutex<Vec<usize>>);

struct Bare;

struct Keep<'s>(&'s NoReclamation, Vec<usize>);

impl Scheme for NoReclamation {
    const IDENTITY: Identity = Identity { scheme: "rust-none", library: "none", version: "0", kind: "none" };
    const FREES: bool = false;
    type Reader<'s> = Bare;
    type Writer<'s> = Keep<'s>;

    fn new(_: &Options) -> Result<Self, String> {
        Ok(Self::default())
    }

    fn notes(&self) -> Vec<String> {
        vec!["deleted nodes are freed only after the readers have ended".into()]
    }

    fn reader(&self, _: usize) -> Bare {
        Bare
    }

    fn writer(&self) -> Keep<'_> {
        Keep(self, Vec::new())
    }

    fn finish(self) {
        for address in self.0.into_inner().expect("nobody panics with the lock") {
            let node =
                NonNull::new(std::ptr::with_exposed_provenance_mut::<Node>(address)).expect("not null");
            // SAFETY: `Keep` was given the node once, and the readers have ended.
            unsafe { Node::free(node) };
        }
    }
}

impl Reader for Bare {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        // SAFETY: no node is freed while readers read.
        section.hold(key, unsafe { table.find(key, acquire) })
    }
}

impl Writer for Keep<'_> {
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        self.1.push(node.as_ptr().expose_provenance());
    }
}

impl Drop for Keep<'_> {
    fn drop(&mut self) {
        self.0.0.lock().expect("nobody panics with the lock").append(&mut self.1);
    }
}

fn main() -> ExitCode {
    reprieve_peers::main::<NoReclamation>()
}
