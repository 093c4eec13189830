#include "writer.h"

#include "clock.h"
#include "ledger.h"
#include "scheme.h"

/* What is not freed so long after the window, stalls apart, is freed when the readers have ended; its delay shows it. */
#define DRAIN_LIMIT_NS (10 * SECOND_NS)

static void delete_one(struct writer *w)
{
	uint64_t key = next_below(&w->random, bench.table.entries), before_ns, waiting;
	struct node *fresh = node_new(key), *old = table_unlink(&bench.table, key, scheme.marks);

	old->unlinked_ns = now_ns();
	table_insert(&bench.table, fresh);
	ledger_retire();
	before_ns = now_ns();
	if (bench.options.fault_free_at_once)
		ledger_quarantine(old);
	else
		scheme.retire(old);
	histogram_record(&w->counts.retire, now_ns() - before_ns);
	waiting = ledger_unreclaimed();
	if (waiting > w->counts.peak)
		w->counts.peak = waiting;
	w->counts.deletes++;
}

static void count_lateness(struct writer *w, uint64_t late_ns)
{
	w->counts.late_sum_ns += late_ns;
	if (late_ns > w->counts.late_max_ns)
		w->counts.late_max_ns = late_ns;
}

/* Deletes on schedule until `end_ns`. */
static void delete_until(struct writer *w, uint64_t end_ns)
{
	uint64_t rate = bench.options.deletes_per_s, due_ns, now;

	for (;;) {
		due_ns = rate ? w->start_ns + w->issued * SECOND_NS / rate : UINT64_MAX;
		if (due_ns >= end_ns) {
			sleep_until(end_ns);
			return;
		}
		now = now_ns();
		if (now < due_ns) {
			sleep_until(due_ns);
			now = now_ns();
		}
		if (now >= end_ns)
			return;
		w->issued++;
		if (ledger_unreclaimed() >= MAX_UNRECLAIMED)
			continue;
		count_lateness(w, now - due_ns);
		delete_one(w);
	}
}

/* CPU time of the scheme's own thread so far; 0 without one. */
static uint64_t background_cpu_ns(void)
{
	pthread_t thread;
	clockid_t clock;

	if (!scheme.background(&thread) || pthread_getcpuclockid(thread, &clock) != 0)
		return 0;
	return clock_ns(clock);
}

static void open_window(struct writer *w, uint64_t now)
{
	w->counts = (struct writer_counts){0};
	__atomic_store_n(&ledger.window_start_ns, now, __ATOMIC_RELAXED);
	phase_turn(PHASE_WINDOW);
	w->background_cpu_ns = background_cpu_ns();
	w->cpu_ns = thread_cpu_ns();
}

/* Deletes of the window that are not freed. */
static uint64_t pending(const struct writer *w)
{
	/* Acquire: pairs with the recording thread's release in histogram_record. */
	return w->window.deletes - __atomic_load_n(&ledger.delay.count, __ATOMIC_ACQUIRE);
}

static void close_window(struct writer *w, uint64_t start_ns)
{
	uint64_t now = now_ns();

	w->cpu_ns = thread_cpu_ns() - w->cpu_ns;
	w->background_cpu_ns = background_cpu_ns() - w->background_cpu_ns;
	__atomic_store_n(&ledger.window_end_ns, now, __ATOMIC_RELAXED);
	w->window = w->counts;
	w->window_ns = now - start_ns;
	w->pending = pending(w);
	phase_turn(PHASE_DRAIN);
}

static void drain(struct writer *w)
{
	uint64_t now = now_ns(), limit_ns = now + bench.options.stall_ms * MILLISECOND_NS + DRAIN_LIMIT_NS;

	for (; pending(w) && now < limit_ns; now = now_ns())
		delete_until(w, now + MILLISECOND_NS);
}

void writer_run(struct writer *w)
{
	uint64_t half_ns = bench.options.duration_ms * MILLISECOND_NS / 2, window_ns;

	role = ROLE_WRITER;
	w->random = stream_of(bench.options.seed, 0);
	w->start_ns = now_ns();
	delete_until(w, w->start_ns + bench.options.warmup_ms * MILLISECOND_NS);
	window_ns = now_ns();
	open_window(w, window_ns);
	delete_until(w, window_ns + half_ns);
	phase_turn(PHASE_MIDDLE);
	delete_until(w, window_ns + 2 * half_ns);
	close_window(w, window_ns);
	if (scheme.frees)
		drain(w);
}
