/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tasks that compute in user space for ever, each pinned to a vCPU, beside a
 * workload. They make no system call after they have begun.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOP 1000

struct counter {
	_Alignas(64) _Atomic uint64_t loops;
};

static pid_t computing[CHILDREN_MAX];	/* 0: ended */
static size_t tasks;
static struct counter *counters;

/* Computes on one vCPU for ever, and counts its loops. No other task writes that counter. */
static void compute(size_t vcpu, int niceness, struct counter *counter)
{
	volatile uint64_t value = 1;
	uint64_t loops = 0;
	cpu_set_t set;
	int i;

	CPU_ZERO(&set);
	CPU_SET(vcpu, &set);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "compute");
	if (sched_setaffinity(0, sizeof(set), &set) || (errno = 0, nice(niceness), errno))
		_exit(1);
	for (;;) {
		for (i = 0; i < LOOP; i++)
			value = value * 6364136223846793005u + 1;
		atomic_store_explicit(&counter->loops, ++loops, memory_order_relaxed);
	}
}

int computing_start(uint64_t first_vcpu, uint64_t count, int niceness)
{
	if (!count)
		return 0;
	if (tasks)
		return fail("tasks compute already");
	if (count > CHILDREN_MAX || first_vcpu > online_vcpus() || count > online_vcpus() - first_vcpu)
		return fail("%" PRIu64 " computing tasks from vCPU %" PRIu64 " on: there are %u vCPUs, and at most %d tasks",
			    count, first_vcpu, online_vcpus(), CHILDREN_MAX);
	counters = mmap(NULL, CHILDREN_MAX * sizeof(*counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (counters == MAP_FAILED) {
		counters = NULL;
		return fail("computing counters: %s", strerror(errno));
	}
	for (; tasks < count; tasks++) {
		computing[tasks] = fork();
		if (computing[tasks] == 0)
			compute(first_vcpu + tasks, niceness, &counters[tasks]);
		if (computing[tasks] < 0) {
			fail("a computing task: fork: %s", strerror(errno));
			computing_finish();
			return -1;
		}
	}
	return 0;
}

void computing_mark(struct text *out)
{
	uint64_t loops = 0;
	size_t i;

	if (!tasks)
		return;
	for (i = 0; i < tasks; i++)
		loops += atomic_load_explicit(&counters[i].loops, memory_order_relaxed);
	text_add(out, " loops=%" PRIu64, loops);
}

int computing_child_ended(pid_t pid, int status)
{
	size_t i;

	for (i = 0; i < tasks; i++)
		if (computing[i] && pid == computing[i]) {
			computing[i] = 0;
			return fail("a computing task %s", exit_reason(status));
		}
	return 0;
}

void computing_finish(void)
{
	size_t i;

	for (i = 0; i < tasks; i++)
		if (computing[i]) {
			kill(computing[i], SIGKILL);
			waitpid(computing[i], NULL, 0);
			computing[i] = 0;
		}
	tasks = 0;
	if (counters)
		munmap(counters, CHILDREN_MAX * sizeof(*counters));
	counters = NULL;
}
