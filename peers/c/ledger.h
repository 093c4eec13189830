/*
 * What became of the deleted nodes: how many were handed to the scheme and freed, by whom, and after what delay.
 *
 * The delay of a delete runs from its unlink to the instant before its memory is freed. The histogram holds the deletes
 * issued within the window, whenever they are freed.
 */
#ifndef PEERS_LEDGER_H
#define PEERS_LEDGER_H

#include "histogram.h"
#include "table.h"

enum role { ROLE_BACKGROUND, ROLE_READER, ROLE_WRITER, ROLES };

struct ledger {
	uint64_t window_start_ns; /* UINT64_MAX before the window */
	uint64_t window_end_ns;   /* UINT64_MAX until it ends */
	uint64_t retired;         /* all handed to the scheme, warm-up included */
	uint64_t freed;           /* all freed, warm-up included */
	uint64_t freed_by[ROLES]; /* of the window's deletes */
	struct histogram delay;   /* of the window's deletes */
	struct node *quarantine;  /* poisoned nodes of the planted fault, never freed */
};

extern struct ledger ledger;

/* The role of the calling thread; a library's own threads keep the first. */
extern _Thread_local enum role role;

/* Counts a node that is about to be handed to the scheme. The writer alone calls it. */
void ledger_retire(void);

/* Records the delay, poisons the node and frees it. The scheme calls it, from any thread, when no reader can hold the
 * node any more. */
void ledger_free(struct node *n);

/* As ledger_free, but the memory stays poisoned and is never freed: the planted fault calls it while readers may hold
 * the node. The writer alone calls it. */
void ledger_quarantine(struct node *n);

/* Nodes handed to the scheme and not yet freed. */
uint64_t ledger_unreclaimed(void);

#endif
