/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The prober: times membarrier(MEMBARRIER_CMD_GLOBAL), which is
 * synchronize_rcu() wherever more than one vCPU is online (with one it
 * returns at once). It is itself a load: each probe asks for a grace period.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 262144

/* Shared with the prober process, which alone writes; taken is stored after its sample. */
struct samples {
	_Atomic uint64_t taken;		/* may exceed SAMPLES_MAX: the rest is dropped */
	uint64_t ns[SAMPLES_MAX];
};

static struct samples *samples;
static pid_t prober;
static bool unsupported;

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

static void probe_forever(uint64_t every_us)
{
	const struct timespec pause = {
		.tv_sec = (time_t)(every_us / 1000000),
		.tv_nsec = (long)(every_us % 1000000) * 1000,
	};

	for (;;) {
		uint64_t taken = atomic_load_explicit(&samples->taken, memory_order_relaxed);
		uint64_t since_ns = now_ns();

		if (membarrier(MEMBARRIER_CMD_GLOBAL))
			_exit(1);
		if (taken < SAMPLES_MAX)
			samples->ns[taken] = now_ns() - since_ns;
		atomic_store_explicit(&samples->taken, taken + 1, memory_order_release);
		nanosleep(&pause, NULL);
	}
}

int sync_start(uint64_t every_us)
{
	long commands;

	unsupported = false;
	if (!every_us)
		return 0;
	commands = membarrier(MEMBARRIER_CMD_QUERY);
	if (commands < 0 || !(commands & MEMBARRIER_CMD_GLOBAL)) {
		unsupported = true;
		return 0;
	}
	samples = mmap(NULL, sizeof(*samples), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (samples == MAP_FAILED) {
		samples = NULL;
		return fail("sync samples: %s", strerror(errno));
	}
	prober = fork();
	if (prober == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		probe_forever(every_us);
	}
	if (prober < 0) {
		prober = 0;
		munmap(samples, sizeof(*samples));
		samples = NULL;
		return fail("sync prober: %s", strerror(errno));
	}
	return 0;
}

int sync_child_ended(pid_t pid, int status)
{
	if (!prober || pid != prober)
		return 0;
	prober = 0;
	return fail("sync prober %s", exit_reason(status));
}

static int send_samples(struct wire *wire, uint64_t count)
{
	char line[LINE_BYTES_MAX];
	uint64_t i = 0;
	int error = 0;

	while (i < count && !error) {
		struct text text = { .at = line, .size = sizeof(line) - 64 };

		text_add(&text, "sync");
		/* 21 bytes: a space and the longest u64. */
		while (i < count && text.size - text.length > 21)
			text_add(&text, " %llu", (unsigned long long)samples->ns[i++]);
		error = wire_say(wire, "%s", line);
	}
	return error;
}

int sync_finish(struct wire *wire, uint64_t *dropped)
{
	uint64_t taken;
	int error;

	*dropped = 0;
	if (unsupported && wire)
		return wire_say(wire, "sync unsupported: this kernel has no membarrier(MEMBARRIER_CMD_GLOBAL), as under nohz_full");
	if (!samples)
		return 0;
	if (prober) {
		kill(prober, SIGKILL);
		waitpid(prober, NULL, 0);
		prober = 0;
	}
	taken = atomic_load_explicit(&samples->taken, memory_order_acquire);
	if (taken > SAMPLES_MAX) {
		*dropped = taken - SAMPLES_MAX;
		taken = SAMPLES_MAX;
	}
	error = wire ? send_samples(wire, taken) : 0;
	munmap(samples, sizeof(*samples));
	samples = NULL;
	return error;
}
