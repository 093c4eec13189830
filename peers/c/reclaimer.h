/*
 * A thread that frees what the writer hands to it. It runs on the writer's CPUs, and sleeps only while it has no node.
 */
#ifndef PEERS_RECLAIMER_H
#define PEERS_RECLAIMER_H

#include "table.h"

#include <pthread.h>
#include <stdbool.h>

/* Starts the thread. It calls `reclaim` with lists, linked by node.queued in the order of retirement; reclaim frees
 * every node of the list. `begin` and `end` are called in the thread, first and last. */
void reclaimer_start(void (*begin)(void), void (*reclaim)(struct node *list), void (*end)(void));

/* Hands a node over. The writer alone calls it. */
void reclaimer_hand(struct node *n);

/* Waits until all handed nodes are freed, and ends the thread. */
void reclaimer_finish(void);

/* The thread, while it runs. */
bool reclaimer_thread(pthread_t *thread);

#endif
