/*
 * dsaioctl pool: the pinned memory and the clients that hold it, and how GPU memory reaches files.
 */
#include "client/ctl/cmd/command.h"
#include "client/ctl/cmd/show.h"
#include "client/ctl/ui/units.h"
#include "proto/util/cleanup.h"
#include "proto/util/map.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define BAR_WIDTH 40u

static const char help[] =
	"dsaioctl pool - the pinned memory and the clients that hold it\n"
	"\n"
	"    dsaioctl pool\n"
	"    dsaioctl pool --json | jq '.pool.used_bytes'\n"
	"\n"
	"The pool's size is a bound: memory is taken when a client asks for it.  A client's share\n"
	"is of what the pool may be.  Clients of other users are shown to administrators; to\n"
	"others they are one row.  On a host with GPUs these follow, and how their memory\n"
	"reaches files.\n"
	"\n"
	"    --json         all numbers, in bytes\n"
	"    --socket PATH  the daemon's socket\n"
	"    --private      a daemon for this command alone\n"
	"\n"
	"exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers\n";

static double share_of(uint64_t bytes, uint64_t size)
{
	return size ? (double)bytes / (double)size : 0;
}

static void add_row(struct table *table, uint64_t bytes, uint32_t slabs, uint64_t size)
{
	char text[UNITS_TEXT_BYTES], bar[BAR_WIDTH + 1];

	table_add(table, "%s", units_format_size(text, bytes));
	table_add(table, "%" PRIu32, slabs);
	table_add(table, "%.1f%%", 100 * share_of(bytes, size));
	table_add(table, "[%s]", units_format_bar(bar, BAR_WIDTH, share_of(bytes, size)));
}

/* How GPU memory reaches files. */
static const char *path_text(Wire__GpuPath path)
{
	switch (path) {
	case WIRE__GPU_PATH__GPU_AUTO:
		return "GPU memory is used directly where cuFile takes the file, else copied";
	case WIRE__GPU_PATH__GPU_DIRECT:
		return "GPU memory goes through cuFile, or the op fails";
	default:
		return "GPU memory is copied through pinned memory";
	}
}

static int print_gpus(const Wire__Gpus *gpus)
{
	static const struct table_column columns[] = { { "GPU", false },
						       { "NAME", false },
						       { "MEMORY", true } };
	_cleanup_(table_deinit) struct table table = { .n_cells = 0 };
	char text[UNITS_TEXT_BYTES];
	int r;

	if (!gpus)
		return 0;
	(void)putchar('\n');
	if (gpus->problem[0])
		(void)printf("GPUs cannot be used: %s\n", gpus->problem);
	else if (gpus->call[0])
		(void)printf("the GPU driver has not answered yet: %s\n", gpus->call);
	if (gpus->n_gpus) {
		table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
		for (size_t i = 0; i < gpus->n_gpus; i++) {
			table_add(&table, "%s", gpus->gpus[i]->uuid);
			table_add(&table, "%s", gpus->gpus[i]->name);
			table_add(&table, "%s",
				  units_format_size(text, gpus->gpus[i]->memory_bytes));
		}
		r = table_print(&table, stdout);
		if (r < 0)
			return r;
		(void)printf("CUDA %" PRIu32 ".%" PRIu32 "%s%s\n", gpus->cuda_version / 1000,
			     gpus->cuda_version % 1000 / 10, gpus->cufile[0] ? ", " : "",
			     gpus->cufile);
	}
	(void)printf("%s: %s\n", path_text(gpus->path), gpus->why);
	return 0;
}

static int print_table(const struct ctl *ctl, const Wire__StatusReply *status)
{
	static const struct table_column columns[] = {
		{ "CLIENT", true }, { "NAME", false }, { "PID", true },	  { "UID", true },
		{ "POOL", true },   { "SLABS", true }, { "SHARE", true }, { "OF THE POOL", false },
	};
	char huge[UNITS_TEXT_BYTES], bar[BAR_WIDTH + 1], word[8];
	const Wire__Pool *pool = status->pool;
	_cleanup_(table_deinit) struct table table;
	int r;

	if (!pool)
		return ctl_fail(ctl, "the daemon reports no pool: is it dsaiod?");
	show_pool(pool);
	if (pool->wants_huge)
		(void)printf("huge pages: %s of it in reserved ones, else transparent ones where "
			     "there are any\n",
			     units_format_size(huge, pool->huge_bytes));
	if (pool->wants_huge && map_lacks_huge(word))
		(void)printf("huge pages: " MAP_SHMEM_PATH
			     " is %s: with advise there are more, sooner\n",
			     word);
	(void)printf("[%s] %.1f%%\n\n",
		     units_format_bar(bar, BAR_WIDTH, share_of(pool->used_bytes, pool->size_bytes)),
		     100 * share_of(pool->used_bytes, pool->size_bytes));
	table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < status->n_clients; i++) {
		const Wire__Client *client = status->clients[i];

		table_add(&table, "%" PRIu32, client->client);
		table_add(&table, "%s", client->name);
		table_add(&table, "%" PRIu32, client->pid);
		table_add(&table, "%" PRIu32, client->uid);
		add_row(&table, client->pool_bytes, client->slabs, pool->size_bytes);
	}
	if (status->others) {
		table_add(&table, "-");
		table_add(&table, "%" PRIu32 " of other users", status->others->clients);
		table_add(&table, "-");
		table_add(&table, "-");
		add_row(&table, status->others->pool_bytes, status->others->slabs,
			pool->size_bytes);
	}
	r = table.n_cells ? table_print(&table, stdout) : 0;
	if (!table.n_cells)
		(void)puts("no clients");
	show_left_out(status);
	if (r == 0)
		r = print_gpus(status->gpus);
	return r == -ENOMEM ? ctl_fail(ctl, "out of memory") : ctl_flush(ctl);
}

static int pool_run(struct ctl *ctl)
{
	static const char *const names[] = {
		"pool", "clients", "clients_shown", "clients_total", "others", "gpus", NULL
	};

	return show_status(ctl, print_table, names);
}

const struct command command_pool = { "pool", pool_run,	   "the pinned memory and its holders",
				      help,   { NULL, 0 }, NULL };
