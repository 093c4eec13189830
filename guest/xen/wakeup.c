/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * First and only program of a domU of the ground xen. The kernel hands its
 * command line's KEY=VALUE words over as the environment:
 *
 *   role=spin      computes for ever
 *   role=wakeup    sleeps, works, repeats, and reports how late each sleep ended
 *
 * It measures several segments, each after a pause of random length, so that
 * each begins at a phase of its own of Xen's ticks and accountings.
 *
 * Nothing is printed while it measures: dom0 would have to run for it, and
 * all pCPUs share one clock of counted instructions. The report goes to the
 * console afterwards; README.md has its lines.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define SECOND_NS UINT64_C(1000000000)
#define PERMILLE 1000
#define SAMPLES_MAX 1000000
/* Samples in one line of the report. */
#define LINE_SAMPLES 8
/* Turns of the loop in one trial of the calibration, and trials. */
#define TRIAL_TURNS 20000
#define TRIALS 32

struct plan {
	uint64_t sleep_ns;
	uint64_t spread_permille;
	uint64_t work_ns;
	uint64_t samples;	/* in a segment, at most */
	uint64_t segments;
	uint64_t seed;
	uint64_t settle_ns;	/* until dom0 is at rest */
	uint64_t phases_ns;	/* each segment's pause is below */
	uint64_t warmup_ns;
	uint64_t window_ns;
};

struct sample {
	uint32_t since_ns;	/* from the wake before to this one */
	uint32_t late_ns;	/* from the time asked for to this wake */
};

/* One instant by both clocks, so that the host can place samples in a trace. */
struct instant {
	uint64_t mono_ns;
	uint64_t tsc;
};

struct segment {
	struct instant ends[2];
	uint64_t count;
	struct sample *samples;
};

static void die(const char *what)
{
	printf("reprieve failed %s\n", what);
	fflush(stdout);
	/* Off, too: dom0 waits for the domain's end. */
	reboot(RB_POWER_OFF);
	_exit(1);
}

static uint64_t option(const char *key)
{
	const char *value = getenv(key);
	char *end;

	if (!value || !*value)
		die(key);
	const uint64_t number = strtoull(value, &end, 10);
	if (*end)
		die(key);
	return number;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t t_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(t_ns / SECOND_NS),
		.tv_nsec = (long)(t_ns % SECOND_NS),
	};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static struct instant instant(void)
{
	return (struct instant){ .mono_ns = now_ns(), .tsc = __rdtsc() };
}

static void compute(uint64_t turns)
{
	for (; turns > 0; turns--)
		__asm__ volatile("");
}

/* splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

/* Uniform in 1 - spread to 1 + spread times the sleep. */
static uint64_t sleep_length_ns(const struct plan *plan, uint64_t *random)
{
	const uint64_t reach_ns = plan->sleep_ns * plan->spread_permille / PERMILLE;

	if (reach_ns == 0)
		return plan->sleep_ns;
	return plan->sleep_ns - reach_ns + next_random(random) % (2 * reach_ns + 1);
}

/*
 * Turns of the loop that take so long on a pCPU. The shortest trial is one
 * that nobody interrupted; the clock's own cost is taken off.
 */
static uint64_t turns_for(uint64_t work_ns)
{
	uint64_t trial_ns = UINT64_MAX, clock_ns = UINT64_MAX;

	if (work_ns == 0)
		return 0;
	for (int trial = 0; trial < TRIALS; trial++) {
		const uint64_t empty_ns = now_ns();
		const uint64_t start_ns = now_ns();

		compute(TRIAL_TURNS);
		const uint64_t end_ns = now_ns();

		if (start_ns - empty_ns < clock_ns)
			clock_ns = start_ns - empty_ns;
		if (end_ns - start_ns < trial_ns)
			trial_ns = end_ns - start_ns;
	}
	if (trial_ns <= clock_ns)
		die("calibration");
	return work_ns * TRIAL_TURNS / (trial_ns - clock_ns);
}

static uint32_t clipped(uint64_t ns)
{
	return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* The loop, for so many samples or so long, whichever ends first. Gives the number of samples. */
static uint64_t sample(const struct plan *plan, uint64_t turns, uint64_t *random, struct sample *samples,
		       uint64_t length_ns)
{
	const uint64_t start_ns = now_ns();
	uint64_t before_ns = start_ns, count = 0;

	while (count < plan->samples && before_ns - start_ns < length_ns) {
		const uint64_t until_ns = now_ns() + sleep_length_ns(plan, random);

		sleep_until(until_ns);
		const uint64_t woken_ns = now_ns();

		samples[count++] = (struct sample){
			.since_ns = clipped(woken_ns - before_ns),
			.late_ns = clipped(woken_ns > until_ns ? woken_ns - until_ns : 0),
		};
		before_ns = woken_ns;
		compute(turns);
	}
	return count;
}

static void measure(const struct plan *plan, struct segment *segments)
{
	const uint64_t turns = turns_for(plan->work_ns);
	uint64_t random = plan->seed;

	sleep_until(now_ns() + plan->settle_ns);
	for (struct segment *one = segments; one < segments + plan->segments; one++) {
		sleep_until(now_ns() + next_random(&random) % plan->phases_ns);
		sample(plan, turns, &random, one->samples, plan->warmup_ns);
		one->ends[0] = instant();
		one->count = sample(plan, turns, &random, one->samples, plan->window_ns);
		one->ends[1] = instant();
	}
}

/* FNV-1a over 64-bit words: says whether the lines arrived whole. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
	return (hash ^ word) * UINT64_C(0x100000001b3);
}

static void report(const struct segment *segment)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (int i = 0; i < 2; i++)
		printf("reprieve at %" PRIu64 " %" PRIu64 "\n", segment->ends[i].mono_ns, segment->ends[i].tsc);
	for (uint64_t i = 0; i < segment->count; i++) {
		const struct sample *one = &segment->samples[i];

		if (i % LINE_SAMPLES == 0)
			printf("reprieve samples");
		printf(" %" PRIx32 ":%" PRIx32, one->since_ns, one->late_ns);
		if (i % LINE_SAMPLES == LINE_SAMPLES - 1 || i == segment->count - 1)
			printf("\n");
		hash = mix(mix(hash, one->since_ns), one->late_ns);
	}
	printf("reprieve end %" PRIu64 " %016" PRIx64 "\n", segment->count, hash);
}

/* All segments, with room for their samples. */
static struct segment *prepare(const struct plan *plan)
{
	struct segment *segments = calloc(plan->segments, sizeof(*segments));
	const size_t bytes = plan->samples * sizeof(struct sample);

	if (!segments)
		die("memory");
	for (uint64_t i = 0; i < plan->segments; i++) {
		segments[i].samples = malloc(bytes);
		if (!segments[i].samples)
			die("memory");
		/* Not a page fault in what is measured. */
		memset(segments[i].samples, 1, bytes);
	}
	mlockall(MCL_CURRENT | MCL_FUTURE);
	return segments;
}

static void wakeup(void)
{
	const struct plan plan = {
		.sleep_ns = option("sleep_ns"),
		.spread_permille = option("spread_permille"),
		.work_ns = option("work_ns"),
		.samples = option("samples"),
		.segments = option("segments"),
		.seed = option("seed"),
		.settle_ns = option("settle_ns"),
		.phases_ns = option("phases_ns"),
		.warmup_ns = option("warmup_ns"),
		.window_ns = option("window_ns"),
	};

	if (plan.samples == 0 || plan.segments == 0 || plan.samples > SAMPLES_MAX / plan.segments)
		die("samples");
	if (plan.spread_permille > PERMILLE || plan.phases_ns == 0)
		die("plan");
	struct segment *segments = prepare(&plan);

	/* Not 50 us of timer slack in what is measured. */
	prctl(PR_SET_TIMERSLACK, 1);
	measure(&plan, segments);
	for (uint64_t i = 0; i < plan.segments; i++)
		report(&segments[i]);
	fflush(stdout);
}

int main(void)
{
	const char *role = getenv("role");

	if (role && !strcmp(role, "spin"))
		for (;;)
			compute(1);
	if (!role || strcmp(role, "wakeup"))
		die("role");
	wakeup();
	/* The end's state is what dom0 waits for. */
	reboot(RB_POWER_OFF);
	return 1;
}
