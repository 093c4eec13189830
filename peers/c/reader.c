#include "reader.h"

#include "clock.h"
#include "ledger.h"
#include "scheme.h"

#include <stdio.h>
#include <stdlib.h>

static struct reader readers[MAX_READERS];
static pthread_barrier_t registered;

void reader_notice(struct reader *r, enum phase phase)
{
	struct reading reading = {r->lookups, thread_cpu_ns()};

	/* A reader that was not scheduled for half a window or more meets a later phase first. */
	if (r->start.cpu_ns == 0)
		r->start = reading;
	if (phase == PHASE_DRAIN)
		r->end = reading;
}

static void *reader_main(void *argument)
{
	struct reader *r = argument;

	role = ROLE_READER;
	run_on(&bench.options.reader_cpus);
	r->random = stream_of(bench.options.seed, 1 + r->id);
	r->until_quiescent = bench.options.quiescent_every;
	scheme.reader_start(r);
	pthread_barrier_wait(&registered);
	scheme.read(r);
	scheme.reader_end(r);
	if (r->end.cpu_ns == 0)
		reader_notice(r, PHASE_DRAIN);
	return NULL;
}

void readers_start(void)
{
	pthread_barrier_init(&registered, NULL, (unsigned)bench.options.readers + 1);
	for (unsigned i = 0; i < bench.options.readers; i++) {
		readers[i].id = i;
		if (pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]) != 0) {
			fprintf(stderr, "cannot start reader %u: use fewer --readers\n", i);
			exit(EXIT_MISSING);
		}
	}
	pthread_barrier_wait(&registered);
}

void readers_stop(void)
{
	phase_turn(PHASE_STOP);
	for (unsigned i = 0; i < bench.options.readers; i++)
		pthread_join(readers[i].thread, NULL);
	pthread_barrier_destroy(&registered);
}

struct reader readers_total(void)
{
	struct reader total = {0};

	for (unsigned i = 0; i < bench.options.readers; i++) {
		total.lookups += readers[i].end.lookups - readers[i].start.lookups;
		total.start.cpu_ns += readers[i].end.cpu_ns - readers[i].start.cpu_ns;
		total.misses += readers[i].misses;
		total.errors += readers[i].errors;
	}
	return total;
}
