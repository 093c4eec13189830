/*
 * The writer of the schemes that restart readers by a signal, DEBRA+ and NBR (neutralise_readers.h names the papers).
 * It collects FREE_EVERY nodes, makes sure that no look-up holds one of them, and frees them all. A scheme's file
 * defines SCHEME_NAME, FREE_EVERY and NOTE. NBR also defines SIGNAL_EVERY_READER; DEBRA+ signals only the readers
 * whose look-up began before the batch was complete.
 *
 * When pthread_kill returns, the signal may not have arrived: a reader on another CPU runs on until an interrupt takes
 * it into the kernel. Both papers assume that the signal has arrived. membarrier(2) makes this true: it interrupts
 * every CPU that runs a thread of this process, and a thread that returns from the kernel handles its signals before
 * its next instruction. The same holds for a reader that is not running, so the writer need not wait until it runs.
 */
#ifndef PEERS_NEUTRALISE_H
#define PEERS_NEUTRALISE_H

#include "../ledger.h"
#include "membarrier.h"
#include "neutralise_readers.h"

static struct node *waiting;
static uint64_t waiting_nodes, signals;

static void start(void)
{
	struct sigaction action = {.sa_handler = on_neutralise, .sa_flags = SA_RESTART};

	membarrier_register();
	sigemptyset(&action.sa_mask);
	if (sigaction(NEUTRALISE, &action, NULL) != 0) {
		perror("sigaction");
		exit(EXIT_MISSING);
	}
	note(NOTE);
}

#ifdef SIGNAL_EVERY_READER
static void epoch_advance(void)
{
}

static bool may_hold(uint64_t reader)
{
	(void)reader;
	return true;
}
#else
/* A reader that announces the new epoch sees the table without the batch. Announcements are plain stores; the
 * membarrier makes those of all other readers visible. */
static void epoch_advance(void)
{
	__atomic_store_n(&epoch, epoch + 1, __ATOMIC_RELEASE);
	membarrier_call();
}

/* A reader that still announces the epoch for which it was signalled has not run since. The handler will restart it
 * before it touches a node, so it holds none. */
static bool may_hold(uint64_t reader)
{
	static uint64_t signalled_for[MAX_READERS];
	/* Acquire: pairs with the release in section_leave. */
	uint64_t announced = __atomic_load_n(&slots[reader].announced, __ATOMIC_ACQUIRE);

	if (!announced || announced >= epoch || announced == signalled_for[reader])
		return false;
	signalled_for[reader] = announced;
	return true;
}
#endif

/* Restarts the readers that may hold a node of the batch. */
static void neutralise(void)
{
	bool sent = false;

	epoch_advance();
	for (uint64_t i = 0; i < bench.options.readers; i++) {
		if (!may_hold(i))
			continue;
		pthread_kill(slots[i].thread, NEUTRALISE);
		signals++;
		sent = true;
	}
	if (sent)
		membarrier_call();
}

static void free_waiting(void)
{
	struct node *n;

	while ((n = waiting)) {
		waiting = n->queued;
		ledger_free(n);
	}
	waiting_nodes = 0;
}

static void retire(struct node *n)
{
	n->queued = waiting;
	waiting = n;
	if (++waiting_nodes < FREE_EVERY)
		return;
	neutralise();
	free_waiting();
}

static void stop(void)
{
	static char counted[64];
	uint64_t restarts = 0;

	free_waiting(); /* no reader is left */
	for (uint64_t i = 0; i < bench.options.readers; i++)
		restarts += slots[i].restarts;
	snprintf(counted, sizeof counted, "%lu signals, %lu restarts", signals, restarts);
	note(counted);
}

static bool background(pthread_t *thread)
{
	(void)thread;
	return false;
}

const struct scheme scheme = {
	.name = SCHEME_NAME,
	.library = "none",
	.version = "0",
	.kind = "signal",
	.frees = true,
	.start = start,
	.reader_start = reader_start,
	.read = read_loop,
	.reader_end = reader_end,
	.retire = retire,
	.stop = stop,
	.background = background,
};

#endif
