/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that are brought along with their libraries. And the program
 * workload: one of the host's runs to its end. What it prints is kept in a file that the host
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

#define OUTPUT "/tmp/program.out"

static pid_t child;	/* 0: none, or it has ended */
static bool succeeded;

/* Under the programs' own loader: the guest's may be of another C library. */
static void run(const char *root, const char *path, const struct options *options, int out, uint64_t most_bytes)
{
	const struct rlimit most = { most_bytes, most_bytes };
	char loader[64], libraries[64];
	char *arguments[ARGUMENTS_MAX + 5] = { loader, "--library-path", libraries, (char *)path };
	sigset_t none;

	snprintf(loader, sizeof(loader), "%s/lib/ld.so", root);
	snprintf(libraries, sizeof(libraries), "%s/lib", root);
	memcpy(arguments + 4, options->arguments, options->argument_count * sizeof(arguments[0]));
	dup2(out, STDOUT_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A program that never stops printing must not fill the guest's memory. */
	setrlimit(RLIMIT_FSIZE, &most);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(loader, arguments);
	_exit(127);
}

pid_t launch(const char *root, const char *name, const struct options *options, const char *output,
	     uint64_t most_bytes)
{
	char path[128];
	pid_t pid;
	int out;

	if (!*name || strchr(name, '/'))
		return fail("program: a name without a slash, not %.40s", name);
	snprintf(path, sizeof(path), "%s/bin/%s", root, name);
	if (access(path, X_OK))
		return fail("%s: %s", path, strerror(errno));
	out = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		return fail("%s: %s", output, strerror(errno));
	pid = fork();
	if (pid == 0)
		run(root, path, options, out, most_bytes);
	close(out);
	if (pid < 0)
		return fail("program: %s", strerror(errno));
	return pid;
}

static int program_start(const struct options *options)
{
	succeeded = false;
	child = launch("/programs", options->name, options, OUTPUT, FILE_BYTES_MAX);
	if (child > 0)
		return 0;
	child = 0;
	return -1;
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
