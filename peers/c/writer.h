/*
 * The writer: replaces random entries at the asked rate, and turns the phases. It is the program's first thread.
 *
 * Delete i is due at start + i / rate, whatever happened before: a writer that is late catches up, and how late it was
 * is counted. What it could not deliver by the end of the window stays undelivered.
 */
#ifndef PEERS_WRITER_H
#define PEERS_WRITER_H

#include "histogram.h"

#include <stdint.h>

/* Nodes that wait to be freed are bounded by this (1 GiB of nodes); beyond it deletes are not delivered. */
#define MAX_UNRECLAIMED (1ull << 24)

/* Counters that start with the window. */
struct writer_counts {
	uint64_t deletes;
	struct histogram retire; /* wall time in scheme.retire */
	uint64_t late_sum_ns, late_max_ns;
	uint64_t peak; /* most nodes that waited to be freed */
};

struct writer {
	uint64_t random;
	uint64_t start_ns;
	uint64_t issued; /* deletes that fell due, warm-up included */
	struct writer_counts counts; /* running */

	/* Of the window. */
	struct writer_counts window;
	uint64_t window_ns;
	uint64_t pending; /* deletes not yet freed when the window ended */
	uint64_t cpu_ns;  /* CPU time of the writer's thread */
	uint64_t background_cpu_ns;
};

/* Runs the warm-up and the window; then goes on deleting, uncounted, until the window's deletes are freed, so that the
 * last of them wait as the others did. */
void writer_run(struct writer *w);

#endif
