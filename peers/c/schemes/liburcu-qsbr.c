/* liburcu's QSBR flavour: readers report quiescent states. */
#define _LGPL_SOURCE /* inlines the readers' functions, as the library advises */
#define URCU_API_MAP  /* gives the flavour's functions their common names */
#include <urcu/urcu-qsbr.h>

#define SCHEME_NAME "liburcu-qsbr"
#define FLAVOUR_QSBR
#include "liburcu_call.h"
