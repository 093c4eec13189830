/*
 * NBR with a bag of 32,768 nodes, as in the paper's experiments. NBR+ lets a thread use the signals that another one has
 * sent; with one writer there is no other, and NBR+ is NBR.
 */
#define SCHEME_NAME "nbr"
#define SIGNAL_EVERY_READER
#define FREE_EVERY 32768
#define NOTE "freed by the writer in batches of 32,768 nodes; each batch signals every reader"
#include "neutralise.h"
