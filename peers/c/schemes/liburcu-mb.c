/* liburcu's mb flavour: readers lock and unlock with a full fence. */
#define _LGPL_SOURCE /* inlines the readers' functions, as the library advises */
#define URCU_API_MAP  /* gives the flavour's functions their common names */
#include <urcu/urcu-mb.h>

#define SCHEME_NAME "liburcu-mb"
#include "liburcu_call.h"
