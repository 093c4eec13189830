/*
 * DPDK's tokens, checked by a thread on the writer's CPUs: the writer takes a token at each delete and hands the node
 * over, and the thread frees the nodes in order.
 */
#include "../clock.h"
#include "../reclaimer.h"
#include "dpdk_readers.h"

/* Between two checks of a token that some reader has not acknowledged. The library's own waiting check spins, which on
 * the writer's CPU would delay the writer, and readers where they share it. This is a tenth of the time between two
 * deletes at the usual 5,000/s, so that it adds little to a delay. */
#define RECHECK_NS 20000

static void nothing(void)
{
}

static void reclaim(struct node *list)
{
	struct node *n;

	while ((n = list)) {
		list = n->queued;
		while (!token_passed(n))
			sleep_until(now_ns() + RECHECK_NS);
		ledger_free(n);
	}
}

static void start(void)
{
	qsbr_start();
	note("freed by a thread on the writer's CPUs that checks a late token every 20 us");
	reclaimer_start(nothing, reclaim, nothing);
}

static void retire(struct node *n)
{
	token_take(n);
	reclaimer_hand(n);
}

static void stop(void)
{
	reclaimer_finish();
	free(qsbr);
}

const struct scheme scheme = {
	.name = "dpdk-background",
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
	.background = reclaimer_thread,
};
