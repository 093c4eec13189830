/*
 * The hash table of the benchmark: an array of 2^k buckets (at least one a node on average), each the head of a singly
 * linked list. One writer, any number of readers, no lock.
 *
 * Invariants. A reader reaches a node by acquire loads only, which pair with the release stores of the writer: it sees
 * the node's key, value and link as the writer made them. An unlinked node keeps its link, so that a reader that stands
 * on it walks on into the list; for hazard pointers the writer marks the link by its lowest bit. Which thread frees a
 * node, and when, is up to the scheme.
 */
#ifndef PEERS_TABLE_H
#define PEERS_TABLE_H

#include "random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One cache line, so that a look-up touches one line a node whatever the allocator does. */
struct node {
	_Alignas(64) uint64_t key;
	uint64_t value;
	struct node *next;
	uint64_t unlinked_ns;   /* when the writer unlinked it */
	struct node *queued;    /* the next node of a scheme's own list of nodes that wait */
	_Alignas(8) char scheme[16]; /* the scheme's: a token, a callback head */
};
_Static_assert(sizeof(struct node) == 64, "a node fills its cache line");

struct table {
	struct node **buckets;
	uint64_t mask;
	uint64_t entries;
};

/* What a reader must find under `key`. */
static inline uint64_t value_of(uint64_t key)
{
	return key * 0xd6e8feb86659fd93ull + 1;
}

/* The bucket of `key`. */
static inline struct node **table_bucket(const struct table *t, uint64_t key)
{
	return &t->buckets[mix64(key) & t->mask];
}

/* Whether a link read from a node says that this node was unlinked; see table_unlink. */
static inline bool link_is_marked(const struct node *link)
{
	return (uintptr_t)link & 1;
}

/* The node of `key`, or NULL while the writer is replacing it. For tables without marks. */
static inline const struct node *table_find(const struct table *t, uint64_t key)
{
	const struct node *n = __atomic_load_n(table_bucket(t, key), __ATOMIC_ACQUIRE);

	while (n && __atomic_load_n(&n->key, __ATOMIC_RELAXED) != key)
		n = __atomic_load_n(&n->next, __ATOMIC_ACQUIRE);
	return n;
}

/* A node for `key`, not in the table. Ends the program when memory is short. */
struct node *node_new(uint64_t key);

/* Overwrites a node nobody may read any more with values no reader takes for right. */
void node_poison(struct node *n);

/* A table of the keys 0..entries. Ends the program when memory is short. */
struct table table_new(uint64_t entries);

/* Unlinks the node of `key`, which must be in the table, and gives it. With `mark` its link is marked afterwards, for
 * readers that check a link again after they have published the node they found through it. */
struct node *table_unlink(struct table *t, uint64_t key, bool mark);

void table_insert(struct table *t, struct node *n);

#endif
