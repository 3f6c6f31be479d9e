/*
 * Decoding of a frame's body by the daemon, before it uses any session.
 *
 * Input: a byte for the number of descriptors, then the body.
 */
#include "daemon/control/request.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Wire__Request *request = NULL;
	struct error error = { 0 };
	int r;

	if (size < 1 || size > FRAME_BODY_MAX)
		return 0;
	r = request_decode(data + 1, size - 1, &request, &error);
	if (r < 0) {
		assert(!request && error.text[0]);
		return 0;
	}
	r = request_check(request, data[0] % 5u, &error);
	assert(r <= 0);
	assert(r == 0 || error.text[0]); /* a refusal says why */
	if (r == 0 && request->body_case == WIRE__REQUEST__BODY_SUBMIT) {
		struct ring_entry *entries = calloc(request->submit->n_entries + 1,
						    sizeof(*entries));

		assert(entries);
		request_entries(request->submit, entries);
		for (size_t i = 0; i < request->submit->n_entries; i++)
			assert(entries[i].id == request->submit->entries[i]->id);
		free(entries);
	}
	if (r == 0 && request->body_case == WIRE__REQUEST__BODY_DEVICE_IMPORT) {
		const struct gds_handle handle = request_gds_handle(request->device_import);

		assert(handle.is_ipc == (data[0] % 5u == 0) && handle.fd < 0);
		assert(handle.size_bytes == request->device_import->size_bytes);
	}
	if (r == 0 && request->body_case == WIRE__REQUEST__BODY_FILE_GPU)
		assert(request->file_gpu->uuid.len == sizeof(CUuuid));
	request_free(request);
	return 0;
}
