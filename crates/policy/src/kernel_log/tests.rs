use proptest::prelude::*;

use super::*;

const STALL: &str = "\
[  143.213011] rcu: INFO: rcu_sched self-detected stall on CPU
[  143.213020] rcu: \t1-....: (5249 ticks this GP) idle=a1b/1/0x4000000000000002 softirq=1204/1204 fqs=2617
[  143.213022] \t(t=5252 jiffies g=2369 q=12 ncpus=2)
Nov 25 12:00:01 web-01 kernel: [  200.000001] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[  200.000002] rcu: \t0-...!: (0 ticks this GP) idle=5e6/0/0x0 softirq=1/1 fqs=0 (false positive?)
[  200.000003] \t(detected by 1, t=5263 jiffies, g=-2373, q=3 ncpus=2)
[  200.000004] rcu: rcu_sched kthread starved for 5263 jiffies! g2373 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x402 ->cpu=0
";

fn kinds(log: &str) -> Vec<Kind> {
    events(log).into_iter().map(|event| event.kind).collect()
}

fn stall(is_expedited: bool, is_own: bool) -> Kind {
    Kind::Stall { flavour: "rcu_sched".into(), is_expedited, is_own }
}

#[test]
fn stalls_have_their_holdouts_ages_and_starved_kthreads() {
    let holdout = |cpu, ticks, is_idle, took_interrupt, scans| Kind::Holdout {
        cpu,
        ticks: Some(ticks),
        is_idle: Some(is_idle),
        took_interrupt,
        scans: Some(scans),
    };
    let expected = [
        stall(false, true),
        holdout(1, 5249, false, Some(true), 2617),
        Kind::Age { jiffies: 5252, grace_period: Some(2369) },
        stall(false, false),
        holdout(0, 0, true, None, 0),
        Kind::Age { jiffies: 5263, grace_period: Some(-2373) },
        Kind::Starved { jiffies: 5263, is_asleep: Some(true) },
    ];
    assert_eq!(kinds(STALL), expected);
    let times: Vec<Option<At>> = events(STALL).into_iter().map(|event| event.at).collect();
    assert_eq!((times[0], times[3]), (Some(At::Boot(143.213011)), Some(At::Boot(200.000001))));
}

#[test]
fn expedited_and_old_stalls_name_their_holdouts_and_readers() {
    let bare = |cpu| Kind::Holdout { cpu, ticks: None, is_idle: None, took_interrupt: None, scans: None };
    let expedited = "INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... 14-...D P392 } 60580 jiffies s: 93 root: 0x8/.";
    let expected = [
        stall(true, false),
        bare(3),
        bare(14),
        Kind::Readers { pids: vec![392] },
        Kind::Age { jiffies: 60580, grace_period: Some(93) },
    ];
    assert_eq!(kinds(expedited), expected);
    let old =
        "[1.0] INFO: rcu_sched self-detected stall on CPU { 0}  (t=6000 jiffies g=195730 c=195729 q=1744)";
    let age = Kind::Age { jiffies: 6000, grace_period: Some(195_730) };
    assert_eq!(kinds(old), [stall(false, true), bare(0), age]);
    let blocked = "rcu: \tTasks blocked on level-0 rcu_node (CPUs 0-1): P454/1:b..l P433";
    assert_eq!(kinds(blocked), [Kind::Readers { pids: vec![454, 433] }]);
    assert_eq!(
        kinds("rcu: \tTasks blocked on level-0 rcu_node (CPUs 0-3):"),
        [Kind::Readers { pids: vec![] }]
    );
    let seen = "rcu: All QSes seen, last rcu_preempt kthread activity 17996 (4295547332-4295529336), jiffies_till_next_fqs=2, root ->qsmask 0x0";
    assert_eq!(kinds(seen), [Kind::AllSeen { jiffies: 17_996 }]);
}

#[test]
fn a_holdout_tells_whether_it_idles_and_took_an_interrupt() {
    let of = |flags: &str, idle: &str| {
        let text = format!("rcu: \t1-{flags}: (3 GPs behind) idle={idle} softirq=1/1 fqs=7");
        match kinds(&text).as_slice() {
            [Kind::Holdout { cpu: 1, ticks: None, is_idle, took_interrupt, scans: Some(7) }] => {
                (*is_idle, *took_interrupt)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of("...0", "d634/1/0x4000000000000002"), (Some(false), Some(false)));
    assert_eq!(of("....", "3514/0/0x3"), (Some(false), Some(true)));
    assert_eq!(of("...!", "846c/0/0x1"), (Some(true), None));
    assert_eq!(of("...", "575/1/0"), (Some(true), None));
    assert_eq!(of("...", "a73/140000000000001/0"), (Some(false), None));
    assert_eq!(of("...", "x"), (None, None));
}

#[test]
fn other_complaints_are_known_and_ordinary_lines_are_none() {
    let blocked = Kind::Blocked { task: "jbd2/vda1-8:190".into(), seconds: 120 };
    for (line, expected) in [
        ("[1.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]", Kind::SoftLockup { seconds: 22 }),
        ("[1.0] INFO: task jbd2/vda1-8:190 blocked for more than 120 seconds.", blocked),
        ("[1.0] clocksource: timekeeping watchdog on CPU1: hpet wd-tsc read-back delay", Kind::Clock),
        ("[1.0] PM: suspend exit", Kind::Suspended),
        ("Out of memory: Killed process 12 (a)", Kind::Memory),
        ("[1.0] Out of memory: Killed process 12 (traps: ]: segfault at )", Kind::Memory),
        ("sched: RT throttling activated", Kind::RealTime),
        ("[0.0] Hypervisor detected: KVM", Kind::Virtual),
        ("[1.0] Hardware name: QEMU Standard PC (i440FX + PIIX, 1996), BIOS 1.16.0", Kind::Virtual),
        ("[0.0] Linux version 6.1.0", Kind::Boot),
        ("[1.0] hrtimer: interrupt took 44005651 ns", Kind::SlowTimer { ns: 44_005_651 }),
        (
            "[1.0] NMI backtrace for cpu 9 skipped: idling at native_safe_halt+0xe/0x10",
            Kind::Idling { cpu: 9 },
        ),
    ] {
        assert_eq!(kinds(line), [expected], "{line}");
    }
    for line in [
        "",
        "[",
        "[1.0] eth0: link up",
        "[x] y",
        "[0.1] Booting paravirtualized kernel on bare hardware",
        "[1.0] Hardware name: Amazon EC2 m5.metal/Not Specified, BIOS 1.0",
        "[1.0] TSC unstable[4711]: segfault at 0 ip 0000000000401136 sp 00007ffc error 6 in a[401000+1000]",
        "[1.0] traps: Linux version [4711] general protection fault ip:401136 sp:7ffc error:0 in a[401000+1000]",
    ] {
        assert_eq!(kinds(line), [], "{line}");
    }
}

#[test]
fn nothing_of_a_log_is_trusted() {
    assert!(is_one("x\n[1.5] y") && is_one("Nov 25 19:32:25 host kernel: y") && !is_one("x\n[y] z"));
    let long = format!("[1.0] {} rcu_sched self-detected stall on CPU", "é".repeat(2_000));
    assert_eq!(events(&long), []);
    let many = "sched: RT throttling activated\n".repeat(MOST_EVENTS + 5);
    assert_eq!(events(&many).len(), MOST_EVENTS);
    let last = events(&format!("{many}[9.0] PM: suspend exit"));
    assert_eq!(last.last().map(|event| event.kind.clone()), Some(Kind::Suspended));
    assert_eq!(
        kinds("[1.0] rcu_sched kthread starved for 99999999999999999999999 jiffies!"),
        [Kind::Starved { jiffies: 0, is_asleep: None }]
    );
    assert_eq!(events("[nan] PM: suspend exit")[0].at, None);
}

/// Time grows with the log, not with its square: that would take hours here.
#[test]
fn hostile_logs_of_megabytes_are_judged_in_seconds() {
    let since = std::time::Instant::now();
    let stall = |index: usize| {
        format!(
            "[{index}0.0] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:\n[{index}0.1] tsc: TSC unstable\n[{index}0.2] (t=9 jiffies, g={index}, q=1)\n"
        )
    };
    let stalls: String = (0..20_000).map(stall).collect();
    let brackets = format!("rcu {} jiffies t= GPs behind\n", "[(={P".repeat(195)).repeat(2_000);
    for log in [stalls, brackets, "[(={P".repeat(400_000)] {
        crate::explain::log::judge(&events(&log));
    }
    assert!(since.elapsed().as_secs() < 60, "{:?}", since.elapsed());
}

/// Lines of words that the parser looks for, so that chance gets far into it.
fn lines() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "[1.0]",
        "[99.5]",
        "Nov",
        "25",
        "19:32:25",
        "2026-11-25T19:32:25,5Z",
        "rcu:",
        "rcu_sched",
        "rcu_",
        "detected",
        "stalls",
        "detected stall",
        "detected expedited stalls",
        "self-detected",
        "{",
        "}",
        "3-...",
        "P",
        "P1",
        "P1/",
        "-",
        "1-...0:",
        "0-...!:",
        "(0 ticks this GP)",
        "(3 GPs behind)",
        "(",
        ")",
        "): ",
        "idle=1/2/0x3",
        "idle=1//",
        "fqs=",
        "fqs=9",
        "t=",
        "t=5 jiffies",
        "5 jiffies",
        "s: -1",
        "g=-1107",
        "g=--",
        "kthread starved for",
        "->state=0x402",
        "->state=0x",
        "All QSes seen",
        "activity 9 (",
        "kthread timer wakeup didn't happen",
        "for 7 jiffies",
        "Tasks blocked on level-0",
        "task a:1 blocked for more than 9 seconds",
        "soft lockup - CPU#",
        "stuck for 9s!",
        "cpu 1 skipped: idling at",
        "Linux version ",
        "TSC unstable",
        "é",
        "99999999999999999999999",
    ]);
    let line = prop::collection::vec(words, 0..12).prop_map(|words| words.join(" "));
    prop::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_bytes_are_read_and_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let text = String::from_utf8_lossy(&bytes);
        is_one(&text);
        crate::explain::log::judge(&events(&text));
    }

    #[test]
    fn any_words_of_a_log_are_read_and_judged_without_a_panic(log in lines()) {
        let events = events(&log);
        let verdict = crate::explain::log::judge(&events);
        let stalls = events.iter().filter(|event| matches!(event.kind, Kind::Stall { .. })).count();
        prop_assert!(verdict.findings.iter().map(|finding| finding.stalls).sum::<usize>() <= stalls);
    }

    #[test]
    fn a_log_says_the_same_however_long_its_other_lines_are(spaces in 0..5_000_usize) {
        let other = format!("[300.0] {}\n", " [(={P".repeat(spaces));
        prop_assert_eq!(kinds(&format!("{STALL}{other}{STALL}")), kinds(&STALL.repeat(2)));
    }
}
