/*
 * Hazard pointers whose readers execute no fence, with batches in proportion to the hazard pointers, as Michael's paper
 * has it: of twice as many nodes each scan frees at least half.
 */
#include "../bench.h"

#define SCHEME_NAME "hazard-membarrier"
#define NOTE "freed by the writer when nodes are twice as many as hazard pointers; two of these per reader"

static inline uint64_t batch(void)
{
	return bench.options.readers ? 4 * bench.options.readers : 1;
}

#include "hazard_scan.h"
