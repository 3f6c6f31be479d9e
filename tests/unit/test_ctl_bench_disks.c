/* bench_disks: which disks are watched, and what counts as an excess; on a sysfs of the test's own. */
#include "client/ctl/bench/disks.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/unit/suite.h"

static char root[64];

static void run(const char *format, const char *a, const char *b)
{
	char command[512];

	(void)snprintf(command, sizeof(command), format, root, a, root, b);
	ck_assert_int_eq(system(command), 0);
}

static void write_file(const char *name, const char *attribute, const char *text)
{
	char path[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/devices/%s/%s", root, name, attribute);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_gt(fprintf(file, "%s\n", text), 0);
	ck_assert_int_eq(fclose(file), 0);
}

/* name: "sda", or "sda/sda1", a partition. */
static void add_device(const char *name, const char *number, unsigned read_sectors)
{
	char text[256];

	run("mkdir -p %s/devices/%s/queue %s/dev/block%s", name, "");
	(void)snprintf(text, sizeof(text), "ln -s ../../devices/%s %s/dev/block/%s", name, root,
		       number);
	ck_assert_int_eq(system(text), 0);
	write_file(name, "dev", number);
	if (strchr(name, '/'))
		write_file(name, "partition", "1");
	else
		write_file(name, "queue/iostats", "1");
	(void)snprintf(text, sizeof(text), "   7   0  %u  1  9  0  %u  1  0  5  5", read_sectors,
		       read_sectors / 2);
	write_file(name, "stat", text);
}

static void add_slave(const char *name, const char *slave)
{
	run("mkdir -p %s/devices/%s/slaves %s%s", name, "");
	run("ln -s %s/devices/%s %s/devices/%s/slaves/", slave, name);
}

static void make_root(void)
{
	(void)snprintf(root, sizeof(root), "/tmp/dsaio-disks-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	add_device("sda", "8:0", 1000);
	add_device("sda/sda1", "8:1", 100);
	add_device("sda/sda2", "8:2", 200);
	add_device("sdb", "8:16", 3000);
	add_device("dm-0", "252:0", 50); /* a volume on the second partition */
	add_slave("dm-0", "sda/sda2");
	add_device("md0", "9:0", 70); /* a mirror */
	add_slave("md0", "sda/sda1");
	add_slave("md0", "sdb");
}

static void remove_root(void)
{
	run("rm -rf %s%s %s%s", "", "/none");
}

static struct bench_place place_on(unsigned maj, unsigned min)
{
	return (struct bench_place){ .device = makedev(maj, min), .fs_type = "ext4" };
}

static const struct {
	const char *what;
	unsigned major, minor;
	const char *names;
	uint64_t top_sectors, bottom_sectors;
} stacks[] = {
	{ "a disk", 8, 16, "sdb", 3000, 3000 },
	{ "a partition: the whole disk", 8, 1, "sda", 1000, 1000 },
	{ "a volume on a partition: the disk below it too", 252, 0, "dm-0, sda", 50, 1000 },
	{ "a mirror writes more below: it alone", 9, 0, "md0", 70, 70 },
};

START_TEST(disks_that_are_watched)
{
	const struct bench_place place = place_on(stacks[_i].major, stacks[_i].minor);
	struct bench_disk_counters counters;
	struct bench_disks *disks;

	make_root();
	ck_assert_int_eq(bench_disks_find(root, &place, 1, &disks), 0);
	counters = bench_disks_read(disks);
	ck_assert_msg(counters.is_known, "%s", stacks[_i].what);
	ck_assert_str_eq(bench_disks_names(disks), stacks[_i].names);
	ck_assert_uint_eq(counters.top.read_bytes, stacks[_i].top_sectors * 512);
	ck_assert_uint_eq(counters.top.write_bytes, stacks[_i].top_sectors / 2 * 512);
	ck_assert_uint_eq(counters.bottom.read_bytes, stacks[_i].bottom_sectors * 512);
	bench_disks_free(disks);
	remove_root();
}
END_TEST

START_TEST(two_folders_on_one_disk_count_it_once)
{
	const struct bench_place places[] = { place_on(8, 1), place_on(8, 2), place_on(8, 16) };
	struct bench_disk_counters counters;
	struct bench_disks *disks;

	make_root();
	ck_assert_int_eq(bench_disks_find(root, places, 3, &disks), 0);
	counters = bench_disks_read(disks);
	ck_assert_str_eq(bench_disks_names(disks), "sda, sdb");
	ck_assert_uint_eq(counters.top.read_bytes, 4000 * 512);
	bench_disks_free(disks);
	remove_root();
}
END_TEST

START_TEST(what_counts_nothing_says_so)
{
	struct bench_place places[2] = { place_on(8, 16), { .fs_type = "tmpfs", .mount = "/t" } };
	struct bench_disks *disks;

	make_root();
	places[1].is_memory = true;
	ck_assert_int_eq(bench_disks_find(root, places, 2, &disks), 0);
	ck_assert(!bench_disks_read(disks).is_known);
	ck_assert_str_eq(bench_disks_why_not(disks), "tmpfs on /t: has no device");
	bench_disks_free(disks);

	write_file("sdb", "queue/iostats", "0");
	ck_assert_int_eq(bench_disks_find(root, places, 1, &disks), 0);
	ck_assert(!bench_disks_read(disks).is_known);
	ck_assert_ptr_nonnull(strstr(bench_disks_why_not(disks), "sdb: the kernel counts nothing"));
	bench_disks_free(disks);
	remove_root();
}
END_TEST

#define MIB (UINT64_C(1) << 20)

static const struct {
	const char *what;
	uint64_t own, read_bytes, write_bytes;
	bool is_shared;
} excesses[] = {
	{ "nothing", 100 * MIB, 0, 0, false },
	{ "the daemon's probe and the journal", MIB, 2 * MIB, 2 * MIB, false },
	{ "a little more", MIB, 2 * MIB, 2 * MIB + 4096, true },
	{ "a hundredth of ours", 1000 * MIB, 10 * MIB, 0, false },
	{ "a fiftieth of ours", 1000 * MIB, 20 * MIB, 0, true },
};

START_TEST(an_excess_is_others_when_it_is_more_than_the_kernels)
{
	const struct bench_moves excess = { excesses[_i].read_bytes, excesses[_i].write_bytes };

	ck_assert_msg(bench_disks_are_shared(&excess, excesses[_i].own) == excesses[_i].is_shared,
		      "%s", excesses[_i].what);
}
END_TEST

/* The larger of the two levels counts; what a disk moved less than the daemon came from a cache. */
START_TEST(the_excess_is_that_of_the_busier_level)
{
	const struct bench_disk_counters before = { { 100, 100 }, { 1000, 1000 }, true };
	const struct bench_disk_counters now = { { 160, 110 }, { 1090, 1001 }, true };
	const struct bench_moves own = { 50, 20 };
	const struct bench_moves excess = bench_disks_excess(&before, &now, &own);

	ck_assert_uint_eq(excess.read_bytes, 40);
	ck_assert_uint_eq(excess.write_bytes, 0);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, disks_that_are_watched, 0, sizeof(stacks) / sizeof(stacks[0]));
	tcase_add_test(tcase, two_folders_on_one_disk_count_it_once);
	tcase_add_test(tcase, what_counts_nothing_says_so);
	tcase_add_loop_test(tcase, an_excess_is_others_when_it_is_more_than_the_kernels, 0,
			    sizeof(excesses) / sizeof(excesses[0]));
	tcase_add_test(tcase, the_excess_is_that_of_the_busier_level);
}

SUITE("ctl/bench_disks", add_tests)
