/*
 * Imports of GPU memory that the daemon or libcuda refuses: what is copied, what fails, and when it is tried again.
 */
#include "tests/unit/client_regions.h"

#include "client/lib/dsaio.h"

static const struct {
	const char *what;
	int error;
	bool is_for_now;
} refusals[] = {
	{ "the daemon cannot", -EOPNOTSUPP, false },
	{ "the handle does not open", -EFAULT, false },
	{ "no such GPU", -ENODEV, false },
	{ "no memory", -ENOMEM, true },
	{ "too many", -EMFILE, true },
};

TEST_TABLE(a_refusal_is_remembered, refusals)
{
	char *memory = gpu_alloc(0), *why;

	refuse(0, refusals[_i].error);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_int_eq(use(memory + 9), 0);
	ck_assert_msg(seen().n_imports == 1, "%s", refusals[_i].what);
	why = gpu_memory_why(&regions, memory);
	ck_assert_msg(strstr(why, "no such luck"), "%s", why);
	free(why);
	gpu_free(memory); /* other memory is another question */
	ck_assert_ptr_eq(gpu_alloc(0), memory);
	ck_assert_int_eq(use(memory), 1);
}

TEST_TABLE(a_refusal_for_now_is_forgotten, refusals)
{
	char *memory = gpu_alloc(0);

	regions.pause_nsec = 0;
	refuse(0, refusals[_i].error);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_msg(use(memory) == refusals[_i].is_for_now, "%s", refusals[_i].what);
}

TEST(imports_that_the_daemon_does_not_take_yet_are_tried_again_where_nothing_may_be_copied)
{
	char *memory = gpu_alloc(0);

	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_DIRECT);
	refuse(0, -EAGAIN);
	refuse(1, -EAGAIN);
	ck_assert_int_eq(use(memory), 1);
	ck_assert_uint_eq(seen().n_imports, 3);
	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_AUTO);
	refuse(3, -EAGAIN);
	ck_assert_int_eq(use(memory), 0);
	ck_assert_uint_eq(seen().n_imports, 4);
}

TEST_TABLE(a_refusal_is_an_error_where_nothing_may_be_copied, refusals)
{
	char *memory = gpu_alloc(0), buf[16];

	client_begin(RING_FEATURE_DEVICE, WIRE__GPU_PATH__GPU_DIRECT);
	refuse(0, refusals[_i].error);
	refuse(1, refusals[_i].error);
	ck_assert_int_eq(use(memory), refusals[_i].error);
	ck_assert_msg(strstr(dsaio_error(), "test: GPU memory at 0x") &&
			      strstr(dsaio_error(), "no such luck") &&
			      strstr(dsaio_error(), "gpu = direct"),
		      "%s", dsaio_error());
	ck_assert_int_eq(use(buf), 0);
}

TEST(without_the_feature_nothing_is_asked)
{
	char *memory = gpu_alloc(0), buf[16];

	client_begin(0, WIRE__GPU_PATH__GPU_DIRECT);
	ck_assert_int_eq(use(buf), 0);
	ck_assert_int_eq(use(memory), -EOPNOTSUPP);
	ck_assert_msg(strstr(dsaio_error(), "as the test wants it"), "%s", dsaio_error());
	ck_assert_uint_eq(seen().n_imports, 0);
}

TEST(too_much_memory_is_mended_by_less)
{
	char *memory = gpu_alloc(0);

	regions.pause_nsec = 0;
	ck_assert_int_eq(use(memory), 1);
	refuse(1, -ENOMEM);
	ck_assert_int_eq(use(gpu_alloc(0)), 2);
	ck_assert_uint_eq(seen().last_freed, 1);
	ck_assert_uint_eq(seen().n_imports, 3);
	refuse(3, -ENOMEM);
	refuse(4, -ENOMEM); /* of a sole region of its own, and when the other is released */
	refuse(5, -ENOMEM);
	ck_assert_int_eq(use(gpu_alloc(0)), 0);
}

/* The daemon grants so many slabs, and takes its time to free one. */
static void limit(unsigned n_most)
{
	(void)pthread_mutex_lock(&peer.lock);
	peer.n_most = n_most;
	if (!n_most && peer.free_seq)
		peer_free_done();
	(void)pthread_mutex_unlock(&peer.lock);
}

TEST(memory_that_is_being_released_is_no_reason_to_refuse_other_memory)
{
	char *first = gpu_alloc(0), *memory = gpu_alloc(0);
	struct buffer_place place;

	limit(2);
	regions.pause_nsec = 0;
	ck_assert_int_eq(use(first), 1);
	ck_assert_int_eq(ref(memory, 1, &place), 1); /* it stays */
	gpu_free(first);
	ck_assert_int_eq(use(memory), 2); /* posts that it gives the first back */
	ck_assert_int_eq(use(gpu_alloc(0)), 3);
	ck_assert_uint_eq(seen().n_imports, 4);
	ck_assert_uint_eq(seen().last_freed, 1);
	buffer_unref(place.piece);
	limit(0);
}

static void *unregister_main(void *arg)
{
	unregister(arg);
	return NULL;
}

static void *use_main(void *arg)
{
	return (void *)(intptr_t)use(arg);
}

TEST(memory_that_another_thread_releases_is_no_reason_to_refuse_other_memory)
{
	char *first = gpu_alloc(0), *memory = gpu_alloc(0);
	struct buffer_place place;
	pthread_t thread, user;
	void *result;

	limit(2);
	ck_assert_int_eq(gpu_memory_register(&regions, first, BYTES), 0);
	ck_assert_int_eq(ref(memory, 1, &place), 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, unregister_main, first), 0);
	while (!seen().n_freed)
		(void)usleep(1000);
	ck_assert_int_eq(pthread_create(&user, NULL, use_main, gpu_alloc(0)), 0);
	limit(0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(pthread_join(user, &result), 0);
	ck_assert_int_eq((intptr_t)result, 3);
	ck_assert_uint_eq(seen().n_imports, 3); /* none was refused */
	buffer_unref(place.piece);
}

/* The region was released with the first range, though the second one was registered still. */
TEST(ranges_that_were_registered_during_a_refusal_count)
{
	char *memory = gpu_alloc(0);

	regions.pause_nsec = 0;
	refuse(0, -ENOMEM);
	ck_assert_int_eq(gpu_memory_register(&regions, memory, 1), 0);
	ck_assert_int_eq(gpu_memory_register(&regions, memory + 1, 1), 0);
	ck_assert_int_eq(use(memory), 1);
	unregister(memory);
	ck_assert_int_eq(use(memory), 1);
	unregister(memory + 1);
	ck_assert_uint_eq(seen().last_freed, 1);
}

FIXTURE(setup, teardown)
TEST_MAIN
