//! What a line says, without its time: mostly nothing, rarely a few things.

use super::Kind;

/// The most CPUs or tasks that are taken from a line.
const MOST_NAMES: usize = 16;
/// Of a task's name, so many bytes.
const NAME_BYTES: usize = 40;
/// The longest name that the kernel has for a task, bytes.
const TASK_NAME_BYTES: usize = 15;
/// What hypervisors call the machines they make (DMI). Metal of the same makers says so.
const MACHINES: [&str; 10] = [
    "QEMU",
    "KVM",
    "VMware",
    "VirtualBox",
    "Amazon EC2",
    "Google Compute Engine",
    "OpenStack",
    "HVM domU",
    "Virtual Machine",
    "OxVM",
];

/// A shorter line says nothing, bytes.
const SHORTEST_BYTES: usize = 8;

/// What the line says.
pub(super) fn kinds(text: &str) -> Vec<Kind> {
    let has = |words: &str| text.contains(words);
    // Millions of empty lines are not searched.
    if text.len() < SHORTEST_BYTES || is_fault(text) {
        return Vec::new();
    }
    let mut kinds = Vec::new();
    // Only few lines say anything, and these words are in all that do.
    if has("rcu") || has("jiffies") || has(" GP) ") || has("GPs behind") || has("QSes seen") {
        of_rcu(text, &mut kinds);
    }
    if has("soft lockup - CPU#") {
        kinds.push(Kind::SoftLockup { seconds: number_between(text, "stuck for ", "s!").unwrap_or(0) });
    }
    kinds.extend(blocked(text));
    if has("hrtimer: interrupt took") {
        kinds.extend(number_between(text, "took ", " ns").map(|ns| Kind::SlowTimer { ns }));
    }
    if has(" skipped: idling at") {
        kinds.extend(number_between(text, "cpu ", " skipped").map(|cpu| Kind::Idling { cpu }));
    }
    let is_of = |all: &[&str]| all.iter().any(|words| has(words));
    let simple = [
        (&["Linux version "][..], Kind::Boot),
        (&["as unstable", "TSC unstable", "timekeeping watchdog", "Long readout interval"], Kind::Clock),
        (&["Timekeeping suspended for", "PM: suspend exit", "Restarting kernel threads"], Kind::Suspended),
        (&["Out of memory", "page allocation failure", "page allocation stalls"], Kind::Memory),
        (&["RT throttling activated"], Kind::RealTime),
        (&["Hypervisor detected:", "paravirtualized kernel on"], Kind::Virtual),
    ];
    // Bare hardware announces itself as a paravirtualized kernel, too.
    let is_bare = has("paravirtualized kernel on bare hardware");
    kinds.extend(simple.into_iter().filter(|(words, _)| is_of(words) && !is_bare).map(|(_, kind)| kind));
    if has("Hardware name:") && is_of(&MACHINES) && !has("metal") {
        kinds.push(Kind::Virtual);
    }
    kinds
}

/// True for the kernel's report of a program that crashed: `name[4711]: segfault at ...`, or `traps: name[4711] ...`. Such lines are ignored:
/// whoever runs the program chooses its name, and could choose `TSC unstable`.
fn is_fault(line: &str) -> bool {
    let (_, text) = super::time::split(line);
    let message = text.split_once("kernel: ").map_or(text, |(_, message)| message).trim_start();
    let is_pid = |before: &str| {
        let (name, pid) = before.rsplit_once('[').unwrap_or_default();
        name.len() <= TASK_NAME_BYTES && !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())
    };
    message.starts_with("traps: ")
        || message.split_once("]: segfault at ").is_some_and(|(before, _)| is_pid(before))
}

/// What a line of RCU's says.
fn of_rcu(text: &str, kinds: &mut Vec<Kind>) {
    let has = |words: &str| text.contains(words);
    let is_expedited = has("detected expedited stall");
    if has("rcu") && (has("detected stall") || is_expedited) {
        let flavour = text.split_whitespace().find(|word| word.starts_with("rcu_")).unwrap_or("rcu");
        let flavour = cut(flavour, NAME_BYTES).to_string();
        kinds.push(Kind::Stall { flavour, is_expedited, is_own: has("self-detected") });
        kinds.extend(named(text));
    }
    if has("Tasks blocked on level-") {
        let pids = text.rsplit_once("): ").map_or(vec![], |(_, names)| pids(names));
        kinds.push(Kind::Readers { pids });
    }
    kinds.extend(holdout(text));
    kinds.extend(age(text, is_expedited));
    if has("All QSes seen") {
        kinds.extend(number_between(text, "activity ", " (").map(|jiffies| Kind::AllSeen { jiffies }));
    }
    if has("kthread starved for") {
        let jiffies = number_between(text, "for ", " jiffies").unwrap_or(0);
        kinds.push(Kind::Starved { jiffies, is_asleep: is_asleep(text) });
    }
    if has("kthread timer wakeup didn't happen") {
        let jiffies = number_between(text, "for ", " jiffies").unwrap_or(0);
        kinds.push(Kind::LateTimer { jiffies });
    }
}

/// `{ 3-... 14-... P392 }` or `{ 0}`: CPUs and tasks of which nothing more is told.
fn named(text: &str) -> Vec<Kind> {
    let Some((list, _)) = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')) else {
        return vec![];
    };
    let cpu = |word: &str| word.split('-').next().and_then(|cpu| cpu.parse().ok());
    let holdout = |cpu| Kind::Holdout { cpu, ticks: None, is_idle: None, took_interrupt: None, scans: None };
    let mut kinds: Vec<Kind> =
        list.split_whitespace().filter_map(cpu).take(MOST_NAMES).map(holdout).collect();
    let pids = pids(list);
    if !pids.is_empty() {
        kinds.push(Kind::Readers { pids });
    }
    kinds
}

/// `P454/1:b..l P433`.
fn pids(names: &str) -> Vec<u64> {
    let pid = |name: &str| name.strip_prefix('P')?.split('/').next()?.parse().ok();
    names.split_whitespace().filter_map(pid).take(MOST_NAMES).collect()
}

/// `(t=5252 jiffies g=2369 q=12)`, `(detected by 1, t=5263 jiffies, g=2373, q=3)`, or `} 21 jiffies s: 29`.
fn age(text: &str, is_expedited: bool) -> Option<Kind> {
    let (before, number) = if is_expedited { ("} ", "s: ") } else { ("t=", "g=") };
    let jiffies = number_between(text, before, " jiffies")?;
    let (_, rest) = text.split_once(" jiffies")?;
    let grace_period = rest.split_once(number).and_then(|(_, rest)| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    Some(Kind::Age { jiffies, grace_period })
}

/// `1-...!: (0 ticks this GP) idle=5e6/1/0x4000000000000000 softirq=1/1 fqs=0`, or `(3 GPs behind)`.
fn holdout(text: &str) -> Option<Kind> {
    let behind = number_between(text, "(", " GPs behind").map(|_| None);
    let ticks = number_between(text, "(", " ticks this GP").map(Some).or(behind)?;
    let (before, _) = text.split_once('(')?;
    let (cpu, flags) = before.split_whitespace().next_back()?.split_once('-')?;
    // The fourth letter: `.` when an interrupt that RCU had asked for came, a number while it has not.
    let took_interrupt = match flags.trim_end_matches(':').chars().nth(3) {
        Some('.') => Some(true),
        Some(letter) if letter.is_ascii_digit() => Some(false),
        _ => None,
    };
    let scans = text.split_once("fqs=").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    Some(Kind::Holdout { cpu: cpu.parse().ok()?, ticks, is_idle: is_idle(text), took_interrupt, scans })
}

/// Whether a CPU idles: its nesting of tasks is 0 (before Linux 5.0: small), and it is in one interrupt at most.
fn is_idle(text: &str) -> Option<bool> {
    let state = text.split_once("idle=")?.1.split_whitespace().next()?;
    let mut parts = state.split('/').skip(1);
    let (tasks, interrupts) = (parts.next()?, parts.next()?);
    let tasks = u64::from_str_radix(tasks, 16).ok()?;
    Some(match interrupts.strip_prefix("0x") {
        Some(interrupts) => tasks == 0 && u64::from_str_radix(interrupts, 16).ok()? <= 1,
        None => tasks <= 0xffff,
    })
}

/// `->state=0x402`: 0 can run, all else sleeps.
fn is_asleep(text: &str) -> Option<bool> {
    let state = text.split_once("->state=0x")?.1;
    let end = state.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(state.len());
    Some(u64::from_str_radix(&state[..end], 16).ok()? != 0)
}

/// `INFO: task jbd2/vda1-8:190 blocked for more than 120 seconds.`
fn blocked(text: &str) -> Option<Kind> {
    let (before, _) = text.split_once(" blocked for more than ")?;
    let (_, task) = before.rsplit_once("task ")?;
    let seconds = number_between(text, "more than ", " seconds").unwrap_or(0);
    Some(Kind::Blocked { task: cut(task, NAME_BYTES).to_string(), seconds })
}

/// The number between these words.
fn number_between(text: &str, before: &str, after: &str) -> Option<u64> {
    let (head, _) = text.split_once(after)?;
    let (_, number) = head.rsplit_once(before)?;
    number.trim().parse().ok()
}

/// The first so many bytes, or a few less.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
