/*
 * One line of JSON on standard output.
 */
#ifndef PEERS_REPORT_H
#define PEERS_REPORT_H

#include "reader.h"
#include "writer.h"

/* Who this binary is. */
void report_describe(void);

/* What was measured. Call after readers_stop. */
void report_run(const struct writer *w, const struct reader *readers);

#endif
