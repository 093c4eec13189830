//! What generated scenarios start from: each workload of the simulator once, with everything in it that a key can name.

const HEAD: &str = "
    name = 'generated'
    title = 't'
    run = { repeat = 1, warmup_ms = 20, window_ms = 500 }
    guest = { vcpus = 2, memory_mib = 256 }
    limits = { events = 20_000, memory_mib = 256 }
    conditions.baseline = {}
    [conditions.treated]
    neighbours = 1
    quota = [{ vcpu = 0, percent = 30, period_ms = 20 }]
    pauses = [{ vcpu = 1, at_ms = 10, for_ms = 30 }]
    spikes = [{ at_ms = 40, for_ms = 20, vcpus = 2 }]
    [conditions.xen]
    spinners = 2
    set = { host.scheduler = 'credit' }
";
const IO: &str = "
    [workload]
    kind = 'io'
    application = 'mixed'
    computing = 1
    rivals = 1
    block = { cache_mib = 16, page_kib = 16 }
    disk = { weights = [100, 50] }
    [workload.applications.mixed]
    tasks = [
        { threads = 2, file_mib = 64, working_set_kib = 64, steps = [
            { do = 'read', access = 'random', kib = 64 }, { do = 'compute', us = 100, spread_percent = 50 },
            { do = 'write', access = 'sequential', kib = 32 },
        ] },
        { file_mib = 32, steps = [{ do = 'read', access = 'sequential', kib = 128 }] },
    ]
    [workload.applications.reader]
    tasks = [{ file_mib = 128, steps = [{ do = 'read', access = 'sequential', kib = 512 }] }]
";
const OTHERS: [&str; 7] = [
    "workload = { kind = 'memory' }",
    "workload = { kind = 'memory', batched = true, pause_us = 100 }",
    "workload = { kind = 'clone' }",
    "workload = { kind = 'postmark', files = 200, transactions = 400 }",
    "workload = { kind = 'wakeup' }",
    "workload = { kind = 'requests', gap_us = 100 }",
    "workload = { kind = 'requests', rate_per_s = 5_000, gap_spread = 0.5 }",
];

/// How many there are.
pub const COUNT: u64 = OTHERS.len() as u64 + 2;

/// The one of that number. I/O has the most keys, and is there twice.
pub fn text(number: u64) -> String {
    // Keys outside of tables come first.
    let workload = OTHERS.get(number as usize);
    match workload {
        Some(workload) => format!("{workload}\n{HEAD}"),
        None => format!("{HEAD}{IO}"),
    }
}

/// More than one run: a sweep over conditions, and a case.
pub const MORE: &str = "
    [sweeps.window]
    key = 'run.window_ms'
    values = [500, 501]
    conditions = ['treated']
    [cases.other]
    set = { guest.hz = 1000 }
";

/// Texts that keys can have; of each key that ends so.
pub const TEXTS: [(&str, &[&str]); 15] = [
    ("replay", &["", "tape", "none"]),
    ("scheduler", &["eevdf", "cfs", "credit", "credit2", "rtds"]),
    ("spinlocks", &["queued", "paravirtual", "test-and-set"]),
    ("xen.version", &["4.5", "4.7", "4.17"]),
    ("application", &["mixed", "reader"]),
    ("system", &["plain", "vslicer", "xballoon", "vmigrater"]),
    ("disk.kind", &["ssd", "hdd"]),
    ("access", &["sequential", "random"]),
    ("fixes", &["boost-on-migration", "inactive-debt", "boost-erased", "late-wake"]),
    (
        "without",
        &["reader-preemption", "lock-holder-preemption", "context-switches", "cpu-share", "memory-pressure"],
    ),
    (
        "remedies",
        &[
            "boost",
            "boost-unaimed",
            "slice-grant",
            "short-slices",
            "co-schedule",
            "steady-cpus",
            "deferred-aware-slab",
            "back-pressure",
            "expedited",
            "ask-first",
            "offload",
            "oracle",
        ],
    ),
    ("namespaces", &["net", "ipc", "uts", "pid", "mnt"]),
    ("kernel", &["", "6.1", "6.12"]),
    ("observe.rows", &["gp_mean_ns", "footprint_peak_bytes", "no_such_metric"]),
    ("append", &[""]),
];
