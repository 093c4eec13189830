/*
 * Readers of DPDK's rte_rcu_qsbr: each has a slot in one QSBR variable, and reports a quiescent state every
 * --quiescent-every look-ups. The variable is ordinary memory, so that neither EAL nor huge pages are needed.
 */
#ifndef PEERS_DPDK_READERS_H
#define PEERS_DPDK_READERS_H

#include "../ledger.h"
#include "../scheme.h"

#include <rte_rcu_qsbr.h>
#include <stdio.h>
#include <stdlib.h>

static struct rte_rcu_qsbr *qsbr;

static inline void section_enter(struct reader *r)
{
	(void)r;
}

static inline void section_leave(struct reader *r)
{
	if (--r->until_quiescent == 0) {
		r->until_quiescent = bench.options.quiescent_every;
		rte_rcu_qsbr_quiescent(qsbr, r->id);
	}
}

#include "../read_loop.h"

static void or_exit(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rte_rcu_qsbr: cannot %s\n", what);
	exit(EXIT_MISSING);
}

static void qsbr_start(void)
{
	uint32_t readers = bench.options.readers ? (uint32_t)bench.options.readers : 1;
	size_t bytes = rte_rcu_qsbr_get_memsize(readers);

	bytes = (bytes + RTE_CACHE_LINE_SIZE - 1) / RTE_CACHE_LINE_SIZE * RTE_CACHE_LINE_SIZE;
	qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
	or_exit(qsbr && rte_rcu_qsbr_init(qsbr, readers) == 0, "make a QSBR variable");
}

static void reader_start(struct reader *r)
{
	or_exit(rte_rcu_qsbr_thread_register(qsbr, r->id) == 0, "register a reader");
	rte_rcu_qsbr_thread_online(qsbr, r->id);
}

static void reader_end(struct reader *r)
{
	rte_rcu_qsbr_thread_offline(qsbr, r->id);
	rte_rcu_qsbr_thread_unregister(qsbr, r->id);
}

/* The token whose acknowledgement by every reader lets the node be freed. */
static inline void token_take(struct node *n)
{
	*(uint64_t *)n->scheme = rte_rcu_qsbr_start(qsbr);
}

static inline bool token_passed(const struct node *n)
{
	return rte_rcu_qsbr_check(qsbr, *(const uint64_t *)n->scheme, false) == 1;
}

#endif
