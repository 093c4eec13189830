// SPDX-License-Identifier: GPL-2.0
/*
 * reprieve_planted - a backlog of known size, for tests of the host: objects of
 * three owners and of kfree_rcu(), which wait for a reader that does not end.
 *
 * debugfs reprieve_planted/
 *	plant	four numbers: objects of planted_free_own (a cache of its own),
 *		planted_free_small (kmalloc of 512 bytes), planted_free_large
 *		(kmalloc of 2048 bytes), and of kfree_rcu() (kmalloc of 256
 *		bytes). All CPUs queue some of each.
 *	release	any number: the reader ends
 *
 * Invariant: the reader begins before the first object is queued, so no grace
 * period ends that any of them waits for. It ends by itself after READER_S.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#define OBJECTS_MAX	1000000
#define OWN_BYTES	232
#define SMALL_BYTES	512
#define LARGE_BYTES	2048
#define FREED_BYTES	256
#define READER_S	300

struct planted {
	u64 payload;
	struct rcu_head head;
};

/* What a CPU queues. */
struct share {
	unsigned int own, small, large, freed;
};

static DEFINE_MUTEX(plant_lock);
static struct kmem_cache *own_cache;
static struct task_struct *reader;
static bool begun, released;

/* Three functions that the compiler does not make one of. */
static noinline void planted_free_own(struct rcu_head *head)
{
	kmem_cache_free(own_cache, container_of(head, struct planted, head));
}

static noinline void planted_free_small(struct rcu_head *head)
{
	barrier_data(head);
	kfree(container_of(head, struct planted, head));
}

static noinline void planted_free_large(struct rcu_head *head)
{
	barrier();
	kfree(container_of(head, struct planted, head));
	barrier_data(head);
}

/* The constructor keeps the cache from being merged with another. */
static void planted_construct(void *object)
{
	((struct planted *)object)->payload = 1;
}

static int planted_read(void *unused)
{
	unsigned long end = jiffies + READER_S * HZ;

	rcu_read_lock();
	WRITE_ONCE(begun, true);
	while (!READ_ONCE(released) && time_before(jiffies, end))
		cpu_relax();
	rcu_read_unlock();
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/* With plant_lock held. */
static int planted_begin(void)
{
	struct task_struct *task;

	if (reader)
		return 0;
	task = kthread_run(planted_read, NULL, "planted_reader");
	if (IS_ERR(task))
		return PTR_ERR(task);
	/* Others run first. */
	set_user_nice(task, MAX_NICE);
	reader = task;
	while (!READ_ONCE(begun))
		schedule_timeout_uninterruptible(1);
	return 0;
}

static void planted_end(void)
{
	if (!reader)
		return;
	WRITE_ONCE(released, true);
	kthread_stop(reader);
	reader = NULL;
	WRITE_ONCE(released, false);
	WRITE_ONCE(begun, false);
}

static long planted_share(void *argument)
{
	struct share *share = argument;
	struct planted *object;
	unsigned int i;

	for (i = 0; i < share->own; i++) {
		object = kmem_cache_alloc(own_cache, GFP_KERNEL);
		if (!object)
			return -ENOMEM;
		call_rcu(&object->head, planted_free_own);
	}
	for (i = 0; i < share->small; i++) {
		object = kmalloc(SMALL_BYTES, GFP_KERNEL);
		if (!object)
			return -ENOMEM;
		call_rcu(&object->head, planted_free_small);
	}
	for (i = 0; i < share->large; i++) {
		object = kmalloc(LARGE_BYTES, GFP_KERNEL);
		if (!object)
			return -ENOMEM;
		call_rcu(&object->head, planted_free_large);
	}
	for (i = 0; i < share->freed; i++) {
		object = kmalloc(FREED_BYTES, GFP_KERNEL);
		if (!object)
			return -ENOMEM;
		kfree_rcu(object, head);
	}
	return 0;
}

static unsigned int planted_part(unsigned int all, unsigned int cpu, unsigned int cpus)
{
	return all / cpus + (cpu < all % cpus);
}

static int planted_plant(const struct share *all)
{
	unsigned int cpus, number = 0;
	long err;
	int cpu;

	err = planted_begin();
	if (err)
		return err;
	cpus_read_lock();
	cpus = num_online_cpus();
	for_each_online_cpu(cpu) {
		struct share share = {
			.own = planted_part(all->own, number, cpus),
			.small = planted_part(all->small, number, cpus),
			.large = planted_part(all->large, number, cpus),
			.freed = planted_part(all->freed, number, cpus),
		};

		number++;
		err = work_on_cpu(cpu, planted_share, &share);
		if (err)
			break;
	}
	cpus_read_unlock();
	return err;
}

static ssize_t plant_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	struct share all;
	char line[64];
	int err;

	if (count >= sizeof(line))
		return -E2BIG;
	if (copy_from_user(line, from, count))
		return -EFAULT;
	line[count] = 0;
	if (sscanf(line, "%u %u %u %u", &all.own, &all.small, &all.large, &all.freed) != 4 ||
	    all.own > OBJECTS_MAX || all.small > OBJECTS_MAX || all.large > OBJECTS_MAX ||
	    all.freed > OBJECTS_MAX)
		return -EINVAL;
	mutex_lock(&plant_lock);
	err = planted_plant(&all);
	mutex_unlock(&plant_lock);
	return err ? err : count;
}

static const struct file_operations plant_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= plant_write,
};

static int planted_release_set(void *unused, u64 value)
{
	mutex_lock(&plant_lock);
	planted_end();
	mutex_unlock(&plant_lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(release_fops, NULL, planted_release_set, "%llu\n");

static struct dentry *planted_dir;

static int __init planted_init(void)
{
	own_cache = kmem_cache_create("reprieve_planted", OWN_BYTES, 0, 0, planted_construct);
	if (!own_cache)
		return -ENOMEM;
	planted_dir = debugfs_create_dir("reprieve_planted", NULL);
	if (IS_ERR(planted_dir)) {
		kmem_cache_destroy(own_cache);
		return PTR_ERR(planted_dir);
	}
	debugfs_create_file("plant", 0200, planted_dir, NULL, &plant_fops);
	debugfs_create_file("release", 0200, planted_dir, NULL, &release_fops);
	return 0;
}

static void __exit planted_exit(void)
{
	debugfs_remove(planted_dir);	/* waits for writers */
	mutex_lock(&plant_lock);
	planted_end();
	mutex_unlock(&plant_lock);
	rcu_barrier();			/* the callbacks must not outlive the module */
	kmem_cache_destroy(own_cache);
}

module_init(planted_init);
module_exit(planted_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A backlog of known size, to test Reprieve's host side");
