// SPDX-License-Identifier: GPL-2.0
/*
 * The reference measurement of grace periods (GPs), by polling. Invariant: the
 * poll's state is written by the timer alone, or at rest, under gp_lock.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "lab.h"

#define GP_DURATIONS_MAX	65536

/*
 * The polled API shows both ends of a GP without private state:
 * get_state_synchronize_rcu() returns a cookie for "a full GP from now". As
 * long as no GP begins, the cookie stays; when one begins, it no longer
 * suffices for new callers, so the cookie steps. The cookie from before the
 * step is completed by the very GP that made it step. Hence
 *	cookie != last cookie			a GP began since the last poll
 *	poll_state_synchronize_rcu(last cookie)	that GP has ended
 * Cookies are compared for equality only. Where expedited GPs count too, two
 * overlapping GPs appear as one. An end is late by at most one poll gap, and
 * so is a beginning: a duration is off by at most max_poll_gap_ns either way.
 */
struct lab_gp {
	u64 count;
	u64 missed;		/* polls that found one or more whole GPs behind them */
	u64 sum_ns;
	u64 max_ns;
	u64 poll_count;
	u64 max_poll_gap_ns;
	u32 kept;		/* durations in gp_duration_ns */
};

static DEFINE_RAW_SPINLOCK(gp_lock);	/* gp, gp_duration_ns, gp_cursor */
static struct lab_gp gp;
static u64 *gp_duration_ns;		/* GP_DURATIONS_MAX of them */
static struct hrtimer gp_timer;

/* Where the poll stands. */
static struct {
	u64 last_poll_ns;		/* 0: not yet polled */
	unsigned long last_cookie;
	bool open;			/* a GP whose beginning was seen is running */
	unsigned long open_cookie;	/* completed by that GP */
	u64 open_since_ns;
} gp_cursor;

static void lab_gp_ended(u64 duration_ns)
{
	gp.count++;
	gp.sum_ns += duration_ns;
	gp.max_ns = max(gp.max_ns, duration_ns);
	if (gp.kept < GP_DURATIONS_MAX)
		gp_duration_ns[gp.kept++] = duration_ns;
}

static void lab_gp_poll(u64 now_ns)
{
	unsigned long cookie = get_state_synchronize_rcu();

	gp.poll_count++;
	if (!gp_cursor.last_poll_ns) {
		/* A GP that is running already has no known beginning: wait for the next. */
		gp_cursor.last_cookie = cookie;
		gp_cursor.last_poll_ns = now_ns;
		return;
	}
	gp.max_poll_gap_ns = max(gp.max_poll_gap_ns, now_ns - gp_cursor.last_poll_ns);
	gp_cursor.last_poll_ns = now_ns;

	if (gp_cursor.open && poll_state_synchronize_rcu(gp_cursor.open_cookie)) {
		gp_cursor.open = false;
		lab_gp_ended(now_ns - gp_cursor.open_since_ns);
	}
	if (cookie == gp_cursor.last_cookie)
		return;
	if (poll_state_synchronize_rcu(gp_cursor.last_cookie)) {
		/* Began and ended between two polls; resume with the next step. */
		gp.missed++;
	} else {
		gp_cursor.open = true;
		gp_cursor.open_cookie = gp_cursor.last_cookie;
		gp_cursor.open_since_ns = now_ns;
	}
	gp_cursor.last_cookie = cookie;
}

static ktime_t lab_poll_period(void)
{
	return ns_to_ktime((u64)poll_us * NSEC_PER_USEC);
}

static enum hrtimer_restart lab_gp_tick(struct hrtimer *timer)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&gp_lock, flags);
	lab_gp_poll(ktime_get_ns());
	raw_spin_unlock_irqrestore(&gp_lock, flags);
	hrtimer_forward_now(timer, lab_poll_period());
	return HRTIMER_RESTART;
}

static void lab_gp_timer_init(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&gp_timer, lab_gp_tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#else
	hrtimer_init(&gp_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	gp_timer.function = lab_gp_tick;
#endif
}

void lab_gp_start(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&gp_lock, flags);
	memset(&gp_cursor, 0, sizeof(gp_cursor));
	raw_spin_unlock_irqrestore(&gp_lock, flags);
	if (poll_us)
		hrtimer_start(&gp_timer, lab_poll_period(), HRTIMER_MODE_REL);
}

void lab_gp_stop(void)
{
	hrtimer_cancel(&gp_timer);
}

void lab_gp_reset(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&gp_lock, flags);
	memset(&gp, 0, sizeof(gp));
	raw_spin_unlock_irqrestore(&gp_lock, flags);
}

int lab_gp_init(void)
{
	gp_duration_ns = vzalloc(array_size(GP_DURATIONS_MAX, sizeof(*gp_duration_ns)));
	if (!gp_duration_ns)
		return -ENOMEM;
	lab_gp_timer_init();
	return 0;
}

void lab_gp_exit(void)
{
	vfree(gp_duration_ns);
}

static int lab_gp_show(struct seq_file *file, void *unused)
{
	unsigned long flags;
	struct lab_gp copy;

	raw_spin_lock_irqsave(&gp_lock, flags);
	copy = gp;
	raw_spin_unlock_irqrestore(&gp_lock, flags);
	seq_printf(file, "count=%llu missed=%llu sum_ns=%llu max_ns=%llu poll_count=%llu max_poll_gap_ns=%llu\n",
		   copy.count, copy.missed, copy.sum_ns, copy.max_ns,
		   copy.poll_count, copy.max_poll_gap_ns);
	return 0;
}

static int lab_gp_open(struct inode *inode, struct file *file)
{
	return single_open(file, lab_gp_show, inode->i_private);
}

/* By hand, as the macros for this make it static. */
const struct file_operations lab_gp_fops = {
	.owner		= THIS_MODULE,
	.open		= lab_gp_open,
	.read		= seq_read,
	.llseek		= seq_lseek,
	.release	= single_release,
};

/* Durations are only ever appended: those below kept can be read without the lock. */
static void *lab_durations_at(loff_t position)
{
	return position < READ_ONCE(gp.kept) ? &gp_duration_ns[position] : NULL;
}

static void *lab_durations_start(struct seq_file *file, loff_t *position)
{
	return lab_durations_at(*position);
}

static void *lab_durations_next(struct seq_file *file, void *item, loff_t *position)
{
	return lab_durations_at(++*position);
}

static void lab_durations_stop(struct seq_file *file, void *item)
{
}

static int lab_durations_show(struct seq_file *file, void *item)
{
	seq_printf(file, "%llu\n", *(u64 *)item);
	return 0;
}

static const struct seq_operations lab_durations_sops = {
	.start	= lab_durations_start,
	.next	= lab_durations_next,
	.stop	= lab_durations_stop,
	.show	= lab_durations_show,
};

static int lab_durations_open(struct inode *inode, struct file *file)
{
	return seq_open(file, &lab_durations_sops);
}

const struct file_operations lab_durations_fops = {
	.owner		= THIS_MODULE,
	.open		= lab_durations_open,
	.read		= seq_read,
	.llseek		= seq_lseek,
	.release	= seq_release,
};
