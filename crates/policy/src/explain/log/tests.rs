use super::*;
use crate::kernel_log;

fn verdict(log: &str) -> LogVerdict {
    judge(&kernel_log::events(log))
}

fn causes(log: &str) -> Vec<(LogCause, usize)> {
    verdict(log).findings.iter().map(|finding| (finding.cause, finding.stalls)).collect()
}

const OFF: &str = "[200.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[200.0] rcu: \t1-...0: (0 ticks this GP) idle=5e6/1/0x4000000000000000 softirq=1/1 fqs=2100
[200.0] \t(detected by 0, t=5263 jiffies, g=2373, q=3 ncpus=2)
";
const BUSY: &str = "[300.0] rcu: INFO: rcu_sched self-detected stall on CPU
[300.0] rcu: \t1-....: (5249 ticks this GP) idle=a1b/1/0x4000000000000002 softirq=1204/1204 fqs=2617
[300.0] \t(t=5252 jiffies g=2369 q=12 ncpus=2)
";
const IDLE: &str = "[200.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[200.0] rcu: \t1-...!: (0 ticks this GP) idle=5e6/0/0x0 softirq=1/1 fqs=0
[200.0] \t(detected by 0, t=5263 jiffies, g=2373, q=3 ncpus=2)
";

fn starved(state: &str, jiffies: u64) -> String {
    format!(
        "[200.1] rcu: rcu_sched kthread starved for {jiffies} jiffies! g2373 f0x0 RCU_GP_WAIT_FQS(5) ->state={state} ->cpu=0\n"
    )
}

#[test]
fn a_cpu_without_ticks_did_not_run_and_one_with_ticks_did() {
    assert_eq!(causes(OFF), [(LogCause::NoTicks, 1)]);
    assert_eq!(causes(BUSY), [(LogCause::LongReader, 1)]);
    let other = BUSY.replace("300.0", "400.0").replace("g=2369", "g=2400");
    assert_eq!(causes(&[OFF, BUSY, &other].concat()), [(LogCause::LongReader, 2), (LogCause::NoTicks, 1)]);
    // Without times as well.
    assert_eq!(causes(&OFF.replace("[200.0] ", "")), [(LogCause::NoTicks, 1)]);
    let holdout = verdict(OFF).findings[0].longest.holdouts[0];
    assert_eq!((holdout.cpu, holdout.ticks), (1, Some(0)));
}

#[test]
fn a_cpu_that_is_behind_did_not_run_unless_it_reports_itself_or_took_an_interrupt() {
    let behind = OFF.replace("0 ticks this GP", "1 GPs behind");
    assert_eq!(causes(&behind), [(LogCause::NoTicks, 1)]);
    assert_eq!(causes(&behind.replace("...0:", "....:")), [(LogCause::LongReader, 1)]);
    let own = behind.replace("detected stalls on CPUs/tasks:", "self-detected stall on CPU");
    assert_eq!(causes(&own), [(LogCause::LongReader, 1)]);
}

#[test]
fn reports_of_one_grace_period_are_one_stall() {
    let again = BUSY.replace("300.0", "480.0").replace("5249 ticks", "23249 ticks").replace("5252", "23260");
    let verdict = verdict(&[BUSY, &again].concat());
    assert_eq!((verdict.findings[0].stalls, verdict.findings[0].longest.reports), (1, 2));
    // The CPU itself and another report it at once; the number comes with the second.
    let both = BUSY
        .replace("[300.0] \t(t=", "[300.2] INFO: rcu_sched detected stalls on CPUs/tasks:\n[300.2] \t(t=");
    assert_eq!(causes(&both), [(LogCause::LongReader, 1)]);
    // Another flavour of RCU has grace periods of its own.
    let preempt = again.replace("rcu_sched", "rcu_preempt");
    assert_eq!(causes(&[BUSY, &preempt].concat()), [(LogCause::LongReader, 2)]);
}

#[test]
fn boots_are_judged_apart_and_the_last_one_with_stalls_counts() {
    let early = OFF.replace("200.0", "30.0");
    for next in [
        early.clone(),
        format!("[0.0] Linux version 6.1.0\n{early}"),
        format!("[0.0] Linux version 6.1.0\n{early}[0.0] Linux version 6.1.0\n"),
    ] {
        let verdict = verdict(&[BUSY, &next].concat());
        assert_eq!(verdict.findings[0].cause, LogCause::NoTicks, "{next}");
        assert_eq!((verdict.findings.len(), verdict.other_boots), (1, 1));
    }
    // Lines that change places, and a clock of the day that steps back, are no boots.
    let day = |clock: &str, log: &str| log.replace("[300.0]", &format!("Nov 25 {clock} h kernel:"));
    let other = BUSY.replace("g=2369", "g=7");
    let two = [day("12:00:00", BUSY), day("11:00:00", &other)].concat();
    assert_eq!((causes(&two), verdict(&two).other_boots), (vec![(LogCause::LongReader, 2)], 0));
    let near = other.replace("300.0", "295.0");
    assert_eq!(verdict(&[BUSY, &near].concat()).other_boots, 0);
}

#[test]
fn what_stands_near_explains_more() {
    let near = |line: &str| causes(&format!("{line}\n{OFF}"));
    assert_eq!(near("[170.0] PM: suspend exit"), [(LogCause::Pause, 1)]);
    assert_eq!(near("[100.0] PM: suspend exit"), [(LogCause::NoTicks, 1)], "long ago");
    let clock = "clocksource: Long readout interval, skipping watchdog check";
    assert_eq!(near(&format!("[195.0] {clock}")), [(LogCause::Clock, 1)]);
    assert_eq!(near("[195.0] sched: RT throttling activated"), [(LogCause::RealTime, 1)]);
    // By the clock of the day, too.
    let day = OFF.replace("[200.0]", "Nov 25 12:00:09 h kernel:");
    assert_eq!(causes(&format!("Nov 25 12:00:01 h kernel: {clock}\n{day}")), [(LogCause::Clock, 1)]);
    assert_eq!(causes(&format!("Nov 25 11:58:01 h kernel: {clock}\n{day}")), [(LogCause::NoTicks, 1)]);
}

#[test]
fn a_distrusted_clock_hides_neither_a_busy_cpu_nor_a_kept_kthread() {
    let clock = "[299.0] tsc: Marking TSC unstable due to clocksource watchdog\n";
    let busy = verdict(&format!("{clock}{BUSY}"));
    assert_eq!((busy.findings[0].cause, busy.findings[0].is_near_clock), (LogCause::LongReader, true));
    let clock = clock.replace("299.0", "199.0");
    let kept = format!("{clock}{IDLE}{}", starved("0x0", 5263));
    assert_eq!(causes(&kept), [(LogCause::StarvedKthread, 1)]);
    assert_eq!(causes(&kept.replace("->state=0x0", "->state=0x402")), [(LogCause::Clock, 1)]);
}

#[test]
fn a_kthread_that_sleeps_was_not_woken_and_one_that_can_run_is_starved() {
    assert_eq!(causes(&format!("{IDLE}{}", starved("0x402", 5263))), [(LogCause::LateTimer, 1)]);
    assert_eq!(causes(&format!("{IDLE}{}", starved("0x0", 5263))), [(LogCause::StarvedKthread, 1)]);
    // It slept for a part of the time only.
    assert_eq!(causes(&format!("{OFF}{}", starved("0x402", 999))), [(LogCause::NoTicks, 1)]);
    let overdue =
        "[200.0] rcu: rcu_sched kthread timer wakeup didn't happen for 5202 jiffies! ->state=0x402\n";
    assert_eq!(causes(&format!("{OFF}{overdue}")), [(LogCause::LateTimer, 1)]);
    // The CPU took its ticks, so its timers work: it had no time for their softirq.
    let busy = BUSY.replace("300.0", "200.0");
    assert_eq!(causes(&format!("{busy}{overdue}")), [(LogCause::LongReader, 1)]);
    assert_eq!(causes(IDLE), [(LogCause::LateTimer, 1)], "nobody looked at an idle CPU");
    let asked = "[200.0] NMI backtrace for cpu 1 skipped: idling at native_safe_halt+0xe/0x20\n";
    let unseen = OFF.replace("fqs=2100", "fqs=0").replace("idle=5e6/1/0x4000000000000000 ", "");
    assert_eq!(causes(&format!("{unseen}{asked}")), [(LogCause::LateTimer, 1)]);
}

#[test]
fn readers_are_named() {
    let blocked = "[1.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[1.0] rcu: \tTasks blocked on level-0 rcu_node (CPUs 0-3): P1234
[1.0] rcu: \t(detected by 1, t=5252 jiffies, g=-435, q=1036)
";
    assert_eq!(causes(blocked), [(LogCause::Reader, 1)]);
    assert_eq!(verdict(blocked).findings[0].longest.readers, [1234]);
    let seen = |activity: u64| {
        format!(
            "[1.0] INFO: rcu_preempt detected stalls on CPUs/tasks: {{}} (detected by 0, t=18002 jiffies, g=3, q=805)\n[1.0] All QSes seen, last rcu_preempt kthread activity {activity} (9-9), jiffies_till_next_fqs=2\n"
        )
    };
    assert_eq!(causes(&seen(0)), [(LogCause::Reader, 1)]);
    assert_eq!(causes(&seen(17_996)), [(LogCause::StarvedKthread, 1)]);
    assert_eq!(
        causes(&format!("{}{}", seen(17_996), starved("0x402", 17_996).replace("200.1", "1.1"))),
        [(LogCause::LateTimer, 1)]
    );
}

#[test]
fn expedited_stalls_are_short_limits_or_unknown() {
    let of = |jiffies: u64| {
        format!(
            "[1.0] rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: {{ 3-...D }} {jiffies} jiffies s: 93 root: 0x8/.\n"
        )
    };
    assert_eq!(causes(&of(21)), [(LogCause::ShortLimit, 1)]);
    assert_eq!(causes(&of(60_580)), [(LogCause::Unknown, 1)]);
    assert_eq!(verdict(&of(60_580)).findings[0].longest.holdouts[0].cpu, 3);
}

#[test]
fn other_complaints_are_counted() {
    let log = "[1.0] INFO: task jbd2/vda1-8:190 blocked for more than 120 seconds.
[2.0] INFO: task b:2 blocked for more than 241 seconds.
[3.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]
[4.0] watchdog: BUG: soft lockup - CPU#1 stuck for 48s! [a:1]
[5.0] hrtimer: interrupt took 44005651 ns
[6.0] Out of memory: Killed process 12 (a)
";
    let verdict = verdict(log);
    assert_eq!(verdict.blocked, Some((2, "jbd2/vda1-8:190".into(), 120)));
    assert_eq!((verdict.lockups, verdict.slow_timer_ns), (Some((2, 48)), Some(44_005_651)));
    assert_eq!((verdict.out_of_memory, verdict.findings.len()), (1, 0));
    assert_eq!(judge(&[]), LogVerdict::default());
    assert_eq!(causes("[1.0] rcu: INFO: rcu_sched self-detected stall on CPU"), [(LogCause::Unknown, 1)]);
}

#[test]
fn a_descheduled_vcpu_is_likelier_in_a_vm() {
    let of = |log: &str| verdict(log).findings[0].confidence;
    assert_eq!(of(OFF), Confidence::Possible);
    assert_eq!(of(&format!("[0.0] Hypervisor detected: KVM\n{OFF}")), Confidence::Likely);
}
