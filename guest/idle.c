/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The idle workload: nothing, for what the prober and the poll show without load. */
#define _GNU_SOURCE
#include "lab.h"

static int idle_start(const struct options *options)
{
	(void)options;
	return 0;
}

static void idle_mark(struct text *out)
{
	text_add(out, "ops=0");
}

static int idle_finish(struct wire *wire)
{
	(void)wire;
	return 0;
}

const struct workload idle_workload = {
	.name = "idle",
	.start = idle_start,
	.mark = idle_mark,
	.finish = idle_finish,
};
