#include "daemon/recovery/adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NO_SEALS (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

/* On the work queue.  Sets memory and is_huge. */
static int adopt_check(struct slab *slab)
{
	struct slab_facts facts;
	int r = slab_look(slab, "slab_adopt", &facts);

	if (r < 0)
		return r;
	if (facts.seals < 0 || (facts.seals & SEALS) != SEALS || (facts.seals & NO_SEALS))
		return error_set_plain(
			&slab->error, -EINVAL,
			"slab_adopt: the file has the seals 0x%x: a slab has SHRINK, GROW and SEAL "
			"(0x%x), and neither WRITE nor FUTURE_WRITE (0x%x): hand over the memfd "
			"that the daemon sent with the slab",
			facts.seals < 0 ? 0 : facts.seals, SEALS, NO_SEALS);
	if (facts.bytes != slab->size_bytes)
		return error_set_plain(&slab->error, -EINVAL,
				       "slab_adopt: %" PRIu64 " bytes: the memfd has %" PRIu64
				       ": name its whole size",
				       slab->size_bytes, facts.bytes);
	slab->is_huge = facts.is_huge;
	return 0;
}

static int adopt_make(struct slab *slab)
{
	int r = adopt_check(slab);

	return r < 0 ? r : slab_map_import(slab);
}

static void adopt_unmake(struct slab *slab)
{
	slab_punch(slab); /* the seals allow it */
	slab_unmap_import(slab);
}

const struct slab_kind slab_kind_adopted = {
	.struct_bytes = sizeof(struct slab),
	.quota = QUOTA_POOL_BYTES,
	.making = "slab adoption",
	.freeing = "slab free",
	.keeps_bytes = true,
	.make = adopt_make,
	.unmake = adopt_unmake,
};
