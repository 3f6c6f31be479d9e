/*
 * Names of files: a path, or a URI of the scheme "file" (RFC 8089).
 *
 * A URI is SCHEME://...  A path that starts with / or . is none, whatever follows.
 */
#ifndef DSAIO_CLIENT_LIB_BASE_URI_H
#define DSAIO_CLIENT_LIB_BASE_URI_H

/*
 * The path of a name.  *ret_path is the caller's, for free().  Returns 0, or with a message
 *   -EPROTONOSUPPORT  a URI of another scheme
 *   -EINVAL           a URI with another host, without an absolute path, or with a wrong escape
 *   -ENOMEM
 */
int uri_path(const char *name, char **ret_path);

#endif
