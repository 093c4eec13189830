#include "table.h"

#include "options.h"

#include <stdio.h>
#include <stdlib.h>

#define POISON 0xdeaddeaddeaddeadull

static void *or_exit(void *memory)
{
	if (!memory) {
		fprintf(stderr, "out of memory: use fewer --entries\n");
		exit(EXIT_MISSING);
	}
	return memory;
}

struct node *node_new(uint64_t key)
{
	struct node *n = or_exit(aligned_alloc(_Alignof(struct node), sizeof *n));

	n->key = key;
	n->value = value_of(key);
	n->next = NULL;
	return n;
}

void node_poison(struct node *n)
{
	/* Atomic, for the planted fault poisons nodes that are being read. */
	__atomic_store_n(&n->key, ~0ull, __ATOMIC_RELAXED);
	__atomic_store_n(&n->value, POISON, __ATOMIC_RELAXED);
	__atomic_store_n(&n->next, NULL, __ATOMIC_RELAXED);
}

struct table table_new(uint64_t entries)
{
	struct table t = {.entries = entries};
	uint64_t buckets = 1;

	while (buckets < entries)
		buckets *= 2;
	t.mask = buckets - 1;
	t.buckets = or_exit(calloc(buckets, sizeof *t.buckets));
	for (uint64_t key = 0; key < entries; key++)
		table_insert(&t, node_new(key));
	return t;
}

struct node *table_unlink(struct table *t, uint64_t key, bool mark)
{
	struct node **link = table_bucket(t, key);
	struct node *n, *next;

	while (n = *link, n->key != key)
		link = &n->next;
	next = n->next;
	/* Release: pairs with the acquire loads of readers. */
	__atomic_store_n(link, next, __ATOMIC_RELEASE);
	if (mark)
		__atomic_store_n(&n->next, (struct node *)((uintptr_t)next | 1), __ATOMIC_RELEASE);
	return n;
}

void table_insert(struct table *t, struct node *n)
{
	struct node **head = table_bucket(t, n->key);

	n->next = *head;
	/* Release: pairs with the acquire loads of readers. */
	__atomic_store_n(head, n, __ATOMIC_RELEASE);
}
