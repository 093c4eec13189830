/*
 * DPDK's tokens, checked by the writer: at each delete it takes a token, and frees the deleted nodes, oldest first,
 * whose tokens all readers have acknowledged. Nothing is freed between two deletes.
 */
#include "dpdk_readers.h"

static struct node *oldest, **newest = &oldest;

static void start(void)
{
	qsbr_start();
	note("freed by the writer at its next delete");
}

static void free_passed(void)
{
	struct node *n;

	while ((n = oldest) && token_passed(n)) {
		oldest = n->queued;
		if (!oldest)
			newest = &oldest;
		ledger_free(n);
	}
}

static void retire(struct node *n)
{
	token_take(n);
	n->queued = NULL;
	*newest = n;
	newest = &n->queued;
	free_passed();
}

static void stop(void)
{
	free_passed(); /* all: no reader is left to be waited for */
	free(qsbr);
}

static bool background(pthread_t *thread)
{
	(void)thread;
	return false;
}

const struct scheme scheme = {
	.name = "dpdk-inline",
	.library = "dpdk",
	.version = DPDK_VERSION,
	.kind = "quiescent",
	.frees = true,
	.start = start,
	.reader_start = reader_start,
	.read = read_loop,
	.reader_end = reader_end,
	.retire = retire,
	.stop = stop,
	.background = background,
};
