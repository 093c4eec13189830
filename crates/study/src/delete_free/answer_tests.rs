use super::*;
use crate::scenario::overrides;

fn planned() -> PlannedRun {
    let text = "name = 't'\ntitle = 't'\nground = 'vm'\nrun.window_ms = 2000\n\
                workload = { kind = 'delete-free', scheme = 'mine', entries = 64 }\n[conditions.c]\n";
    overrides::read(text, None, &[]).unwrap().plan().unwrap().remove(0)
}

/// What a program says that was asked for that run; `more` are other keys.
fn line(more: &str) -> String {
    let (_, options) = Options::of(&planned().scenario, 0).unwrap();
    let (mut pairs, arguments) = (Vec::new(), options.arguments());
    for pair in arguments.chunks(2) {
        let key = pair[0].trim_start_matches("--").replace('-', "_");
        let list = if key.ends_with("_cpus") { ("[", "]") } else { ("", "") };
        pairs.push(format!("\"{key}\":{}{}{}", list.0, pair[1], list.1));
    }
    format!(
        "{{\"scheme\":\"mine\",\"library\":\"l\",\"version\":\"1\",\"kind\":\"lock\",\"options\":{{{}}},
        \"deletes\":{{\"delivered_per_s\":5.0,\"delivered\":10,\"freed\":10}},
        \"delay_ns\":{{\"count\":10,\"mean\":2.5,\"p50\":2,\"p99\":3,\"max\":4}},\"errors\":0,
        \"writer\":{{\"cpu_ns_per_delete\":6.0,\"background_cpu_ns_per_delete\":0.0{}}},
        \"readers\":{{\"lookups\":3000,\"cpu_ns_per_lookup\":8.0}},
        \"unreclaimed_peak\":{{\"objects\":7,\"bytes\":448}}{}}}",
        pairs.join(","),
        if more.is_empty() {
            ""
        } else {
            ",\"lateness_mean_ns\":1.5,\"lateness_max_ns\":9,\"retire_p999_ns\":11,\"retire_max_ns\":12"
        },
        more
    )
}

fn read(text: &str) -> Result<Answer, String> {
    Answer::read(text, "mine", &Options::of(&planned().scenario, 0).unwrap().1)
}

fn observe(more: &str, window_ns: u64) -> Observation {
    let provenance = Provenance { window_ns, ..Provenance::default() };
    read(&line(more)).unwrap().observe(&planned(), provenance)
}

#[test]
fn membarrier_and_lateness_are_figures_where_a_program_has_them() {
    let without = observe("", 0);
    let ids = [metric::WRITER_LATE, metric::MEMBARRIERS, metric::MEMBARRIER_P99, metric::SWITCHES];
    assert!(ids.iter().all(|id| !without.metrics.contains_key(*id)));
    let fences = |calls: u64| {
        format!(
            ",\"fences\":{{\"membarriers\":{calls},\"p50_ns\":20,\"p99_ns\":30,\"max_ns\":40,\"switches\":2}}"
        )
    };
    let with = observe(&fences(5), 0);
    assert_eq!(ids.map(|id| with.metrics[id]), [1.5, 5.0, 30.0, 2.0]);
    assert_eq!((with.metrics[metric::WRITER_LATE_MAX], with.metrics[metric::MEMBARRIER_MAX]), (9.0, 40.0));
    assert_eq!((with.metrics[metric::RETIRE_P999], with.metrics[metric::RETIRE_MAX]), (11.0, 12.0));
    assert!(!observe(&fences(0), 0).metrics.contains_key(metric::MEMBARRIER_P50), "of no calls");
}

#[test]
fn look_ups_are_of_the_program_s_window_whatever_the_ground_s_is() {
    for (given_ns, window_ns) in [(0, 2_000_000_000), (7_000_000_000, 7_000_000_000)] {
        let observed = observe("", given_ns);
        assert_eq!(
            (observed.metrics[metric::THROUGHPUT], observed.provenance.window_ns),
            (1_500.0, window_ns)
        );
    }
}

#[test]
fn what_a_program_says_is_made_plain_and_cut() {
    let notes: Vec<String> = (0..40).map(|_| format!("\"\\u001b[2J{}\"", "x".repeat(1_000))).collect();
    let observed = observe(&format!(",\"notes\":[{}]", notes.join(",")), 0);
    assert_eq!(observed.provenance.notes.len(), 1 + NOTES);
    let is_plain =
        |note: &String| note.chars().count() <= NOTE_CHARACTERS + r"\x1b".len() && !note.contains('\x1b');
    assert!(observed.provenance.notes.iter().all(is_plain));
}

#[test]
fn another_question_s_answer_and_none_at_all_are_refused() {
    let problem = |text: &str| read(text).unwrap_err();
    assert_eq!(problem(" "), "printed nothing");
    assert!(problem("{").starts_with("printed no answer"));
    assert_eq!(problem(&line("").replace("\"mine\"", "\"other\"")), "says that its scheme is \"other\"");
    assert!(problem(&line("").replace("\"entries\":64", "\"entries\":65")).starts_with("was asked for"));
    assert_eq!(
        problem(&line("").replace("\"errors\":0", "\"errors\":3")),
        "its readers met freed memory 3 times"
    );
}
