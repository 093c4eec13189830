// SPDX-License-Identifier: GPL-2.0
/*
 * reprieve_planted - a backlog of known size, for tests of the host: objects of
 * three owners and of kfree_rcu(), which wait for a reader that does not end.
 *
 * debugfs reprieve_planted/
 *	plant	four numbers: objects of planted_free_own (a cache of its own),
 *		planted_free_small (kmalloc of 512 bytes), planted_free_large
 *		(kmalloc of 2048 bytes), and of kfree_rcu() (kmalloc of 256
 *		bytes). Each CPU queues some of each.
 *	release	any number: the reader ends
 *
 * The reader keeps the last CPU to itself, and queues that CPU's objects. So
 * it takes two CPUs, and can be planted once before a release.
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
static struct share reader_share;
static long reader_err;		/* valid once it has begun */
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

static long planted_queue(const struct share *share, gfp_t flags)
{
	struct planted *object;
	unsigned int i;

	for (i = 0; i < share->own; i++) {
		object = kmem_cache_alloc(own_cache, flags);
		if (!object)
			return -ENOMEM;
		call_rcu(&object->head, planted_free_own);
	}
	for (i = 0; i < share->small; i++) {
		object = kmalloc(SMALL_BYTES, flags);
		if (!object)
			return -ENOMEM;
		call_rcu(&object->head, planted_free_small);
	}
	for (i = 0; i < share->large; i++) {
		object = kmalloc(LARGE_BYTES, flags);
		if (!object)
			return -ENOMEM;
		call_rcu(&object->head, planted_free_large);
	}
	for (i = 0; i < share->freed; i++) {
		object = kmalloc(FREED_BYTES, flags);
		if (!object)
			return -ENOMEM;
		kfree_rcu(object, head);
	}
	return 0;
}

static int planted_read(void *unused)
{
	unsigned long end = jiffies + READER_S * HZ;

	rcu_read_lock();
	reader_err = planted_queue(&reader_share, GFP_ATOMIC);
	smp_store_release(&begun, true);
	while (!READ_ONCE(released) && time_before(jiffies, end))
		cpu_relax();
	rcu_read_unlock();
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return 0;
}

/* With plant_lock held. */
static int planted_begin(int cpu)
{
	struct task_struct *task;

	task = kthread_create(planted_read, NULL, "planted_reader");
	if (IS_ERR(task))
		return PTR_ERR(task);
	kthread_bind(task, cpu);
	reader = task;
	wake_up_process(task);
	while (!smp_load_acquire(&begun))
		schedule_timeout_uninterruptible(1);
	return reader_err;
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

static long planted_work(void *share)
{
	return planted_queue(share, GFP_KERNEL);
}

static struct share planted_part(const struct share *all, unsigned int number, unsigned int count)
{
#define PART(what) (all->what / count + (number < all->what % count))
	return (struct share) { PART(own), PART(small), PART(large), PART(freed) };
#undef PART
}

/* With plant_lock held. */
static long planted_plant(const struct share *all)
{
	unsigned int count, number = 0;
	long err = -EBUSY;
	int cpu, last;

	if (reader)
		return err;
	cpus_read_lock();
	count = num_online_cpus();
	last = cpumask_last(cpu_online_mask);
	err = -EINVAL;
	if (count > 1) {
		reader_share = planted_part(all, number++, count);
		err = planted_begin(last);
	}
	for_each_online_cpu(cpu) {
		struct share share;

		if (err)
			break;
		if (cpu == last)
			continue;
		share = planted_part(all, number++, count);
		err = work_on_cpu(cpu, planted_work, &share);
	}
	cpus_read_unlock();
	return err;
}

static ssize_t plant_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	struct share all;
	char line[64];
	long err;

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
