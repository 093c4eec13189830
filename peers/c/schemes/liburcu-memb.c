/* liburcu's memb flavour: readers lock and unlock without a fence, for the library uses sys_membarrier. */
#define _LGPL_SOURCE /* inlines the readers' functions, as the library advises */
#define URCU_API_MAP  /* gives the flavour's functions their common names */
#include <urcu/urcu-memb.h>

#define SCHEME_NAME "liburcu-memb"
#define FLAVOUR_HAS_MEMBARRIER urcu_memb_has_sys_membarrier
#include "liburcu_call.h"
