/*
 * The loop of a look-up thread. A table's file defines map_get(id, key, &value), then includes this file, so that the
 * compiler inlines it.
 */
#ifndef PEERS_LOOK_UP_UNTIL_H
#define PEERS_LOOK_UP_UNTIL_H

#include "../clock.h"
#include "lookup.h"

/* Look-ups between two glances at the clock. */
#define BATCH 1024

static struct lookup_counts look_up_until(const struct lookup_options *o, unsigned id, uint64_t *random,
					  uint64_t until_ns)
{
	struct lookup_counts counts = {.cpu_ns = thread_cpu_ns()};

	do { /* at least one batch, however late this thread runs */
		for (unsigned i = 0; i < BATCH; i++) {
			uint64_t key = lookup_key(o->seed, next_below(random, o->entries)), value;

			if (!map_get(id, key, &value) || value != lookup_value(key))
				counts.errors++;
		}
		counts.lookups += BATCH;
	} while (now_ns() < until_ns);
	counts.cpu_ns = thread_cpu_ns() - counts.cpu_ns;
	return counts;
}

#endif
