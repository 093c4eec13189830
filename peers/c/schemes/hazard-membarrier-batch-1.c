/* Hazard pointers whose readers execute no fence, with a scan per delete. */
#include "../bench.h"

#define SCHEME_NAME "hazard-membarrier-batch-1"
#define NOTE "freed by the writer in the call that retires, unless a hazard pointer holds the node"

static inline uint64_t batch(void)
{
	return 1;
}

#include "hazard_scan.h"
