#include "daemon/base/privileges.h"

#include "daemon/base/log.h"
#include "proto/util/socket.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SERVICE_USER "dsaiod"
/* The kernel's overflowuid, which Debian calls nobody; no file system reserves blocks for it. */
#define NOBODY 65534u

#define BIT(capability) (UINT64_C(1) << (capability))
#define KEPT BIT(CAP_IPC_LOCK)
/* Until the start is over: to find the stores, and to empty the bounding set. */
#define SAVED_FOR_START (KEPT | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SETPCAP))

static bool has_nobodys_ids; /* written once, before any other thread */

/* ---- capabilities ---- */

/* Keeps at most these, of those that it may have.  0 or -errno. */
static int capabilities_limit(uint64_t kept)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 }; /* of the second valgrind knows nothing */
	bool is_more = false;

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t permitted = data[i].permitted & (uint32_t)(kept >> 32 * i);

		is_more |= data[i].permitted != permitted || data[i].effective != permitted ||
			   data[i].inheritable;
		data[i] = (struct __user_cap_data_struct){ .effective = permitted,
							   .permitted = permitted };
	}
	/* A service's seccomp filter may forbid capset(2): not called for nothing. */
	return is_more && syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Needs CAP_SETPCAP; without, no_new_privs keeps the set from mattering. */
static void bounding_set_limit(uint64_t kept)
{
	for (int i = 0; prctl(PR_CAPBSET_READ, i) >= 0; i++)
		if (!(kept & BIT(i)))
			(void)prctl(PR_CAPBSET_DROP, i);
}

/* ---- the user ---- */

/* Whether path is there and belongs to another user than uid. */
static bool is_others(const char *path, uid_t uid, uid_t *ret_owner)
{
	struct stat st;

	if (stat(path, &st) < 0 || st.st_uid == uid)
		return false;
	*ret_owner = st.st_uid;
	return true;
}

/*
 * The directory that keeps the daemon from running as uid, or NULL: it could not remove its socket
 * at the end, and clients would find a dead one; or not save profiles.
 */
static const char *find_obstacle(const char *socket_path, const char *state_dir, uid_t uid,
				 char *dir, uid_t *ret_owner)
{
	char *slash;

	(void)snprintf(dir, SOCKET_PATH_BYTES, "%s", socket_path); /* it fits: checked */
	slash = strrchr(dir, '/');
	if (!slash)
		(void)strcpy(dir, ".");
	else
		slash[slash == dir] = 0; /* "/" stays */
	if (is_others(dir, uid, ret_owner))
		return dir;
	return state_dir && is_others(state_dir, uid, ret_owner) ? state_dir : NULL;
}

static int user_change(const struct passwd *user)
{
	int r = 0;

	(void)prctl(PR_SET_KEEPCAPS, 1); /* known to every kernel; exec would end it */
	if (setgroups(0, NULL) < 0 || setresgid(user->pw_gid, user->pw_gid, user->pw_gid) < 0 ||
	    setresuid(user->pw_uid, user->pw_uid, user->pw_uid) < 0)
		r = -errno;
	(void)prctl(PR_SET_KEEPCAPS, 0);
	return r;
}

/* A change of user or capabilities ends the first two. */
struct process_flags {
	int death_signal, is_dumpable;
};

static struct process_flags flags_get(void)
{
	struct process_flags flags = { 0 };

	(void)prctl(PR_GET_PDEATHSIG, &flags.death_signal);
	flags.is_dumpable = prctl(PR_GET_DUMPABLE);
	return flags;
}

static void flags_set(const struct process_flags *flags)
{
	(void)prctl(PR_SET_PDEATHSIG, flags->death_signal);
	if (flags->is_dumpable == 1) /* else /proc/self belongs to root */
		(void)prctl(PR_SET_DUMPABLE, 1);
}

void privileges_change_user(const char *socket_path, const char *state_dir)
{
	struct process_flags flags = flags_get();
	const struct passwd *user;
	const char *obstacle;
	char dir[SOCKET_PATH_BYTES];
	uid_t owner = 0;
	int r;

	if (geteuid() != 0)
		return;
	user = getpwnam(SERVICE_USER);
	if (!user) {
		log_warning(
			"dsaiod: stays uid 0, without capabilities: this host has no user " SERVICE_USER
			": systemd-sysusers makes it, after make install");
		return;
	}
	obstacle = find_obstacle(socket_path, state_dir, user->pw_uid, dir, &owner);
	if (obstacle) {
		log_warning(
			"dsaiod: stays uid 0, without capabilities: %s belongs to uid %u, not to "
			"user " SERVICE_USER ": chown " SERVICE_USER " %s",
			obstacle, owner, obstacle);
		return;
	}
	/* A directory that was there is not touched: it may be anyone's. */
	if (state_dir && mkdir(state_dir, 0700) == 0 &&
	    lchown(state_dir, user->pw_uid, user->pw_gid) < 0)
		log_warning("dsaiod: %s: chown " SERVICE_USER ": %s: profiles are not saved",
			    state_dir, strerrordesc_np(errno));
	r = user_change(user);
	if (r < 0)
		log_warning("dsaiod: stays uid 0, without capabilities: user " SERVICE_USER ": %s",
			    strerrordesc_np(-r));
	else
		/* As permitted as before, so it cannot fail for want of a right. */
		(void)capabilities_limit(SAVED_FOR_START);
	flags_set(&flags);
}

/* ---- nobody's ids ---- */

void privileges_own_files(void)
{
	if (!has_nobodys_ids)
		return;
	(void)setfsuid(geteuid()); /* both tell what was there before, never an error */
	(void)setfsgid(getegid());
}

int privileges_drop(bool is_user, struct error *error)
{
	struct process_flags flags = flags_get();
	int r;

	bounding_set_limit(KEPT);
	if (geteuid() == 0 && !is_user) {
		(void)setgroups(0, NULL); /* without CAP_SETGID: root's groups stay, the uid goes */
		(void)setfsgid(NOBODY);	  /* tells what was there before, never an error */
		(void)setfsuid(NOBODY);
		has_nobodys_ids = setfsuid((uid_t)-1) == NOBODY; /* -1 only tells */
		if (!has_nobodys_ids)
			log_warning("dsaiod: cannot take the file-system uid of nobody: clients' "
				    "writes may use blocks that ext4 reserves for root: give it "
				    "CAP_SETUID at the start, or start it as another user");
	}
	r = capabilities_limit(KEPT);
	if (r < 0)
		return error_set(error, r, "dropping capabilities (capset)");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_set(error, -errno, "no_new_privs (prctl)");
	flags_set(&flags);
	return 0;
}
