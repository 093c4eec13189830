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
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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
#define LOOP 1000

struct counter {
	_Alignas(64) _Atomic uint64_t loops;
};

static pid_t fio, beside, computing[CHILDREN_MAX];	/* 0: not started, or ended */
static size_t tasks;
static struct counter *counters;

/* Computes on one vCPU for ever, and counts its loops. No other task writes that counter. */
static void compute(unsigned int vcpu)
{
	volatile uint64_t value = 1;
	uint64_t loops = 0;
	cpu_set_t set;
	int i;

	CPU_ZERO(&set);
	CPU_SET(vcpu, &set);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "compute");
	if (sched_setaffinity(0, sizeof(set), &set) || (errno = 0, nice(19), errno))
		_exit(1);
	for (;;) {
		for (i = 0; i < LOOP; i++)
			value = value * 6364136223846793005u + 1;
		atomic_store_explicit(&counters[vcpu].loops, ++loops, memory_order_relaxed);
	}
}

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
	size_t i;

	end(&beside);
	end(&fio);
	for (i = 0; i < tasks; i++)
		end(&computing[i]);
	tasks = 0;
	if (counters)
		munmap(counters, CHILDREN_MAX * sizeof(*counters));
	counters = NULL;
}

static int start_computing(void)
{
	unsigned int vcpus = online_vcpus(), vcpu;

	if (vcpus > CHILDREN_MAX)
		return fail("fio: more than %d vCPUs", CHILDREN_MAX);
	counters = mmap(NULL, CHILDREN_MAX * sizeof(*counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (counters == MAP_FAILED) {
		counters = NULL;
		return fail("fio counters: %s", strerror(errno));
	}
	for (vcpu = 0; vcpu < vcpus; vcpu++) {
		computing[vcpu] = fork();
		if (computing[vcpu] == 0)
			compute(vcpu);
		if (computing[vcpu] < 0) {
			computing[vcpu] = 0;
			return fail("fio: fork: %s", strerror(errno));
		}
		tasks++;
	}
	return 0;
}

static int fio_start(const struct options *options)
{
	if (write_file(DELAY_ACCOUNTING, "1"))
		return -1;
	if (!start_computing())
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
	uint64_t reads = 0, merged, sectors = 0, loops = 0;
	char line[512];
	size_t i;

	for (i = 0; i < tasks; i++)
		loops += atomic_load_explicit(&counters[i].loops, memory_order_relaxed);
	if (read_file(DISK_STAT, line, sizeof(line)) < 0 ||
	    sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &reads, &merged, &sectors) != 3)
		reads = sectors = 0;
	text_add(out, "ops=%" PRIu64 " sectors=%" PRIu64 " loops=%" PRIu64, reads, sectors, loops);
	if (beside)
		text_add(out, " beside_ns=%" PRIu64, cpu_ns(beside));
}

static int fio_child_ended(pid_t pid, int status)
{
	size_t i;

	if (fio && pid == fio) {
		fio = 0;
		return fail("fio %s", exit_reason(status));
	}
	if (beside && pid == beside) {
		beside = 0;
		return fail("the program beside fio %s", exit_reason(status));
	}
	for (i = 0; i < tasks; i++)
		if (computing[i] && pid == computing[i]) {
			computing[i] = 0;
			return fail("a computing task %s", exit_reason(status));
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
