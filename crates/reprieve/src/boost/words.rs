//! The output of `reprieve boost`: a verdict and figures for each guest, or with `--json` one object per line. Results go to
//! stdout; without `--json` all other sentences go to stderr.

use reprieve_linux::boost::SETTINGS;
use reprieve_study::{shown, units};
use reprieve_vm::attach::{Qemu, Seen};
use serde_json::{Value, json};

use super::guest::Guest;
use super::work::Guests;
use crate::failure::Failure;
use crate::output;

/// The form of the output.
pub struct Words {
    /// As JSON.
    pub json: bool,
    /// Whether decisions are carried out.
    pub apply: bool,
}

/// What the verdict on a guest depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// For how long it was watched, ns.
    pub watched_ns: u64,
    /// Grace periods that began and ended meanwhile.
    pub grace_periods: u64,
    /// How long grace periods waited for vCPUs that were off, in all, ns.
    pub waited_ns: u64,
    /// The longest of these waits, ns.
    pub longest_wait_ns: u64,
    /// Visits that were made, or would have been.
    pub visits: u64,
    /// CPU time of the vCPUs within visits, ns.
    pub lent_ns: u64,
    /// Whether a quota limits a vCPU; `None` if the quotas could not be read, or are unfit for boosts.
    pub is_limited: Option<bool>,
    /// A quota and a shorter period with the same share of a CPU, ns; `None` if the period is short already.
    pub shorter: Option<(u64, u64)>,
}

impl Facts {
    fn of(guest: &Guest, seen: &Seen) -> Facts {
        let given = guest.given();
        Facts {
            watched_ns: seen.watched_ns,
            grace_periods: seen.durations.len(),
            waited_ns: seen.waited_ns,
            longest_wait_ns: seen.longest_wait_ns,
            visits: given.visits,
            lent_ns: given.lent_ns,
            is_limited: guest.knows_limits.then_some(!guest.limits.is_empty()),
            shorter: guest.shorter,
        }
    }

    /// One sentence: whether boosts help, and why.
    pub fn verdict(&self, apply: bool) -> String {
        let time = |ns: u64| units::duration(ns as f64);
        let (visits, in_all) = (self.visits, time(self.watched_ns));
        let waits = format!(
            "grace periods waited {} for vCPUs that were off, {} at the longest",
            time(self.waited_ns),
            time(self.longest_wait_ns)
        );
        match (visits, self.is_limited) {
            _ if self.watched_ns == 0 => "nothing was seen".into(),
            (1.., _) if apply => {
                format!(
                    "boost let vCPUs run {visits} times in {in_all}, {} of lent CPU time; {waits}",
                    time(self.lent_ns)
                )
            }
            (1.., _) => {
                let remedy = self.shorter.map_or("add --apply".into(), |(quota_ns, period_ns)| {
                    let (quota, period) = (time(quota_ns), time(period_ns));
                    format!(
                        "add --apply, or give the quota shorter periods with the same share, {quota} of every {period}"
                    )
                });
                format!("boost would let vCPUs run {visits} times in {in_all}: {waits}; {remedy}")
            }
            _ if self.waited_ns == 0 => {
                format!("boost would not help: in {in_all} no grace period waited for a vCPU that was off")
            }
            _ if self.longest_wait_ns < SETTINGS.threshold_ns => {
                let least = time(SETTINGS.threshold_ns);
                format!("boost would not help: {waits}; it acts only on grace periods that are {least} old")
            }
            (0, None) => format!(
                "boost would not help as things are: {waits}; whether a CPU quota is the cause is not known, because quotas could \
                 not be read, or are unfit for boosts (see the warning)"
            ),
            (0, Some(false)) => format!(
                "boost would not help: {waits}; the cause is other threads on the same CPUs, not a CPU quota: give this VM more \
                 weight (cpu.weight), or run fewer neighbours on these CPUs"
            ),
            (0, Some(true)) => format!(
                "boost would not help: {waits}; the cause is other threads on the same CPUs, not the quota"
            ),
        }
    }
}

impl Words {
    /// A guest in a sentence. Its owner chose its name, so that is made safe to print.
    pub fn name(&self, qemu: &Qemu) -> String {
        format!("guest {} (process {})", shown::line(&qemu.name), qemu.pid)
    }

    /// Says something that is no result.
    pub fn warn(&self, text: &str) {
        match self.json {
            // If stdout is closed, the results will say so.
            true => drop(json_line(&json!({"event": "warning", "text": text}))),
            false => output::say(&format!("reprieve: {text}")),
        }
    }

    /// Says which guests are watched.
    pub fn began(&self, guests: &[Guest], seconds: Option<u64>) -> Result<(), Failure> {
        let guests: Vec<&Guest> = guests.iter().filter(|guest| guest.was_watched()).collect();
        if self.json {
            return guests.iter().try_for_each(|guest| {
                let Qemu { pid, name, cgroup, monitors, vcpus, .. } = &guest.qemu;
                json_line(&json!({
                    "event": "attached", "pid": pid, "guest": name, "cgroup": cgroup, "monitors": monitors,
                    "vcpus": vcpus.len(), "kernel": guest.release, "limited_vcpus": limited(guest), "apply": self.apply,
                }))
            });
        }
        let mode = if self.apply { "boosts" } else { "advisory: changes nothing without --apply" };
        let length = seconds.map_or("until a signal ends it".into(), |seconds| format!("for {seconds} s"));
        output::say(&format!("{} guest(s), {length}; {mode}", guests.len()));
        for guest in guests {
            let Qemu { cgroup, vcpus, .. } = &guest.qemu;
            let quota = match limited(guest).as_slice() {
                [] if !guest.knows_limits => "quotas not known".into(),
                [] => "no CPU quota".into(),
                vcpus => format!(
                    "quota on vCPU {}",
                    vcpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
                ),
            };
            output::say(&format!(
                "{}: Linux {}, {} vCPU(s), {quota}, cgroup {}",
                self.name(&guest.qemu),
                guest.release,
                vcpus.len(),
                shown::line(cgroup)
            ));
        }
        Ok(())
    }

    /// Prints what was seen of a guest.
    pub fn guest(&self, guest: &Guest) -> Result<(), Failure> {
        let seen = guest.seen();
        let facts = Facts::of(guest, &seen);
        if self.json {
            return json_line(&object(guest, &seen, &facts, self.apply));
        }
        let name = self.name(&guest.qemu);
        let time = |ns: f64| units::duration(ns);
        let mut text = format!("{name}: {}\n", facts.verdict(self.apply));
        text += &match facts.grace_periods {
            0 => "    no whole grace period was seen\n".to_string(),
            count => format!(
                "    grace periods: {count}, average {}, p99 {}, longest {}\n",
                time(seen.durations.mean()),
                time(seen.durations.value_at_quantile(0.99) as f64),
                time(seen.durations.max() as f64)
            ),
        };
        let share = |ns: &u64| 100.0 * *ns as f64 / seen.watched_ns.max(1) as f64;
        let off = seen.off_ns.iter().enumerate().map(|(vcpu, ns)| format!("{vcpu}: {:.1} %", share(ns)));
        text +=
            &format!("    vCPUs that wanted to run and could not: {}\n", off.collect::<Vec<_>>().join(", "));
        let given = guest.given();
        text += &format!("    looks: {}, {:.2} % of a CPU\n", given.looks, share(&given.own_cpu_ns));
        if guest.restarts > 0 {
            text += &format!("    the guest was started anew {} time(s)\n", guest.restarts);
        }
        if let Some(why) = guest.ended() {
            text += &format!("    no longer watched: {}\n", shown::line(why));
        }
        output::print(&text)
    }

    /// Prints the verdict on all guests, if there are several.
    pub fn verdict(&self, guests: &Guests) -> Result<(), Failure> {
        let visited = guests.present.iter().filter(|guest| guest.given().visits > 0).count();
        let helped = guests.past_visited + visited;
        match guests.past + guests.present.len() {
            0 | 1 => Ok(()),
            count if self.json => json_line(&json!({"event": "ended", "guests": count, "boosted": helped})),
            count if self.apply => {
                output::print(&format!("boost let vCPUs run in {helped} of {count} guests\n"))
            }
            count => output::print(&format!("boost would let vCPUs run in {helped} of {count} guests\n")),
        }
    }
}

/// vCPUs that a quota limits.
fn limited(guest: &Guest) -> Vec<usize> {
    let mut vcpus: Vec<usize> = guest.limits.iter().flat_map(|limited| limited.vcpus.clone()).collect();
    vcpus.sort_unstable();
    vcpus
}

fn object(guest: &Guest, seen: &Seen, facts: &Facts, apply: bool) -> Value {
    let given = guest.given();
    json!({
        "event": "guest", "pid": guest.qemu.pid, "guest": guest.qemu.name, "kernel": guest.release, "applied": apply,
        "verdict": facts.verdict(apply), "watched_ns": seen.watched_ns, "grace_periods": facts.grace_periods,
        "gp_average_ns": seen.durations.mean(), "gp_p99_ns": seen.durations.value_at_quantile(0.99),
        "gp_longest_ns": seen.durations.max(), "waited_ns": seen.waited_ns, "longest_wait_ns": seen.longest_wait_ns,
        "off_ns": seen.off_ns, "run_ns": seen.run_ns, "limited_vcpus": limited(guest), "visits": given.visits,
        "lent_ns": given.lent_ns, "own_cpu_ns": given.own_cpu_ns, "looks": given.looks, "restarts": guest.restarts,
        "ended": guest.ended(),
    })
}

/// Prints an object on a line: exact JSON that is safe to print on a terminal.
fn json_line(object: &Value) -> Result<(), Failure> {
    output::print(&format!("{}\n", shown::json(&object.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_says_whether_boosts_help_and_why() {
        let seen = Facts { watched_ns: 10_000_000_000, grace_periods: 200, ..Facts::default() };
        let waits = Facts { waited_ns: 900_000_000, longest_wait_ns: 79_000_000, ..seen };
        let starts = |facts: Facts, apply, text: &str| {
            let verdict = facts.verdict(apply);
            assert!(verdict.starts_with(text), "{verdict}");
        };
        starts(Facts::default(), false, "nothing was seen");
        starts(seen, false, "boost would not help: in 10.0 s no grace period waited for a vCPU that was off");
        starts(
            Facts { visits: 31, ..waits },
            false,
            "boost would let vCPUs run 31 times in 10.0 s: grace periods waited 900 ms",
        );
        let verdict = Facts { visits: 31, shorter: Some((2_000_000, 10_000_000)), ..waits }.verdict(false);
        assert!(
            verdict.ends_with(
                "add --apply, or give the quota shorter periods with the same share, 2.00 ms of every 10.0 ms"
            ),
            "{verdict}"
        );
        starts(
            Facts { visits: 31, lent_ns: 9_000_000, ..waits },
            true,
            "boost let vCPUs run 31 times in 10.0 s, 9.00 ms",
        );
        let short = Facts { longest_wait_ns: 1_000_000, ..waits };
        assert!(short.verdict(false).ends_with("that are 5.00 ms old"), "{}", short.verdict(false));
        let limited = |is_limited| Facts { is_limited, ..waits }.verdict(false);
        assert!(limited(Some(false)).contains("cpu.weight"));
        assert!(
            limited(None).contains("is the cause is not known") && !limited(None).contains("other threads")
        );
        assert!(limited(Some(true)).contains("other threads on the same CPUs, not the quota"));
    }
}
