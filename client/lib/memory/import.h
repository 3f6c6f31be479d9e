/*
 * Imported memory: shared memory of the program's own that the daemon maps, too.
 *
 * The program names the memory and the file that it has mapped there.  That is checked against
 * /proc/self/maps, since an op on another place would move other bytes than the program sees.
 */
#ifndef DSAIO_CLIENT_LIB_MEMORY_IMPORT_H
#define DSAIO_CLIENT_LIB_MEMORY_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The mapping that has to exist. */
struct import_range {
	uint64_t start, end; /* addresses */
	uint64_t off;	     /* in the file, of start */
	dev_t dev;
	ino_t ino;
};

/*
 * Looks at one line of /proc/self/maps, which come by address.  *reached: how far the range is
 * mapped as it should be; range->start at first.  Returns false if the line shows that it is not.
 */
bool import_look(const struct import_range *range, const char *line, uint64_t *reached);

/* Is the range that mapping?  Returns 0, -EINVAL (no), or the errno of reading the mappings. */
int import_check(const struct import_range *range);

#endif
