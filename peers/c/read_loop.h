/*
 * The readers' loop. A scheme's file defines section_enter(r) and section_leave(r), then includes this file, so that
 * the compiler inlines them as it would in a program that uses the library. The same loop for every scheme.
 *
 * Two schemes need more. Hazard pointers define section_find(r, key), because their readers publish each node on the
 * way. Readers that a signal restarts define LOOK_UP_INLINING, because no compiler inlines a function that calls
 * sigsetjmp. What a section found is counted after it, so that a section that runs twice counts once.
 */
#ifndef PEERS_READ_LOOP_H
#define PEERS_READ_LOOP_H

#include "clock.h"
#include "reader.h"

#ifndef section_find
#define section_find(r, key) table_find(&bench.table, (key))
#endif

#ifndef LOOK_UP_INLINING
#define LOOK_UP_INLINING inline __attribute__((always_inline))
#endif

/* Look-ups between two glances at the phase: a power of two that makes the glance's cost vanish. */
#define BATCH 64

/* Looks up a random key. Within its section it sleeps until `stall_until_ns`, unless that is 0. */
static LOOK_UP_INLINING void look_up(struct reader *r, uint64_t stall_until_ns)
{
	uint64_t key = next_below(&r->random, bench.table.entries);
	const struct node *n;
	bool holds;

	section_enter(r);
	n = section_find(r, key);
	if (stall_until_ns)
		sleep_until(stall_until_ns);
	holds = !n || dwell(n, key, bench.section_rounds);
	section_leave(r);
	if (!n)
		r->misses++;
	else if (__builtin_expect(!holds, 0))
		r->errors++;
}

/* The end of the stall is fixed before the section, so that a section that starts again does not stall anew. */
static __attribute__((noinline)) void look_up_stalled(struct reader *r)
{
	look_up(r, now_ns() + bench.options.stall_ms * MILLISECOND_NS);
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
			look_up(r, 0);
			think(bench.think_rounds);
		}
		r->lookups += BATCH;
	}
}

#endif
