/*
 * What a reclamation scheme is to the benchmark. Each file of schemes/ defines one `scheme`; the linker makes one binary
 * of each.
 */
#ifndef PEERS_SCHEME_H
#define PEERS_SCHEME_H

#include "reader.h"
#include "table.h"

struct scheme {
	const char *name;
	const char *library;
	const char *version;
	/* What readers do: none, quiescent (they report), lock (they enter and leave), hazard (they publish each
	 * pointer), signal (a signal restarts them). */
	const char *kind;

	bool frees; /* false when nodes are freed in stop alone */
	bool marks; /* the writer marks unlinked nodes, see table_unlink */

	/* Makes the scheme ready, in the writer's thread, before readers start; ends the program with EXIT_MISSING
	 * when the machine lacks something. */
	void (*start)(void);

	/* In a reader's thread: registers it, reads until the last phase, unregisters it. */
	void (*reader_start)(struct reader *r);
	void (*read)(struct reader *r);
	void (*reader_end)(struct reader *r);

	/* Takes an unlinked node; ledger_free is called when no reader can hold it. The writer's thread. */
	void (*retire)(struct node *n);

	/* Frees every node that still waits, and ends the scheme's own threads. The writer's thread, after the
	 * readers have ended. */
	void (*stop)(void);

	/* The scheme's own thread, if it has one between start and stop; else false. */
	bool (*background)(pthread_t *thread);
};

extern const struct scheme scheme;

#endif
