/*
 * Reclamation by call_rcu, in a worker thread that is the writer's own and runs on its CPUs: without that it would have
 * a core for itself, which no other scheme has. The worker is the library's, with default flags: it sleeps 10 ms after
 * each batch.
 */
#ifndef PEERS_LIBURCU_CALL_H
#define PEERS_LIBURCU_CALL_H

#include "liburcu_readers.h"

_Static_assert(sizeof(struct rcu_head) <= sizeof((struct node *)0)->scheme, "a node holds the library's head");

static struct call_rcu_data *worker;

static void start(void)
{
	cpu_set_t cpus;

	require_membarrier();
	rcu_register_thread();
	/* No CPU of its own (-1): the worker inherits the CPUs of the writer, which calls this. */
	worker = create_call_rcu_data(0, -1);
	set_thread_call_rcu_data(worker);
	if (pthread_getaffinity_np(get_call_rcu_thread(worker), sizeof cpus, &cpus) != 0 ||
	    !CPU_EQUAL(&cpus, &bench.options.writer_cpus)) {
		fprintf(stderr, "the call_rcu worker does not run on the writer's CPUs\n");
		exit(EXIT_MISSING);
	}
	note("freed by one call_rcu worker on the writer's CPUs, which sleeps 10 ms after each batch");
	writer_offline();
}

static void free_node(struct rcu_head *head)
{
	ledger_free((struct node *)((char *)head - offsetof(struct node, scheme)));
}

static void retire(struct node *n)
{
	writer_online();
	call_rcu((struct rcu_head *)n->scheme, free_node);
	writer_offline();
}

static void stop(void)
{
	rcu_barrier();
	writer_online();
	set_thread_call_rcu_data(NULL);
	writer_offline();
	call_rcu_data_free(worker);
	worker = NULL;
	rcu_unregister_thread();
}

static bool background(pthread_t *thread)
{
	*thread = get_call_rcu_thread(worker);
	return true;
}

const struct scheme scheme = {
	.name = SCHEME_NAME,
	.library = "liburcu",
	.version = LIBURCU_VERSION,
	.kind = KIND,
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
