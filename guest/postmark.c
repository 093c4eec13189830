/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The postmark workload: several processes of Postmark itself (Katz, NetApp
 * TR3022, 1997), each in its own directory of one tmpfs. Files and
 * transactions are totals, shared out evenly. Postmark's report has whole
 * seconds only; it says on a pipe when a phase begins and ends, so the
 * transaction phase is timed here.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POSTMARK_PROGRAM "/usr/bin/postmark"
#define MAIL_DIR "/mail"
#define REPORT_BYTES_MAX 4096
/* tmpfs itself copes with more, but a real mail spool is split up. */
#define FILES_PER_SUBDIRECTORY 1000
#define PAGE_BYTES 4096
/* Inode, dentry and page-cache bookkeeping of one file in tmpfs, about. */
#define FILE_OVERHEAD_BYTES 1280
/* Some files are created on top, as deletions only follow creations on average. */
#define MEMORY_PERCENT_MAX 90

struct process {
	pid_t pid;			/* 0 once it has ended */
	int out;			/* its stdout and stderr; -1 once at its end */
	int status;
	uint64_t transactions;		/* asked for; all done once it has succeeded */
	uint64_t begin_ns, end_ns;
	uint64_t transactions_begin_ns, transactions_end_ns;	/* 0: not yet */
	size_t length;
	char report[REPORT_BYTES_MAX];	/* the first of what it printed */
};

static struct process processes[CHILDREN_MAX];
static size_t process_count;

/* ------------------------------------------------------------------ start */

static void run_program(int in, int out)
{
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(POSTMARK_PROGRAM, "postmark", (char *)NULL);
	_exit(127);
}

/* The whole configuration fits a pipe, so it is written before the reader exists. */
static int write_config(int fd, const struct options *options, size_t index)
{
	uint64_t files = options->files / options->processes;
	char config[512];
	struct text text = { .at = config, .size = sizeof(config) };

	text_add(&text, "set location " MAIL_DIR "/%zu\n", index);
	text_add(&text, "set number %" PRIu64 "\n", files);
	text_add(&text, "set transactions %" PRIu64 "\n", processes[index].transactions);
	text_add(&text, "set size %" PRIu64 " %" PRIu64 "\n", options->size_min, options->size_max);
	text_add(&text, "set seed %" PRIu64 "\n", options->seed + index);
	text_add(&text, "set subdirectories %" PRIu64 "\nrun\nquit\n", files / FILES_PER_SUBDIRECTORY);
	return write(fd, config, text.length) == (ssize_t)text.length ? 0 : -1;
}

static int start_process(struct process *process, const struct options *options, size_t index)
{
	int in[2], out[2];
	char directory[64];

	memset(process, 0, sizeof(*process));
	process->out = -1;
	process->transactions = options->transactions / options->processes;
	snprintf(directory, sizeof(directory), MAIL_DIR "/%zu", index);
	if (mkdir(directory, 0755) || pipe2(in, O_CLOEXEC))
		return fail("postmark process %zu: %s", index, strerror(errno));
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]);
		close(in[1]);
		return fail("postmark process %zu: %s", index, strerror(errno));
	}
	if (!write_config(in[1], options, index)) {
		process->begin_ns = now_ns();
		process->pid = fork();
		if (process->pid == 0)
			run_program(in[0], out[1]);
	}
	close(in[0]);
	close(in[1]);
	close(out[1]);
	if (process->pid <= 0) {
		process->pid = 0;
		close(out[0]);
		return fail("postmark process %zu: %s", index, strerror(errno));
	}
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	process->out = out[0];
	return 0;
}

static void clear_away(void)
{
	size_t i;

	for (i = 0; i < process_count; i++) {
		struct process *process = &processes[i];

		if (process->pid) {
			kill(process->pid, SIGKILL);
			waitpid(process->pid, NULL, 0);
		}
		if (process->out >= 0)
			close(process->out);
	}
	process_count = 0;
	umount2(MAIL_DIR, MNT_DETACH);
}

/* Postmark does not notice that the file system is full; the OOM killer would end it. So ask before. */
static int check_memory(const struct options *options)
{
	uint64_t mean = (options->size_min + options->size_max) / 2;
	uint64_t pages = (mean + PAGE_BYTES - 1) / PAGE_BYTES;
	uint64_t wanted = options->files * (pages * PAGE_BYTES + FILE_OVERHEAD_BYTES);
	uint64_t there = available_bytes();

	if (there != UINT64_MAX && wanted > there / 100 * MEMORY_PERCENT_MAX)
		return fail("postmark: the files take about %" PRIu64 " bytes of %" PRIu64
			    ": more guest memory, or fewer or smaller files", wanted, there);
	return 0;
}

static int postmark_start(const struct options *options)
{
	struct options shared = *options;

	if (!shared.processes)
		shared.processes = online_vcpus();
	if (shared.processes > CHILDREN_MAX)
		return fail("postmark: more than %d processes", CHILDREN_MAX);
	if (shared.size_min < 1 || shared.size_min > shared.size_max)
		return fail("postmark: size_min must be from 1 to size_max");
	if (check_memory(&shared))
		return -1;
	mkdir(MAIL_DIR, 0755);
	/* By default tmpfs takes half of RAM, and half an inode a page: too few for small files. */
	if (mount("mail", MAIL_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "size=90%,nr_inodes=0"))
		return fail(MAIL_DIR ": %s", strerror(errno));
	while (process_count < shared.processes) {
		size_t index = process_count++;

		if (start_process(&processes[index], &shared, index)) {
			clear_away();
			return -1;
		}
	}
	return 0;
}

/* --------------------------------------------------------- while it runs */

static void note_phases(struct process *process)
{
	const char *begin = strstr(process->report, "Performing transactions");

	if (!begin)
		return;
	if (!process->transactions_begin_ns)
		process->transactions_begin_ns = now_ns();
	if (!process->transactions_end_ns && strstr(begin, "Done"))
		process->transactions_end_ns = now_ns();
}

static void drain(struct process *process)
{
	char rest[512];

	while (process->out >= 0) {
		size_t room = sizeof(process->report) - 1 - process->length;
		ssize_t got = room ? read(process->out, process->report + process->length, room)
				   : read(process->out, rest, sizeof(rest));

		if (got < 0)	/* EAGAIN: no more for now */
			return;
		if (got == 0) {
			close(process->out);
			process->out = -1;
		} else if (room) {
			process->length += (size_t)got;
			process->report[process->length] = 0;
			note_phases(process);
		}
	}
}

static size_t postmark_watch(struct pollfd *fds, size_t max)
{
	size_t i, used = 0;

	for (i = 0; i < process_count && used < max; i++)
		if (processes[i].out >= 0)
			fds[used++] = (struct pollfd){ .fd = processes[i].out, .events = POLLIN };
	return used;
}

static void postmark_ready(const struct pollfd *fd)
{
	size_t i;

	for (i = 0; i < process_count; i++)
		if (processes[i].out == fd->fd)
			drain(&processes[i]);
}

/* Dots after "Performing transactions": one for each tenth. */
static uint64_t tenths(const struct process *process)
{
	const char *at = strstr(process->report, "Performing transactions");
	uint64_t dots = 0;

	if (!at)
		return 0;
	for (at += strlen("Performing transactions"); *at == '.' && dots < 10; at++)
		dots++;
	return dots;
}

static void postmark_mark(struct text *out)
{
	uint64_t ended = 0, done = 0;
	size_t i;

	for (i = 0; i < process_count; i++) {
		ended += processes[i].pid == 0;
		done += tenths(&processes[i]);
	}
	text_add(out, "ops=%" PRIu64 " tenths=%" PRIu64, ended, done);
}

/* Postmark exits with 0 whatever happens: its report, which opens with the time, is the proof. */
static bool succeeded(const struct process *process)
{
	return !process->pid && !process->status && strstr(process->report, "seconds total");
}

static const char *last_line(struct process *process)
{
	char *end = process->report + process->length, *line;

	while (end > process->report && end[-1] == '\n')
		*--end = 0;
	line = strrchr(process->report, '\n');
	return line ? line + 1 : process->report;
}

static int postmark_child_ended(pid_t pid, int status)
{
	size_t i;

	for (i = 0; i < process_count; i++) {
		struct process *process = &processes[i];

		if (!process->pid || process->pid != pid)
			continue;
		process->pid = 0;
		process->status = status;
		process->end_ns = now_ns();
		drain(process);
		return succeeded(process) ? 1 : fail("postmark process %zu %s: %.120s", i,
						     exit_reason(status), last_line(process));
	}
	return 0;
}

static bool postmark_finished(void)
{
	size_t i;

	for (i = 0; i < process_count; i++)
		if (!succeeded(&processes[i]))
			return false;
	return true;
}

/* ----------------------------------------------------------------- report */

/* The number right before what, as in "2500 created (500 per second)"; 0 if there is none. */
static uint64_t number_before(const char *report, const char *what)
{
	const char *at = strstr(report, what);

	if (!at)
		return 0;
	while (at > report && at[-1] == ' ')
		at--;
	while (at > report && at[-1] >= '0' && at[-1] <= '9')
		at--;
	return strtoull(at, NULL, 10);
}

static int report(struct wire *wire, const struct process *process, size_t index)
{
	const char *phase = strstr(process->report, "seconds of transactions (");
	uint64_t tps = phase ? strtoull(phase + strlen("seconds of transactions ("), NULL, 10) : 0;

	if (!succeeded(process))
		return wire_say(wire, "postmark process=%zu finished=0", index);
	return wire_say(wire, "postmark process=%zu finished=1 seconds=%" PRIu64 " transactions=%" PRIu64
			" tps=%" PRIu64 " files_created=%" PRIu64 " transactions_begin_ns=%" PRIu64
			" transactions_end_ns=%" PRIu64 " elapsed_ns=%" PRIu64, index,
			number_before(process->report, "seconds total"), process->transactions, tps,
			number_before(process->report, "created ("), process->transactions_begin_ns,
			process->transactions_end_ns, process->end_ns - process->begin_ns);
}

static int postmark_finish(struct wire *wire)
{
	int error = 0;
	size_t i;

	for (i = 0; i < process_count && !error; i++)
		error = report(wire, &processes[i], i);
	clear_away();
	return error;
}

const struct workload postmark_workload = {
	.name = "postmark",
	.start = postmark_start,
	.mark = postmark_mark,
	.child_ended = postmark_child_ended,
	.watch = postmark_watch,
	.ready = postmark_ready,
	.finished = postmark_finished,
	.finish = postmark_finish,
};
