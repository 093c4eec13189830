// SPDX-License-Identifier: GPL-2.0
/*
 * reprieve_lab - the memory microbenchmark, and a reference measurement of
 * grace periods (GPs).
 *
 * One worker per online vCPU, bound to it, allocates objects and hands each to
 * call_rcu(), which frees it after a GP. A voluntary context switch follows
 * every burst, so a vCPU is never longer than a burst without a quiescent
 * state of its own making: what stretches a GP comes from outside the guest.
 * After Prasad, Gopinath, McKenney, "The RCU-Reader Preemption Problem in
 * VMs", USENIX ATC 2017, section 2.
 *
 * debugfs reprieve_lab/
 *	run		0 or 1: stop or start workers and polling
 *	reset		any number: all counters and durations to zero
 *	counters	one line of key=value
 *	gp		one line of key=value
 *	gp_durations	one duration in ns per line, oldest first
 *	reader, stay, held	see hold.c
 *
 * Invariant: run_lock orders run and reset.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>

#include "lab.h"

#define OBJECT_BYTES_MIN	sizeof(struct rcu_head)
#define OBJECT_BYTES_MAX	(64 * 1024)
#define BURST_MAX		100000
#define PAUSE_US_MAX		1000000
#define POLL_US_MIN		10
#define POLL_US_MAX		1000000

unsigned int object_bytes = 1024;
module_param(object_bytes, uint, 0444);
MODULE_PARM_DESC(object_bytes, "size of an object, bytes");

unsigned int burst = 10;
module_param(burst, uint, 0444);
MODULE_PARM_DESC(burst, "allocate-and-free pairs between two voluntary context switches");

unsigned int pause_us;
module_param(pause_us, uint, 0444);
MODULE_PARM_DESC(pause_us, "sleep after a burst, us; 0: only a context switch");

unsigned long max_backlog_bytes;
module_param(max_backlog_bytes, ulong, 0444);
MODULE_PARM_DESC(max_backlog_bytes, "workers stall above this backlog, bytes; 0: half of RAM");

unsigned int poll_us;
module_param(poll_us, uint, 0444);
MODULE_PARM_DESC(poll_us, "period of the grace-period poll, us; 0: off");

int workers = -1;
module_param(workers, int, 0444);
MODULE_PARM_DESC(workers, "number of workers, on the first online vCPUs; -1: one on each; 0: none");

static DEFINE_MUTEX(run_lock);
static bool running;

/* Both with run_lock held. */
static int lab_start(void)
{
	int err;

	if (running)
		return -EBUSY;
	err = lab_memory_start();
	if (err)
		return err;
	lab_gp_start();
	running = true;
	return 0;
}

static void lab_stop(void)
{
	if (!running)
		return;
	lab_memory_stop();
	lab_gp_stop();
	running = false;
}

static int lab_run_get(void *unused, u64 *value)
{
	*value = READ_ONCE(running);
	return 0;
}

static int lab_run_set(void *unused, u64 value)
{
	int err = 0;

	if (value > 1)
		return -EINVAL;
	mutex_lock(&run_lock);
	if (value)
		err = lab_start();
	else
		lab_stop();
	mutex_unlock(&run_lock);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(lab_run_fops, lab_run_get, lab_run_set, "%llu\n");

static int lab_reset_set(void *unused, u64 value)
{
	int err = -EBUSY;

	mutex_lock(&run_lock);
	if (!running) {
		lab_memory_reset();
		lab_gp_reset();
		err = 0;
	}
	mutex_unlock(&run_lock);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(lab_reset_fops, NULL, lab_reset_set, "%llu\n");

static int lab_counters_show(struct seq_file *file, void *unused)
{
	struct lab_count sum = lab_memory_sum();

	seq_printf(file, "allocs=%llu frees=%llu stalls=%llu peak_backlog=%llu t_ns=%llu\n",
		   sum.allocs, sum.frees, sum.stalls, lab_memory_peak_objects(), ktime_get_ns());
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(lab_counters);

/* ------------------------------------------------------- coming and going */

static struct dentry *lab_dir;

static int lab_check_parameters(void)
{
	struct sysinfo info;

	if (object_bytes < OBJECT_BYTES_MIN || object_bytes > OBJECT_BYTES_MAX ||
	    burst < 1 || burst > BURST_MAX || pause_us > PAUSE_US_MAX || workers < -1 ||
	    (poll_us && (poll_us < POLL_US_MIN || poll_us > POLL_US_MAX))) {
		pr_err("a parameter is out of range\n");
		return -EINVAL;
	}
	if (!max_backlog_bytes) {
		si_meminfo(&info);
		max_backlog_bytes = info.totalram / 2 * info.mem_unit;
	}
	return 0;
}

static int __init lab_init(void)
{
	int err = lab_check_parameters();

	if (err)
		return err;
	err = lab_gp_init();
	if (err)
		return err;
	lab_dir = debugfs_create_dir("reprieve_lab", NULL);
	if (IS_ERR(lab_dir)) {
		lab_gp_exit();
		return PTR_ERR(lab_dir);
	}
	debugfs_create_file("run", 0600, lab_dir, NULL, &lab_run_fops);
	debugfs_create_file("reset", 0200, lab_dir, NULL, &lab_reset_fops);
	debugfs_create_file("counters", 0400, lab_dir, NULL, &lab_counters_fops);
	debugfs_create_file("gp", 0400, lab_dir, NULL, &lab_gp_fops);
	debugfs_create_file("gp_durations", 0400, lab_dir, NULL, &lab_durations_fops);
	lab_hold_init(lab_dir);
	return 0;
}

static void __exit lab_exit(void)
{
	debugfs_remove(lab_dir);	/* waits for readers and writers: nobody starts it again */
	mutex_lock(&run_lock);
	lab_stop();
	mutex_unlock(&run_lock);
	rcu_barrier();			/* lab_free() must not outlive the module */
	lab_gp_exit();
}

module_init(lab_init);
module_exit(lab_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Memory microbenchmark and grace-period reference for Reprieve's lab guests");
