/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The fio workload: Debian's fio reads from the guest's disk, while a task of
 * the lowest priority (nice 19) computes on every vCPU. On request, one of the
 * host's programs runs beside them: the daemon whose effect is measured. The
 * block layer's own counters tell how much fio has read.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DISK_STAT "/sys/block/vda/stat"
/* The kernel measures how long tasks wait for I/O only if this is 1. */
#define DELAY_ACCOUNTING "/proc/sys/kernel/task_delayacct"
#define FIO_OUTPUT "/tmp/fio.out"
#define BESIDE_OUTPUT "/tmp/beside.out"
/* Largest file that the program beside fio may write. A recording of some seconds fits. */
#define BESIDE_BYTES_MAX (256u * 1024 * 1024)
/* The program beside fio must end within this time. The host no longer disturbs the vCPUs then. */
#define END_LIMIT_NS 20000000000u
#define LOWEST_PRIORITY 19

static pid_t fio, beside;	/* 0: not started, or ended */

static void end(pid_t *pid)
{
	if (*pid) {
		kill(*pid, SIGKILL);
		waitpid(*pid, NULL, 0);
		*pid = 0;
	}
}

static void end_all(void)
{
	end(&beside);
	end(&fio);
	computing_finish();
}

static int fio_start(const struct options *options)
{
	if (write_file(DELAY_ACCOUNTING, "1"))
		return -1;
	if (!computing_start(0, online_vcpus(), LOWEST_PRIORITY))
		fio = launch("/packaged", "fio", options, FIO_OUTPUT, FILE_BYTES_MAX);
	if (fio > 0)
		return 0;
	fio = 0;
	end_all();
	return -1;
}

static int fio_beside(const struct options *options)
{
	if (beside)
		return fail("a program runs beside fio already");
	beside = launch("/programs", options->name, options, BESIDE_OUTPUT, BESIDE_BYTES_MAX);
	if (beside > 0)
		return 0;
	beside = 0;
	return -1;
}

static uint64_t cpu_ns(pid_t pid)
{
	struct timespec time = { 0 };
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * SECOND_NS + (uint64_t)time.tv_nsec;
}

static void fio_mark(struct text *out)
{
	uint64_t reads = 0, merged, sectors = 0;
	char line[512];

	if (read_file(DISK_STAT, line, sizeof(line)) < 0 ||
	    sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &reads, &merged, &sectors) != 3)
		reads = sectors = 0;
	text_add(out, "ops=%" PRIu64 " sectors=%" PRIu64, reads, sectors);
	if (beside)
		text_add(out, " beside_ns=%" PRIu64, cpu_ns(beside));
}

static int fio_child_ended(pid_t pid, int status)
{
	if (fio && pid == fio) {
		fio = 0;
		return fail("fio %s", exit_reason(status));
	}
	if (beside && pid == beside) {
		beside = 0;
		return fail("the program beside fio %s", exit_reason(status));
	}
	return 0;
}

/* Whether the child ends by the deadline. SIGCHLD is blocked: one that comes after waitpid() ends the wait below. */
static bool ended_by(pid_t pid, int *status, uint64_t deadline_ns)
{
	sigset_t child;
	uint64_t now;
	pid_t ended;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while ((ended = waitpid(pid, status, WNOHANG)) == 0) {
		struct timespec left;

		now = now_ns();
		if (now >= deadline_ns)
			return false;
		left.tv_sec = (time_t)((deadline_ns - now) / SECOND_NS);
		left.tv_nsec = (long)((deadline_ns - now) % SECOND_NS);
		sigtimedwait(&child, NULL, &left);
	}
	return ended > 0;
}

/* Asks the program beside fio to end, while fio and the computing tasks, which it manages, still run. */
static int finish_beside(void)
{
	int status;

	if (!beside)
		return 0;
	kill(beside, SIGTERM);
	if (!ended_by(beside, &status, now_ns() + END_LIMIT_NS))
		return fail("the program beside fio did not end when it was asked to");
	beside = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return fail("the program beside fio %s", exit_reason(status));
	return 0;
}

static int fio_finish(struct wire *wire)
{
	int error = finish_beside();

	(void)wire;
	end_all();
	return error;
}

const struct workload fio_workload = {
	.name = "fio",
	.start = fio_start,
	.mark = fio_mark,
	.child_ended = fio_child_ended,
	.beside = fio_beside,
	.finish = fio_finish,
};
