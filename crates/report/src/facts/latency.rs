//! What the workloads do whose latency counts.

use reprieve_study::scenario::{Requests, Tasks, Wakeup};

/// The workload `wakeup` in a line.
pub fn wakeup(wakeup: &Wakeup) -> String {
    let Wakeup { sleep_us, sleep_spread, work_us, .. } = *wakeup;
    format!("wakeup: {} of sleep, {work_us} us of work", spread(sleep_us, sleep_spread))
}

/// The workload `requests` in a line.
pub fn requests(requests: &Requests) -> String {
    let Requests { gap_us, rate_per_s, gap_spread, service_us, network_us, .. } = *requests;
    let client = match rate_per_s {
        0 if gap_us == 0 => "the next one at once after an answer".into(),
        0 => format!("the next one {} after an answer", spread(gap_us, gap_spread)),
        rate if gap_spread == 0.0 => format!("{rate} a second whatever is answered"),
        rate => format!("{rate} a second whatever is answered, spread by {gap_spread}"),
    };
    format!("requests: {client}; {service_us} us of service, {network_us} us of network one way")
}

/// The workload `tasks` in a line.
pub fn tasks(tasks: &Tasks) -> String {
    let named = tasks.tasks.iter().map(|(name, task)| match task.threads {
        1 => name.clone(),
        threads => format!("{name} ({threads} threads)"),
    });
    format!("tasks: {}", named.collect::<Vec<_>>().join(", "))
}

fn spread(us: u64, spread: f64) -> String {
    if spread == 0.0 {
        return format!("{us} us");
    }
    let [low, high] = [1.0 - spread, 1.0 + spread].map(|factor| us as f64 * factor);
    format!("{low:.0} to {high:.0} us")
}

#[cfg(test)]
mod tests {
    use crate::facts::workload;
    use reprieve_study::overrides;

    fn said(keys: &str) -> String {
        let text = format!("name = 't'\ntitle = 't'\nworkload = {{ {keys} }}\n[conditions.a]");
        workload(&overrides::read(&text, None, &[]).unwrap().workload)
    }

    #[test]
    fn a_client_s_loop_is_told() {
        assert_eq!(
            said("kind = 'requests', rate_per_s = 5_000, gap_spread = 0.03"),
            "requests: 5000 a second whatever is answered, spread by 0.03; 10 us of service, 50 us of network one way"
        );
        assert!(said("kind = 'requests'").contains("the next one at once after an answer"));
        let closed = said("kind = 'requests', gap_us = 200, gap_spread = 0.5");
        assert!(closed.contains("the next one 100 to 300 us after an answer"), "{closed}");
        assert_eq!(said("kind = 'wakeup'"), "wakeup: 1000 us of sleep, 200 us of work");
    }
}
