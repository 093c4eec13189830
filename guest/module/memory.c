// SPDX-License-Identifier: GPL-2.0
/*
 * The memory microbenchmark: workers that allocate objects and hand them to
 * call_rcu(). Invariants: frees never exceeds allocs; an object is touched by
 * nobody between call_rcu() and its callback.
 */
#include <linux/atomic.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "lab.h"

/* Head of each object; the rest of its object_bytes is never written. */
struct lab_object {
	struct rcu_head head;
};

/* Where a thing happened, not where it began: a callback counts on its CPU. */
static DEFINE_PER_CPU(struct lab_count, lab_count);
static DEFINE_PER_CPU(struct task_struct *, lab_worker_task);
static u64 max_backlog_objects;
static atomic64_t peak_backlog_objects;

struct lab_count lab_memory_sum(void)
{
	struct lab_count sum = { };
	int cpu;

	/* Frees first: what is allocated meanwhile cannot make frees exceed allocs. */
	for_each_possible_cpu(cpu)
		sum.frees += READ_ONCE(per_cpu(lab_count, cpu).frees);
	smp_rmb();
	for_each_possible_cpu(cpu) {
		sum.allocs += READ_ONCE(per_cpu(lab_count, cpu).allocs);
		sum.stalls += READ_ONCE(per_cpu(lab_count, cpu).stalls);
	}
	return sum;
}

static u64 lab_backlog_objects(void)
{
	struct lab_count sum = lab_memory_sum();

	return sum.allocs - sum.frees;
}

static void lab_note_backlog(u64 objects)
{
	s64 peak = atomic64_read(&peak_backlog_objects);

	while ((s64)objects > peak &&
	       !atomic64_try_cmpxchg(&peak_backlog_objects, &peak, objects))
		;
}

static void lab_free(struct rcu_head *head)
{
	kfree(container_of(head, struct lab_object, head));
	this_cpu_inc(lab_count.frees);
}

/* Returns false if memory ran short. */
static bool lab_burst(void)
{
	struct lab_object *object;
	unsigned int i;

	for (i = 0; i < burst; i++) {
		/* Fail rather than wake the OOM killer: the worker then stalls. */
		object = kmalloc(object_bytes, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);
		if (!object)
			return false;
		this_cpu_inc(lab_count.allocs);
		call_rcu(&object->head, lab_free);
	}
	return true;
}

static int lab_worker(void *unused)
{
	while (!kthread_should_stop()) {
		u64 backlog = lab_backlog_objects();

		lab_note_backlog(backlog);
		if (backlog >= max_backlog_objects || !lab_burst()) {
			this_cpu_inc(lab_count.stalls);
			/* A tick: callbacks are invoked no more finely than that. */
			schedule_timeout_interruptible(1);
		} else if (pause_us) {
			usleep_range(pause_us, pause_us + pause_us / 16 + 1);
		} else {
			schedule();
		}
	}
	return 0;
}

void lab_memory_stop(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct task_struct *task = per_cpu(lab_worker_task, cpu);

		if (!task)
			continue;
		kthread_stop(task);
		per_cpu(lab_worker_task, cpu) = NULL;
	}
}

int lab_memory_start(void)
{
	int cpu, left = workers < 0 ? nr_cpu_ids : workers;
	struct task_struct *task;
	int err = 0;

	max_backlog_objects = max_t(u64, div_u64(max_backlog_bytes, object_bytes), 1);
	cpus_read_lock();
	for_each_online_cpu(cpu) {
		if (left-- <= 0)
			break;
		task = kthread_create_on_node(lab_worker, NULL, cpu_to_node(cpu),
					      "reprieve_lab/%d", cpu);
		if (IS_ERR(task)) {
			err = PTR_ERR(task);
			break;
		}
		kthread_bind(task, cpu);
		per_cpu(lab_worker_task, cpu) = task;
	}
	cpus_read_unlock();
	if (err) {
		lab_memory_stop();
		return err;
	}
	for_each_possible_cpu(cpu)
		if (per_cpu(lab_worker_task, cpu))
			wake_up_process(per_cpu(lab_worker_task, cpu));
	return 0;
}

u64 lab_memory_peak_objects(void)
{
	lab_note_backlog(lab_backlog_objects());
	return atomic64_read(&peak_backlog_objects);
}

void lab_memory_reset(void)
{
	int cpu;

	/* A callback still to come would be counted as a free of nothing. */
	rcu_barrier();
	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(&lab_count, cpu), 0, sizeof(struct lab_count));
	atomic64_set(&peak_backlog_objects, 0);
}
