#include "ledger.h"

#include "clock.h"

#include <stdlib.h>

struct ledger ledger = {.window_start_ns = UINT64_MAX, .window_end_ns = UINT64_MAX};
_Thread_local enum role role = ROLE_BACKGROUND;

void ledger_retire(void)
{
	ledger.retired++;
}

/* The bounds are read relaxed: a delete of the window was handed over by the writer after it had set the start, and
 * what was unlinked before a bound that is set meanwhile lies on the right side of either value. */
static void record(const struct node *n)
{
	uint64_t start_ns = __atomic_load_n(&ledger.window_start_ns, __ATOMIC_RELAXED);
	uint64_t end_ns = __atomic_load_n(&ledger.window_end_ns, __ATOMIC_RELAXED);

	if (n->unlinked_ns < start_ns || n->unlinked_ns >= end_ns)
		return;
	histogram_record(&ledger.delay, now_ns() - n->unlinked_ns);
	__atomic_fetch_add(&ledger.freed_by[role], 1, __ATOMIC_RELAXED);
}

void ledger_free(struct node *n)
{
	record(n);
	node_poison(n);
	free(n);
	/* Release: pairs with the acquire in ledger_unreclaimed, so that who sees 0 sees all that was recorded. */
	__atomic_fetch_add(&ledger.freed, 1, __ATOMIC_RELEASE);
}

void ledger_quarantine(struct node *n)
{
	record(n);
	node_poison(n);
	n->queued = ledger.quarantine;
	ledger.quarantine = n;
	__atomic_fetch_add(&ledger.freed, 1, __ATOMIC_RELEASE);
}

uint64_t ledger_unreclaimed(void)
{
	return ledger.retired - __atomic_load_n(&ledger.freed, __ATOMIC_ACQUIRE);
}
