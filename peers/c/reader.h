/*
 * A reader thread's counters, and the loop every scheme compiles for itself (read_loop.h).
 */
#ifndef PEERS_READER_H
#define PEERS_READER_H

#include "bench.h"

#include <pthread.h>

struct reading {
	uint64_t lookups;
	uint64_t cpu_ns;
};

/* Two cache lines of its own, for neighbours are fetched in pairs. */
struct reader {
	_Alignas(128) unsigned id;
	uint64_t random;
	uint64_t lookups;
	uint64_t misses; /* the key was being replaced */
	uint64_t errors; /* the node did not hold its value */
	uint64_t until_quiescent; /* look-ups until the next report, for schemes that report */
	struct reading start, end; /* of the window */
	pthread_t thread;
};

/* Starts the readers; returns when all are registered. */
void readers_start(void);

/* Turns the last phase and joins the readers. */
void readers_stop(void);

/* Sums over all readers, after readers_stop. */
struct reader readers_total(void);

/* Takes the counters that belong to `phase`, which the reader has just noticed. */
void reader_notice(struct reader *r, enum phase phase);

#endif
