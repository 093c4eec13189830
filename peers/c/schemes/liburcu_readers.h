/*
 * Readers of liburcu, for every flavour: a scheme's file includes the flavour's header, which names the functions used
 * here, and defines FLAVOUR_QSBR for the flavour whose readers report quiescent states.
 */
#ifndef PEERS_LIBURCU_READERS_H
#define PEERS_LIBURCU_READERS_H

#include "../ledger.h"
#include "../scheme.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef FLAVOUR_QSBR
#define KIND "quiescent"

static inline void section_enter(struct reader *r)
{
	(void)r;
}

static inline void section_leave(struct reader *r)
{
	if (--r->until_quiescent == 0) {
		r->until_quiescent = bench.options.quiescent_every;
		rcu_quiescent_state();
	}
}

/* A writer that is online and asleep would hold up every grace period. */
static inline void writer_online(void)
{
	rcu_thread_online();
}

static inline void writer_offline(void)
{
	rcu_thread_offline();
}

#else
#define KIND "lock"

static inline void section_enter(struct reader *r)
{
	(void)r;
	rcu_read_lock();
}

static inline void section_leave(struct reader *r)
{
	(void)r;
	rcu_read_unlock();
}

static inline void writer_online(void)
{
}

static inline void writer_offline(void)
{
}
#endif

#include "../read_loop.h"

static void reader_start(struct reader *r)
{
	(void)r;
	rcu_register_thread();
}

/* A reader of the QSBR flavour goes offline with this. */
static void reader_end(struct reader *r)
{
	(void)r;
	rcu_unregister_thread();
}

/* Without sys_membarrier these flavours' readers would run fences, which is another benchmark. */
static void require_membarrier(void)
{
#ifdef FLAVOUR_HAS_MEMBARRIER
	if (!FLAVOUR_HAS_MEMBARRIER) {
		fprintf(stderr, "liburcu found no sys_membarrier here, and reads with fences instead\n");
		exit(EXIT_MISSING);
	}
	note("liburcu uses sys_membarrier");
#endif
}

#endif
