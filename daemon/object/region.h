/*
 * A region: memory that blocks read into or write from.  An engine declares the kinds that it takes
 * (engine.h).  Lanes name a range of it by an offset.  They look at its kind only to choose the engine, the
 * alignment, and the kind of latency that the window measures.
 *
 * The owner embeds it: a slab, or a lane's bounce pages.  The daemon never accesses the bytes.
 */
#ifndef DSAIO_DAEMON_OBJECT_REGION_H
#define DSAIO_DAEMON_OBJECT_REGION_H

enum region_kind {
	REGION_HOST, /* memory that is mapped in the daemon */
	REGION_GPU,  /* of a GPU: engine/gds.h */
};

struct region {
	enum region_kind kind;
	char *base; /* the address of its first byte, of a GPU's only for its driver; NULL: not mapped */
	void *owner; /* of a GPU's: its struct gds_memory */
};

#endif
