#include "options.h"

#include "clock.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct number_option {
	const char *name;
	size_t offset;
	uint64_t low, high, preset;
};

#define NUMBER(name, field, low, high, preset) {name, offsetof(struct options, field), low, high, preset}

static const struct number_option numbers[] = {
	NUMBER("entries", entries, 1, 1ull << 28, 4194304),
	NUMBER("readers", readers, 0, MAX_READERS, 8),
	NUMBER("deletes-per-s", deletes_per_s, 0, 10000000, 5000),
	NUMBER("warmup-ms", warmup_ms, 0, 60000, 300),
	NUMBER("duration-ms", duration_ms, 1, 600000, 1500),
	NUMBER("think-ns", think_ns, 0, SECOND_NS, 0),
	NUMBER("section-ns", section_ns, 0, SECOND_NS, 0),
	NUMBER("stall-ms", stall_ms, 0, 60000, 0),
	NUMBER("quiescent-every", quiescent_every, 1, 1000000000, 1),
	NUMBER("seed", seed, 0, UINT64_MAX, 1),
};
#define NUMBERS (sizeof numbers / sizeof numbers[0])

enum { READER_CPUS = 1000, WRITER_CPUS, FAULT, DESCRIBE, HELP };

static void usage(FILE *to, const char *program)
{
	fprintf(to, "usage: %s [--describe] [--reader-cpus LIST] [--writer-cpus LIST]", program);
	for (size_t i = 0; i < NUMBERS; i++)
		fprintf(to, " [--%s %llu]", numbers[i].name, (unsigned long long)numbers[i].preset);
	fprintf(to, "\nA LIST of CPUs is like 0 or 0,2 or 0-3; readers are on CPU 0 and the writer on CPU 1 unless said.\n");
}

static void refuse(const char *program, const char *option, const char *value)
{
	fprintf(stderr, "%s: --%s does not take '%s'\n", program, option, value);
	usage(stderr, program);
	exit(EXIT_USAGE);
}

bool number_parse(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
	char *end;
	unsigned long long value;

	if (*text < '0' || *text > '9') /* strtoull would take a sign and spaces */
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value < low || value > high)
		return false;
	*number = value;
	return true;
}

static bool cpu_parse(const char **text, unsigned long *cpu)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	*cpu = strtoul(*text, &end, 10);
	*text = end;
	return *cpu < CPU_SETSIZE;
}

bool cpus_parse(const char *text, cpu_set_t *cpus)
{
	unsigned long first, last;

	CPU_ZERO(cpus);
	for (;;) {
		if (!cpu_parse(&text, &first))
			return false;
		last = first;
		if (*text == '-' && (text++, !cpu_parse(&text, &last) || last < first))
			return false;
		for (; first <= last; first++)
			CPU_SET(first, cpus);
		if (*text == '\0')
			return true;
		if (*text++ != ',')
			return false;
	}
}

void run_on(const cpu_set_t *cpus)
{
	if (sched_setaffinity(0, sizeof *cpus, cpus) == 0)
		return;
	fprintf(stderr, "cannot run on the CPUs asked for: %s; see nproc, or name others by --reader-cpus and --writer-cpus\n",
		strerror(errno));
	exit(EXIT_MISSING);
}

static void set_defaults(struct options *o)
{
	memset(o, 0, sizeof *o);
	for (size_t i = 0; i < NUMBERS; i++)
		*(uint64_t *)((char *)o + numbers[i].offset) = numbers[i].preset;
	CPU_SET(0, &o->reader_cpus);
	CPU_SET(1, &o->writer_cpus);
}

struct options options_parse(int argc, char **argv)
{
	struct option table[NUMBERS + 6] = {
		{"reader-cpus", required_argument, NULL, READER_CPUS},
		{"writer-cpus", required_argument, NULL, WRITER_CPUS},
		{"fault", required_argument, NULL, FAULT},
		{"describe", no_argument, NULL, DESCRIBE},
		{"help", no_argument, NULL, HELP},
	};
	struct options o;
	int chosen;

	set_defaults(&o);
	for (size_t i = 0; i < NUMBERS; i++)
		table[5 + i] = (struct option){numbers[i].name, required_argument, NULL, (int)i};
	while ((chosen = getopt_long(argc, argv, "h", table, NULL)) != -1) {
		if (chosen == HELP || chosen == 'h') {
			usage(stdout, argv[0]);
			exit(0);
		} else if (chosen == DESCRIBE) {
			o.describe = true;
		} else if (chosen == READER_CPUS || chosen == WRITER_CPUS) {
			if (!cpus_parse(optarg, chosen == READER_CPUS ? &o.reader_cpus : &o.writer_cpus))
				refuse(argv[0], chosen == READER_CPUS ? "reader-cpus" : "writer-cpus", optarg);
		} else if (chosen == FAULT) {
			if (strcmp(optarg, "free-at-once") != 0)
				refuse(argv[0], "fault", optarg);
			o.fault_free_at_once = true;
		} else if (chosen >= 0 && chosen < (int)NUMBERS) {
			const struct number_option *n = &numbers[chosen];

			if (!number_parse(optarg, n->low, n->high, (uint64_t *)((char *)&o + n->offset)))
				refuse(argv[0], n->name, optarg);
		} else {
			usage(stderr, argv[0]);
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc) {
		usage(stderr, argv[0]);
		exit(EXIT_USAGE);
	}
	return o;
}
