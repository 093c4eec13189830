/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The program workload: one of the host's programs, brought along with its
 * libraries, runs to its end. What it prints is kept in a file that the host
 * reads after stop; what it says on stderr goes to the console.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAMS "/programs/bin/"
#define LIBRARIES "/programs/lib"
/* The programs' own loader: the guest's may be of another C library. */
#define LOADER LIBRARIES "/ld.so"
#define OUTPUT "/tmp/program.out"

static pid_t child;	/* 0: none, or it has ended */
static bool succeeded;

static void run_program(const struct options *options, const char *path, int out)
{
	const struct rlimit most = { FILE_BYTES_MAX, FILE_BYTES_MAX };
	char *arguments[ARGUMENTS_MAX + 5] = { LOADER, "--library-path", LIBRARIES, (char *)path };
	sigset_t none;

	memcpy(arguments + 4, options->arguments, options->argument_count * sizeof(arguments[0]));
	dup2(out, STDOUT_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A program that never stops printing must not fill the guest's memory. */
	setrlimit(RLIMIT_FSIZE, &most);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(LOADER, arguments);
	_exit(127);
}

static int program_start(const struct options *options)
{
	char path[sizeof(PROGRAMS) + sizeof(options->name)];
	int out;

	if (!*options->name || strchr(options->name, '/'))
		return fail("program: a name without a slash, not %.40s", options->name);
	snprintf(path, sizeof(path), PROGRAMS "%s", options->name);
	if (access(path, X_OK))
		return fail("%s: %s", path, strerror(errno));
	out = open(OUTPUT, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		return fail(OUTPUT ": %s", strerror(errno));
	succeeded = false;
	child = fork();
	if (child == 0)
		run_program(options, path, out);
	close(out);
	if (child < 0) {
		child = 0;
		return fail("program: %s", strerror(errno));
	}
	return 0;
}

static void program_mark(struct text *out)
{
	text_add(out, "ops=%d", succeeded);
}

static int program_child_ended(pid_t pid, int status)
{
	if (!child || pid != child)
		return 0;
	child = 0;
	succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return succeeded ? 1 : fail("the program %s", exit_reason(status));
}

static bool program_finished(void)
{
	return succeeded;
}

static int program_finish(struct wire *wire)
{
	(void)wire;
	if (child) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		child = 0;
	}
	return 0;
}

const struct workload program_workload = {
	.name = "program",
	.start = program_start,
	.mark = program_mark,
	.child_ended = program_child_ended,
	.finished = program_finished,
	.finish = program_finish,
};
