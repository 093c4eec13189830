//! What is refused, and by which key.

use super::*;
use crate::scenario::{Cause, GroundKind, Memory, PlannedRun, Postmark};

fn read(text: &str) -> Scenario {
    let head =
        "name='t'\ntitle='t'\n[workload]\nkind='memory'\n[conditions.baseline]\n[conditions.overcommitted]\n";
    toml::from_str(&format!("{head}{text}")).unwrap()
}

fn scenario() -> Scenario {
    read("quota = [{ vcpu = 1, percent = 20 }]")
}

#[test]
fn the_first_condition_is_the_baseline() {
    let scenario = scenario();
    assert_eq!(scenario.check(), Ok(()));
    assert_eq!(scenario.baseline(), "baseline");
    assert!(scenario.conditions[0].is_undisturbed() && !scenario.conditions[1].is_undisturbed());
}

#[test]
fn a_case_s_quotas_are_those_of_each_of_its_runs() {
    let cases = "[cases.calm]\n[cases.kept-off]\nquota = [{ vcpu = 0, percent = 20 }]";
    let scenario = read(&format!("quota = [{{ vcpu = 1, percent = 50 }}]\n{cases}"));
    assert_eq!(scenario.check(), Ok(()));
    let quotas = |case: &str, condition: &str| -> Vec<(usize, f64)> {
        let plan = scenario.plan().unwrap();
        let is_it = |run: &&PlannedRun| run.case.as_deref() == Some(case) && run.condition == condition;
        let run = plan.iter().find(is_it).unwrap();
        run.scenario.conditions[condition].quota.iter().map(|quota| (quota.vcpu, quota.percent)).collect()
    };
    assert_eq!(quotas("calm", "baseline"), []);
    assert_eq!(quotas("calm", "overcommitted"), [(1, 50.0)]);
    assert_eq!(quotas("kept-off", "baseline"), [(0, 20.0)]);
    assert_eq!(quotas("kept-off", "overcommitted"), [(1, 50.0), (0, 20.0)]);
    let refused = |quota: &str| {
        let case = format!("[cases.kept-off]\nquota = [{quota}]");
        read(&format!("quota = [{{ vcpu = 1, percent = 50 }}]\n{case}")).check().unwrap_err()
    };
    assert_eq!(refused("{ vcpu = 2, percent = 20 }").key, "cases.kept-off.quota");
    let twice = refused("{ vcpu = 1, percent = 20 }");
    assert_eq!(twice.key, "cases.kept-off.quota");
    assert!(twice.problem.contains("vCPU 1 has two quotas"), "{twice}");
    assert_eq!(refused("{ vcpu = 0, percent = 101 }").key, "cases.kept-off.quota.0.percent");
}

#[test]
fn memory_leaves_at_least_one_vcpu_to_its_workers() {
    let with = |computing: u32| {
        let mut scenario = scenario();
        scenario.workload = Workload::Memory(Memory { computing, ..Memory::default() });
        scenario
    };
    for ground in [GroundKind::Sim, GroundKind::Vm] {
        assert_eq!(Scenario { ground, ..with(1) }.check(), Ok(()));
        assert_eq!(Scenario { ground, ..with(2) }.check().unwrap_err().key, "workload.computing");
    }
}

#[test]
fn refuses_what_cannot_run_and_names_the_key() {
    let key = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = scenario();
        change(&mut scenario);
        scenario.check().unwrap_err().key
    };
    assert_eq!(key(&|s| s.guest.vcpus = 0), "guest.vcpus");
    assert_eq!(key(&|s| s.run.repeat = 0), "run.repeat");
    assert_eq!(key(&|s| s.guest.append = "a\0b".into()), "guest.append");
    assert_eq!(key(&|s| s.guest.append = "a".repeat(1025)), "guest.append");
    assert_eq!(key(&|s| s.conditions[1].quota[0].vcpu = 2), "conditions.overcommitted.quota");
    assert_eq!(
        key(&|s| s.conditions[1].quota[0].percent = 120.0),
        "conditions.overcommitted.quota.0.percent"
    );
    assert_eq!(
        key(&|s| s.conditions[1].quota[0].percent = f64::NAN),
        "conditions.overcommitted.quota.0.percent"
    );
    assert_eq!(key(&|s| s.conditions[1].quota[0].period_ms = 2), "conditions.overcommitted.quota");
    assert_eq!(key(&|s| s.run.conditions = vec!["x".into()]), "run.conditions");
    assert_eq!(key(&|s| s.conditions.clear()), "conditions");
    let postmark = Postmark { files: 128_000, transactions: 10, ..Postmark::default() };
    assert_eq!(key(&|s| s.workload = Workload::Postmark(postmark.clone())), "workload.files");
}

#[test]
fn what_is_xen_s_goes_with_a_scheduler_of_xen_s() {
    let with = |text: &str| {
        let scenario = read(&format!("[host]\n{text}"));
        scenario.check().map_err(|error| error.to_string())
    };
    let refused = |text: &str| with(text).unwrap_err();
    for scheduler in ["credit", "credit2", "rtds"] {
        assert_eq!(with(&format!("scheduler='{scheduler}'")), Ok(()));
        assert_eq!(
            refused(&format!("scheduler='{scheduler}'\nslice_us=100")),
            "host.slice_us: Xen's schedulers do not read it; set host.xen.slice_ms, or remove it"
        );
    }
    let xen = "version='4.5'\nslice_ms=5\nfixes=['inactive-debt','boost-erased']\nrace_window_ns=100";
    assert_eq!(with(&format!("scheduler='credit'\n[host.xen]\n{xen}")), Ok(()));
    assert!(
        refused(&format!("[host.xen]\n{xen}")).starts_with("host.xen.fixes: inactive-debt is a fix of Xen's")
    );
    assert!(refused("[host.xen]\nslice_ms=5").starts_with("host.xen: host.scheduler is none of Xen's"));
    assert!(refused("scheduler='credit2'\n[host.xen]\nfixes=['boost-erased']").contains("credit, and host"));
    assert_eq!(
        refused("scheduler='credit'\n[host.xen]\nfixes=['boost-erased','boost-erased']"),
        "host.xen.fixes: boost-erased is there twice; remove one"
    );
    let credit = |key: &str| refused(&format!("scheduler='credit'\n[host.xen]\n{key}"));
    assert_eq!(credit("slice_ms=0"), "host.xen.slice_ms: 0 is not within 1 to 1000");
    assert_eq!(
        credit("slice_ms=2\nratelimit_us=2001"),
        "host.xen.ratelimit_us: 2001 is not within 100 to 2000"
    );
    assert_eq!(
        credit("race_window_ns=1000001"),
        "host.xen.race_window_ns: 1000001 is not within 0 to 1000000"
    );
    assert_eq!(with("scheduler='credit'\n[host.xen]\nratelimit_us=0"), Ok(()));
    let quota = "quota = [{ vcpu = 1, percent = 20 }]\n[host]\n";
    let quota = |scheduler: &str| read(&format!("{quota}scheduler='{scheduler}'")).check();
    assert_eq!(quota("credit").unwrap_err().key, "conditions.overcommitted.quota");
    assert_eq!(quota("rtds"), Ok(()));
}

#[test]
fn a_condition_sets_a_list() {
    let text =
        "[conditions.fixed]\nset = { 'host.scheduler' = 'credit', 'host.xen.fixes' = ['boost-erased'] }";
    let fixed = read(text).under("fixed").unwrap();
    assert_eq!(fixed.host.xen.fixes, [crate::scenario::XenFix::BoostErased]);
    assert_eq!(
        fixed.host.scheduler_text(),
        "credit of Xen 4.17 with slices of 30 ms, rate limit 1000 us, fixed: boost-erased"
    );
    assert!(!read(text).under("baseline").unwrap().host.scheduler.is_xen());
}

#[test]
fn refuses_what_the_other_ground_does() {
    let refused = |ground: GroundKind, change: &dyn Fn(&mut Scenario)| {
        let mut scenario = scenario();
        scenario.ground = ground;
        assert_eq!(scenario.check(), Ok(()));
        change(&mut scenario);
        scenario.check().unwrap_err().to_string()
    };
    assert_eq!(
        refused(GroundKind::Vm, &|s| s.conditions[1].overcommit = 2.0),
        "conditions.overcommitted.overcommit: only the simulator can do that; run it with --on sim, or remove it"
    );
    let on_vm = |change: &dyn Fn(&mut Scenario)| refused(GroundKind::Vm, change);
    assert!(on_vm(&|s| s.conditions[1].without = vec![Cause::CpuShare]).contains("without: only"));
    assert!(
        on_vm(&|s| s.sweeps = read(SWEEP).sweeps).starts_with("sweeps.factor: conditions.overcommitted.")
    );
    let on_sim = |change: &dyn Fn(&mut Scenario)| refused(GroundKind::Sim, change);
    assert_eq!(
        on_sim(&|s| s.guest.kernel = "/k".into()),
        "guest.kernel: only real guests can do that; run it with --on vm, or remove it"
    );
    assert!(
        on_sim(&|s| s.conditions[0].unobserved = true).starts_with("conditions.baseline.unobserved: only")
    );
    assert_eq!(
        on_sim(&|s| s.conditions[0].pcpus = vec![2]),
        "conditions.baseline.pcpus: there is no pCPU 2; the simulated host has 2"
    );
}

#[test]
fn refuses_times_and_numbers_that_there_are_not() {
    let refused = |text: &str| read(text).check().unwrap_err().to_string();
    let with = |line: &str| refused(&line.replace(';', "\n"));
    assert!(with("overcommit = 0.5").ends_with("0.5 is not within 1 to 16"));
    assert!(with("overcommit = nan").contains("not within"));
    assert!(with("pauses = [{ vcpu = 2, at_ms = 0, for_ms = 1 }]").ends_with("no vCPU 2; the last one is 1"));
    let late = "conditions.overcommitted.pauses: 2 ms at 7999 ms are not within the 8000 ms of a window";
    assert_eq!(with("pauses = [{ vcpu = 1, at_ms = 7999, for_ms = 2 }]"), late);
    assert!(with("spikes = [{ vcpus = 0, at_ms = 0, for_ms = 2 }]").contains("0 is not within 1 to 1024"));
    assert!(with("[host];pcpus = 1025").starts_with("host.pcpus: 1025 is not"));
    assert!(with("[host];noise_per_s = 1000;noise_ns = 1000000").starts_with("host.noise_ns"));
    let tail = |text: &str| with(&format!("[host];noise_tail = [{text}]"));
    assert!(tail("{ every_us = 1, for_us = 1 }").starts_with("host.noise_tail.0.every_us: 1 is not"));
    assert!(
        tail("{ every_us = 100, for_us = 900 }").starts_with("host.noise_ns"),
        "with what it has already"
    );
    assert!(
        tail(&"{ every_us = 1000, for_us = 1 },".repeat(9)).contains("9 kinds of threads are more than 8")
    );
    assert!(with("[guest];rcu.blimit = 0").starts_with("guest.rcu.blimit: 0 is not"));
    assert!(with("[guest];speed = 0").starts_with("guest.speed: 0 is not"));
    assert!(with("[guest];timer_thread_ns = 1000001").starts_with("guest.timer_thread_ns: 1000001 is not"));
    assert!(
        with("[observe];rows = ['gp_men_ns']").starts_with("observe.rows: there is no metric \"gp_men_ns\"")
    );
    let many = format!("[observe];rows = [{}]", "'gp_mean_ns',".repeat(13));
    assert!(with(&many).starts_with("observe.rows: 13 metrics are more than the 12"));
}

const SWEEP: &str = "[sweeps.factor]\nkey = 'conditions.overcommitted.overcommit'\nvalues = [1, 1.5, 2]\n\
                     conditions = ['overcommitted']";

#[test]
fn a_sweep_has_numbers_that_its_key_can_have() {
    assert_eq!(read(SWEEP).check(), Ok(()));
    let refused = |from: &str, to: &str| read(&SWEEP.replace(from, to)).check().unwrap_err().to_string();
    assert_eq!(
        refused("1.5", "99"),
        "sweeps.factor: conditions.overcommitted.overcommit: 99 is not within 1 to 16"
    );
    assert!(refused(".overcommit'", ".overcomit'").contains("there is no such key; did you mean"));
    assert!(refused("conditions.overcommitted.overcommit", "run.seed").contains("run.seed cannot be swept"));
    assert!(refused("1.5", "'x'").ends_with("only numbers are swept"));
    assert!(refused("[1, 1.5, 2]", "[]").starts_with("sweeps.factor.values: 0 is not within 1 to 64"));
    assert!(refused("['over", "['under").contains("no condition \"undercommitted\""));
}

#[test]
fn real_threads_run_one_workload_and_a_condition_is_what_it_sets() {
    let text = "name='t'\ntitle='t'\nground='threads'\n[workload]\nkind='delete-free'\nscheme='liburcu-memb'\n\
                [conditions.a]\n[conditions.b]\n";
    let with = |assignment: &str| {
        let assignments = if assignment.is_empty() { vec![] } else { vec![assignment.to_string()] };
        crate::scenario::overrides::read(text, None, &assignments).map_err(|error| error.key)
    };
    let key = |assignment: &str| with(assignment).unwrap_err();
    let scenario = with("").unwrap();
    assert_eq!(scenario.ground, GroundKind::Threads);
    assert!(with("conditions.b.set={'workload.scheme'='seize', 'workload.bare'='rust-none'}").is_ok());
    // No way out of the directory of the programs.
    for name in ["", "../sh", "a/b", "A", ".", &"a".repeat(65)] {
        assert_eq!(key(&format!("workload.scheme='{name}'")), "workload.scheme", "{name}");
        assert_eq!(key(&format!("workload.bare='{name}'")), "workload.bare", "{name}");
    }
    for (assignment, at) in [
        ("workload.readers=0", "workload.readers"),
        ("workload.reader_cpus=[]", "workload.reader_cpus"),
        ("workload.writer_cpus=[]", "workload.writer_cpus"),
        ("workload.entries=15", "workload.entries"),
        ("workload.deletes_per_s=0", "workload.deletes_per_s"),
        ("workload.stall_ms=8001", "workload.stall_ms"),
        ("workload.quiescent_every=0", "workload.quiescent_every"),
        ("run.window_ms=600001", "run.window_ms"),
        ("run.warmup_ms=60001", "run.warmup_ms"),
        ("conditions.b.hogs=1", "conditions.b.hogs"),
        ("conditions.b.unobserved=true", "conditions.b.unobserved"),
        ("conditions.b.overcommit=2", "conditions.b.overcommit"),
        ("conditions.b.set={'workload.scheme'='..'}", "conditions.b.set"),
    ] {
        assert_eq!(key(assignment), at, "{assignment}");
    }
    let refused = crate::scenario::overrides::read(text, Some(GroundKind::Sim), &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workload.kind: delete-free does not run on sim; choose --on threads or --on vm"
    );
    let other = text.replace("delete-free'\nscheme='liburcu-memb'", "memory'");
    assert_eq!(crate::scenario::overrides::read(&other, None, &[]).unwrap_err().key, "workload.kind");
}

#[test]
fn a_guest_that_runs_delete_free_has_its_cpus_and_room_for_its_table() {
    let text = "name='t'\ntitle='t'\nground='vm'\nworkload = { kind='delete-free', scheme='seize', entries=262144 }\n\
                [conditions.a]\n[conditions.b]\nquota = [{ vcpu = 0, percent = 20 }]\n";
    let with = |assignment: &str| {
        let assignments = if assignment.is_empty() { vec![] } else { vec![assignment.to_string()] };
        crate::scenario::overrides::read(text, None, &assignments).map_err(|error| error.to_string())
    };
    assert!(with("").is_ok() && with("workload.entries=2097152").is_ok());
    let refused = |assignment: &str| with(assignment).unwrap_err();
    assert!(
        refused("workload.entries=2097153").starts_with("workload.entries: 2097153 elements take more than")
    );
    let no_vcpu = "there is no vCPU 2; the last one is 1";
    assert_eq!(refused("workload.reader_cpus=[0, 2]"), format!("workload.reader_cpus: {no_vcpu}"));
    assert_eq!(refused("workload.writer_cpus=[2]"), format!("workload.writer_cpus: {no_vcpu}"));
    assert!(refused("guest.vcpus=1").starts_with("workload.writer_cpus"));
    assert!(refused("run.window_ms=600001").starts_with("run.window_ms"));
    assert!(refused("conditions.b.overcommit=2").starts_with("conditions.b.overcommit"));
}

/// A scenario of that workload on that ground, with more keys.
fn latency(ground: GroundKind, workload: &str, text: &str) -> Result<(), String> {
    let text = format!(
        "name='t'\ntitle='t'\nground='{ground}'\nguest.vcpus=1\nworkload={{{workload}}}\n\
         host={{scheduler='credit',pcpus=1}}\n[conditions.a]\n{text}"
    );
    toml::from_str::<Scenario>(&text).unwrap().check().map_err(|error| error.to_string())
}

#[test]
fn latencies_are_measured_on_the_simulator_and_wake_ups_on_real_xen() {
    let (wakeup, requests) = ("kind='wakeup'", "kind='requests'");
    assert_eq!(latency(GroundKind::Sim, wakeup, "spinners=1"), Ok(()));
    assert_eq!(latency(GroundKind::Xen, wakeup, "spinners=1"), Ok(()));
    assert_eq!(latency(GroundKind::Sim, requests, ""), Ok(()));
    let refused = |ground, workload, text| latency(ground, workload, text).unwrap_err();
    assert!(
        refused(GroundKind::Xen, requests, "").starts_with("workload.kind: requests does not run on xen")
    );
    assert!(refused(GroundKind::Vm, wakeup, "").starts_with("workload.kind: wakeup does not run on vm"));
    assert!(refused(GroundKind::Xen, wakeup, "hogs=1").starts_with("conditions.a.hogs: real Xen cannot"));
    assert!(
        refused(GroundKind::Xen, wakeup, "overcommit=2").starts_with("conditions.a.overcommit: real Xen")
    );
    let fixed = "set={'host.xen.fixes'=['boost-erased']}";
    assert!(refused(GroundKind::Xen, wakeup, fixed).contains("host.xen.fixes: real Xen cannot"));
    assert!(refused(GroundKind::Xen, wakeup, "set={'host.scheduler'='rtds'}").contains("credit or credit2"));
    assert!(
        refused(GroundKind::Xen, wakeup, "set={'guest.vcpus'=2}")
            .contains("guest.vcpus: 2 is not within 1 to 1")
    );
    let on_vm = read("spinners=1");
    let on_vm = Scenario { ground: GroundKind::Vm, ..on_vm };
    assert!(on_vm.check().unwrap_err().to_string().starts_with("conditions.overcommitted.spinners: only"));
}

#[test]
fn a_latency_workload_has_sane_times_and_one_kind_of_loop() {
    let refused = |workload: &str| latency(GroundKind::Sim, workload, "").unwrap_err();
    assert!(refused("kind='wakeup',sleep_us=0").starts_with("workload.sleep_us: 0 is not"));
    assert!(refused("kind='wakeup',sleep_spread=1.5").starts_with("workload.sleep_spread: 1.5 is not"));
    assert!(refused("kind='requests',gap_spread=nan").starts_with("workload.gap_spread"));
    assert!(
        refused("kind='requests',gap_us=1,rate_per_s=1").starts_with("workload.gap_us: makes a closed loop")
    );
    let caps = "set={'host.xen.guest_cap_percent'=10,'host.scheduler'='credit2'}";
    assert!(latency(GroundKind::Sim, "kind='wakeup'", caps).unwrap_err().contains("only credit has caps"));
    assert!(
        latency(GroundKind::Sim, "kind='wakeup'", "set={'host.xen.guest_weight'=0}")
            .unwrap_err()
            .contains("host.xen.guest_weight: 0 is not")
    );
}

#[test]
fn a_published_ratio_may_name_its_condition() {
    let published = |of: &str| {
        let ratio = "metric='gp_mean_ns',ratio=2,printed=''";
        let text = format!("[published]\ncondition='overcommitted'\nratios=[{{{of}{ratio}}},{{{ratio}}}]");
        let scenario = read(&text);
        scenario.check().map(|()| scenario)
    };
    let scenario = published("condition='baseline',").unwrap();
    assert_eq!(scenario.published.of("baseline").count(), 1);
    assert_eq!(scenario.published.of("overcommitted").count(), 1);
    assert_eq!(published("").unwrap().published.of("overcommitted").count(), 2);
    assert_eq!(
        published("condition='x',").unwrap_err().to_string(),
        "published.condition: there is no condition \"x\""
    );
}
