/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of reprieve_lab share. main.c describes the module. */
#ifndef REPRIEVE_LAB_H
#define REPRIEVE_LAB_H

#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/types.h>

/* Parameters, main.c; they do not change once the module is loaded. */
extern unsigned int object_bytes, burst, pause_us, poll_us;
extern unsigned long max_backlog_bytes;
extern int workers;

/* memory.c. Start, stop and reset are called with main.c's lock held. */
struct lab_count {
	u64 allocs;
	u64 frees;
	u64 stalls;
};

int lab_memory_start(void);
void lab_memory_stop(void);
void lab_memory_reset(void);		/* only at rest */
struct lab_count lab_memory_sum(void);
u64 lab_memory_peak_objects(void);	/* brings the peak up to date */

/* gp.c. The same holds. */
int lab_gp_init(void);
void lab_gp_exit(void);
void lab_gp_start(void);
void lab_gp_stop(void);
void lab_gp_reset(void);		/* only at rest */
extern const struct file_operations lab_gp_fops, lab_durations_fops;

/* hold.c */
void lab_hold_init(struct dentry *dir);

#endif
