//! What the project's own schemes have in common: a domain, and how nodes are handed to it. The binaries differ in what
//! their readers do, in the domain's options, and in who frees.

use crate::options::Options;
use crate::report::{Fences, Identity};
use crate::scheme::{Reader, Scheme, Writer};
use crate::section::{Found, Section, Sleep};
use crate::table::{Node, Table, acquire};
use reprieve_rcu as rcu;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// One way to use the library.
pub trait Kind {
    /// Who this is.
    const IDENTITY: Identity;

    /// Whether a reclaimer thread waits and frees.
    const RECLAIMER: bool = false;

    /// Whether the writer marks unlinked nodes, for readers that follow links by slots.
    const MARKS: bool = false;

    /// Remarks for the report.
    const NOTES: &'static [&'static str];

    /// A reader thread's part.
    type Reader: Registered;

    /// The domain's options.
    fn options() -> rcu::Options {
        rcu::Options::new()
    }
}

/// A reader thread's part, which is made from the thread's registration.
pub trait Registered: Reader {
    /// Reads by this registration.
    fn new(registered: rcu::Reader, options: &Options) -> Self;
}

/// The identity of one of the project's schemes.
pub const fn identity(scheme: &'static str, kind: &'static str) -> Identity {
    Identity { scheme, library: "reprieve-rcu", version: env!("LIBRARY_VERSION_reprieve_rcu"), kind }
}

/// Whether the library works here without falling back.
///
/// # Errors
///
/// Says what the machine lacks.
pub fn check() -> Result<(), String> {
    let can = rcu::capabilities();
    if can.restartable.is_err() || !can.asymmetric {
        return Err(format!("what the library falls back to here is another benchmark: {can}"));
    }
    Ok(())
}

/// The library, used in one way.
pub struct Reprieve<K> {
    /// Before the domain: the thread ends first.
    reclaimer: Option<rcu::Reclaimer>,
    domain: rcu::Domain,
    options: Options,
    _kind: PhantomData<fn() -> K>,
}

/// The writer's part: retires each node in the domain.
pub struct Retirer<'s>(&'s rcu::Domain);

impl<K: Kind> Scheme for Reprieve<K> {
    const IDENTITY: Identity = K::IDENTITY;
    const MARKS: bool = K::MARKS;
    type Reader<'s>
        = K::Reader
    where
        Self: 's;
    type Writer<'s>
        = Retirer<'s>
    where
        Self: 's;

    fn new(options: &Options) -> Result<Self, String> {
        check()?;
        let domain = rcu::Domain::new(K::options());
        let reclaimer = K::RECLAIMER
            .then(|| domain.spawn_reclaimer())
            .transpose()
            .map_err(|error| format!("cannot start the reclaimer thread: {error}"))?;
        Ok(Self { reclaimer, domain, options: options.clone(), _kind: PhantomData })
    }

    fn notes(&self) -> Vec<String> {
        let stats = self.domain.stats();
        let counted = format!("{} restarts, {} fallbacks", stats.restarts, stats.fallbacks);
        let late = stats.late_cpu.map(|late| late.to_string());
        K::NOTES.iter().map(|&note| note.to_owned()).chain([counted]).chain(late).collect()
    }

    fn reader(&self, id: usize) -> K::Reader {
        let registered = self.domain.register(&format!("reader {id}")).expect("at most 256 readers");
        K::Reader::new(registered, &self.options)
    }

    fn writer(&self) -> Retirer<'_> {
        Retirer(&self.domain)
    }

    fn background_cpu_ns(&self) -> u64 {
        self.reclaimer.as_ref().map_or(0, rcu::Reclaimer::cpu_ns)
    }

    fn fences(&self) -> Option<Fences> {
        let stats = self.domain.stats();
        let calls = stats.membarrier;
        Some(Fences {
            membarriers: calls.count(),
            p50_ns: calls.quantile_ns(0.5),
            p99_ns: calls.quantile_ns(0.99),
            max_ns: calls.max_ns(),
            switches: stats.switches,
        })
    }

    fn finish(self) {
        drop(self.reclaimer);
        self.domain.barrier();
    }
}

impl Writer for Retirer<'_> {
    #[inline]
    unsafe fn retire(&mut self, node: NonNull<Node>) {
        // SAFETY: the node is unlinked, only this domain's sections read it, and it is retired once; any thread may
        // free it.
        unsafe { self.0.retire_with(node.as_ptr(), size_of::<Node>(), free) };
    }
}

/// # Safety
///
/// As [`Node::free`].
unsafe fn free(node: *mut Node) {
    // SAFETY: the caller's promise; retired nodes are not null.
    unsafe { Node::free(NonNull::new_unchecked(node)) }
}

/// A reader whose look-ups are restartable sections.
pub struct Restartable(rcu::Reader);

impl Registered for Restartable {
    fn new(registered: rcu::Reader, _: &Options) -> Self {
        Self(registered)
    }
}

impl Reader for Restartable {
    #[inline(always)]
    fn look_up<S: Sleep>(&mut self, table: &Table, key: u64, section: &Section<S>) -> Found {
        // The hash needs no protection, and the bucket's address does not change.
        let bucket = table.bucket(key);
        // SAFETY: the section loads and computes, and its result is a copy; a node that it may reach is not freed
        // before it ends or starts again.
        let found =
            unsafe { self.0.read(move || section.hold_awake(key, Table::find_from(bucket, key, acquire))) };
        // A restartable section cannot sleep: what it found it copied, and the sleep comes after.
        section.stall();
        found
    }
}
