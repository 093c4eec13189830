/* NBR that signals every reader at every delete. */
#define SCHEME_NAME "nbr-batch-1"
#define SIGNAL_EVERY_READER
#define FREE_EVERY 1
#define NOTE "freed by the writer in the call that retires; each delete signals every reader"
#include "neutralise.h"
