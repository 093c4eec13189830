/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Kernel addresses for the host's introspection. BTF gives layouts but no
 * addresses, and a distribution's System.map is a stub: ask the kernel itself.
 * Per-CPU symbols come as offsets into a vCPU's area.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kernels differ: those a kernel lacks are left out. */
static const char *const wanted[] = {
	"_text", "rcu_state", "rcu_data", "rcu_num_lvls", "rcu_num_nodes", "num_rcu_lvl",
	"nr_cpu_ids", "__per_cpu_offset", "__cpu_online_mask",
	"page_offset_base", "vmemmap_base", "phys_base", "init_top_pgt",
	"node_data", "contig_page_data", "nr_online_nodes",
	"vm_node_stat", "vm_zone_stat", "vm_event_states", "totalram_pages", "_totalram_pages",
	"kernel_cpustat", "tick_cpu_sched", "kstat", "irq_stat",
	"krc", "runqueues", "pcpu_hot", "cpu_hot", "__preempt_count", "current_task",
	"ksoftirqd", "softirq_vec", "__softirq_pending",
	"jiffies_64", "init_task", "saved_command_line", "linux_banner",
};

#define WANTED (sizeof(wanted) / sizeof(wanted[0]))

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int send_symbols(struct wire *wire)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	const char *sorted[WANTED];
	bool sent[WANTED] = { false };
	char line[512];
	int error = 0;

	if (!file)
		return fail("/proc/kallsyms: %s", strerror(errno));
	memcpy(sorted, wanted, sizeof(wanted));
	qsort(sorted, WANTED, sizeof(sorted[0]), compare);
	/* A line: ADDRESS TYPE NAME, and a tab with [MODULE] for a module's, which nobody wants. */
	while (!error && fgets(line, sizeof(line), file)) {
		char *name = strchr(line, ' '), **found;
		const char *key;

		if (!name || !name[1] || name[2] != ' ' || strchr(name, '\t'))
			continue;
		*name = 0;
		key = name + 3;
		name[3 + strcspn(key, "\n")] = 0;
		found = bsearch(&key, sorted, WANTED, sizeof(sorted[0]), compare);
		if (!found || sent[found - (char **)sorted])
			continue;
		sent[found - (char **)sorted] = true;
		error = wire_say(wire, "sym %s %s", key, line);
	}
	fclose(file);
	return error;
}
