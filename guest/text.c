/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Small files, key=value lines, the error text: all bounded. */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char error_text[256];

int fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error_text, sizeof(error_text), format, arguments);
	va_end(arguments);
	return -1;
}

void text_add(struct text *text, const char *format, ...)
{
	size_t room = text->size - text->length;
	va_list arguments;
	int wanted;

	va_start(arguments, format);
	wanted = vsnprintf(text->at + text->length, room, format, arguments);
	va_end(arguments);
	if (wanted > 0 && (size_t)wanted < room)
		text->length += (size_t)wanted;
	else if (room)
		text->at[text->length] = 0;
}

ssize_t read_file(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = 0;

	if (fd < 0)
		return fail("%s: %s", path, strerror(errno));
	/* One byte of room is kept for the 0, so a full buffer means: larger than it. */
	while (length < size && (got = read(fd, buffer + length, size - length)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			fail("%s: %s", path, strerror(errno));
			close(fd);
			return -1;
		}
		length += (size_t)got;
	}
	close(fd);
	if (length == size)
		return fail("%s: larger than %zu bytes", path, size - 1);
	buffer[length] = 0;
	return (ssize_t)length;
}

ssize_t read_part(const char *path, uint64_t offset, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = 0;

	if (fd < 0)
		return fail("%s: %s", path, strerror(errno));
	while (length < size && (got = pread(fd, buffer + length, size - length, (off_t)(offset + length))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			fail("%s: %s", path, strerror(errno));
			close(fd);
			return -1;
		}
		length += (size_t)got;
	}
	close(fd);
	return (ssize_t)length;
}

int append_line(const char *path, const char *line)
{
	FILE *file = fopen(path, "ae");
	bool wrote;

	if (!file)
		return fail("%s: %s", path, strerror(errno));
	wrote = fprintf(file, "%s\n", line) > 0;
	if (fclose(file) || !wrote)
		return fail("%s: %s", path, strerror(errno));
	return 0;
}

int write_file(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	size_t length = strlen(content);
	ssize_t wrote;

	if (fd < 0)
		return fail("%s: %s", path, strerror(errno));
	wrote = write(fd, content, length);
	if (wrote != (ssize_t)length)
		fail("%s: %s", path, wrote < 0 ? strerror(errno) : "short write");
	close(fd);
	return wrote == (ssize_t)length ? 0 : -1;
}

uint64_t number_of(const char *line, const char *key)
{
	size_t length = strlen(key);
	const char *at = line;

	while ((at = strstr(at, key)) != NULL) {
		if ((at == line || at[-1] == ' ') && at[length] == '=')
			return strtoull(at + length + 1, NULL, 10);
		at += length;
	}
	return 0;
}

uint64_t available_bytes(void)
{
	char text[4096];
	const char *at;

	if (read_file("/proc/meminfo", text, sizeof(text)) < 0)
		return UINT64_MAX;
	at = strstr(text, "MemAvailable:");
	return at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : UINT64_MAX;
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

unsigned int online_vcpus(void)
{
	long vcpus = sysconf(_SC_NPROCESSORS_ONLN);

	return vcpus > 0 ? (unsigned int)vcpus : 1;
}

const char *exit_reason(int status)
{
	static char text[64];

	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "killed by signal %d", WTERMSIG(status));
	else
		snprintf(text, sizeof(text), "exited with %d", WEXITSTATUS(status));
	return text;
}
