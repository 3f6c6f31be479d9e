/*
 * A job file of bench mix: what its lines mean, and what is refused, with the line.
 */
#include "client/ctl/bench/mix_job.h"

#include "client/lib/dsaio.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static struct mix_job job;
static char text[1024];

static int read_text(const char *lines)
{
	FILE *file = fmemopen((void *)(uintptr_t)lines, strlen(lines), "r");
	int r;

	ck_assert_ptr_nonnull(file);
	text[0] = '\0';
	r = mix_job_read(file, &job, text, sizeof(text));
	(void)fclose(file);
	return r;
}

TEST(sections_are_clients_with_the_global_values_before_them)
{
	ck_assert_msg(
		read_text(
			"; fio\nbs=64k\n[global]\nruntime=0.3\n[a]\nrw=randrw\nrwmixread=70\nrate=1M\n"
			"class=background\n[global]\niodepth=4\n[b]\n[c]\nsize = 1G ; large\n"
			"runtime=20\nrate_iops=50\nrw=write\n") == 0,
		"%s", text);
	ck_assert_uint_eq(job.n, 3);
	ck_assert_str_eq(job.clients[0].name, "a");
	ck_assert_uint_eq(job.clients[0].block_size, 65536);
	ck_assert_uint_eq(job.clients[0].depth, 1);
	ck_assert_uint_eq(job.clients[0].runtime_nsec, 300000000);
	ck_assert_uint_eq(job.clients[0].io_class, DSAIO_CLASS_BACKGROUND);
	ck_assert_uint_eq(job.clients[0].read_percent, 70);
	ck_assert(mix_is_random(&job.clients[0]));
	ck_assert_uint_eq(mix_interval_nsec(&job.clients[0]), 62500000); /* 16 a second */
	ck_assert_str_eq(job.clients[1].name, "b");
	ck_assert_uint_eq(job.clients[1].depth, 4);
	ck_assert_uint_eq(job.clients[1].io_class, DSAIO_CLASS_NORMAL);
	ck_assert_uint_eq(job.clients[1].read_percent, 100);
	ck_assert_uint_eq(mix_interval_nsec(&job.clients[1]), 0);
	ck_assert(!mix_is_random(&job.clients[1]));
	ck_assert_uint_eq(job.clients[2].size, 1u << 30);
	ck_assert_uint_eq(job.clients[2].runtime_nsec, 20000000000);
	ck_assert_uint_eq(job.clients[2].read_percent, 0);
	ck_assert_uint_eq(mix_interval_nsec(&job.clients[2]), 20000000);
}

TEST(a_long_name_is_cut)
{
	ck_assert_int_eq(
		read_text("[a name that is much longer than there is room for it, and then some]"),
		0);
	ck_assert_str_eq(job.clients[0].name,
			 "a name that is much longer than there is room for i");
}

TEST(the_stricter_of_two_rates_counts)
{
	ck_assert_int_eq(read_text("[a]\nrate=4M\nrate_iops=10\n[b]\nrate=4096\nrate_iops=10\n"),
			 0);
	ck_assert_uint_eq(mix_interval_nsec(&job.clients[0]), 100000000);
	ck_assert_uint_eq(mix_interval_nsec(&job.clients[1]), 1000000000);
}

static const struct {
	const char *lines, *why;
} refused[] = {
	{ "", "there is no client: begin one with a line [NAME]" },
	{ "[global]\nrw=read\n", "there is no client" },
	{ "[a]\nioengine=libaio\n", "line 2: ioengine: there is no such key" },
	{ "[a]\n\nrw=trim\n", "line 3: rw=trim: is no value of that key" },
	{ "[a]\nclass=idle\n", "class=idle: is no value" },
	{ "[a]\nbs=4kb\n", "bs=4kb: is no value" },
	{ "[a]\nbs=\n", "bs=: is no value" },
	{ "[a]\niodepth=0\n", "iodepth=0: is no value of that key, or out of range" },
	{ "[a]\niodepth=257\n", "iodepth=257: is no value" },
	{ "[a]\nrwmixread=101\n", "rwmixread=101: is no value" },
	{ "[a]\nrate=99999999999999999999\n", "rate=99999999999999999999: is no value" },
	{ "[a]\nruntime=0\n", "runtime=0: is no value" },
	{ "[a]\nruntime=3601s\n", "runtime=3601s: is no value" },
	{ "[a]\nruntime=nan\n", "runtime=nan: is no value" },
	{ "[a]\nruntime=-1\n", "runtime=-1: is no value" },
	{ "[a]\nruntime=5h\n", "runtime=5h: is no value" },
	{ "[a]\nruntime=\n", "runtime=: is no value" },
	{ "[a]\n=1\n", "there is no such key" },
	{ "[a]\nbs=1000\n", "line 2: [a]: bs must be a multiple of 512" },
	{ "[a]\nbs=8192\nsize=4096\n[b]\n",
	  "line 4: [a]: bs must be a multiple of 512, and at most size" },
	{ "[a]\nbs=16M\niodepth=65\n", "bs * iodepth must be at most 1 GiB" },
	{ "[a]\ntext\n", "line 2: text: must be [SECTION], KEY = VALUE, or a comment" },
};

TEST_TABLE(a_mistake_is_refused_with_its_line, refused)
{
	ck_assert_int_eq(read_text(refused[_i].lines), -EINVAL);
	ck_assert_msg(strstr(text, refused[_i].why), "%s", text);
}

TEST(too_many_clients_are_refused)
{
	char lines[8 * (MIX_CLIENTS_MAX + 1)] = "";

	for (unsigned i = 0; i < MIX_CLIENTS_MAX; i++)
		(void)strcat(lines, "[a]\n");
	ck_assert_int_eq(read_text(lines), 0);
	ck_assert_uint_eq(job.n, MIX_CLIENTS_MAX);
	(void)strcat(lines, "[b]\n");
	ck_assert_int_eq(read_text(lines), -EINVAL);
	ck_assert_msg(strstr(text, "[b]: there may be at most 64 clients"), "%s", text);
}

TEST(a_directory_is_no_job)
{
	FILE *file = fopen("/", "re");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(mix_job_read(file, &job, text, sizeof(text)), -EIO);
	ck_assert_msg(strstr(text, "cannot be read"), "%s", text);
	(void)fclose(file);
}

TEST_MAIN
