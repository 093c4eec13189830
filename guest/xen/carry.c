/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * carry NAME [TEXT]: hands TEXT, or standard input, to the host through the
 * emulator's debug port. It goes in frames, NAME LENGTH newline and that many
 * bytes; a frame of length 0 ends it.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <unistd.h>

#define DEBUG_PORT 0xe9
#define FRAME_BYTES 4096

static void frame(const char *name, const char *bytes, size_t length)
{
	char head[64];
	const int head_length = snprintf(head, sizeof(head), "%s %zu\n", name, length);

	outsb(DEBUG_PORT, head, (unsigned long)head_length);
	outsb(DEBUG_PORT, bytes, length);
}

int main(int count, char **arguments)
{
	char bytes[FRAME_BYTES];
	ssize_t length;

	if (count < 2 || count > 3 || strlen(arguments[1]) > 32)
		return 2;
	if (ioperm(DEBUG_PORT, 1, 1) != 0) {
		perror("carry: ioperm");
		return 1;
	}
	if (count == 3) {
		frame(arguments[1], arguments[2], strnlen(arguments[2], FRAME_BYTES));
	} else {
		while ((length = read(STDIN_FILENO, bytes, sizeof(bytes))) > 0)
			frame(arguments[1], bytes, (size_t)length);
		if (length < 0) {
			perror("carry: read");
			return 1;
		}
	}
	frame(arguments[1], "", 0);
	return 0;
}
