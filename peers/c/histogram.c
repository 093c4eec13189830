#include "histogram.h"

/* Values below 2 * HALF are their own bucket; above, each doubling has HALF buckets. */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift = 0;

	if (value >= 1ull << HISTOGRAM_MAX_BITS)
		value = (1ull << HISTOGRAM_MAX_BITS) - 1;
	if (value >= 2 * HISTOGRAM_HALF)
		shift = 63 - __builtin_clzll(value) - (HISTOGRAM_SUB_BITS - 1);
	return shift * HISTOGRAM_HALF + (unsigned)(value >> shift);
}

static uint64_t highest_of(unsigned bucket)
{
	unsigned shift = bucket < 2 * HISTOGRAM_HALF ? 0 : bucket / HISTOGRAM_HALF - 1;
	uint64_t position = bucket - shift * HISTOGRAM_HALF;

	return ((position + 1) << shift) - 1;
}

void histogram_record(struct histogram *h, uint64_t value_ns)
{
	uint64_t max = __atomic_load_n(&h->max_ns, __ATOMIC_RELAXED);

	/* Relaxed: the count orders them. */
	__atomic_fetch_add(&h->counts[bucket_of(value_ns)], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&h->sum_ns, value_ns, __ATOMIC_RELAXED);
	while (value_ns > max && !__atomic_compare_exchange_n(&h->max_ns, &max, value_ns, 0, __ATOMIC_RELAXED,
							      __ATOMIC_RELAXED))
		;
	/* Last, and release: pairs with an acquire load of the count, which thus counts only what is complete. */
	__atomic_fetch_add(&h->count, 1, __ATOMIC_RELEASE);
}

double histogram_mean(const struct histogram *h)
{
	return h->count ? (double)h->sum_ns / (double)h->count : 0;
}

uint64_t histogram_quantile(const struct histogram *h, double quantile)
{
	double wanted = quantile * (double)h->count;
	uint64_t rank = (uint64_t)wanted, seen = 0;

	if ((double)rank < wanted || rank == 0)
		rank++;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->counts[i];
		if (seen >= rank)
			return highest_of(i) < h->max_ns ? highest_of(i) : h->max_ns;
	}
	return h->max_ns;
}
