/*
 * The writer's half of an asymmetric fence: membarrier(2) executes a full fence on every CPU that runs a thread of this
 * process, and returns when it has. Readers then need none of their own, only an order that the compiler keeps.
 */
#ifndef PEERS_MEMBARRIER_H
#define PEERS_MEMBARRIER_H

#include "../options.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Before the first membarrier_call; ends the program with EXIT_MISSING where the system refuses. */
static void membarrier_register(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
		return;
	perror("membarrier is not available here");
	exit(EXIT_MISSING);
}

static inline void membarrier_call(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
		return;
	/* A registered process is never refused. */
	perror("membarrier");
	abort();
}

#endif
