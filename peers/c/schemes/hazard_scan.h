/*
 * The writer of the hazard-pointer schemes: when enough nodes wait it calls membarrier once, reads all hazard pointers,
 * and frees the nodes that none of them holds. A scheme's file defines SCHEME_NAME, NOTE and batch(), how many are
 * enough.
 */
#ifndef PEERS_HAZARD_SCAN_H
#define PEERS_HAZARD_SCAN_H

#include "../ledger.h"
#include "hazard_readers.h"
#include "membarrier.h"

static struct node *waiting;
static uint64_t waiting_nodes;

static void start(void)
{
	membarrier_register();
	note(NOTE);
}

/* Reads every hazard pointer once; returns how many hold a node. */
static size_t collect(const struct node **held)
{
	size_t count = 0;

	for (uint64_t i = 0; i < bench.options.readers; i++) {
		for (int hand = 0; hand < HANDS; hand++) {
			/* Acquire: pairs with the release in protect and in section_leave. */
			const struct node *n = __atomic_load_n(&hands[i].at[hand], __ATOMIC_ACQUIRE);

			if (n)
				held[count++] = n;
		}
	}
	return count;
}

static bool is_held(const struct node *n, const struct node **held, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (held[i] == n)
			return true;
	}
	return false;
}

static void scan(void)
{
	const struct node *held[MAX_READERS * HANDS];
	struct node *rest = waiting, *n;
	size_t count;

	membarrier_call();
	count = collect(held);
	waiting = NULL;
	waiting_nodes = 0;
	while ((n = rest)) {
		rest = n->queued;
		if (!is_held(n, held, count)) {
			ledger_free(n);
			continue;
		}
		n->queued = waiting;
		waiting = n;
		waiting_nodes++;
	}
}

static void retire(struct node *n)
{
	n->queued = waiting;
	waiting = n;
	if (++waiting_nodes >= batch())
		scan();
}

static void stop(void)
{
	scan(); /* frees all: no reader is left */
}

static bool background(pthread_t *thread)
{
	(void)thread;
	return false;
}

const struct scheme scheme = {
	.name = SCHEME_NAME,
	.library = "none",
	.version = "0",
	.kind = "hazard",
	.frees = true,
	.marks = true,
	.start = start,
	.reader_start = reader_nothing,
	.read = read_loop,
	.reader_end = reader_nothing,
	.retire = retire,
	.stop = stop,
	.background = background,
};

#endif
