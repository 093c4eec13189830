/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lines over the virtio-serial port. Reads never block: they follow poll().
 * Writes do, until the host has taken the bytes or, at first, has connected.
 */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int wire_open(struct wire *wire, const char *path)
{
	*wire = (struct wire){ .fd = open(path, O_RDWR | O_CLOEXEC) };
	return wire->fd < 0 ? fail("%s: %s", path, strerror(errno)) : 0;
}

/* There is always room: wire_line leaves less than a full buffer. */
int wire_fill(struct wire *wire)
{
	ssize_t got = read(wire->fd, wire->bytes + wire->length, sizeof(wire->bytes) - wire->length);

	if (got < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : fail("port: %s", strerror(errno));
	if (got == 0)
		return fail("the host has closed the port");
	wire->length += (size_t)got;
	return 0;
}

static void forget(struct wire *wire, size_t length)
{
	wire->length -= length;
	memmove(wire->bytes, wire->bytes + length, wire->length);
}

char *wire_line(struct wire *wire, bool *too_long)
{
	static char line[LINE_BYTES_MAX];
	char *end;
	size_t length;

	*too_long = false;
	while ((end = memchr(wire->bytes, '\n', wire->length)) != NULL) {
		length = (size_t)(end - wire->bytes);
		memcpy(line, wire->bytes, length);
		line[length] = 0;
		forget(wire, length + 1);
		if (!wire->skipping)
			return line;
		wire->skipping = false;
	}
	if (wire->length == sizeof(wire->bytes)) {
		*too_long = !wire->skipping;
		wire->skipping = true;
		wire->length = 0;
	}
	return NULL;
}

int wire_send(struct wire *wire, const void *bytes, size_t length)
{
	const char *at = bytes;

	while (length) {
		ssize_t wrote = write(wire->fd, at, length);

		if (wrote < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (wrote <= 0)
			return fail("port: %s", strerror(errno));
		at += wrote;
		length -= (size_t)wrote;
	}
	return 0;
}

int wire_say(struct wire *wire, const char *format, ...)
{
	char line[LINE_BYTES_MAX];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line) - 1, format, arguments);
	va_end(arguments);
	if (length < 0)
		return fail("a line could not be formatted");
	if ((size_t)length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length] = '\n';
	return wire_send(wire, line, (size_t)length + 1);
}
