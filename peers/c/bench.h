/*
 * The benchmark's shared state: options, table, phase, and what the binary has to say about itself.
 *
 * Phases follow each other, and the writer alone turns them. Readers notice a new phase between two batches of
 * look-ups, and take their own counters and CPU clock together at that moment: what they report is exact though they
 * notice late. In PHASE_DRAIN everything goes on but nothing is counted, until the window's deletes are freed.
 */
#ifndef PEERS_BENCH_H
#define PEERS_BENCH_H

#include "options.h"
#include "table.h"

enum phase {
	PHASE_WARMUP,
	PHASE_WINDOW, /* the first half of the window */
	PHASE_MIDDLE, /* the second half, which begins with the stall if there is one */
	PHASE_DRAIN,
	PHASE_STOP,
};

struct bench {
	struct options options;
	struct table table;
	enum phase phase;
	uint64_t section_rounds; /* of dwell(), to last --section-ns */
	uint64_t think_rounds;   /* of dwell(), to last --think-ns */
	const char *notes[8];
	unsigned notes_used;
};

extern struct bench bench;

/* Adds a remark to the report; `text` must live as long as the program. */
void note(const char *text);

static inline enum phase phase_now(void)
{
	/* Acquire: pairs with the release in phase_turn. */
	return __atomic_load_n(&bench.phase, __ATOMIC_ACQUIRE);
}

static inline void phase_turn(enum phase phase)
{
	__atomic_store_n(&bench.phase, phase, __ATOMIC_RELEASE);
}

/* Computes for `rounds`, and tells whether the node held its key and value all the while. */
static inline bool dwell(const struct node *n, uint64_t key, uint64_t rounds)
{
	bool holds = __atomic_load_n(&n->value, __ATOMIC_RELAXED) == value_of(key);

	for (uint64_t i = 0; i < rounds; i++)
		holds &= __atomic_load_n(&n->key, __ATOMIC_RELAXED) == key &&
			 __atomic_load_n(&n->value, __ATOMIC_RELAXED) == value_of(key);
	return holds;
}

#endif
