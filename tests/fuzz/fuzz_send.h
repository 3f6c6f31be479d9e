/*
 * For fuzz targets whose input comes by a socket.
 */
#ifndef DSAIO_TESTS_FUZZ_FUZZ_SEND_H
#define DSAIO_TESTS_FUZZ_FUZZ_SEND_H

#include "proto/frame.h"

#include <string.h>
#include <sys/socket.h>

/* As sendmsg(2) of those bytes and descriptors. */
static inline ssize_t fuzz_send(int fd, const void *bytes, size_t size, const int *fds,
				size_t n_fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(FRAME_FDS_RECEIVED_MAX * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)(uintptr_t)bytes, size };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL);
}

#endif
