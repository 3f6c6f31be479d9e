/* The checks of dsaioctl doctor, on hosts of which only the files are there, and daemons of which only the status is
   there. */
#include "client/ctl/doctor/doctor.h"
#include "client/ctl/ui/json.h"
#include "proto/util/cleanup.h"
#include "tests/unit/suite.h"
#include "tests/unit/temp_dir.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static struct doctor doctor;
static Wire__StatusReply status;
static Wire__Pool pool;

static void setup(void)
{
	make_dir();
	doctor = (struct doctor){ .root = dir,
				  .build = "b1",
				  .message = "no daemon listens",
				  .findings = json_object_new_array() };
	status = (Wire__StatusReply)WIRE__STATUS_REPLY__INIT;
	pool = (Wire__Pool)WIRE__POOL__INIT;
	pool.size_bytes = 64 << 20;
	status.pool = &pool;
	status.daemon_version = "0.1.0";
	status.daemon_build = "b1";
	status.pid = 4711;
}

static void teardown(void)
{
	(void)json_object_put(doctor.findings);
	remove_dir();
}

FIXTURE(setup, teardown)

/* Makes the directories of a path, too. */
static void put(const char *path, const char *text)
{
	char whole[512];
	FILE *file;

	(void)snprintf(whole, sizeof(whole), "%s%s", dir, path);
	for (char *slash = whole + strlen(dir); (slash = strchr(slash + 1, '/')); *slash = '/') {
		*slash = 0;
		ck_assert(mkdir(whole, 0700) == 0 || errno == EEXIST);
	}
	file = fopen(whole, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void link_to(const char *path, const char *target)
{
	char whole[512];

	put(path, "");
	(void)snprintf(whole, sizeof(whole), "%s%s", dir, path);
	ck_assert_int_eq(unlink(whole), 0);
	ck_assert_int_eq(symlink(target, whole), 0);
}

/* There is such a finding, and no other of that name. */
static void found(const char *level, const char *what, const char *value, const char *remedy)
{
	unsigned n = 0;

	for (size_t i = 0; i < json_object_array_length(doctor.findings); i++) {
		struct json_object *finding = json_object_array_get_idx(doctor.findings, i);

		if (strcmp(json_text(finding, "what"), what) != 0)
			continue;
		n++;
		ck_assert_str_eq(json_text(finding, "level"), level);
		ck_assert_msg(strstr(json_text(finding, "value"), value), "%s: %s: no \"%s\"", what,
			      json_text(finding, "value"), value);
		ck_assert_msg(*remedy ? strstr(json_text(finding, "remedy"), remedy) != NULL
				      : !*json_text(finding, "remedy"),
			      "%s: remedy: %s", what, json_text(finding, "remedy"));
	}
	ck_assert_msg(n == 1, "%u findings of %s", n, what);
}

/* ---- host ---- */

static const struct {
	const char *release, *level;
} kernels[] = { { "4.18.0-553.el8\n", "FAIL" },
		{ "5.9.16\n", "FAIL" },
		{ "5.10.0-28\n", "WARN" },
		{ "6.4\n", "WARN" },
		{ "6.5.0\n", "OK" },
		{ "7.0-rc1\n", "OK" },
		{ "", "FAIL" } };

TEST_TABLE(kernels_of_all_ages, kernels)
{
	put("/proc/sys/kernel/osrelease", kernels[_i].release);
	doctor_kernel(&doctor);
	found(kernels[_i].level, "kernel", "",
	      strcmp(kernels[_i].level, "OK") == 0 ? "" : "install 6.5");
}

static const struct {
	const char *max, *used, *level, *remedy;
} aios[] = {
	{ "65536\n", "128\n", "OK", "" },
	{ "65536\n", "49152\n", "OK", "" },
	{ "65536\n", "49153\n", "WARN", "fs.aio-max-nr=1048576" },
	{ "1048576\n", "1048576\n", "FAIL", "fs.aio-max-nr=2097152" },
	{ "65536\n", "70000\n", "FAIL", "fs.aio-max-nr=1048576" },
};

TEST_TABLE(asynchronous_requests_run_out, aios)
{
	put("/proc/sys/fs/aio-max-nr", aios[_i].max);
	put("/proc/sys/fs/aio-nr", aios[_i].used);
	doctor_aio(&doctor);
	found(aios[_i].level, "fs.aio-max-nr", " in use", aios[_i].remedy);
}

#define LIMITS(memory, files)                                     \
	"Limit   Soft   Hard   Units\nMax locked memory  " memory \
	"  unlimited  bytes\nMax open files  " files "  9  files\n"

TEST(locked_memory_here_matters_to_a_daemon_to_come)
{
	put("/proc/self/limits", LIMITS("8388608", "7"));
	doctor_limits(&doctor);
	found("WARN", "RLIMIT_MEMLOCK", "8 MiB here", "ulimit -l");
	ck_assert_uint_eq(json_object_array_length(doctor.findings), 1);
}

TEST(limits_of_the_daemon)
{
	doctor.status = &status;
	pool.why_unlocked = "w";
	put("/proc/self/limits", LIMITS("67108864", "20000"));
	put("/proc/4711/limits", LIMITS("8388608", "7"));
	put("/proc/4711/comm", "dsaiod\n");
	doctor_limits(&doctor);
	found("WARN", "RLIMIT_MEMLOCK", "8 MiB, the pool cannot all be locked: w",
	      "LimitMEMLOCK=infinity");
	found("WARN", "RLIMIT_NOFILE", "7", "LimitNOFILE=");
}

/* The process with the daemon's pid has this name and these limits. */
static void look_at_locked(const char *comm, const char *limits)
{
	doctor.status = &status;
	pool.is_locked = true;
	put("/proc/4711/limits", limits);
	put("/proc/4711/comm", comm);
	doctor_limits(&doctor);
}

TEST(a_daemon_that_has_locked_its_pool_is_well)
{
	look_at_locked("dsaiod\n", LIMITS("unlimited", "65536"));
	found("OK", "RLIMIT_MEMLOCK", "unlimited, the pool is locked", "");
	found("OK", "RLIMIT_NOFILE", "65536", "");
}

/* It once showed those of another process with the same pid. */
TEST(limits_of_a_daemon_in_another_pid_namespace_are_not_known)
{
	look_at_locked("bash\n", LIMITS("8388608", "7"));
	found("OK", "RLIMIT_MEMLOCK", "another pid namespace, the pool is locked", "");
	found("OK", "RLIMIT_NOFILE", "not known here", "");
}

static const struct {
	const char *meminfo, *shmem, *level, *value;
} pages[] = {
	{ "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n",
	  "always [advise] never\n", "OK", "advise" },
	{ "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n", "always [never] deny\n",
	  "WARN", "0 B reserved" },
	{ "HugePages_Total: 40\nHugePages_Free: 32\nHugepagesize: 2048 kB\n", "[never]\n", "OK",
	  "80 MiB reserved, 64 MiB" },
	{ "HugePages_Total: 40\nHugePages_Free: 31\nHugepagesize: 2048 kB\n", "[never]\n", "WARN",
	  "80 MiB reserved, 62 MiB" },
	{ "", "", "WARN", "0 B reserved" },
};

TEST_TABLE(huge_pages_of_either_kind_are_enough, pages)
{
	doctor.status = &status;
	pool.wants_huge = true;
	put("/proc/meminfo", pages[_i].meminfo);
	put("/sys/kernel/mm/transparent_hugepage/shmem_enabled", pages[_i].shmem);
	doctor_huge_pages(&doctor);
	found(pages[_i].level, "huge pages", pages[_i].value,
	      strcmp(pages[_i].level, "OK") == 0 ? "" : "echo advise");
}

/* ---- service ---- */

TEST(without_a_daemon_there_is_nothing_else_to_look_at)
{
	doctor_daemon(&doctor);
	found("WARN", "daemon", "no daemon listens", "systemctl start dsaiod");
	doctor_gpus(&doctor);
	doctor_clients(&doctor);
	doctor_stores(&doctor);
	ck_assert_uint_eq(json_object_array_length(doctor.findings), 1);
}

TEST(a_daemon_of_another_build_is_reported)
{
	doctor.status = &status;
	status.daemon_build = "b0";
	doctor_daemon(&doctor);
	found("OK", "daemon", "answers", "");
	found("WARN", "daemon's program", "pid 4711, build b0, up 0 ns, dsaioctl has another",
	      "systemctl restart dsaiod");
}

TEST(clients_on_an_old_library_are_counted)
{
	Wire__Client clients[3] = { WIRE__CLIENT__INIT, WIRE__CLIENT__INIT, WIRE__CLIENT__INIT };
	Wire__Client *list[] = { &clients[0], &clients[1], &clients[2] };

	doctor.status = &status;
	status.clients = list;
	status.n_clients = 1;
	clients[0].library = clients[1].library = clients[2].library = "0.1.0";
	doctor_clients(&doctor);
	found("OK", "clients", "have the daemon's library", "");
	doctor.findings = (json_object_put(doctor.findings), json_object_new_array());
	status.n_clients = 3;
	clients[1].library = "0.0.9";
	clients[1].pid = 12;
	clients[2].library = "";
	clients[2].pid = 13;
	doctor_clients(&doctor);
	found("WARN", "clients", "another version of the library: pid 12 13",
	      "restart these programs");
}

TEST(gpus_are_reported)
{
	Wire__Gpus gpus = WIRE__GPUS__INIT;

	doctor.status = &status;
	status.gpus = &gpus;
	gpus.problem = "no driver";
	doctor_gpus(&doctor);
	found("WARN", "GPUs", "no driver", "nvidia-smi");
	gpus.problem = "";
	gpus.call = "cuInit";
	doctor.findings = (json_object_put(doctor.findings), json_object_new_array());
	doctor_gpus(&doctor);
	found("WARN", "GPUs", "cuInit", "nvidia-smi");
	gpus.call = "";
	gpus.cuda_version = 13020;
	gpus.cufile = "P2PDMA";
	gpus.why = "nvidia-fs";
	doctor.findings = (json_object_put(doctor.findings), json_object_new_array());
	doctor_gpus(&doctor);
	found("OK", "GPUs", "0, CUDA 13.2, P2PDMA; gpu = auto: nvidia-fs", "");
}

/* ---- disks ---- */

static void put_disk(const char *name, const char *scheduler)
{
	char path[128];
	const struct {
		const char *name, *text;
	} files[] = {
		{ "scheduler", scheduler },
		{ "write_cache", "write back\n" },
		{ "logical_block_size", "512\n" },
		{ "physical_block_size", "4096\n" },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(path, sizeof(path), "/sys/devices/%s/queue/%s", name, files[i].name);
		put(path, files[i].text);
	}
}

TEST(a_partition_is_of_its_disk)
{
	put_disk("sda", "none [bfq] mq-deadline\n");
	put("/sys/devices/sda/sda1/partition", "1\n");
	put("/sys/devices/sda/sda1/alignment_offset", "3584\n");
	link_to("/sys/dev/block/8:1", "../../devices/sda/sda1");
	(void)snprintf(doctor.subject, sizeof(doctor.subject), "store t: ");
	doctor_disks(&doctor, makedev(8, 1));
	found("WARN", "store t: sda: scheduler", "bfq",
	      "echo none >/sys/block/sda/queue/scheduler");
	found("OK", "store t: sda: write cache", "write back", "");
	found("WARN", "store t: sda: alignment",
	      "off by 3584 of blocks of 512 bytes, physical ones of 4096", "1 MiB");
	ck_assert_str_eq(doctor.subject, "store t: ");
}

TEST(all_disks_below_md_and_device_mapper_are_checked)
{
	put_disk("sda", "[none]\n");
	put_disk("sdb", "[mq-deadline] none\n");
	put("/sys/devices/sdb/sdb2/partition", "2\n");
	put("/sys/devices/sdb/sdb2/alignment_offset", "0\n");
	link_to("/sys/devices/md0/slaves/sda", "../../sda");
	link_to("/sys/devices/md0/slaves/sdb2", "../../sdb/sdb2");
	link_to("/sys/devices/dm-0/slaves/md0", "../../md0");
	link_to("/sys/dev/block/253:0", "../../devices/dm-0");
	doctor_disks(&doctor, makedev(253, 0));
	found("OK", "sda: scheduler", "none", "");
	found("OK", "sdb: scheduler", "mq-deadline", "");
	found("OK", "sdb: alignment", "off by 0 of blocks of 512 bytes", "");
	ck_assert_uint_eq(json_object_array_length(doctor.findings), 6);
}

/* The kernel makes no such circle. */
TEST(layers_have_an_end)
{
	link_to("/sys/devices/dm-0/slaves/dm-0", "../../dm-0");
	link_to("/sys/dev/block/253:0", "../../devices/dm-0");
	doctor_disks(&doctor, makedev(253, 0));
	found("OK", "dm-0: scheduler", "none", "");
}

TEST(a_device_that_sysfs_does_not_have_is_no_finding)
{
	doctor_disks(&doctor, makedev(1, 1));
	ck_assert_uint_eq(json_object_array_length(doctor.findings), 0);
}

/* It is no drive, which the kernel says. */
TEST(wear_is_asked_of_nvme_drives)
{
	put_disk("nvme0n1", "[none]\n");
	put("/dev/nvme0n1", "");
	link_to("/sys/dev/block/259:0", "../../devices/nvme0n1");
	doctor_disks(&doctor, makedev(259, 0));
	found("WARN", "nvme0n1: wear", "cannot be read: Inappropriate ioctl for device", "sudo");
}

TEST(stores_are_looked_at_one_by_one)
{
	Wire__Store stores[3] = { WIRE__STORE__INIT, WIRE__STORE__INIT, WIRE__STORE__INIT };
	Wire__Store *list[] = { &stores[0], &stores[1], &stores[2] };

	doctor.status = &status;
	status.stores = list;
	status.n_stores = 3;
	stores[0].name = "a";
	stores[0].path = dir;
	stores[0].fs_type = "ext4";
	stores[0].engine = "libaio";
	stores[1].name = "b";
	stores[1].path = "/nonexistent";
	stores[1].fs_type = "fuse";
	stores[1].is_blocking = true;
	stores[1].engine_text = "io_submit waits: measured in 16 of 16 reads";
	stores[2].name = "c";
	stores[2].path = "/dev/shm";
	stores[2].fs_type = "tmpfs";
	stores[2].is_blocking = true;
	doctor_stores(&doctor);
	found("OK", "store a: engine", "ext4 at /var/tmp/", "");
	found("WARN", "store b: engine", ": worker threads: io_submit waits", "ext4 or xfs");
	found("WARN", "store b: disks", "/nonexistent", "sudo");
	found("OK", "store c: engine", "tmpfs at /dev/shm: worker threads", "");
	ck_assert_str_eq(doctor.subject, "");
}

/* It once said only OK of a store that hung. */
TEST(a_store_that_hangs_or_has_errors_is_no_ok)
{
	Wire__Store store = WIRE__STORE__INIT, *list[] = { &store };
	Wire__Counters counters = WIRE__COUNTERS__INIT;

	doctor.status = &status;
	status.stores = list;
	status.n_stores = 1;
	store.name = "a";
	store.path = "/nonexistent";
	store.counters = &counters;
	counters.errors = 36;
	store.hung = 2;
	store.is_drained = true;
	doctor_stores(&doctor);
	found("FAIL", "store a: calls", "2 hang", "dsaioctl status");
	found("WARN", "store a: ops", "36 failed since", "DSAIO_EVENT=io-error");
	found("WARN", "store a: drained", "refuses", "dsaioctl undrain a");
	ck_assert_uint_eq(json_object_array_length(doctor.findings),
			  4); /* its path is not looked at */
	doctor.findings = (json_object_put(doctor.findings), json_object_new_array());
	counters.errors = store.hung = 0;
	store.is_drained = false;
	doctor_stores(&doctor);
	found("OK", "store a: calls", "0 hang", "");
	found("OK", "store a: ops", "0 failed", "");
	found("WARN", "store a: disks", "/nonexistent", "sudo");
}

TEST(a_store_on_rados_has_a_cluster_and_no_disks)
{
	Wire__Store store = WIRE__STORE__INIT, *list[] = { &store };

	doctor.status = &status;
	status.stores = list;
	status.n_stores = 1;
	store.name = "c";
	store.path = "rados://tensors/llama";
	doctor_stores(&doctor);
	found("OK", "store c: cluster", "online", "");
	found("OK", "store c: pauses", "0", "");
	ck_assert_uint_eq(json_object_array_length(doctor.findings), 5);
	doctor.findings = (json_object_put(doctor.findings), json_object_new_array());
	store.is_offline = true;
	store.offline_text = "no monitor answers";
	store.pauses = 3;
	store.longest_pause_usec = 6300000;
	doctor_stores(&doctor);
	found("FAIL", "store c: cluster", "no monitor answers", "ceph -s");
	found("WARN", "store c: pauses", "3 since the daemon's start, the longest of 6.30 s",
	      "ceph osd perf");
}

/* ---- wear ---- */

/* The first 192 bytes of a page, as a drive of 1 TB has it after three years; the rest is 0. */
static const uint8_t recorded[DOCTOR_SMART_BYTES] = {
	0x00,	      0x38,	    0x01,	  0x64, 0x0a,	      0x17,
	0x00,	      0x00, /* no warning, 312 K, spare 100%, 10%, used 23% */
	[32] = 0x9e,  0x21,	    0x3f,	  0x0b,	      /* read */
	[48] = 0x00,  0xe1,	    0xf5,	  0x05,	      /* written: 100,000,000 units */
	[64] = 0x15,  0xcd,	    0x5b,	  0x07, 0x01, /* commands */
	[80] = 0xb1,  0x68,	    0xde,	  0x3a, 0x02,	      [96] = 0x40,
	0x1f,	      [112] = 0x3a, [128] = 0x90, 0x65, [144] = 0x0c, [160] = 0x00,
	[176] = 0x07, [200] = 0x38, 0x01,	  0x4b, 0x01, /* sensors */
};

TEST(a_recorded_page_of_a_drive_in_good_health)
{
	doctor_smart(&doctor, recorded);
	found("OK", "health", "critical warnings: 0", "");
	found("OK", "wear", "23% used, 100% spare (at least 10%), 46.6 TiB written", "");
}

static const struct {
	unsigned byte;
	uint8_t value;
	const char *level, *what, *text;
} smarts[] = {
	{ 0, 0x01, "FAIL", "health", "critical warnings: 0x1" },
	{ 0, 0x0c, "FAIL", "health", "critical warnings: 0xc" },
	{ 0, 0x80, "FAIL", "health", "critical warnings: 0x80" },
	{ 3, 9, "FAIL", "wear", "9% spare (at least 10%)" },
	{ 3, 10, "OK", "wear", "10% spare (at least 10%)" },
	{ 5, 79, "OK", "wear", "79% used" },
	{ 5, 80, "WARN", "wear", "80% used" },
	{ 5, 100, "FAIL", "wear", "100% used" },
	{ 5, 255, "FAIL", "wear", "255% used" },
	{ 63, 1, "OK", "wear", "spare (at least 10%), 6189700196426901" }, /* cut */
};

TEST_TABLE(a_page_with_one_other_byte, smarts)
{
	uint8_t page[DOCTOR_SMART_BYTES];

	memcpy(page, recorded, sizeof(page));
	page[smarts[_i].byte] = smarts[_i].value;
	doctor_smart(&doctor, page);
	found(smarts[_i].level, smarts[_i].what, smarts[_i].text,
	      strcmp(smarts[_i].level, "OK") == 0 ? "" : " ");
}

TEST_MAIN
