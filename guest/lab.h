/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * lab: the runner inside a lab guest. It obeys the host over a virtio-serial
 * port and drives one workload at a time. README.md says what goes over the port.
 *
 * lab.c       the poll loop and the commands
 * wire.c      lines and files over the port
 * text.c      key=value options, small files, the error text
 * symbols.c   kernel addresses for the host's introspection
 * sync.c      the prober of synchronize_rcu() latency
 * computing.c tasks that compute beside a workload
 * memory.c, clones.c, postmark.c, program.c, fio.c, idle.c    one workload each
 * clone.c     a program of its own, which clones.c starts
 */
#ifndef REPRIEVE_LAB_H
#define REPRIEVE_LAB_H

#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LINE_BYTES_MAX 4096	/* with its newline */
#define FILE_BYTES_MAX (1024 * 1024)
#define CHILDREN_MAX 64
#define ARGUMENTS_MAX 32
#define SECOND_NS UINT64_C(1000000000)
#define LAB_DEBUGFS "/sys/kernel/debug/reprieve_lab/"

/* ------------------------------------------------------------------- text */

/* What went wrong last; every function that returns -1 says it here. */
extern char error_text[256];
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A bounded text that only grows; what does not fit is left out. */
struct text {
	char *at;
	size_t length;
	size_t size;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One number a command accepts. */
struct number {
	const char *key;
	uint64_t *value;
	uint64_t max;
};

/* Whole file into buffer, with a 0 at its end. Bytes read, or -1. */
ssize_t read_file(const char *path, char *buffer, size_t size);
/* At most size bytes of a file from that offset on. Bytes read, or -1. */
ssize_t read_part(const char *path, uint64_t offset, char *buffer, size_t size);
int write_file(const char *path, const char *content);
/* A line to the end of a file, which is made if it is not there. */
int append_line(const char *path, const char *line);
/* The decimal number after KEY= in a line of key=value; 0 if it is not there. */
uint64_t number_of(const char *line, const char *key);
/* MemAvailable, bytes; UINT64_MAX if the kernel does not say. */
uint64_t available_bytes(void);
uint64_t now_ns(void);	/* CLOCK_MONOTONIC */
unsigned int online_vcpus(void);
const char *exit_reason(int status);

/* ------------------------------------------------------------------- wire */

struct wire {
	int fd;
	bool skipping;	/* in a line that is too long, up to its end */
	size_t length;
	char bytes[LINE_BYTES_MAX];
};

int wire_open(struct wire *wire, const char *path);
/* Reads what is there. 0: go on; -1: the host has gone, or the port failed. */
int wire_fill(struct wire *wire);
/* The next whole line, without its newline, or NULL. Valid until the next call. One too long is skipped. */
char *wire_line(struct wire *wire, bool *too_long);
int wire_send(struct wire *wire, const void *bytes, size_t length);
int wire_say(struct wire *wire, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --------------------------------------------------------------- workloads */

struct options {
	uint64_t object_bytes, burst, pause_us, max_backlog_bytes, poll_us;	/* memory */
	uint64_t workers;	/* memory, clone */
	uint64_t stop_below_bytes;	/* clone */
	uint64_t processes, files, transactions, size_min, size_max, seed;	/* postmark */
	uint64_t sync_every_us;	/* any */
	uint64_t computing, computing_from;	/* any */
	char namespaces[64];	/* clone */
	char name[65];	/* program, beside */
	/* program, fio, beside: point into the command's line, which lasts until start returns */
	char *arguments[ARGUMENTS_MAX];
	size_t argument_count;
};

/*
 * The runner calls start, then mark at will, then finish once. A child that
 * ends is handed to child_ended, a readable descriptor to ready.
 */
struct workload {
	const char *name;
	/* On failure it leaves nothing behind. */
	int (*start)(const struct options *options);
	/* ops=N and what else it counts. */
	void (*mark)(struct text *out);
	/* A child has ended. 0: not the workload's; 1: its own; -1: its own, and it should not have. */
	int (*child_ended)(pid_t pid, int status);
	/* Descriptors to wait for; how many. May be NULL, with ready. */
	size_t (*watch)(struct pollfd *fds, size_t max);
	void (*ready)(const struct pollfd *fd);
	/* True once a finite workload has done all it had to do. May be NULL. */
	bool (*finished)(void);
	/* Starts one of the host's programs beside the workload, with its name and its arguments. May be NULL. */
	int (*beside)(const struct options *options);
	/* Ends the workload; its lines before the result. */
	int (*finish)(struct wire *wire);
};

extern const struct workload memory_workload, clone_workload, postmark_workload, program_workload, fio_workload,
	idle_workload;

/*
 * Starts the program of that name in ROOT/bin, with the libraries of ROOT/lib and the options' arguments. What it prints
 * goes into the file output; it may write files of so many bytes. Its pid, or -1.
 */
pid_t launch(const char *root, const char *name, const struct options *options, const char *output,
	     uint64_t most_bytes);

/* The module serves the memory workload and, for all, the grace-period poll. */
int module_load(const struct options *options, int workers);
int module_run(bool run);
bool module_loaded(void);

/* Sends a sym line for each wanted symbol of /proc/kallsyms. */
int send_symbols(struct wire *wire);

/* The prober process. Not an error where the kernel does not support it: sync_finish says so. */
int sync_start(uint64_t every_us);
int sync_child_ended(pid_t pid, int status);
/* Ends it and sends its samples, unless wire is NULL; the number that did not fit into *dropped. */
int sync_finish(struct wire *wire, uint64_t *dropped);

/*
 * Tasks that compute in user space, one on each of count vCPUs from first_vcpu on. On failure it leaves none behind.
 * What they count is a word of a mark.
 */
int computing_start(uint64_t first_vcpu, uint64_t count, int niceness);
void computing_mark(struct text *out);
int computing_child_ended(pid_t pid, int status);
void computing_finish(void);

#endif
