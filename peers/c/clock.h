/*
 * Clocks, in nanoseconds. CLOCK_MONOTONIC stamps deletes and frees; CLOCK_THREAD_CPUTIME_ID charges a thread only for
 * the time it ran, so that a preempted reader does not look slow.
 */
#ifndef PEERS_CLOCK_H
#define PEERS_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

#define SECOND_NS 1000000000ull
#define MILLISECOND_NS 1000000ull

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Sleeps until the absolute time `until_ns` of CLOCK_MONOTONIC; returns at once when it has passed. */
static inline void sleep_until(uint64_t until_ns)
{
	struct timespec t = {.tv_sec = (time_t)(until_ns / SECOND_NS), .tv_nsec = (long)(until_ns % SECOND_NS)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

#endif
