/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The clone workload: starts the program clone and reads its counters. */
#define _GNU_SOURCE
#include "lab.h"
#include "clone.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLONE_PROGRAM "/bin/clone"

static struct clone_counters *counters;
static pid_t child;

static void run_program(const struct options *options, int counters_fd)
{
	char workers[24], stop_below[24], fd[12];

	snprintf(workers, sizeof(workers), "%" PRIu64, options->workers);
	snprintf(stop_below, sizeof(stop_below), "%" PRIu64, options->stop_below_bytes);
	snprintf(fd, sizeof(fd), "%d", counters_fd);
	execl(CLONE_PROGRAM, "clone", workers, stop_below, options->namespaces, fd, (char *)NULL);
	_exit(127);
}

static void forget(void)
{
	munmap(counters, sizeof(*counters));
	counters = NULL;
	child = 0;
}

static int clone_start(const struct options *options)
{
	unsigned long flags;
	int fd;

	if (parse_namespaces(options->namespaces, &flags))
		return fail("namespaces: of net,ipc,uts,pid,mnt, not %s", options->namespaces);
	fd = memfd_create("clone counters", 0);	/* not closed by exec: the child maps it */
	if (fd < 0 || ftruncate(fd, sizeof(*counters)))
		return fail("clone counters: %s", strerror(errno));
	counters = mmap(NULL, sizeof(*counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counters == MAP_FAILED) {
		counters = NULL;
		close(fd);
		return fail("clone counters: %s", strerror(errno));
	}
	child = fork();
	if (child == 0)
		run_program(options, fd);
	close(fd);
	if (child < 0) {
		forget();
		return fail("clone: %s", strerror(errno));
	}
	return 0;
}

static void clone_mark(struct text *out)
{
	uint64_t ops = 0, stalls = 0;
	size_t i;

	for (i = 0; i < CLONE_WORKERS_MAX; i++) {
		ops += atomic_load_explicit(&counters->slot[i].ops, memory_order_relaxed);
		stalls += atomic_load_explicit(&counters->slot[i].stalls, memory_order_relaxed);
	}
	text_add(out, "ops=%" PRIu64 " stalls=%" PRIu64, ops, stalls);
}

static int clone_child_ended(pid_t pid, int status)
{
	size_t i;

	if (!child || pid != child)
		return 0;
	child = 0;
	for (i = 0; i < CLONE_WORKERS_MAX; i++)
		if (counters->slot[i].error)
			return fail("clone worker %zu: %s", i, strerror(counters->slot[i].error));
	return fail("clone %s", exit_reason(status));
}

static int clone_finish(struct wire *wire)
{
	(void)wire;
	if (child) {
		kill(child, SIGTERM);
		waitpid(child, NULL, 0);
	}
	forget();
	return 0;
}

const struct workload clone_workload = {
	.name = "clone",
	.start = clone_start,
	.mark = clone_mark,
	.child_ended = clone_child_ended,
	.finish = clone_finish,
};
