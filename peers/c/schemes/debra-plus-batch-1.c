/* DEBRA+ with an epoch per delete: only readers within a look-up that began before it are signalled. */
#define SCHEME_NAME "debra-plus-batch-1"
#define FREE_EVERY 1
#define NOTE "freed by the writer in the call that retires; each delete signals readers that hold up its epoch"
#include "neutralise.h"
