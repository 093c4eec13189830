/*
 * The look-up benchmark from the command line to its line of JSON. Exit codes: 0, 1 when a key was not found with its
 * value, 2 usage, 69 when the machine lacks something.
 */
#include "../clock.h"
#include "../options.h"
#include "lookup.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_THREADS 256

/* Beyond warm-up and window a run only fills the table: seconds. A minute means it hangs. */
#define GRACE_S 60

struct looker {
	unsigned id;
	pthread_t thread;
	struct lookup_counts counts;
};

static struct lookup_options options = {
	.entries = 4194304, .threads = 1, .warmup_ms = 300, .duration_ms = 1500, .seed = 1};
static struct looker lookers[MAX_THREADS];
static pthread_barrier_t ready;

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--describe] [--entries 4194304] [--threads 1] [--cpus 0-1] [--warmup-ms 300] "
		"[--duration-ms 1500] [--seed 1]\n",
		program);
	exit(EXIT_USAGE);
}

static void parse(int argc, char **argv)
{
	static const struct option table[] = {
		{"entries", required_argument, NULL, 'e'},    {"threads", required_argument, NULL, 't'},
		{"cpus", required_argument, NULL, 'c'},       {"warmup-ms", required_argument, NULL, 'w'},
		{"duration-ms", required_argument, NULL, 'd'}, {"seed", required_argument, NULL, 's'},
		{"describe", no_argument, NULL, 'D'},         {0},
	};
	int chosen;
	bool ok = true;

	cpus_parse("0-1", &options.cpus);
	while (ok && (chosen = getopt_long(argc, argv, "", table, NULL)) != -1) {
		switch (chosen) {
		case 'e': ok = number_parse(optarg, 1, 1ull << 26, &options.entries); break;
		case 't': ok = number_parse(optarg, 1, MAX_THREADS, &options.threads); break;
		case 'c': ok = cpus_parse(optarg, &options.cpus); break;
		case 'w': ok = number_parse(optarg, 0, 60000, &options.warmup_ms); break;
		case 'd': ok = number_parse(optarg, 1, 600000, &options.duration_ms); break;
		case 's': ok = number_parse(optarg, 0, UINT64_MAX, &options.seed); break;
		case 'D': options.describe = true; break;
		default: ok = false;
		}
	}
	if (!ok || optind < argc)
		usage(argv[0]);
}

/* The n-th CPU of the list, counted round and round. */
static cpu_set_t nth_cpu(unsigned n)
{
	unsigned skip = n % (unsigned)CPU_COUNT(&options.cpus);
	cpu_set_t one;

	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &options.cpus) && skip-- == 0) {
			CPU_SET(cpu, &one);
			break;
		}
	}
	return one;
}

static void *looker_main(void *argument)
{
	struct looker *l = argument;
	cpu_set_t cpu = nth_cpu(l->id);
	uint64_t random = stream_of(options.seed, 1 + l->id), start_ns, errors;

	run_on(&cpu);
	lookup_map.thread_start(l->id);
	pthread_barrier_wait(&ready);
	start_ns = now_ns() + options.warmup_ms * MILLISECOND_NS;
	errors = lookup_map.look_up_until(&options, l->id, &random, start_ns).errors;
	l->counts = lookup_map.look_up_until(&options, l->id, &random,
					     start_ns + options.duration_ms * MILLISECOND_NS);
	l->counts.errors += errors;
	lookup_map.thread_end(l->id);
	return NULL;
}

static struct lookup_counts run(void)
{
	struct lookup_counts total = {0};

	pthread_barrier_init(&ready, NULL, (unsigned)options.threads);
	for (unsigned i = 0; i < options.threads; i++) {
		lookers[i].id = i;
		if (pthread_create(&lookers[i].thread, NULL, looker_main, &lookers[i]) != 0) {
			fprintf(stderr, "cannot start thread %u: use fewer --threads\n", i);
			exit(EXIT_MISSING);
		}
	}
	for (unsigned i = 0; i < options.threads; i++) {
		pthread_join(lookers[i].thread, NULL);
		total.lookups += lookers[i].counts.lookups;
		total.cpu_ns += lookers[i].counts.cpu_ns;
		total.errors += lookers[i].counts.errors;
	}
	return total;
}

static void print_identity(void)
{
	printf("{\"scheme\":\"%s\",\"library\":\"%s\",\"version\":\"%s\",\"kind\":\"lookup\"", lookup_map.name,
	       lookup_map.library, lookup_map.version);
}

static void report(const struct lookup_counts *total)
{
	double load[3] = {0};
	const char *comma = "";

	getloadavg(load, 3);
	print_identity();
	printf(",\"options\":{\"entries\":%lu,\"threads\":%lu,\"cpus\":[", options.entries, options.threads);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &options.cpus)) {
			printf("%s%d", comma, cpu);
			comma = ",";
		}
	}
	printf("],\"warmup_ms\":%lu,\"duration_ms\":%lu,\"seed\":%lu}", options.warmup_ms, options.duration_ms,
	       options.seed);
	printf(",\"lookups\":%lu,\"cpu_ns_per_lookup\":%.3f,\"errors\":%lu", total->lookups,
	       total->lookups ? (double)total->cpu_ns / (double)total->lookups : 0, total->errors);
	printf(",\"load_average\":[%.2f,%.2f,%.2f],\"notes\":[\"%s\"]}\n", load[0], load[1], load[2], lookup_map.note);
}

int main(int argc, char **argv)
{
	struct lookup_counts total;
	cpu_set_t first;

	parse(argc, argv);
	if (options.describe) {
		print_identity();
		printf("}\n");
		return 0;
	}
	alarm((unsigned)((options.warmup_ms + options.duration_ms) / 1000) + GRACE_S);
	first = nth_cpu(0);
	run_on(&first);
	lookup_map.build(&options);
	total = run();
	report(&total);
	return total.errors ? EXIT_WRONG : 0;
}
