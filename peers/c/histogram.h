/*
 * A log-linear histogram of nanoseconds, exact below 2048 and within 1/1024 above (three decimal digits), up to 2^43 ns
 * (2.4 hours), where values saturate. The layout is that of HdrHistogram (hdrhistogram.org).
 *
 * Any thread may record: counters are atomic, and exact once the recording threads have been joined.
 */
#ifndef PEERS_HISTOGRAM_H
#define PEERS_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 11
#define HISTOGRAM_MAX_BITS 43
#define HISTOGRAM_HALF (1u << (HISTOGRAM_SUB_BITS - 1))
#define HISTOGRAM_BUCKETS ((HISTOGRAM_MAX_BITS - HISTOGRAM_SUB_BITS + 2) * HISTOGRAM_HALF)

struct histogram {
	uint64_t counts[HISTOGRAM_BUCKETS];
	uint64_t count;
	uint64_t sum_ns;
	uint64_t max_ns;
};

void histogram_record(struct histogram *h, uint64_t value_ns);

/* The mean of the recorded values, exact; 0 when there are none. */
double histogram_mean(const struct histogram *h);

/* The smallest bucket's highest value at or below which lies the share `quantile` (0 to 1) of the values, never above
 * the recorded maximum; 0 when there are none. */
uint64_t histogram_quantile(const struct histogram *h, double quantile);

#endif
