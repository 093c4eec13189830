// SPDX-License-Identifier: GPL-2.0
/*
 * reprieve_hostile - writes over this kernel's own memory while the host reads
 * it. For tests of the host alone: no image has it that did not ask for it.
 *
 * debugfs reprieve_hostile/storm takes lines
 *
 *	SEED STEPS PACE KEEP ADDRESS=VALUE ...
 *
 * with hexadecimal numbers. STEPS times, PACE ticks of the time stamp counter
 * apart, one of the words at these physical addresses is given its VALUE, what
 * it had at first, or something random that SEED determines. Then all words
 * have again what they had, unless KEEP is not 0.
 *
 * Invariant: nothing else runs in this guest during a storm, on any CPU, and
 * the storm itself uses no memory but its own. So a guest survives most storms
 * that do not keep their values, whatever these were.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#define LINE_BYTES_MAX	4096
#define WORDS_MAX	128
#define STEPS_MAX	100000
#define PACE_MAX	10000000

struct wound {
	u64 *at;
	u64 value;
	u64 first;
	void *page;
};

struct storm {
	u64 seed;
	u64 steps;
	u64 pace;
	u64 keep;
	unsigned int count;
	struct wound wounds[WORDS_MAX];
};

static DEFINE_MUTEX(storm_lock);
static struct storm storm;

/* xorshift64 (Marsaglia 2003). */
static u64 storm_random(void)
{
	storm.seed ^= storm.seed << 13;
	storm.seed ^= storm.seed >> 7;
	storm.seed ^= storm.seed << 17;
	return storm.seed;
}

/* By hand: the kernel's own delays read memory that may just be wounded. */
static void storm_wait(void)
{
	u64 until = rdtsc_ordered() + storm.pace;

	while (rdtsc_ordered() < until)
		cpu_relax();
}

static int storm_rages(void *unused)
{
	unsigned int i;
	u64 step;

	for (i = 0; i < storm.count; i++)
		storm.wounds[i].first = READ_ONCE(*storm.wounds[i].at);
	for (step = 0; step < storm.steps; step++) {
		u64 random = storm_random();
		struct wound *wound = &storm.wounds[random % storm.count];

		switch ((random >> 32) % 8) {
		case 0:
			WRITE_ONCE(*wound->at, storm_random());
			break;
		case 1:
			WRITE_ONCE(*wound->at, wound->first);
			break;
		default:
			WRITE_ONCE(*wound->at, wound->value);
		}
		storm_wait();
	}
	for (i = 0; i < storm.count; i++) {
		struct wound *wound = &storm.wounds[i];

		WRITE_ONCE(*wound->at, storm.keep ? wound->value : wound->first);
	}
	return 0;
}

/* A mapping of its own for each word: that of the kernel may be read-only. */
static int storm_map(struct wound *wound, u64 address)
{
	struct page *page;

	if (!IS_ALIGNED(address, sizeof(u64)) || !pfn_valid(PHYS_PFN(address)))
		return -EINVAL;
	page = pfn_to_page(PHYS_PFN(address));
	wound->page = vmap(&page, 1, VM_MAP, PAGE_KERNEL);
	if (!wound->page)
		return -ENOMEM;
	wound->at = wound->page + offset_in_page(address);
	return 0;
}

static int storm_word(char *word)
{
	char *value = strchr(word, '=');
	struct wound *wound = &storm.wounds[storm.count];
	u64 address;
	int err;

	if (!value || storm.count == WORDS_MAX)
		return -EINVAL;
	*value++ = 0;
	err = kstrtou64(word, 16, &address);
	if (!err)
		err = kstrtou64(value, 16, &wound->value);
	if (!err)
		err = storm_map(wound, address);
	if (!err)
		storm.count++;
	return err;
}

static int storm_parse(char *line)
{
	u64 *const numbers[] = { &storm.seed, &storm.steps, &storm.pace, &storm.keep };
	unsigned int i = 0;
	char *word;
	int err = 0;

	while (!err && (word = strsep(&line, " \n"))) {
		if (!*word)
			continue;
		err = i < ARRAY_SIZE(numbers) ? kstrtou64(word, 16, numbers[i]) : storm_word(word);
		i++;
	}
	if (!err && (!storm.count || !storm.seed || storm.steps > STEPS_MAX || storm.pace > PACE_MAX))
		err = -EINVAL;
	return err;
}

static ssize_t storm_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	char *line;
	int err;

	if (count > LINE_BYTES_MAX)
		return -E2BIG;
	line = memdup_user_nul(from, count);
	if (IS_ERR(line))
		return PTR_ERR(line);
	mutex_lock(&storm_lock);
	err = storm_parse(line);
	if (!err)
		err = stop_machine(storm_rages, NULL, NULL);
	while (storm.count)
		vunmap(storm.wounds[--storm.count].page);
	mutex_unlock(&storm_lock);
	kfree(line);
	return err ? err : count;
}

static const struct file_operations storm_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.write	= storm_write,
};

static struct dentry *storm_dir;

static int __init storm_init(void)
{
	storm_dir = debugfs_create_dir("reprieve_hostile", NULL);
	if (IS_ERR(storm_dir))
		return PTR_ERR(storm_dir);
	debugfs_create_file("storm", 0200, storm_dir, NULL, &storm_fops);
	return 0;
}

static void __exit storm_exit(void)
{
	debugfs_remove(storm_dir);
}

module_init(storm_init);
module_exit(storm_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Writes over the kernel's own memory, to test Reprieve's host side");
