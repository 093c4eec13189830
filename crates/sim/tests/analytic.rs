//! What can be worked out by hand of a host: slices on a shared pCPU, and quotas.

mod support;

use reprieve_study::metric::{IDLE_CPU, KERNEL_CPU, THROUGHPUT};
use reprieve_study::units::MILLISECOND_NS;
use reprieve_study::{Observation, Span};
use support::{descheduled, grace_periods, run_one};

/// Two vCPUs that are always busy, on one pCPU of a host with two and without threads of its own.
fn sharing(host: &str) -> Observation {
    run_one(&format!(
        "
        run = {{ repeat = 1, warmup_ms = 200, window_ms = 1_000 }}
        observe = {{ sample_hz = 5_000, sync_every_ms = 0 }}
        host = {{ noise_per_s = 0, {host} }}
        workload = {{ kind = 'memory' }}
        [conditions.pinned]
        pcpus = [0]
        "
    ))
}

/// They are descheduled in turn, for that long each time, and so each gets half of the pCPU.
fn takes_turns(host: &str, turn_ns: u64) {
    let run = sharing(host);
    let both = (0..2).flat_map(|vcpu| descheduled(&run, vcpu).into_iter().map(move |span| (span, vcpu)));
    let mut turns: Vec<(Span, usize)> = both.collect();
    turns.sort_by_key(|(span, _)| span.start_ns);
    for pair in turns.windows(2) {
        let ((first, who), (second, next)) = (pair[0], pair[1]);
        assert!(who != next && first.end_ns == second.start_ns, "{host}: {pair:?}");
    }
    // The first and the last one are cut by the window.
    let whole = &turns[1..turns.len() - 1];
    assert!(whole.len() as u64 >= 1_000 * MILLISECOND_NS / turn_ns - 2, "{host}: only {} turns", whole.len());
    assert!(whole.iter().all(|(span, _)| span.length_ns() == turn_ns), "{host}: {whole:?}");
    for vcpu in &run.provenance.vcpus {
        assert!(vcpu.run_ns.abs_diff(run.provenance.window_ns / 2) <= turn_ns / 2, "{host}: {vcpu:?}");
        assert_eq!(vcpu.run_ns + vcpu.delay_ns, run.provenance.window_ns, "{host}: always busy");
    }
}

/// EEVDF switches at the first tick at which the slice is over: 0.7 ms, doubled for 2 pCPUs, or what is set.
#[test]
fn with_eevdf_a_turn_is_a_slice_rounded_up_to_ticks() {
    for hz in [100, 250, 1_000] {
        for (slice_us, slice_ns) in [(0, 1_400_000), (5_000, 5 * MILLISECOND_NS), (9_000, 9 * MILLISECOND_NS)]
        {
            let host = format!("hz = {hz}, slice_us = {slice_us}");
            takes_turns(&host, u64::next_multiple_of(slice_ns, 1_000 * MILLISECOND_NS / hz));
        }
    }
}

/// CFS switches at the first tick past the slice: half of the latency (6 ms, doubled for 2 pCPUs), and at least the
/// minimal granularity.
#[test]
fn with_cfs_a_turn_is_half_of_the_latency_to_the_next_tick() {
    for hz in [100, 250, 1_000] {
        for (granularity_us, slice_ns) in
            [(0, 6 * MILLISECOND_NS), (5_000, 6 * MILLISECOND_NS), (9_000, 9 * MILLISECOND_NS)]
        {
            let host = format!("scheduler = 'cfs', hz = {hz}, slice_us = {granularity_us}");
            let tick_ns = 1_000 * MILLISECOND_NS / hz;
            takes_turns(&host, (slice_ns / tick_ns + 1) * tick_ns);
        }
    }
}

/// A quota is enforced at the host's ticks, and what was overdrawn is paid back in the next period.
#[test]
fn a_quota_is_kept_within_a_tick_a_period() {
    const TICK_NS: u64 = 4 * MILLISECOND_NS;
    for (percent, period_ms) in [(20, 100), (50, 100), (30, 70), (60, 40)] {
        let run = run_one(&format!(
            "
            run = {{ repeat = 1, warmup_ms = 300, window_ms = 4_200 }}
            guest = {{ vcpus = 1 }}
            observe = {{ sample_hz = 5_000, sync_every_ms = 0 }}
            host = {{ noise_per_s = 0 }}
            workload = {{ kind = 'memory' }}
            [conditions.limited]
            quota = [{{ vcpu = 0, percent = {percent}, period_ms = {period_ms} }}]
            "
        ));
        let due_ns = run.provenance.window_ns * percent / 100;
        let run_ns = run.provenance.vcpus[0].run_ns;
        assert!(run_ns.abs_diff(due_ns) <= 2 * TICK_NS, "{percent}/{period_ms}: {run_ns} of {due_ns}");
        // Throttled once a period: for the rest of it, but for what a tick is late and what was overdrawn before.
        let away = descheduled(&run, 0);
        let rest_ns = period_ms * MILLISECOND_NS * (100 - percent) / 100;
        let periods = 4_200 / period_ms;
        assert!((away.len() as u64).abs_diff(periods) <= 1, "{percent}/{period_ms}: {}", away.len());
        for span in &away[1..away.len() - 1] {
            assert!(span.length_ns().abs_diff(rest_ns) <= TICK_NS, "{percent}/{period_ms}: {span:?}");
        }
    }
}

/// A pause of a scenario is a time off its pCPU, and a grace period as long: it cannot end before, whether the vCPU's
/// report is missing or RCU's kthread is on it. Another one may have ended at its beginning.
#[test]
fn a_pause_is_a_long_grace_period() {
    for for_ms in [50, 100, 400] {
        let run = run_one(&format!(
            "
            run = {{ repeat = 1, warmup_ms = 200, window_ms = 800 }}
            observe = {{ sample_hz = 5_000, sync_every_ms = 0 }}
            host = {{ noise_per_s = 0 }}
            workload = {{ kind = 'memory' }}
            [conditions.paused]
            pauses = [{{ vcpu = 1, at_ms = 100, for_ms = {for_ms} }}]
            "
        ));
        let pause = Span::new(100 * MILLISECOND_NS, (100 + for_ms) * MILLISECOND_NS);
        assert_eq!(descheduled(&run, 1), [pause]);
        let periods = grace_periods(&run);
        let ended =
            periods.iter().filter(|gp| pause.start_ns < gp.end_ns && gp.end_ns < pause.end_ns).count();
        assert!(ended <= 1, "{ended} grace periods ended while vCPU 1 was paused");
        let longest_ns = periods.iter().map(|gp| gp.length_ns()).max().unwrap();
        assert!(longest_ns >= (for_ms - 20) * MILLISECOND_NS, "{for_ms} ms: {longest_ns} ns");
    }
}

#[test]
fn only_network_namespaces_are_torn_down() {
    let [net, uts] = ["net", "uts"].map(|name| {
        run_one(&format!(
            "
            run = {{ repeat = 1, warmup_ms = 100, window_ms = 500 }}
            guest = {{ vcpus = 1, memory_mib = 512 }}
            workload = {{ kind = 'clone', namespaces = ['{name}'] }}
            [conditions.c]
            "
        ))
    });
    let throughput = |run| support::metric(run, reprieve_study::metric::THROUGHPUT);
    // 8.1 ms of CPU time a clone, and 1.2 ms.
    assert!(throughput(&uts) > 4.0 * throughput(&net), "{} and {}", throughput(&uts), throughput(&net));
}

/// A guest with one vCPU to itself, whose bursts are followed by 1 ms in user mode and that long in the kernel.
fn loaded(kernel_us: u64, pause_us: u64) -> Observation {
    run_one(&format!(
        "
        run = {{ repeat = 1, warmup_ms = 200, window_ms = 2_000 }}
        observe = {{ sync_every_ms = 0 }}
        guest = {{ vcpus = 1, memory_mib = 256 }}
        host = {{ noise_per_s = 0 }}
        [workload]
        kind = 'memory'
        user_us = 1_000
        kernel_us = {kernel_us}
        pause_us = {pause_us}
        [conditions.alone]
        "
    ))
}

#[test]
fn other_work_takes_its_time_where_it_is_said_to_be() {
    let [none, more, paused] =
        [(0, 0), (1_000, 0), (1_000, 2_000)].map(|(kernel, pause)| loaded(kernel, pause));
    let of = |run: &Observation, id: &str| run.metrics[id];
    let (bursts, with_more) = (of(&none, THROUGHPUT) / 10.0, of(&more, THROUGHPUT) / 10.0);
    // Every burst takes a millisecond more, and the ticks and callbacks of that time.
    assert!((1.0 / with_more - 1.0 / bursts - 1e-3).abs() < 6e-5, "{bursts} and {with_more} bursts a second");
    let in_user_mode = |run: &Observation, bursts: f64| {
        let share = 1.0 - of(run, KERNEL_CPU) - of(run, IDLE_CPU);
        (share - bursts * 1e-3).abs()
    };
    assert!(in_user_mode(&none, bursts) < 0.02 && in_user_mode(&more, with_more) < 0.02);
    let with_pause = of(&paused, THROUGHPUT) / 10.0;
    assert!((of(&paused, IDLE_CPU) - with_pause * 2e-3).abs() < 0.05, "idle in the pauses");
}
