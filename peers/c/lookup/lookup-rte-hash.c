/*
 * DPDK's rte_hash with lock-free readers, an extendable table and RCU: each look-up reports a quiescent state. The
 * table's memory comes from EAL, without huge pages.
 */
#include "../options.h"
#include "lookup.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_rcu_qsbr.h>
#include <stdio.h>
#include <stdlib.h>

static struct rte_hash *map;
static struct rte_rcu_qsbr *qsbr;

static inline bool map_get(unsigned id, uint64_t key, uint64_t *value)
{
	void *data;
	bool found = rte_hash_lookup_data(map, &key, &data) >= 0;

	*value = (uint64_t)data;
	rte_rcu_qsbr_quiescent(qsbr, id);
	return found;
}

#include "look_up_until.h"

static void or_exit(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rte_hash: %s: %s\n", what, rte_strerror(rte_errno));
	exit(EXIT_MISSING);
}

/* EAL takes a CPU of its own account; any that this thread may use will do, for the readers are ordinary threads. Without
 * huge pages its memory has a fixed size, and the table takes less than 128 bytes an entry. */
static void eal_start(uint64_t entries)
{
	char cpu[16], megabytes[32];
	char *arguments[] = {"lookup-rte-hash", "--no-huge", "--no-shconf", "--no-telemetry", "--no-pci",
			     "--log-level=error", "-m", megabytes, "-l", cpu};

	snprintf(cpu, sizeof cpu, "%d", sched_getcpu());
	snprintf(megabytes, sizeof megabytes, "%lu", 64 + (entries * 128 >> 20));
	or_exit(rte_eal_init(sizeof arguments / sizeof arguments[0], arguments) >= 0, "EAL does not start");
}

static void qsbr_start(uint32_t threads)
{
	size_t bytes = rte_rcu_qsbr_get_memsize(threads);

	bytes = (bytes + RTE_CACHE_LINE_SIZE - 1) / RTE_CACHE_LINE_SIZE * RTE_CACHE_LINE_SIZE;
	qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
	or_exit(qsbr && rte_rcu_qsbr_init(qsbr, threads) == 0, "cannot make a QSBR variable");
}

static void build(const struct lookup_options *o)
{
	struct rte_hash_parameters parameters = {
		.name = "lookup",
		.entries = (uint32_t)(o->entries < 64 ? 64 : o->entries),
		.key_len = sizeof(uint64_t),
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF | RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	struct rte_hash_rcu_config rcu = {.mode = RTE_HASH_QSBR_MODE_DQ};

	eal_start(o->entries);
	qsbr_start((uint32_t)o->threads);
	map = rte_hash_create(&parameters);
	or_exit(map, "cannot make the table");
	rcu.v = qsbr;
	or_exit(rte_hash_rcu_qsbr_add(map, &rcu) == 0, "cannot add RCU to the table");
	for (uint64_t i = 0; i < o->entries; i++) {
		uint64_t key = lookup_key(o->seed, i);

		or_exit(rte_hash_add_key_data(map, &key, (void *)lookup_value(key)) == 0, "cannot add a key");
	}
}

static void thread_start(unsigned id)
{
	or_exit(rte_rcu_qsbr_thread_register(qsbr, id) == 0, "cannot register a thread");
	rte_rcu_qsbr_thread_online(qsbr, id);
}

static void thread_end(unsigned id)
{
	rte_rcu_qsbr_thread_offline(qsbr, id);
	rte_rcu_qsbr_thread_unregister(qsbr, id);
}

const struct lookup_map lookup_map = {
	.name = "lookup-rte-hash",
	.library = "dpdk",
	.version = DPDK_VERSION,
	.note = "lock-free readers, extendable table, a quiescent state at each look-up; crc32 as the hash; no huge pages",
	.build = build,
	.thread_start = thread_start,
	.look_up_until = look_up_until,
	.thread_end = thread_end,
};
