/* liburcu's QSBR flavour with a tight synchronize_rcu loop. */
#define _LGPL_SOURCE /* inlines the readers' functions, as the library advises */
#define URCU_API_MAP  /* gives the flavour's functions their common names */
#include <urcu/urcu-qsbr.h>

#define SCHEME_NAME "liburcu-qsbr-sync"
#define FLAVOUR_QSBR
#include "liburcu_sync.h"
