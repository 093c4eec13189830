#include "report.h"

#include "ledger.h"
#include "scheme.h"

#include <stdio.h>
#include <stdlib.h>

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void print_identity(void)
{
	printf("{\"scheme\":\"%s\",\"library\":\"%s\",\"version\":\"%s\",\"kind\":\"%s\"", scheme.name, scheme.library,
	       scheme.version, scheme.kind);
}

void report_describe(void)
{
	print_identity();
	printf("}\n");
}

static void print_cpus(const char *name, const cpu_set_t *cpus)
{
	const char *comma = "";

	printf("\"%s\":[", name);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, cpus)) {
			printf("%s%d", comma, cpu);
			comma = ",";
		}
	}
	printf("],");
}

static void print_options(const struct options *o)
{
	printf(",\"options\":{\"entries\":%lu,\"readers\":%lu,", o->entries, o->readers);
	print_cpus("reader_cpus", &o->reader_cpus);
	print_cpus("writer_cpus", &o->writer_cpus);
	printf("\"deletes_per_s\":%lu,\"warmup_ms\":%lu,\"duration_ms\":%lu,\"think_ns\":%lu,\"section_ns\":%lu,"
	       "\"stall_ms\":%lu,\"quiescent_every\":%lu,\"seed\":%lu,\"fault\":%s}",
	       o->deletes_per_s, o->warmup_ms, o->duration_ms, o->think_ns, o->section_ns, o->stall_ms,
	       o->quiescent_every, o->seed, o->fault_free_at_once ? "\"free-at-once\"" : "null");
}

static void print_deletes(const struct writer *w)
{
	const struct histogram *d = &ledger.delay;
	double window_s = (double)w->window_ns / 1e9;

	printf(",\"deletes\":{\"asked_per_s\":%lu,\"delivered_per_s\":%.1f,\"delivered\":%lu,\"freed\":%lu,"
	       "\"pending_at_end\":%lu}",
	       bench.options.deletes_per_s, (double)w->window.deletes / window_s, w->window.deletes, d->count, w->pending);
	printf(",\"delay_ns\":{\"count\":%lu,\"mean\":%.1f,\"p50\":%lu,\"p90\":%lu,\"p99\":%lu,\"max\":%lu}", d->count,
	       histogram_mean(d), histogram_quantile(d, 0.5), histogram_quantile(d, 0.9), histogram_quantile(d, 0.99),
	       d->max_ns);
}

static void print_writer(const struct writer *w)
{
	printf(",\"writer\":{\"cpu_ns_per_delete\":%.1f,\"background_cpu_ns_per_delete\":%.1f,\"retire_mean_ns\":%.1f,"
	       "\"retire_p999_ns\":%lu,\"retire_max_ns\":%lu,"
	       "\"lateness_mean_ns\":%.1f,\"lateness_max_ns\":%lu}",
	       ratio(w->cpu_ns, w->window.deletes), ratio(w->background_cpu_ns, w->window.deletes), histogram_mean(&w->window.retire),
	       histogram_quantile(&w->window.retire, 0.999), w->window.retire.max_ns,
	       ratio(w->window.late_sum_ns, w->window.deletes), w->window.late_max_ns);
}

static void print_notes(void)
{
	printf(",\"notes\":[");
	for (unsigned i = 0; i < bench.notes_used; i++)
		printf("%s\"%s\"", i ? "," : "", bench.notes[i]);
	printf("]");
}

void report_run(const struct writer *w, const struct reader *readers)
{
	double load[3] = {0};

	getloadavg(load, 3);
	print_identity();
	print_options(&bench.options);
	print_deletes(w);
	printf(",\"errors\":%lu", readers->errors);
	print_writer(w);
	printf(",\"readers\":{\"lookups\":%lu,\"cpu_ns_per_lookup\":%.3f,\"misses\":%lu}", readers->lookups,
	       ratio(readers->start.cpu_ns, readers->lookups), readers->misses);
	printf(",\"unreclaimed_peak\":{\"objects\":%lu,\"bytes\":%lu}", w->window.peak, w->window.peak * sizeof(struct node));
	printf(",\"freed_by\":{\"writer\":%lu,\"readers\":%lu,\"background\":%lu}", ledger.freed_by[ROLE_WRITER],
	       ledger.freed_by[ROLE_READER], ledger.freed_by[ROLE_BACKGROUND]);
	printf(",\"load_average\":[%.2f,%.2f,%.2f]", load[0], load[1], load[2]);
	print_notes();
	printf("}\n");
}
