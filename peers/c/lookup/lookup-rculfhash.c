/* liburcu's rculfhash under the memb flavour: each look-up locks and unlocks. */
#define _LGPL_SOURCE /* inlines the readers' functions, as the library advises */
#define URCU_API_MAP /* gives the flavour's functions their common names */
#include <urcu/urcu-memb.h>
#include <urcu/rculfhash.h>

#include "../options.h"
#include "lookup.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct entry {
	struct cds_lfht_node link;
	uint64_t key;
	uint64_t value;
};

static struct cds_lfht *map;

static struct entry *entry_of(struct cds_lfht_node *link)
{
	return (struct entry *)((char *)link - offsetof(struct entry, link));
}

static int match(struct cds_lfht_node *link, const void *key)
{
	return entry_of(link)->key == *(const uint64_t *)key;
}

static inline bool map_get(unsigned id, uint64_t key, uint64_t *value)
{
	struct cds_lfht_iter position;
	struct cds_lfht_node *link;

	(void)id;
	rcu_read_lock();
	cds_lfht_lookup(map, mix64(key), match, &key, &position);
	link = cds_lfht_iter_get_node(&position);
	if (link)
		*value = entry_of(link)->value;
	rcu_read_unlock();
	return link;
}

#include "look_up_until.h"

static void or_exit(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rculfhash: %s\n", what);
	exit(EXIT_MISSING);
}

static void build(const struct lookup_options *o)
{
	unsigned long buckets = 1;

	while (buckets < o->entries)
		buckets *= 2;
	or_exit(urcu_memb_has_sys_membarrier, "liburcu found no sys_membarrier here, and reads with fences instead");
	map = cds_lfht_new(buckets, 1, 0, 0, NULL);
	or_exit(map, "out of memory: use fewer --entries");
	rcu_register_thread();
	for (uint64_t i = 0; i < o->entries; i++) {
		struct entry *e = malloc(sizeof *e);

		or_exit(e, "out of memory: use fewer --entries");
		e->key = lookup_key(o->seed, i);
		e->value = lookup_value(e->key);
		rcu_read_lock();
		cds_lfht_add(map, mix64(e->key), &e->link);
		rcu_read_unlock();
	}
	rcu_unregister_thread();
}

static void thread_start(unsigned id)
{
	(void)id;
	rcu_register_thread();
}

static void thread_end(unsigned id)
{
	(void)id;
	rcu_unregister_thread();
}

const struct lookup_map lookup_map = {
	.name = "lookup-rculfhash",
	.library = "liburcu",
	.version = LIBURCU_VERSION,
	.note = "memb flavour, locked at each look-up; as many buckets as entries; splitmix64 as the hash",
	.build = build,
	.thread_start = thread_start,
	.look_up_until = look_up_until,
	.thread_end = thread_end,
};
