/* liburcu's bulletproof flavour: readers need not register. */
#define _LGPL_SOURCE /* inlines the readers' functions, as the library advises */
#define URCU_API_MAP  /* gives the flavour's functions their common names */
#include <urcu/urcu-bp.h>

#define SCHEME_NAME "liburcu-bp"
#define FLAVOUR_HAS_MEMBARRIER urcu_bp_has_sys_membarrier
#include "liburcu_call.h"
