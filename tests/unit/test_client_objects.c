#include "client/lib/io/client.h"

#include "tests/unit/suite.h"

static struct dsaio_client client;
static struct client_object files[3];

static void objects_setup(void)
{
	client = (struct dsaio_client){ .n_cpus = 1 };
	(void)pthread_mutex_init(&client.lock, NULL);
	for (int i = 0; i < 3; i++) {
		files[i] = (struct client_object){ .kind = CLIENT_FILE };
		list_push_front(&client.objects[CLIENT_FILE], &files[i].node);
	}
}

TEST(an_object_leaves_its_list_wherever_it_stands)
{
	client_remove(&client, &files[1]);
	ck_assert_ptr_eq(client.objects[CLIENT_FILE].first, &files[2].node);
	ck_assert_ptr_eq(files[2].node.next, &files[0].node);
	client_remove(&client, &files[2]);
	ck_assert_ptr_eq(client.objects[CLIENT_FILE].first, &files[0].node);
	client_remove(&client, &files[0]);
	ck_assert_ptr_null(client.objects[CLIENT_FILE].first);
}

TEST(a_forked_child_is_refused)
{
	_Atomic uint32_t guard = CLIENT_GUARD;

	client.guard = &guard;
	ck_assert_int_eq(client_check(&client, "f"), 0);
	atomic_store(&guard, 0); /* as MADV_WIPEONFORK does */
	ck_assert_int_eq(client_check(&client, "f"), -EPERM);
	ck_assert_int_eq(client_check(NULL, "f"), -EINVAL);
}

FIXTURE(objects_setup, NULL)
TEST_MAIN
