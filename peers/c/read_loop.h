/*
 * The readers' loop. A scheme's file defines section_enter(r) and section_leave(r), then includes this file, so that
 * the compiler inlines them as it would in a program that uses the library. The same loop for every scheme.
 */
#ifndef PEERS_READ_LOOP_H
#define PEERS_READ_LOOP_H

#include "reader.h"

/* Look-ups between two glances at the phase: a power of two that makes the glance's cost vanish. */
#define BATCH 64

static inline __attribute__((always_inline)) void look_up(struct reader *r, bool stall)
{
	uint64_t key = next_below(&r->random, bench.table.entries);
	const struct node *n;

	section_enter(r);
	n = table_find(&bench.table, key);
	if (stall)
		reader_stall();
	if (!n)
		r->misses++;
	else if (__builtin_expect(!dwell(n, key, bench.section_rounds), 0))
		r->errors++;
	section_leave(r);
}

static __attribute__((noinline)) void look_up_stalled(struct reader *r)
{
	look_up(r, true);
	r->lookups++;
}

static void think(uint64_t rounds)
{
	struct node own = {.key = 0, .value = value_of(0)};

	if (rounds && !dwell(&own, 0, rounds))
		__builtin_trap();
}

static void read_loop(struct reader *r)
{
	enum phase seen = PHASE_WARMUP, phase;

	while ((phase = phase_now()) != PHASE_STOP) {
		if (phase != seen) {
			reader_notice(r, phase);
			if (phase == PHASE_MIDDLE && r->id == 0 && bench.options.stall_ms)
				look_up_stalled(r);
			seen = phase;
		}
		for (unsigned i = 0; i < BATCH; i++) {
			look_up(r, false);
			think(bench.think_rounds);
		}
		r->lookups += BATCH;
	}
}

#endif
