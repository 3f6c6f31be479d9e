/*
 * Job files of bench mix.
 */
#include "client/ctl/bench/mix_job.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mix_job job;
	char text[1024] = "";
	FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	int r;

	if (!file)
		return 0;
	r = mix_job_read(file, &job, text, sizeof(text));
	(void)fclose(file);
	assert(r <= 0 && (r == 0 || text[0]));
	for (unsigned i = 0; r == 0 && i < job.n; i++) {
		const struct mix_client *client = &job.clients[i];

		assert(client->block_size >= 512 && client->size >= client->block_size);
		assert(client->block_size * client->depth <= MIX_BUFFER_MAX);
		assert(client->depth >= 1 && client->depth <= MIX_DEPTH_MAX &&
		       client->runtime_nsec);
		assert(client->read_percent <= 100 && client->rw < 6 && client->io_class < 3);
		assert(memchr(client->name, 0, sizeof(client->name)));
		(void)mix_interval_nsec(client);
	}
	return 0;
}
