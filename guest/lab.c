/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The runner: one poll loop over the port, the children and what a workload
 * watches; one workload at a time. It is process 1 of the guest. When the host
 * goes away, the guest powers off.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROTOCOL_VERSION 1

static const struct workload *const workloads[] = {
	&memory_workload, &clone_workload, &postmark_workload, &program_workload, &fio_workload, &idle_workload,
};

static struct wire wire;
static const struct workload *current;	/* NULL: nothing runs */
static bool said_finished;
static uint64_t started_ns;

/* ---------------------------------------------------------------- options */

static void set_defaults(struct options *options)
{
	*options = (struct options){
		.object_bytes = 1024, .burst = 10,
		.stop_below_bytes = 64 * 1024 * 1024, .namespaces = "net,ipc,uts,pid,mnt",
		.files = 20000, .transactions = 20000, .size_min = 500, .size_max = 10000, .seed = 42,
	};
}

static int set_text(char *text, size_t size, const char *key, const char *value)
{
	if (strlen(value) >= size)
		return fail("%s: too long", key);
	strcpy(text, value);
	return 0;
}

static int set_option(struct options *options, const char *key, char *value)
{
	const struct number numbers[] = {
		{ "object_bytes", &options->object_bytes, 64 * 1024 },
		{ "burst", &options->burst, 100000 },
		{ "pause_us", &options->pause_us, 1000000 },
		{ "max_backlog_bytes", &options->max_backlog_bytes, INT64_MAX },
		{ "poll_us", &options->poll_us, 1000000 },
		{ "workers", &options->workers, 256 },
		{ "stop_below_bytes", &options->stop_below_bytes, INT64_MAX },
		{ "processes", &options->processes, CHILDREN_MAX },
		{ "files", &options->files, 10000000 },
		{ "transactions", &options->transactions, INT32_MAX },
		{ "size_min", &options->size_min, 1024 * 1024 },
		{ "size_max", &options->size_max, 1024 * 1024 },
		{ "seed", &options->seed, INT32_MAX / 2 },
		{ "sync_every_us", &options->sync_every_us, 60000000 },
		{ "computing", &options->computing, CHILDREN_MAX },
		{ "computing_from", &options->computing_from, CHILDREN_MAX },
	};
	uint64_t parsed;
	char *end;
	size_t i;

	if (!strcmp(key, "namespaces"))
		return set_text(options->namespaces, sizeof(options->namespaces), key, value);
	if (!strcmp(key, "name"))
		return set_text(options->name, sizeof(options->name), key, value);
	if (!strcmp(key, "argument")) {
		if (options->argument_count == ARGUMENTS_MAX)
			return fail("more than %d arguments", ARGUMENTS_MAX);
		options->arguments[options->argument_count++] = value;
		return 0;
	}
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(numbers[i].key, key))
			continue;
		errno = 0;
		parsed = strtoull(value, &end, 10);
		if (*value < '0' || *value > '9' || *end || errno || parsed > numbers[i].max)
			return fail("%s: a number from 0 to %" PRIu64 ", not %.40s", key, numbers[i].max, value);
		*numbers[i].value = parsed;
		return 0;
	}
	return fail("unknown option %.40s", key);
}

/* The rest of a start line, word by word; strtok_r's place is handed in. */
static int parse_options(struct options *options, char **place)
{
	char *word, *value;

	set_defaults(options);
	while ((word = strtok_r(NULL, " ", place)) != NULL) {
		value = strchr(word, '=');
		if (!value)
			return fail("%.40s: not key=value", word);
		*value++ = 0;
		if (set_option(options, word, value))
			return -1;
	}
	return 0;
}

/* --------------------------------------------------------------- commands */

static int say_error(void)
{
	return wire_say(&wire, "error %s", error_text);
}

/* The module polls grace periods whatever the workload; the memory workload loads it itself. */
static int start_module(const struct options *options)
{
	if (!options->poll_us || current == &memory_workload)
		return 0;
	return module_load(options, 0) || module_run(true) ? -1 : 0;
}

/* The workload last: what it does is counted from then on. */
static int start_parts(const struct options *options)
{
	uint64_t dropped;

	if (!sync_start(options->sync_every_us) &&
	    !computing_start(options->computing_from, options->computing, 0) &&
	    !start_module(options) && !current->start(options))
		return 0;
	sync_finish(NULL, &dropped);
	computing_finish();
	if (module_loaded())
		module_run(false);
	return -1;
}

/* The workload's counters, and those of tasks beside it. */
static void mark_parts(const struct workload *workload, struct text *text)
{
	workload->mark(text);
	computing_mark(text);
}

static int start(char **place)
{
	const char *name = strtok_r(NULL, " ", place);
	struct options options;
	size_t i;

	if (current) {
		fail("%s is running: stop it first", current->name);
		return say_error();
	}
	for (i = 0; name && i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (!strcmp(workloads[i]->name, name))
			current = workloads[i];
	if (!current) {
		fail("unknown workload %.40s", name ? name : "");
		return say_error();
	}
	if (parse_options(&options, place) || start_parts(&options)) {
		current = NULL;
		return say_error();
	}
	said_finished = false;
	started_ns = now_ns();
	return wire_say(&wire, "started t_ns=%" PRIu64, started_ns);
}

static int mark(void)
{
	char line[1024] = "ops=0";
	struct text text = { .at = line, .size = sizeof(line) };

	if (current)
		mark_parts(current, &text);
	return wire_say(&wire, "mark t_ns=%" PRIu64 " %s", now_ns(), line);
}

static int stop(void)
{
	char line[1024] = "ops=0";
	struct text text = { .at = line, .size = sizeof(line) };
	const struct workload *workload = current;
	uint64_t elapsed_ns = now_ns() - started_ns, dropped;

	if (!workload) {
		fail("nothing runs");
		return say_error();
	}
	/* Before it ends, as the counters end with it. */
	mark_parts(workload, &text);
	current = NULL;
	if (workload->finish(&wire) && say_error())
		return -1;
	computing_finish();
	if (module_loaded() && module_run(false) && say_error())
		return -1;
	if (sync_finish(&wire, &dropped))
		return -1;
	return wire_say(&wire, "result %s elapsed_ns=%" PRIu64 " sync_dropped=%" PRIu64, line, elapsed_ns, dropped) ||
	       wire_say(&wire, "bye") ? -1 : 0;
}

static int send_file(char **place)
{
	static char content[FILE_BYTES_MAX + 1];
	const char *path = strtok_r(NULL, " ", place);
	const char *offset = strtok_r(NULL, " ", place);
	ssize_t length;

	if (!path || *path != '/') {
		fail("read wants an absolute path");
		return say_error();
	}
	/* Without an offset the whole file is wanted, and one that is too large is an error. */
	length = offset ? read_part(path, strtoull(offset, NULL, 10), content, FILE_BYTES_MAX) :
			  read_file(path, content, sizeof(content));
	if (length < 0)
		return say_error();
	if (wire_say(&wire, "file %zd", length))
		return -1;
	return wire_send(&wire, content, (size_t)length);
}

static int append(char **place)
{
	const char *path = strtok_r(NULL, " ", place);
	char *at;

	if (!path || *path != '/') {
		fail("append wants an absolute path");
		return say_error();
	}
	for (at = *place; at && (at = strchr(at, ';')) != NULL; )
		*at = '\n';
	if (append_line(path, *place ? *place : ""))
		return say_error();
	return wire_say(&wire, "appended");
}

static int delete(char **place)
{
	const char *path = strtok_r(NULL, " ", place);

	if (!path || *path != '/' || (unlink(path) && errno != ENOENT)) {
		fail("delete %.40s: %s", path ? path : "", strerror(errno));
		return say_error();
	}
	return wire_say(&wire, "deleted");
}

static int start_beside(char **place)
{
	struct options options;

	if (!current || !current->beside) {
		fail("nothing runs that takes a program beside it");
		return say_error();
	}
	if (parse_options(&options, place) || current->beside(&options))
		return say_error();
	return wire_say(&wire, "beside t_ns=%" PRIu64, now_ns());
}

static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	/* No ACPI: with -no-reboot this ends QEMU as well. */
	reboot(RB_AUTOBOOT);
	_exit(1);
}

static int obey(char *line)
{
	char *place = NULL;
	const char *command = strtok_r(line, " ", &place);

	if (!command)
		return 0;
	if (!strcmp(command, "start"))
		return start(&place);
	if (!strcmp(command, "mark"))
		return mark();
	if (!strcmp(command, "stop"))
		return stop();
	if (!strcmp(command, "read"))
		return send_file(&place);
	if (!strcmp(command, "append"))
		return append(&place);
	if (!strcmp(command, "delete"))
		return delete(&place);
	if (!strcmp(command, "beside"))
		return start_beside(&place);
	if (!strcmp(command, "poweroff"))
		power_off();
	fail("unknown command %.40s", command);
	return say_error();
}

/* -------------------------------------------------------------- poll loop */

static int obey_lines(void)
{
	bool too_long;
	char *line;

	while ((line = wire_line(&wire, &too_long)) != NULL)
		if (obey(line))
			return -1;
	if (!too_long)
		return 0;
	fail("a line is at most %d bytes", LINE_BYTES_MAX);
	return say_error();
}

/* Process 1 inherits every orphan: reap them all, tell the workload's apart. */
static int reap(int signals)
{
	struct signalfd_siginfo info;
	int status, verdict;
	pid_t pid;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		verdict = sync_child_ended(pid, status);
		if (!verdict)
			verdict = computing_child_ended(pid, status);
		if (!verdict && current && current->child_ended)
			verdict = current->child_ended(pid, status);
		if (verdict < 0 && say_error())
			return -1;
	}
	if (current && current->finished && !said_finished && current->finished()) {
		said_finished = true;
		return wire_say(&wire, "finished");
	}
	return 0;
}

static int serve(int signals)
{
	struct pollfd fds[2 + CHILDREN_MAX] = {
		{ .fd = wire.fd, .events = POLLIN }, { .fd = signals, .events = POLLIN },
	};
	size_t count, i;

	for (;;) {
		count = 2;
		if (current && current->watch)
			count += current->watch(fds + 2, CHILDREN_MAX);
		if (poll(fds, count, -1) < 0 && errno != EINTR)
			return fail("poll: %s", strerror(errno));
		for (i = 2; i < count; i++)
			if (fds[i].revents)
				current->ready(&fds[i]);
		if (fds[1].revents && reap(signals))
			return -1;
		if (fds[0].revents & POLLIN) {
			if (wire_fill(&wire) || obey_lines())
				return -1;
		} else if (fds[0].revents) {
			return fail("the host has gone");
		}
	}
}

static int greet(void)
{
	struct utsname name;

	if (uname(&name))
		return fail("uname: %s", strerror(errno));
	if (wire_say(&wire, "hello %d vcpus=%u release=%s", PROTOCOL_VERSION, online_vcpus(), name.release) ||
	    send_symbols(&wire))
		return -1;
	return wire_say(&wire, "ready");
}

/* SIGCHLD as a descriptor. Children inherit the mask; those started here only ever wait by waitpid(). */
static int watch_children(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -1;
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int main(int argc, char **argv)
{
	int signals;

	if (argc != 2) {
		fprintf(stderr, "usage: lab /dev/vportNpM\n");
		return 2;
	}
	signals = watch_children();
	if (signals < 0)
		fail("signalfd: %s", strerror(errno));
	else if (!wire_open(&wire, argv[1]) && !greet())
		serve(signals);
	fprintf(stderr, "reprieve-lab: %s\n", error_text);
	power_off();
}
