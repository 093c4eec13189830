/*
 * No reclamation: readers take no part, and deleted nodes are never freed. It shows what a look-up costs by itself, the
 * zero of every read cost.
 */
#include "../ledger.h"
#include "../scheme.h"

static inline void section_enter(struct reader *r)
{
	(void)r;
}

static inline void section_leave(struct reader *r)
{
	(void)r;
}

#include "../read_loop.h"

static struct node *deleted;

static void start(void)
{
	note("deleted nodes are freed only after the readers have ended");
}

static void reader_nothing(struct reader *r)
{
	(void)r;
}

static void retire(struct node *n)
{
	n->queued = deleted;
	deleted = n;
}

static void stop(void)
{
	struct node *n;

	/* Not reclamation, and in no histogram: the memory only goes back. */
	ledger.window_start_ns = UINT64_MAX;
	while ((n = deleted)) {
		deleted = n->queued;
		ledger_free(n);
	}
}

static bool background(pthread_t *thread)
{
	(void)thread;
	return false;
}

const struct scheme scheme = {
	.name = "none",
	.library = "none",
	.version = "0",
	.kind = "none",
	.start = start,
	.reader_start = reader_nothing,
	.read = read_loop,
	.reader_end = reader_nothing,
	.retire = retire,
	.stop = stop,
	.background = background,
};
