/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * babble: stands in for the runner (lab.c) in a guest that means harm. It
 * greets as the runner does; from then on whatever the host says is answered
 * by lines that are cut, too long, out of order, or full of wild numbers.
 * After a silence it says something more, so that few waits of the host's last
 * until their deadline. For tests of the host alone.
 *
 * babble PORT; the seed of what it says is SEED of the environment.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SILENCE_MS 100
#define FLOOD_BYTES (256 * 1024)
#define MORE_MAX 8	/* times, to what the host said last */

static int port;
static uint64_t state;

/* xorshift64 (Marsaglia 2003). */
static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void send_bytes(const char *bytes, size_t length)
{
	while (length) {
		ssize_t wrote = write(port, bytes, length);

		if (wrote <= 0) {
			reboot(RB_AUTOBOOT);
			_exit(1);
		}
		bytes += wrote;
		length -= (size_t)wrote;
	}
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	char line[1024];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	send_bytes(line, (size_t)length);
}

static const char *number(void)
{
	static const char *const wild[] = {
		"0", "1", "18446744073709551615", "18446744073709551614", "9223372036854775808",
		"99999999999999999999999999", "-1", "", "nan", "1e308", "0x10", "\x1b[2J", "\xff\xfe",
	};
	static char plain[32];

	if (next() % 4 == 0) {
		snprintf(plain, sizeof(plain), "%llu", (unsigned long long)next());
		return plain;
	}
	return wild[next() % (sizeof(wild) / sizeof(wild[0]))];
}

static const char *word(void)
{
	static const char *const words[] = {
		"started", "mark", "finished", "file", "appended", "deleted", "beside", "sync", "postmark",
		"result", "bye", "hello", "sym", "ready", "error", "phase", "console", "", "=", "\x1b]0;owned\x07",
	};

	return words[next() % (sizeof(words) / sizeof(words[0]))];
}

static void say_line(void)
{
	static const char *const keys[] = {
		"t_ns", "ops", "stalls", "transactions", "transactions_begin_ns", "transactions_end_ns",
		"elapsed_ns", "sectors", "loops", "beside_ns", "vcpus", "release",
	};
	uint64_t pairs = next() % 8;

	say("%s", word());
	if (next() % 2)
		say(" %s", number());
	while (pairs--)
		say(" %s=%s", keys[next() % (sizeof(keys) / sizeof(keys[0]))], number());
	say("\n");
}

static void say_bytes(size_t length, int ends)
{
	char piece[4096];
	size_t i;

	while (length) {
		size_t some = length < sizeof(piece) ? length : sizeof(piece);

		for (i = 0; i < some; i++) {
			piece[i] = (char)next();
			if (!ends && piece[i] == '\n')
				piece[i] = 'x';
		}
		send_bytes(piece, some);
		length -= some;
	}
}

/* What the host may have waited for, with wild numbers. */
static void answer(const char *said)
{
	if (!strncmp(said, "start ", 6))
		say("started t_ns=%s\n", number());
	else if (!strncmp(said, "mark", 4))
		say("mark t_ns=%s ops=%s stalls=%s\n", number(), number(), number());
	else if (!strncmp(said, "read ", 5))
		say("file %s\n", number());
	else if (!strncmp(said, "append ", 7))
		say("appended\n");
	else if (!strncmp(said, "delete ", 7))
		say("deleted\n");
	else if (!strncmp(said, "beside ", 7))
		say("beside t_ns=%s\n", number());
	else if (!strncmp(said, "stop", 4))
		say("sync %s %s %s\npostmark transactions=%s transactions_begin_ns=%s "
		    "transactions_end_ns=%s\nresult ops=%s elapsed_ns=%s\nbye\n",
		    number(), number(), number(), number(), number(), number(), number(), number());
	else
		say("finished\n");
}

static void babble(const char *said)
{
	uint64_t lines;

	switch (next() % 12) {
	case 0:
		break;
	case 1:
		say_bytes(1 + next() % 64, 0);
		break;
	case 2:
		say_bytes(1 + next() % FLOOD_BYTES, 0);
		break;
	case 3:
		say_bytes(1 + next() % FLOOD_BYTES, 1);
		break;
	case 4:
	case 5:
		for (lines = next() % 200; lines; lines--)
			say_line();
		break;
	case 6:
		say("file %llu\n", (unsigned long long)(next() % (2 * 1024 * 1024)));
		say_bytes(next() % FLOOD_BYTES, 1);
		break;
	case 7:
		say("error \x1b[31m%s\n", number());
		break;
	default:
		answer(said);
	}
}

static void greet(void)
{
	struct utsname name;

	uname(&name);
	say("hello 1 vcpus=2 release=%s\n", name.release);
	say("sym rcu_state %llx\nsym linux_banner ffffffffffffffff\nready\n", (unsigned long long)next());
}

int main(int argc, char **argv)
{
	const char *seed = getenv("SEED");
	unsigned int more = 0;
	char said[4096];

	if (argc != 2)
		return 2;
	state = (seed ? strtoull(seed, NULL, 10) : 0) | 1;
	port = open(argv[1], O_RDWR);
	if (port < 0)
		return 1;
	greet();
	for (;;) {
		struct pollfd there = { .fd = port, .events = POLLIN };
		ssize_t got = 0;

		if (poll(&there, 1, SILENCE_MS) > 0) {
			got = read(port, said, sizeof(said) - 1);
			if (got <= 0) {
				reboot(RB_AUTOBOOT);
				return 1;
			}
		}
		said[got] = 0;
		if (got) {
			more = MORE_MAX;
			babble(said);
		} else if (more) {
			/* The host may wait for a line, or for the rest of a file. */
			say("\nerror it was quiet\n");
			if (more-- < MORE_MAX)
				say_bytes(FLOOD_BYTES, 1);
		}
	}
}
