#include "reclaimer.h"

#include "options.h"

#include <stdio.h>
#include <stdlib.h>

static struct {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct node *first, **last;
	bool finish, running;
	void (*begin)(void), (*reclaim)(struct node *list), (*end)(void);
} reclaimer = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .last = &reclaimer.first};

/* All nodes that wait, or NULL when there will be no more. */
static struct node *take_all(void)
{
	struct node *list;

	pthread_mutex_lock(&reclaimer.lock);
	while (!reclaimer.first && !reclaimer.finish)
		pthread_cond_wait(&reclaimer.more, &reclaimer.lock);
	list = reclaimer.first;
	reclaimer.first = NULL;
	reclaimer.last = &reclaimer.first;
	pthread_mutex_unlock(&reclaimer.lock);
	return list;
}

static void *reclaimer_main(void *unused)
{
	struct node *list;

	(void)unused;
	reclaimer.begin();
	while ((list = take_all()))
		reclaimer.reclaim(list);
	reclaimer.end();
	return NULL;
}

void reclaimer_start(void (*begin)(void), void (*reclaim)(struct node *list), void (*end)(void))
{
	reclaimer.begin = begin;
	reclaimer.reclaim = reclaim;
	reclaimer.end = end;
	/* The new thread inherits the CPUs of the writer, which calls this. */
	if (pthread_create(&reclaimer.thread, NULL, reclaimer_main, NULL) != 0) {
		fprintf(stderr, "cannot start the reclaimer thread\n");
		exit(EXIT_MISSING);
	}
	reclaimer.running = true;
}

void reclaimer_hand(struct node *n)
{
	bool was_empty;

	n->queued = NULL;
	pthread_mutex_lock(&reclaimer.lock);
	was_empty = !reclaimer.first;
	*reclaimer.last = n;
	reclaimer.last = &n->queued;
	pthread_mutex_unlock(&reclaimer.lock);
	if (was_empty)
		pthread_cond_signal(&reclaimer.more);
}

void reclaimer_finish(void)
{
	if (!reclaimer.running)
		return;
	pthread_mutex_lock(&reclaimer.lock);
	reclaimer.finish = true;
	pthread_mutex_unlock(&reclaimer.lock);
	pthread_cond_signal(&reclaimer.more);
	pthread_join(reclaimer.thread, NULL);
	reclaimer.running = false;
}

bool reclaimer_thread(pthread_t *thread)
{
	*thread = reclaimer.thread;
	return reclaimer.running;
}
