/*
 * The command line, the same for every binary of both languages. Every value has bounds; a value outside them ends the
 * program with exit code 2, a CPU that this process may not use with exit code 69.
 */
#ifndef PEERS_OPTIONS_H
#define PEERS_OPTIONS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define EXIT_WRONG 1
#define EXIT_USAGE 2
#define EXIT_MISSING 69

#define MAX_READERS 256

struct options {
	uint64_t entries;
	uint64_t readers;
	cpu_set_t reader_cpus;
	cpu_set_t writer_cpus;
	uint64_t deletes_per_s; /* 0: the writer only waits */
	uint64_t warmup_ms;
	uint64_t duration_ms;
	uint64_t think_ns;   /* computing after each section */
	uint64_t section_ns; /* computing inside each section */
	uint64_t stall_ms;   /* reader 0 sleeps inside one section in the middle of the window */
	uint64_t quiescent_every; /* look-ups between two reports of a quiescent state */
	uint64_t seed;
	bool fault_free_at_once;
	bool describe;
};

/* Reads the command line; does not return when it is wrong or asks for help. */
struct options options_parse(int argc, char **argv);

/* Reads a list of CPUs such as 0, 0,2 or 0-3. Returns false when it is none. */
bool cpus_parse(const char *text, cpu_set_t *cpus);

/* Reads a whole decimal number within low..=high. Returns false when it is none. */
bool number_parse(const char *text, uint64_t low, uint64_t high, uint64_t *number);

/* Runs the calling thread on `cpus` alone; ends the program with EXIT_MISSING when the system refuses. */
void run_on(const cpu_set_t *cpus);

#endif
