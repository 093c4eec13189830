//! The options of a domain. By default a writer that finds a limit reached waits for a millisecond, and then exceeds it.

use crate::units::MILLISECOND_NS;

/// How long a call that retires waits for room when a domain's garbage is at a limit. If there is still no room then,
/// methods named `try_` refuse, and the others exceed the limit. Callers that would wait for themselves do not wait:
/// those within a section of the domain, within one of its callbacks, or while a panic unwinds. Within a callback of
/// another domain, callers do not wait for frees that other threads have in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// Waits for a grace period and frees, for at most `timeout_ns`.
    Wait {
        /// Longest wait, in nanoseconds.
        timeout_ns: u64,
    },
    /// Waits for a grace period and frees as long as it takes: the limits hold. A caller must not hold a lock for
    /// which a reader of the domain waits, because then the two wait for each other for ever.
    Reclaim,
    /// Does not wait: the caller frees what may be freed at once.
    NoWait,
}

/// What a writer does about a reader that holds up a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// Asks the domain's readers, a few times per token, to yield the CPU when they leave a section. A late reader
    /// then gets a CPU sooner, and more preemptions fall between sections.
    Yield,
    /// Does nothing.
    None,
}

/// Who executes the fences at the start of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// The writers, by membarrier. If there is no membarrier, the readers.
    Asymmetric,
    /// The readers. Restartable sections run as locked ones.
    Fenced,
    /// The writers; but the readers while membarrier takes longer than [`Options::call_limit_ns`]. For virtual
    /// machines whose vCPUs are descheduled. Such a vCPU then holds up only what its readers protect: with hazard
    /// slots, single values; with locked sections, all that is retired meanwhile.
    Adaptive,
}

/// The default of [`Options::call_limit_ns`].
pub(crate) const CALL_LIMIT_NS: u64 = MILLISECOND_NS;

/// Options of a domain; see the methods.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) limit_objects: usize,
    pub(crate) limit_bytes: usize,
    pub(crate) at_limit: AtLimit,
    pub(crate) batch: usize,
    pub(crate) deadline_ns: u64,
    pub(crate) patience_ns: u64,
    pub(crate) call_limit_ns: u64,
    pub(crate) help: Help,
    pub(crate) fencing: Fencing,
    pub(crate) limit_readers: usize,
    pub(crate) limit_slots: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit_objects: 1 << 20,
            limit_bytes: 64 << 20,
            at_limit: AtLimit::Wait { timeout_ns: MILLISECOND_NS },
            batch: 1,
            deadline_ns: 2 * MILLISECOND_NS,
            patience_ns: MILLISECOND_NS / 10,
            call_limit_ns: CALL_LIMIT_NS,
            help: Help::Yield,
            fencing: Fencing::Asymmetric,
            limit_readers: 1 << 16,
            limit_slots: 1 << 16,
        }
    }
}

impl Options {
    /// The defaults, which each method states.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many objects may wait to be freed, at least 1. Default 1,048,576.
    pub fn limit_objects(mut self, objects: usize) -> Self {
        self.limit_objects = objects.max(1);
        self
    }

    /// How many bytes may wait to be freed. A single object is always accepted. Default 64 MiB.
    pub fn limit_bytes(mut self, bytes: usize) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// How long a call waits for room at a limit. Default [`AtLimit::Wait`], 1 ms.
    pub fn at_limit(mut self, policy: AtLimit) -> Self {
        self.at_limit = policy;
        self
    }

    /// How many objects share a grace period, at least 1. With 1, the default, each object is freed by the call that
    /// retires it, unless a reader holds it up.
    pub fn batch(mut self, objects: usize) -> Self {
        self.batch = objects.max(1);
        self
    }

    /// How long an incomplete batch waits for more objects, in nanoseconds. Then the next call, or the reclaimer
    /// thread, closes it. Default 2 ms.
    pub fn deadline_ns(mut self, ns: u64) -> Self {
        self.deadline_ns = ns;
        self
    }

    /// How long a writer waits actively for readers to leave short sections, in nanoseconds. Afterwards `synchronize`
    /// sleeps, and a call that retires leaves the object to a later call. Default 100 us.
    pub fn patience_ns(mut self, ns: u64) -> Self {
        self.patience_ns = ns;
        self
    }

    /// How long membarrier may hold up a call that retires, in nanoseconds. Default 1 ms. Such a call also spends at
    /// most half of this on freeing what earlier calls left.
    ///
    /// membarrier waits for every CPU that runs a thread of the process. In a virtual machine whose vCPU the hypervisor
    /// has descheduled, it waits for that vCPU's return. When a call that retires has waited longer than this limit, and
    /// another one within a second, a thread of the process begins to call membarrier for all its domains. Calls that
    /// retire then wait at most a tenth of a millisecond for that thread, and for room within the limits ([`AtLimit`]);
    /// the first call after the fence frees what they retired. Callers that wait for a grace period sleep. After a second
    /// without a slow call, callers call membarrier themselves again. That second doubles, up to 64 s, each time calls
    /// turn slow again within a minute. [`Stats::late_cpu`](crate::Stats::late_cpu) names the CPU that is late.
    ///
    /// With 0, the thread makes all calls from the first one on, also those of other domains, and no call that
    /// retires waits for it. Each such call then costs a wake-up and, on the thread, a membarrier per CPU; a later
    /// call frees what it retires. If the thread cannot be started, the limit is 1 ms. With `u64::MAX`, this domain's
    /// calls wait for membarrier however long it takes.
    pub fn call_limit_ns(mut self, ns: u64) -> Self {
        self.call_limit_ns = ns;
        self
    }

    /// What a writer does about a reader that holds up a token. Default [`Help::Yield`].
    pub fn help(mut self, help: Help) -> Self {
        self.help = help;
        self
    }

    /// Who executes the fences of sections. Default [`Fencing::Asymmetric`].
    pub fn fencing(mut self, fencing: Fencing) -> Self {
        self.fencing = fencing;
        self
    }

    /// How many readers may be registered at one time. Default 65,536.
    pub fn limit_readers(mut self, readers: usize) -> Self {
        self.limit_readers = readers;
        self
    }

    /// How many hazard slots may be in use at one time: those of readers, one for each thread that has used
    /// [`RcuCell::with`](crate::RcuCell::with) or a similar method in the domain, and one for each
    /// [`Held`](crate::Held). Default 65,536.
    pub fn limit_slots(mut self, slots: usize) -> Self {
        self.limit_slots = slots;
        self
    }
}
