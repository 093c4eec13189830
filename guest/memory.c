/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The memory workload: the kernel module's workers. Other workloads load it to poll grace periods. */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MODULE_NAME "reprieve_lab"
#define MODULE_FILE "/lib/reprieve_lab.ko"

/* Callbacks wait for a grace period, which a descheduled vCPU may stretch by seconds. */
#define DRAIN_NS_MAX (30ull * 1000 * 1000 * 1000)
#define DRAIN_LOOK_NS (5 * 1000 * 1000)

static bool loaded;

bool module_loaded(void)
{
	return loaded;
}

static int module_unload(void)
{
	if (!loaded)
		return 0;
	if (syscall(SYS_delete_module, MODULE_NAME, 0))
		return fail("module %s: %s", MODULE_NAME, strerror(errno));
	loaded = false;
	return 0;
}

int module_load(const struct options *options, int workers)
{
	char parameters[256];
	int fd, error = 0;

	if (module_unload())
		return -1;
	snprintf(parameters, sizeof(parameters),
		 "object_bytes=%" PRIu64 " burst=%" PRIu64 " pause_us=%" PRIu64
		 " max_backlog_bytes=%" PRIu64 " poll_us=%" PRIu64 " workers=%d",
		 options->object_bytes, options->burst, options->pause_us,
		 options->max_backlog_bytes, options->poll_us, workers);
	fd = open(MODULE_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return fail("no module %s in this image: it was made without the kernel's headers", MODULE_NAME);
	if (fd < 0)
		return fail("%s: %s", MODULE_FILE, strerror(errno));
	if (syscall(SYS_finit_module, fd, parameters, 0))
		error = fail("module %s with %s: %s", MODULE_NAME, parameters, strerror(errno));
	close(fd);
	loaded = !error;
	return error;
}

int module_run(bool run)
{
	return write_file(LAB_DEBUGFS "run", run ? "1" : "0");
}

static int read_counters(char *line, size_t size)
{
	ssize_t length = read_file(LAB_DEBUGFS "counters", line, size);

	if (length < 0)
		return -1;
	line[strcspn(line, "\n")] = 0;
	return 0;
}

static int memory_start(const struct options *options)
{
	int workers = options->workers ? (int)options->workers : -1;

	return module_load(options, workers) || module_run(true) ? -1 : 0;
}

static void memory_mark(struct text *out)
{
	char line[256];
	size_t i;

	if (read_counters(line, sizeof(line)))
		return;
	text_add(out, "ops=%" PRIu64, number_of(line, "allocs"));
	for (i = 0; i < 4; i++) {
		static const char *const keys[] = { "allocs", "frees", "stalls", "peak_backlog" };

		text_add(out, " %s=%" PRIu64, keys[i], number_of(line, keys[i]));
	}
}

static int memory_finish(struct wire *wire)
{
	const struct timespec look = { .tv_nsec = DRAIN_LOOK_NS };
	uint64_t deadline_ns = now_ns() + DRAIN_NS_MAX;
	char line[256];

	(void)wire;
	if (module_run(false))
		return -1;
	for (;;) {
		if (read_counters(line, sizeof(line)))
			return -1;
		if (number_of(line, "allocs") == number_of(line, "frees"))
			return 0;
		if (now_ns() > deadline_ns)
			return fail("callbacks still pending: %s", line);
		nanosleep(&look, NULL);
	}
}

const struct workload memory_workload = {
	.name = "memory",
	.start = memory_start,
	.mark = memory_mark,
	.finish = memory_finish,
};
