/*
 * Readers that a signal restarts, as in DEBRA+ (Brown, PODC 2015) and NBR (Singh, Brown and Mashtizadeh, PPoPP 2021),
 * after the papers' descriptions. A look-up remembers its start by sigsetjmp and announces that it is inside. The
 * writer's signal finds it there, and the handler jumps back to the start: the reader no longer holds anything.
 *
 * The announcement is a plain store. The handler runs on the reader's own thread and sees it in any case. A writer that
 * reads it calls membarrier first. The papers use an atomic exchange here, which costs a look-up more.
 *
 * sigsetjmp saves no signal mask, which would be a system call per look-up. Hence the signal is still blocked after the
 * jump, and only a look-up that was restarted makes the call that unblocks it. With SA_NODEFER instead, a writer that
 * signals quicker than a handler ends would stack handlers until the stack overflows.
 */
#ifndef PEERS_NEUTRALISE_READERS_H
#define PEERS_NEUTRALISE_READERS_H

#include "../scheme.h"

#include <setjmp.h>
#include <signal.h>

#define NEUTRALISE SIGUSR1

/* One per reader, on cache lines of its own. */
struct slot {
	_Alignas(128) uint64_t announced; /* the epoch in which the look-up began, 0 outside */
	uint64_t restarts;
	pthread_t thread;
	sigjmp_buf start;
};

static struct slot slots[MAX_READERS];
static uint64_t epoch = 1;
static _Thread_local struct slot *own;

/* After the jump. A signal that came meanwhile arrives here, outside the section, and changes nothing. */
static __attribute__((noinline, cold)) void restarted(void)
{
	sigset_t set;

	own->restarts++;
	sigemptyset(&set);
	sigaddset(&set, NEUTRALISE);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* A macro, for the frame that calls sigsetjmp must last as long as the section. Acquire: pairs with the release in
 * epoch_advance, so that a reader that announces an epoch sees all that was unlinked before it. */
#define section_enter(r)                                                                                              \
	do {                                                                                                          \
		if (sigsetjmp(own->start, 0))                                                                         \
			restarted();                                                                                  \
		__atomic_store_n(&own->announced, __atomic_load_n(&epoch, __ATOMIC_ACQUIRE), __ATOMIC_RELAXED);       \
		__atomic_signal_fence(__ATOMIC_SEQ_CST);                                                              \
		(void)(r);                                                                                            \
	} while (0)

/* Release: what the section loaded, it has loaded before the writer sees that it is over. */
static inline void section_leave(struct reader *r)
{
	(void)r;
	__atomic_store_n(&own->announced, 0, __ATOMIC_RELEASE);
}

#define LOOK_UP_INLINING __attribute__((noinline))
#include "../read_loop.h"

static void on_neutralise(int number)
{
	(void)number;
	if (!own || !__atomic_load_n(&own->announced, __ATOMIC_RELAXED))
		return;
	/* Release: as in section_leave. */
	__atomic_store_n(&own->announced, 0, __ATOMIC_RELEASE);
	siglongjmp(own->start, 1);
}

static void reader_start(struct reader *r)
{
	own = &slots[r->id];
	own->thread = pthread_self();
}

static void reader_end(struct reader *r)
{
	(void)r;
}

#endif
