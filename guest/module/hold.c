// SPDX-License-Identifier: GPL-2.0
/*
 * A task that stays in the kernel without a quiescent state, on purpose. It
 * stays while its write to one of these files lasts; the number is for how
 * long, ns:
 *	reader	in a read-side critical section, and can be preempted
 *	stay	with preemption off
 *	held	read: for how long in all, ns
 *
 * A fatal signal ends it early.
 */
#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "lab.h"

#define HOLD_NS_MAX	(10ULL * NSEC_PER_SEC)

static atomic64_t held_ns;

static void lab_spin(u64 ns, bool preemptible)
{
	u64 begin = ktime_get_ns(), end = begin + min(ns, HOLD_NS_MAX);

	while (ktime_get_ns() < end && !fatal_signal_pending(current)) {
		/* Without CONFIG_PREEMPT_RCU a reader must not be preempted. */
		if (preemptible && IS_ENABLED(CONFIG_PREEMPT_RCU))
			cond_resched();
		cpu_relax();
	}
	atomic64_add(ktime_get_ns() - begin, &held_ns);
}

static int lab_reader_set(void *unused, u64 ns)
{
	rcu_read_lock();
	lab_spin(ns, true);
	rcu_read_unlock();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(lab_reader, NULL, lab_reader_set, "%llu\n");

static int lab_stay_set(void *unused, u64 ns)
{
	preempt_disable();
	lab_spin(ns, false);
	preempt_enable();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(lab_stay, NULL, lab_stay_set, "%llu\n");

static int lab_held_get(void *unused, u64 *value)
{
	*value = atomic64_read(&held_ns);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(lab_held, lab_held_get, NULL, "%llu\n");

void lab_hold_init(struct dentry *dir)
{
	debugfs_create_file("reader", 0200, dir, NULL, &lab_reader);
	debugfs_create_file("stay", 0200, dir, NULL, &lab_stay);
	debugfs_create_file("held", 0400, dir, NULL, &lab_held);
}
