/*
 * Names of files: a path, a URI of the scheme "file" (RFC 8089), or one of a file of a RADOS store.
 *
 * A URI is SCHEME://...  A path that starts with / or . is none, whatever follows.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_URI_H
#define DSAIO_CLIENT_LIB_BASE_URI_H

#include <stdbool.h>

/*
 * The path of a name.  *ret_path is the caller's, for free().  Returns 0, or with a message
 *   -EPROTONOSUPPORT  a URI of another scheme
 *   -EINVAL           a URI with another host, without an absolute path, or with a wrong escape
 *   -ENOMEM
 */
int uri_path(const char *name, char **ret_path);

bool uri_is_rados(const char *name);

/*
 * The one form of rados://POOL/NAMESPACE/FILE that the daemon takes, which checks the rest: the scheme is in small
 * letters, and FILE, which may be empty, is decoded.  *ret_name is the caller's, for free().  Returns 0, or with a
 * message -EINVAL (it is none, or has a wrong escape) or -ENOMEM.
 */
int uri_rados(const char *name, char **ret_name);

#endif
