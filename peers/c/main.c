/*
 * The delete-free benchmark, in one binary per scheme: readers look up random entries of a hash table, a writer
 * replaces entries at a steady rate, and the delay from a node's unlink to its free is measured.
 *
 * Exit codes: 0, 1 when a reader met a node it should not have met or a node was not freed, 2 usage, 69 when the machine
 * lacks something.
 * SIGINT and SIGTERM keep their default action, which ends the process and its threads at once; so does SIGALRM when a
 * run has not ended long after it should have.
 */
#include "clock.h"
#include "ledger.h"
#include "report.h"
#include "scheme.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Beyond warm-up, window and stall a run only fills the table and drains: seconds. A minute means it hangs. */
#define GRACE_S 60

struct bench bench;

void note(const char *text)
{
	if (bench.notes_used < sizeof bench.notes / sizeof bench.notes[0])
		bench.notes[bench.notes_used++] = text;
}

/* Rounds of dwell() that last `ns`. The quickest of several tries: the others were disturbed. */
static uint64_t rounds_of(uint64_t ns)
{
	enum { TRIES = 16, ROUNDS = 20000 };
	struct node own = {.key = 1, .value = value_of(1)};
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t start_ns = thread_cpu_ns(), took_ns;

		if (!dwell(&own, 1, ROUNDS))
			__builtin_trap();
		took_ns = thread_cpu_ns() - start_ns;
		if (took_ns < best_ns)
			best_ns = took_ns;
	}
	return ns * ROUNDS / (best_ns ? best_ns : 1);
}

static void start_watchdog(const struct options *o)
{
	alarm((unsigned)((o->warmup_ms + o->duration_ms + o->stall_ms) / 1000) + GRACE_S);
}

int main(int argc, char **argv)
{
	static struct writer writer; /* large: it holds histograms */
	struct reader total;

	bench.options = options_parse(argc, argv);
	if (bench.options.describe) {
		report_describe();
		return 0;
	}
	start_watchdog(&bench.options);
	run_on(&bench.options.writer_cpus);
	/* The default slack of 50 us would blur the writer's schedule. Threads inherit it. */
	prctl(PR_SET_TIMERSLACK, 1);
	bench.section_rounds = rounds_of(bench.options.section_ns);
	bench.think_rounds = rounds_of(bench.options.think_ns);
	bench.table = table_new(bench.options.entries);
	scheme.start();
	readers_start();
	writer_run(&writer);
	readers_stop();
	scheme.stop();
	total = readers_total();
	report_run(&writer, &total);
	return total.errors || ledger_unreclaimed() ? EXIT_WRONG : 0;
}
