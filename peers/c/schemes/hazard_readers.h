/*
 * Readers with hazard pointers (Michael, IEEE TPDS 2004) and an asymmetric fence: a reader publishes the address of the
 * node it is about to stand on and reads the link again. The fence between the two is the writer's: it calls membarrier
 * after the unlink and before it reads the hazard pointers. Either it sees the hazard pointer, or the reader sees the
 * unlink.
 *
 * A list needs two hazard pointers, hand over hand, and marks: a reader that has published `next` must know that the
 * node it read it from was still linked then, or `next` may have been freed before. A reader that reads a mark begins
 * again at the bucket.
 */
#ifndef PEERS_HAZARD_READERS_H
#define PEERS_HAZARD_READERS_H

#include "../scheme.h"

#define HANDS 2

/* One per reader, on cache lines of its own. */
struct hands {
	_Alignas(128) const struct node *at[HANDS];
};

static struct hands hands[MAX_READERS];

static inline void section_enter(struct reader *r)
{
	(void)r;
}

/* Release: what the section loaded, it has loaded before the writer sees that the node is not held any more. */
static inline void section_leave(struct reader *r)
{
	for (int i = 0; i < HANDS; i++)
		__atomic_store_n(&hands[r->id].at[i], NULL, __ATOMIC_RELEASE);
}

/* The node that `link` leads to, published in `hand` while the link led there; or NULL, or a mark. */
static inline const struct node *protect(const struct node **hand, struct node *const *link)
{
	const struct node *n = __atomic_load_n(link, __ATOMIC_RELAXED), *again;

	for (;; n = again) {
		if (!n || link_is_marked(n))
			return n;
		/* Release: the reader has finished with the node that this hand held before. */
		__atomic_store_n(hand, n, __ATOMIC_RELEASE);
		/* The writer's membarrier stands here. */
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		again = __atomic_load_n(link, __ATOMIC_ACQUIRE);
		if (again == n)
			return n;
	}
}

static inline const struct node *find_protected(struct reader *r, uint64_t key)
{
	struct node *const *link;
	const struct node *n;
	unsigned hand;

again:
	link = table_bucket(&bench.table, key);
	for (hand = 0;; hand ^= 1) {
		n = protect(&hands[r->id].at[hand], link);
		if (!n)
			return NULL;
		if (link_is_marked(n))
			goto again;
		if (__atomic_load_n(&n->key, __ATOMIC_RELAXED) == key)
			return n;
		link = &n->next;
	}
}

#define section_find(r, key) find_protected((r), (key))
#include "../read_loop.h"

static void reader_nothing(struct reader *r)
{
	(void)r;
}

#endif
