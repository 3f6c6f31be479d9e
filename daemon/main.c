/*
 * dsaiod: options, signals, and the order of start and stop.
 *
 * Start: descriptor limit, configuration, engines, user, the probe of GPUs, server.  The server drops
 * privileges before the first thread starts.  Then main reports that the daemon is ready.
 *
 * Stop (SIGTERM or SIGINT): the server completes the ops that it has read.  A second signal cancels ops
 * that have not started.  The stop always waits for blocks in flight.  It does not wait long for calls that
 * move no bytes (stop_wait.h).
 */
#include "daemon/account/recorder.h"
#include "daemon/base/event.h"
#include "daemon/base/log.h"
#include "daemon/base/privileges.h"
#include "daemon/base/signals.h"
#include "daemon/base/systemd.h"
#include "daemon/check.h"
#include "daemon/config/config.h"
#include "daemon/config/keys.h"
#include "daemon/control/listen_socket.h"
#include "daemon/control/server.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/gds.h"
#include "daemon/engine/gpu_probe.h"
#include "proto/build.h"
#include "proto/dirs.h"
#include "proto/util/cleanup.h"
#include "proto/util/plural.h"
#include "proto/util/socket.h"
#include "proto/version.h" /* the version is the project's */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STATUS_FINE = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

#define CONFIG_SYSTEM DSAIO_SYSCONFDIR "/dsaiod/dsaiod.conf"

static const char help[] =
	"dsaiod - serve tensors to and from NVMe for all programs of this host\n"
	"\n"
	"usage: dsaiod [--user] [--config FILE] [--socket PATH] [--store NAME=DIR]...\n"
	"              [--check-config] [--fault-plan FILE]\n"
	"\n"
	"It stays in the foreground, logs to stderr, logs \"ready\" when it serves, and stops\n"
	"in order on SIGTERM or SIGINT.\n"
	"\n"
	"  serve one file system, named nvme0, on the usual socket:\n"
	"      dsaiod --store nvme0=/mnt/nvme0\n"
	"  your own, without root, as the library starts it if there is no daemon:\n"
	"      dsaiod --user\n"
	"  check a configuration, and serve nothing:\n"
	"      dsaiod --config ./dsaiod.conf --check-config\n"
	"\n"
	"options:\n"
	"  --user             a user's own daemon: on $XDG_RUNTIME_DIR/dsaiod/dsaiod.sock (else\n"
	"                     /tmp/dsaiod-UID/dsaiod.sock), ends 60 s after its last client\n"
	"  --config FILE      read settings here (else " CONFIG_SYSTEM ",\n"
	"                     with --user ~/.config/dsaiod/dsaiod.conf, if it is there),\n"
	"                     then those of FILE.d/*.conf; the options below come on top\n"
	"  --socket PATH      where to listen (" SOCKET_SYSTEM ")\n"
	"  --store NAME=DIR   serve files on DIR's file system, or a block device; repeatable\n"
	"  --check-config     check configuration, socket and stores, then exit\n"
	"  --fault-plan FILE  for tests: makes I/O fail as FILE says, which only root\n"
	"                     (--user: you) may write\n"
	"  --sample-config    print a configuration file that shows all keys, with --user that of\n"
	"                     a user's own daemon\n"
	"  --help             print this\n"
	"  -V, --version      print the version\n"
	"\n"
	"A configuration file (dsaiod.conf(5) has all keys):\n"
	"  [daemon]\n"
	"  pool_size = 64G            ; of pinned memory for all\n"
	"  [store nvme0]\n"
	"  path = /mnt/nvme0\n"
	"  queue_depth = 64           ; of the profile of handles without their own\n"
	"\n"
	"exit status: 0 orderly stop, or the configuration is right; 1 it cannot start;\n"
	"             2 options or configuration are wrong\n";

/* The options that are not settings. */
struct options {
	const char *config_path; /* NULL: the default path */
	const char *fault_path;	 /* NULL: no faults */
	bool is_user, has_socket;
	bool only_check, wants_sample;
	bool is_done; /* --help, --version or --sample-config: nothing remains to do */
};

static void config_deinitp(struct config *config)
{
	config_deinit(config);
}

/* An output that was cut must not look whole: a full disk would leave a cut configuration. */
static int stdout_flush(void)
{
	if (!ferror(stdout) && fflush(stdout) == 0)
		return 0;
	log_mistake("dsaiod: standard output: cannot write all of it: %s", strerrordesc_np(errno));
	return -EIO;
}

/*
 * A pass over the options.  The first sets only *options, which decides the configuration file.  In the second the
 * options that are settings override those of config.  Returns 0, or -EINVAL: a mistake of config.
 */
static int options_pass(int argc, char **argv, struct options *options, bool is_first,
			struct config *config)
{
	static const struct option longs[] = { { "user", no_argument, NULL, 'u' },
					       { "config", required_argument, NULL, 'c' },
					       { "socket", required_argument, NULL, 's' },
					       { "store", required_argument, NULL, 'd' },
					       { "fault-plan", required_argument, NULL, 'f' },
					       { "check-config", no_argument, NULL, 'k' },
					       { "sample-config", no_argument, NULL, 'p' },
					       { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'V' },
					       { 0 } };
	struct error error;
	int option, r = 0;

	optind = 0; /* glibc: restarts the parse */
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":V", longs, NULL)) != -1) {
		switch (option) {
		case 'u':
			options->is_user = true;
			break;
		case 'c':
			options->config_path = optarg;
			break;
		case 's':
			options->has_socket = true;
			r = is_first ? 0 : config_set_socket(config, optarg, &error);
			break;
		case 'd':
			r = is_first ? 0 : config_add_store(config, optarg, &error);
			break;
		case 'f':
			options->fault_path = optarg;
			break;
		case 'k':
			options->only_check = true;
			break;
		case 'p':
			options->wants_sample = true;
			break;
		case 'h':
			(void)fputs(help, stdout); /* stdout_flush() reports an error */
			options->is_done = true;
			return stdout_flush();
		case 'V':
			(void)printf("dsaiod %s (build %s)\n", DSAIO_VERSION, DSAIO_BUILD);
			options->is_done = true;
			return stdout_flush();
		default: /* ':' or '?' */
			r = error_set_plain(&error, -EINVAL, "%s: %s: see dsaiod --help",
					    argv[optind - 1],
					    option == ':' ? "needs a value"
							  : "no such option, or it takes no value");
			break;
		}
		if (r < 0) {
			config_mistake(config, "%s", error.text);
			return -EINVAL;
		}
	}
	if (optind < argc) {
		config_mistake(config,
			       "%s: not an option; a store is named by --store NAME=DIR, see "
			       "dsaiod --help",
			       argv[optind]);
		return -EINVAL;
	}
	if (options->wants_sample) {
		keys_print(stdout, options->is_user);
		options->is_done = true;
		return stdout_flush();
	}
	return 0;
}

/* The default configuration file, which need not exist; or NULL: it has no place. */
static const char *config_usual(const struct options *options, char *path, size_t size)
{
	const char *home = secure_getenv("HOME"), *config_home = secure_getenv("XDG_CONFIG_HOME");
	size_t n;

	if (!options->is_user)
		n = (size_t)snprintf(path, size, CONFIG_SYSTEM);
	else if (config_home && *config_home == '/') /* XDG: relative paths are ignored */
		n = (size_t)snprintf(path, size, "%s/dsaiod/dsaiod.conf", config_home);
	else if (home && *home == '/')
		n = (size_t)snprintf(path, size, "%s/.config/dsaiod/dsaiod.conf", home);
	else
		return NULL;
	return n < size ? path : NULL;
}

/* Sets the default socket of a user's own daemon, whose directory is made and checked. */
static int socket_usual(struct config *config, struct error *error)
{
	struct socket_dir dir = { .fd = -1 };
	int r = socket_dir_open(true, &dir, error->text, sizeof(error->text));

	if (r < 0)
		return r;
	closep(&dir.fd);
	return config_set_socket(config, dir.path, error);
}

/* Options override the files, wherever --config stands.  Returns 0, or -EINVAL: mistakes of config. */
static int options_read(int argc, char **argv, struct config *config, struct options *ret_options)
{
	struct options options = { 0 };
	struct error error;
	const char *path;
	char usual[PATH_MAX];
	int r;

	r = options_pass(argc, argv, &options, true, config);
	if (r < 0)
		return r;
	*ret_options = options;
	if (options.is_done)
		return 0;
	if (options.is_user)
		config_set_user(config);
	path = options.config_path ? options.config_path
				   : config_usual(&options, usual, sizeof(usual));
	if (path && config_read(config, path, options.config_path, &error) < 0) {
		config_mistake(config, "%s", error.text); /* behind those in the lines before it */
		return -EINVAL;
	}
	r = options_pass(argc, argv, &options, false, config);
	return r < 0 ? r : config_check(config, &error); /* the error is the first mistake */
}

static struct {
	int argc;
	char **argv;
} command_line;

/* For a reload, on a worker thread: no other thread looks at options or configuration files. */
static int config_reread(struct config *config)
{
	struct options options = { 0 };
	int r = config_init(config);

	if (r < 0)
		return r;
	config->build = DSAIO_BUILD;
	config->reread = config_reread;
	r = options_read(command_line.argc, command_line.argv, config, &options);
	return r < 0 ? r : check_host(config);
}

static void limit_raise(__rlimit_resource_t resource)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(resource, &limit); /* on failure the limits follow the lower value */
}

/* A stop by signals. */
struct stop {
	struct server *server;
	unsigned n_signals;
};

static const struct server *crash_server; /* while it serves */

/* Only what a signal handler may call; the log's lock may be held. */
static void on_crash(int number)
{
	const uint32_t n_clients = crash_server ? server_n_clients(crash_server) : 0;
	const uint64_t n_ops = crash_server ? server_n_open_ops(crash_server) : 0;
	char text[128];
	int n = snprintf(text, sizeof(text),
			 "dsaiod: crashed (SIG%s): had %" PRIu32 " client%s and %" PRIu64
			 " open op%s\n",
			 sigabbrev_np(number), n_clients, plural(n_clients), n_ops, plural(n_ops));

	recorder_note_crash(number);
	log_crash(text, (size_t)n);
	(void)raise(
		number); /* SA_RESETHAND: it ends the daemon, with a core dump if these are wanted */
}

static void crash_watch(const struct server *server)
{
	const struct sigaction action = { .sa_handler = on_crash,
					  .sa_flags = (int)(SA_RESETHAND | SA_NODEFER) };
	struct sigaction old;

	crash_server = server;
	for (size_t i = 0; i < SIGNALS_CRASH; i++)
		if (sigaction(signals_crash[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			(void)sigaction(signals_crash[i], &action,
					NULL); /* else a sanitizer reports it */
}

/* The third signal and further ones change nothing, so they are not logged. */
static void on_stop(evutil_socket_t number, short what, void *arg)
{
	struct stop *stop = arg;
	const uint32_t n_clients = server_n_clients(stop->server);
	const uint64_t n_ops = server_n_open_ops(stop->server);

	(void)what;
	stop->n_signals++;
	/* sd_notifyf() fails if systemd did not start the daemon */
	if (stop->n_signals == 1) {
		log_event(
			NULL, LOG_FIELDS(.event = "stopping"),
			"dsaiod: stopping on %s: disconnects %" PRIu32 " client%s with %" PRIu64
			" open op%s: ops that were read complete first; another signal cancels them",
			strsignal(number), n_clients, plural(n_clients), n_ops, plural(n_ops));
		(void)sd_notifyf(false, "STOPPING=1\nSTATUS=completing the ops that were read");
	} else if (stop->n_signals == 2) {
		log_notice(
			"dsaiod: %s during the stop: cancels %" PRIu64
			" open op%s: blocks that have not started are dropped; blocks in flight complete first",
			strsignal(number), n_ops, plural(n_ops));
		(void)sd_notifyf(false, "STATUS=completing the blocks in flight");
	}
	server_stop(stop->server);
}

CLEANUP_FUNCTION(struct event_base, event_base_free)

static struct event_base *base_new(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (!config)
		return NULL;
	/* Only this thread uses the base; other threads write to the mailbox's eventfd. */
	if (event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0)
		base = event_base_new_with_config(config);
	event_config_free(config);
	return base;
}

/* A reload has a result, which a signal could not return. */
static void on_hangup(evutil_socket_t number, short what, void *arg)
{
	(void)number;
	(void)what;
	(void)arg;
	log_notice(
		"dsaiod: SIGHUP has no effect: dsaioctl reload reads the configuration again, and reports what "
		"has changed");
}

/* False: the log has the cause. */
static bool start_server(struct config *config, struct event_base *base,
			 struct gpu_probe *gpu_probe, struct server **ret_server)
{
	/* Whoever handed over the socket reads the log when no descriptor of it is left: then it has the cause. */
	_cleanup_(closep) int held_fd = -1;
	struct error error;

	if (sd_listen_fds(false) == 1)
		held_fd = fcntl(SD_LISTEN_FDS_START, F_DUPFD_CLOEXEC, SD_LISTEN_FDS_START);
	if (server_new(config, base, gpu_probe, ret_server, &error) == 0)
		return true;
	log_error("dsaiod: cannot start: %s", error.text);
	return false;
}

static int serve(struct config *config)
{
	_cleanup_(event_base_freep) struct event_base *base = base_new();
	_cleanup_(event_freep) struct event *term = NULL;
	_cleanup_(event_freep) struct event *interrupt = NULL;
	_cleanup_(event_freep) struct event *hangup = NULL;
	_cleanup_(gpu_probe_freep) struct gpu_probe *gpu_probe = NULL;
	const struct gpu_probe_options gpu_options = { .cuda_library = config->cuda_library,
						       .cufile_library = config->cufile_library,
						       .is_user = config->is_user,
						       .limit_msec = GPU_PROBE_MSEC,
						       .is_needed = config->gpu ==
								    GPU_MODE_DIRECT };
	struct server *server;
	struct stop stop;
	bool is_over;

	if (!base) {
		log_error("dsaiod: cannot start: no event loop: %s", strerrordesc_np(errno));
		return STATUS_FAILED;
	}
	/* Its process is made before the start lock, the socket and threads. */
	gpu_probe = gpu_probe_new(&gpu_options, base);
	gds_init(config->cuda_library, config->cufile_library);
	if (!start_server(config, base, gpu_probe, &server))
		return STATUS_FAILED;
	crash_watch(server);
	stop = (struct stop){ .server = server };
	term = evsignal_new(base, SIGTERM, on_stop, &stop);
	interrupt = evsignal_new(base, SIGINT, on_stop, &stop);
	hangup = evsignal_new(base, SIGHUP, on_hangup, NULL);
	if (!term || !interrupt || !hangup || event_add(term, NULL) < 0 ||
	    event_add(interrupt, NULL) < 0 || event_add(hangup, NULL) < 0) {
		log_error("dsaiod: cannot start: signals: %s", strerrordesc_np(errno));
		server_free(server);
		return STATUS_FAILED;
	}

	log_event(NULL, LOG_FIELDS(.event = "ready"), "dsaiod: ready: %s: %u configured store%s",
		  config->socket_path, config->n_stores, plural(config->n_stores));
	(void)sd_notifyf(false, "READY=1\nSTATUS=serving on %s", config->socket_path);
	(void)event_base_dispatch(base); /* server_stop() ends it */
	crash_server = NULL;		 /* which frees it */
	is_over = server_end(server) && gds_end();
	log_event(NULL, LOG_FIELDS(.event = "stopped"), "dsaiod: stopped");
	if (!is_over)
		_exit(STATUS_FINE); /* exit(3) runs code of the driver's, which may wait for what hangs */
	return STATUS_FINE;
}

/* Opens standard descriptors that are closed, else a socket could get number 2 and the log with it. */
static void stdio_open(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR); /* not O_CLOEXEC: standard descriptors */
	while (fd >= 0 && fd <= STDERR_FILENO);
	closep(&fd);
}

static int run(int argc, char **argv)
{
	_cleanup_(config_deinitp) struct config config;
	struct options options = { 0 };
	struct error error;

	if (config_init(&config) < 0) {
		log_error("dsaiod: %s", strerrordesc_np(ENOMEM));
		return STATUS_FAILED;
	}
	config.build = DSAIO_BUILD;
	config.reread = config_reread;
	command_line.argc = argc;
	command_line.argv = argv;
	if (options_read(argc, argv, &config, &options) < 0) {
		config_log_mistakes(&config, "");
		return STATUS_USAGE;
	}
	if (options.is_done)
		return STATUS_FINE;
	if (options.fault_path &&
	    engines_make_fail(options.fault_path, config.is_user, &error) < 0) {
		log_mistake("dsaiod: --fault-plan: %s", error.text);
		return STATUS_USAGE;
	}
	if (options.only_check) {
		const int host = check_host(&config);

		check_memory(&config);
		if (check_stores(&config) < 0 || host < 0) {
			config_log_mistakes(&config, "");
			return STATUS_USAGE;
		}
		(void)printf("dsaiod: the configuration is right: %u store%s%s\n", config.n_stores,
			     plural(config.n_stores),
			     config.n_files ? "" : "; there is no configuration file");
		return STATUS_FINE;
	}
	if (!config.socket_path && socket_usual(&config, &error) < 0) {
		log_error("dsaiod: cannot start: %s", error.text);
		return STATUS_FAILED;
	}
	if (!config.is_user)
		privileges_change_user(config.socket_path, config.state_dir);
	return serve(&config);
}

int main(int argc, char **argv)
{
	int waiting_fd, status;

	/* Threads allocate little: an arena per thread would cost more memory than they use. */
	(void)mallopt(M_ARENA_MAX, 2);
	stdio_open();
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail, like the next three */
	(void)signal(SIGHUP, SIG_IGN);	/* until on_hangup() handles it */
	(void)signal(SIGIO, SIG_IGN);	/* of leases: view.h */
	/* RLIMIT_FSIZE may come from the program that started the daemon: calls then return EFBIG. */
	(void)signal(SIGXFSZ, SIG_IGN);
	log_init();
	limit_raise(RLIMIT_NOFILE); /* each file, slab and channel of a client needs descriptors */
	limit_raise(RLIMIT_FSIZE);  /* limits slabs and clients' writes */
	waiting_fd = listen_socket_hold();
	status = run(argc, argv);
	if (status != STATUS_FINE)
		listen_socket_refuse(waiting_fd);
	return status;
}
