/* DEBRA+ with blocks of 256 nodes, as in the paper's experiments. A late reader is signalled at once, not after a while. */
#define SCHEME_NAME "debra-plus"
#define FREE_EVERY 256
#define NOTE "freed by the writer in batches of 256 nodes; each batch signals readers that hold up its epoch"
#include "neutralise.h"
