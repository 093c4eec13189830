/*
 * Reclamation by synchronize_rcu in a tight loop: a thread on the writer's CPUs takes all waiting nodes, waits for one
 * grace period, frees them, and begins again at once. It sleeps only while no node waits, whereas liburcu's call_rcu
 * worker sleeps 10 ms after each batch. A scheme's file defines SCHEME_NAME.
 */
#ifndef PEERS_LIBURCU_SYNC_H
#define PEERS_LIBURCU_SYNC_H

#include "../reclaimer.h"
#include "liburcu_readers.h"

static void reclaimer_begin(void)
{
	rcu_register_thread();
	writer_offline();
}

static void reclaim(struct node *list)
{
	struct node *n;

	synchronize_rcu();
	while ((n = list)) {
		list = n->queued;
		ledger_free(n);
	}
}

static void reclaimer_end(void)
{
	rcu_unregister_thread();
}

static void start(void)
{
	require_membarrier();
	note("freed by a thread on the writer's CPUs that calls synchronize_rcu in a tight loop");
	reclaimer_start(reclaimer_begin, reclaim, reclaimer_end);
}

static void stop(void)
{
	reclaimer_finish();
}

const struct scheme scheme = {
	.name = SCHEME_NAME,
	.library = "liburcu",
	.version = LIBURCU_VERSION,
	.kind = KIND,
	.frees = true,
	.start = start,
	.reader_start = reader_start,
	.read = read_loop,
	.reader_end = reader_end,
	.retire = reclaimer_hand,
	.stop = stop,
	.background = reclaimer_thread,
};

#endif
