//! The workload `tasks`: threads that compute, sleep and wake one another, with exact times.

mod support;

use reprieve_study::{Observation, metric, overrides};
use support::{metric, run_one};

/// Passes of all phases in a second of a guest of two vCPUs, each with a pCPU to itself, and the largest latency in us.
fn alone(tasks: &str) -> (u64, f64) {
    let run = observed(1.0, tasks);
    (metric(&run, metric::THROUGHPUT).round() as u64, metric(&run, metric::LATENCY_MAX) / 1e3)
}

fn observed(overcommit: f64, tasks: &str) -> Observation {
    run_one(&format!(
        "run = {{ repeat = 1, warmup_ms = 0, window_ms = 1_000 }}
        guest = {{ vcpus = 2, speed = 8.0 }}
        [conditions.c]
        overcommit = {overcommit:?}
        [workload]
        kind = 'tasks'
        {tasks}"
    ))
}

#[test]
fn a_timer_keeps_its_period_and_a_sleep_adds_to_the_work() {
    let timer = "[workload.tasks.t]\nphases = [{ steps = [{ do = 'run', us = 2_000 }, { do = 'timer', period_us = 10_000 }] }]";
    let (passes, latest_us) = alone(timer);
    assert_eq!(passes, 99, "the hundredth ends just after the window");
    assert!((1.0..100.0).contains(&latest_us), "no timer wakes early: {latest_us}");
    let sleep = timer.replace("'timer', period_us", "'sleep', us");
    assert_eq!(alone(&sleep).0, 83, "12 ms a pass");
}

#[test]
fn a_period_that_was_missed_is_made_up_for_only_by_an_absolute_timer() {
    let tasks = |mode| {
        format!(
            "[workload.tasks.t]\nphases = [{{ steps = [{{ do = 'run', us = 50_000 }}, {{ do = 'timer', period_us = 10_000, absolute = {mode} }}] }},\n\
             {{ loops = 20, steps = [{{ do = 'run', us = 2_000 }}, {{ do = 'timer', period_us = 10_000, absolute = {mode} }}] }}]"
        )
    };
    // 210 ms by the absolute timer; 50 ms and 20 periods by the relative one.
    assert_eq!(alone(&tasks(true)).0, 4);
    assert_eq!(alone(&tasks(false)).0, 3);
}

#[test]
fn a_resumed_task_runs_once_for_each_time_at_which_it_was_suspended() {
    let tasks = "[workload.tasks.tick]\nvcpus = [0]\nphases = [{ steps = [{ do = 'resume', task = 'out' }, { do = 'timer', period_us = 100_000 }] }]\n\
                 [workload.tasks.out]\nvcpus = [1]\nphases = [{ steps = [{ do = 'suspend' }, { do = 'run', us = US }] }]";
    // Ten ticks, and each resumes `out`, but for the first, which comes before it has suspended itself.
    let (quick, slow) = (alone(&tasks.replace("US", "1_000")).0, alone(&tasks.replace("US", "150_000")).0);
    assert!((19..=20).contains(&quick), "{quick}");
    // It computes while every second tick comes, and that one is lost.
    assert!((14..=15).contains(&slow), "{slow}");
}

#[test]
fn neighbours_make_it_late() {
    let tasks = "[workload.tasks.t]\nthreads = 2\nphases = [{ steps = [{ do = 'run', us = 2_000 }, { do = 'timer', period_us = 10_000 }] }]";
    let (alone, beside) = (observed(1.0, tasks), observed(2.0, tasks));
    let latest = |run: &Observation| metric(run, metric::LATENCY_MAX);
    assert!(latest(&beside) > 10.0 * latest(&alone), "{} and {}", latest(&beside), latest(&alone));
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |tasks: &str| {
        let text = format!("name = 't'\ntitle = 't'\n[conditions.a]\n[workload]\nkind = 'tasks'\n{tasks}");
        overrides::read(&text, None, &[]).unwrap_err().to_string()
    };
    assert!(refused("").starts_with("workload.tasks: 0 is not within 1 to 64"));
    let task = |steps: &str| refused(&format!("[workload.tasks.t]\nphases = [{{ steps = [{steps}] }}]"));
    assert!(task("{ do = 'yield' }").contains("no step takes time"));
    assert!(
        task("{ do = 'run', us = 1 }, { do = 'resume', task = 'u' }")
            .contains("resumes \"u\", and there is no such task")
    );
    assert!(task("{ do = 'run', us = 0 }").contains("not within 1 to"));
}
