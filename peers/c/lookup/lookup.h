/*
 * What a look-up in a library's hash table costs, with the table left alone: one binary per table.
 *
 * Keys are the images of 0..entries under a bijection, so that a random key of the table is computed, not read from
 * memory. Each thread reports its CPU time per look-up, key generation included.
 */
#ifndef PEERS_LOOKUP_H
#define PEERS_LOOKUP_H

#include "../random.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct lookup_options {
	uint64_t entries;
	uint64_t threads;
	uint64_t warmup_ms;
	uint64_t duration_ms;
	uint64_t seed;
	cpu_set_t cpus; /* dealt to the threads in turn */
	bool describe;
};

struct lookup_counts {
	uint64_t lookups;
	uint64_t cpu_ns;
	uint64_t errors; /* keys not found with their value */
};

/* One table of one library. */
struct lookup_map {
	const char *name;
	const char *library;
	const char *version;
	const char *note;

	/* Fills the table with all keys, in the first thread; ends the program with EXIT_MISSING when it cannot. */
	void (*build)(const struct lookup_options *o);

	/* In each thread: registers it, looks up by look_up_until twice (warm-up, window), unregisters it. */
	void (*thread_start)(unsigned id);
	struct lookup_counts (*look_up_until)(const struct lookup_options *o, unsigned id, uint64_t *random,
					      uint64_t until_ns);
	void (*thread_end)(unsigned id);
};

extern const struct lookup_map lookup_map;

static inline uint64_t lookup_key(uint64_t seed, uint64_t index)
{
	return mix64(index ^ seed);
}

static inline uint64_t lookup_value(uint64_t key)
{
	return ~key;
}

#endif
