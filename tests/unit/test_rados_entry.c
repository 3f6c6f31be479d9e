/*
 * The entries of a RADOS store's index: one encoding each, and nothing else is taken.
 */
#include "daemon/rados/entry.h"
#include "tests/unit/suite.h"

#include <string.h>

static struct entry example(const char *name)
{
	struct entry entry = {
		.file = { .size = 123456789,
			  .time_sec = 1700000000,
			  .object_bytes = 4 << 20,
			  .is_sparse = true },
	};

	(void)stpncpy(entry.name, name, RADOS_NAME_MAX);
	entry.file.id = UINT64_C(0x1234567890abcd) * ENTRY_N_SHARDS + entry_shard(name);
	return entry;
}

struct raw {
	char key[ENTRY_KEY_BYTES];
	size_t key_bytes, value_bytes;
	uint8_t value[ENTRY_VALUE_BYTES + 1];
};

static struct raw encoded(enum entry_kind kind, const struct entry *entry)
{
	struct raw raw = { .value_bytes = 0 };

	entry_key(kind, entry->name, entry->file.id, raw.key);
	raw.key_bytes = strlen(raw.key);
	raw.value_bytes = entry_encode(entry, raw.value);
	return raw;
}

static int decoded(const struct raw *raw, const struct entry *entry, struct entry *ret_entry)
{
	return entry_decode(entry_shard(entry->name), raw->key, raw->key_bytes, raw->value,
			    raw->value_bytes, ret_entry);
}

static const enum entry_kind kinds[] = { ENTRY_FILE, ENTRY_WRITTEN, ENTRY_TRASH };

TEST_TABLE(what_was_encoded_is_decoded, kinds)
{
	char longest[RADOS_NAME_MAX + 1];
	const char *names[] = { "a", "step-100/rank 0", "\xc3\xa4", longest };

	memset(longest, 'x', RADOS_NAME_MAX);
	longest[RADOS_NAME_MAX] = 0;
	for (int i = 0; i < N_ROWS(names); i++) {
		struct entry entry = example(names[i]), back;
		struct raw raw = encoded(kinds[_i], &entry);

		entry.is_unsized = i & 1;
		entry.is_abandoned = i & 2;
		raw = encoded(kinds[_i], &entry);
		ck_assert_int_eq(decoded(&raw, &entry, &back), 0);
		ck_assert_str_eq(back.name, entry.name);
		ck_assert_uint_eq(back.file.id, entry.file.id);
		ck_assert_uint_eq(back.file.size, entry.file.size);
		ck_assert_uint_eq(back.file.time_sec, entry.file.time_sec);
		ck_assert_uint_eq(back.file.object_bytes, entry.file.object_bytes);
		ck_assert(back.file.is_sparse && back.is_unsized == entry.is_unsized &&
			  back.is_abandoned == entry.is_abandoned);
	}
}
END_TEST

TEST_TABLE(a_value_of_another_length_is_refused, kinds)
{
	struct entry entry = example("name"), back;
	struct raw raw = encoded(kinds[_i], &entry);
	size_t right = raw.value_bytes;

	for (raw.value_bytes = 0; raw.value_bytes <= right + 1; raw.value_bytes++)
		ck_assert_int_eq(decoded(&raw, &entry, &back),
				 raw.value_bytes == right ? 0 : -EUCLEAN);
}
END_TEST

static const struct {
	const char *what;
	size_t at;
	uint8_t byte;
} damages[] = {
	{ "another version", 0, 2 },
	{ "an unknown flag", 1, 8 },
	{ "a longer name", 2, 200 },
	{ "the reserved byte", 3, 1 },
	{ "object_bytes not a power of two", 4, 1 },
	{ "object_bytes of 4 GiB and more", 7, 0x80 },
	{ "another id", 9, 0xff },
	{ "an id of another shard", 8, 0 },
	{ "a size beyond the last object", 23, 0x10 },
	{ "a time before 1970", 31, 0x80 },
	{ "a name with a zero", 33, 0 },
	{ "a name of another shard", 33, 'b' },
};

TEST_TABLE(damage_is_refused, damages)
{
	struct entry entry = example("name"), back;
	struct raw raw = encoded(ENTRY_TRASH, &entry);

	ck_assert_msg(raw.value[damages[_i].at] != damages[_i].byte, "%s", damages[_i].what);
	raw.value[damages[_i].at] = damages[_i].byte;
	ck_assert_msg(decoded(&raw, &entry, &back) == -EUCLEAN, "%s", damages[_i].what);
}
END_TEST

TEST(a_key_belongs_to_its_entry_and_shard)
{
	struct entry entry = example("name"), back;
	struct raw raw = encoded(ENTRY_FILE, &entry);

	ck_assert_int_eq(entry_decode((entry_shard("name") + 1) % ENTRY_N_SHARDS, raw.key,
				      raw.key_bytes, raw.value, raw.value_bytes, &back),
			 -EUCLEAN);
	for (raw.key_bytes = 0; raw.key_bytes < strlen("nname"); raw.key_bytes++)
		ck_assert_int_eq(decoded(&raw, &entry, &back), -EUCLEAN);
	raw = encoded(ENTRY_WRITTEN, &entry);
	raw.key[0] = ENTRY_TRASH;
	ck_assert_int_eq(decoded(&raw, &entry, &back), 0); /* they have one format */
	raw.key_bytes--;
	ck_assert_int_eq(decoded(&raw, &entry, &back), -EUCLEAN);
}
END_TEST

TEST(the_format_does_not_change)
{
	char key[ENTRY_KEY_BYTES], object[ENTRY_OBJECT_BYTES];
	struct entry entry = example("a");
	struct raw raw = encoded(ENTRY_TRASH, &entry);

	entry_index_object(63, object);
	ck_assert_str_eq(object, "index.3f");
	entry_data_object(0xabc, 16, object);
	ck_assert_str_eq(object, "d.0000000000000abc.00000010");
	entry_key(ENTRY_WRITTEN, NULL, 0xabc, key);
	ck_assert_str_eq(key, "p0000000000000abc");
	ck_assert_uint_eq(raw.value_bytes, 33);
	ck_assert_int_eq(memcmp(raw.value, (uint8_t[]){ 1, 1, 1, 0, 0, 0, 0x40, 0 }, 8), 0);
	ck_assert_int_eq(
		memcmp(raw.value + 16, (uint8_t[]){ 0x15, 0xcd, 0x5b, 0x07, 0, 0, 0, 0 }, 8), 0);
	ck_assert_uint_eq(entry_shard(""), 17);
	ck_assert_uint_eq(entry_shard("a"), 34);
	ck_assert_uint_eq(entry_shard("step-100/rank 0"), 4);
}
END_TEST

TEST_MAIN
