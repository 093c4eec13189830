/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The clone microbenchmark: each worker process, bound to a vCPU, creates a
 * child in new namespaces, which exits at once, and waits for it. When its
 * last process leaves, the kernel frees a namespace through call_rcu().
 * Modelled on Prasad, Gopinath, McKenney, USENIX ATC 2017, section 2.
 *
 *	clone WORKERS STOP_BELOW_BYTES NAMESPACES COUNTERS_FD
 *
 * WORKERS 0: one per online vCPU. NAMESPACES: a list from net,ipc,uts,pid,mnt.
 * COUNTERS_FD: a memfd that holds a struct clone_counters. A worker pauses,
 * and counts a stall, while MemAvailable is below STOP_BELOW_BYTES.
 * Ends on SIGTERM with 0; with 1 as soon as a worker fails.
 */
#define _GNU_SOURCE
#include "clone.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A look at /proc/meminfo costs a good part of a clone, so only one clone in this many has one. */
#define OPS_PER_MEMORY_CHECK 8
#define STALL_NS (10 * 1000 * 1000)

static volatile sig_atomic_t stopping;

static void on_term(int signal)
{
	(void)signal;
	stopping = 1;
}

static int die(const char *what)
{
	fprintf(stderr, "clone: %s: %s\n", what, strerror(errno));
	return 1;
}

/* MemAvailable, bytes; UINT64_MAX if it cannot be read. */
static uint64_t available_bytes(int meminfo_fd)
{
	char text[4096];
	ssize_t length = pread(meminfo_fd, text, sizeof(text) - 1, 0);
	const char *at;

	if (length <= 0)
		return UINT64_MAX;
	text[length] = 0;
	at = strstr(text, "MemAvailable:");
	return at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : UINT64_MAX;
}

static void bind_to(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* This fails if the vCPU has gone offline; the worker then runs anywhere. */
	(void)sched_setaffinity(0, sizeof(set), &set);
}

/* Creates a child in new namespaces, and reaps it. */
static int clone_once(unsigned long flags)
{
	/* The raw call, because fork() would run handlers, and glibc's clone() needs a stack. */
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		syscall(SYS_exit_group, 0);
	if (pid < 0)
		return -1;
	while (waitpid((pid_t)pid, NULL, 0) < 0)
		if (errno != EINTR)
			return -1;
	return 0;
}

/* Too many namespaces or too little memory: grace periods free both, so the worker waits. */
static int is_shortage(int error)
{
	return error == ENOMEM || error == ENOSPC || error == EAGAIN;
}

static void stall(struct clone_slot *slot)
{
	const struct timespec pause = { .tv_nsec = STALL_NS };

	atomic_fetch_add_explicit(&slot->stalls, 1, memory_order_relaxed);
	nanosleep(&pause, NULL);
}

static int work(struct clone_slot *slot, unsigned long flags, uint64_t stop_below_bytes)
{
	int meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	uint64_t done;

	if (meminfo_fd < 0)
		return die("/proc/meminfo");
	for (done = 0; !stopping;) {
		if (stop_below_bytes && done % OPS_PER_MEMORY_CHECK == 0 &&
		    available_bytes(meminfo_fd) < stop_below_bytes) {
			stall(slot);
			continue;
		}
		if (clone_once(flags) == 0) {
			done++;
			atomic_fetch_add_explicit(&slot->ops, 1, memory_order_relaxed);
		} else if (is_shortage(errno)) {
			stall(slot);
		} else {
			atomic_store(&slot->error, errno);
			return die("clone");
		}
	}
	return 0;
}

static int start_workers(pid_t *pids, unsigned int workers, unsigned int vcpus, unsigned long flags,
			 uint64_t stop_below_bytes, struct clone_counters *counters)
{
	unsigned int i;

	for (i = 0; i < workers; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			return die("fork");
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			bind_to(i % vcpus);
			_exit(work(&counters->slot[i], flags, stop_below_bytes));
		}
	}
	return 0;
}

/* Waits until SIGTERM arrives or a worker ends by itself, ends all workers, and returns the exit code. */
static int supervise(const pid_t *pids, unsigned int workers)
{
	int status, code = 0;
	unsigned int i;
	pid_t pid;

	while (!stopping && !code) {
		pid = waitpid(-1, &status, 0);
		if (pid > 0)
			code = 1;
		else if (pid < 0 && errno != EINTR)
			code = die("waitpid");
	}
	for (i = 0; i < workers; i++)
		kill(pids[i], SIGTERM);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	return code;
}

int main(int argc, char **argv)
{
	/* No SA_RESTART: a signal ends the wait. */
	struct sigaction term = { .sa_handler = on_term };
	long vcpus = sysconf(_SC_NPROCESSORS_ONLN);
	pid_t pids[CLONE_WORKERS_MAX];
	struct clone_counters *counters;
	unsigned long workers, flags;
	uint64_t stop_below_bytes;
	int code;

	if (argc != 5 || parse_namespaces(argv[3], &flags)) {
		fprintf(stderr, "usage: clone WORKERS STOP_BELOW_BYTES net,ipc,uts,pid,mnt COUNTERS_FD\n");
		return 2;
	}
	if (vcpus < 1)
		vcpus = 1;
	workers = strtoul(argv[1], NULL, 10);
	stop_below_bytes = strtoull(argv[2], NULL, 10);
	if (workers == 0)
		workers = (unsigned long)vcpus;
	if (workers > CLONE_WORKERS_MAX)
		workers = CLONE_WORKERS_MAX;
	counters = mmap(NULL, sizeof(*counters), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[4]), 0);
	if (counters == MAP_FAILED)
		return die("counters");
	sigaction(SIGTERM, &term, NULL);
	code = start_workers(pids, (unsigned int)workers, (unsigned int)vcpus, flags, stop_below_bytes, counters);
	return code ? code : supervise(pids, (unsigned int)workers);
}
