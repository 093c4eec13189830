/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What clone.c counts in, shared with the runner: one slot per worker process. */
#ifndef REPRIEVE_CLONE_H
#define REPRIEVE_CLONE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define CLONE_WORKERS_MAX 256

struct clone_slot {
	_Atomic uint64_t ops;		/* children created and reaped */
	_Atomic uint64_t stalls;	/* waits because memory ran low */
	_Atomic int32_t error;		/* errno that ended the worker; 0: none */
} __attribute__((aligned(64)));

struct clone_counters {
	struct clone_slot slot[CLONE_WORKERS_MAX];
};

/* From a list such as "net,pid" to the flags of clone(). -1: a name that is not known. Needs _GNU_SOURCE. */
static inline int parse_namespaces(const char *list, unsigned long *flags)
{
	static const struct { const char *name; unsigned long flag; } known[] = {
		{ "net", CLONE_NEWNET }, { "ipc", CLONE_NEWIPC }, { "uts", CLONE_NEWUTS },
		{ "pid", CLONE_NEWPID }, { "mnt", CLONE_NEWNS },
	};
	const size_t count = sizeof(known) / sizeof(known[0]);

	*flags = 0;
	while (*list) {
		size_t length = strcspn(list, ","), i = 0;

		while (i < count && (strlen(known[i].name) != length || strncmp(known[i].name, list, length)))
			i++;
		if (i == count)
			return -1;
		*flags |= known[i].flag;
		list += length + (list[length] == ',');
	}
	return 0;
}

#endif
