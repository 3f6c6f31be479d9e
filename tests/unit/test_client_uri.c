#include "client/lib/base/uri.h"

#include "client/lib/dsaio.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *name;
	int result;
	const char *path; /* or a word of the message */
} names[] = {
	{ "/x/y", 0, "/x/y" },
	{ "x", 0, "x" },
	{ "", 0, "" },
	{ "/a%20b", 0, "/a%20b" },
	{ "./rados://x", 0, "./rados://x" },
	{ "/rados://x", 0, "/rados://x" },
	{ "a:b", 0, "a:b" },
	{ "a:/b", 0, "a:/b" },
	{ "://x", 0, "://x" },
	{ "1a://x", 0, "1a://x" },
	{ "a_b://x", 0, "a_b://x" },
	{ "file:///x/y", 0, "/x/y" },
	{ "FILE:///x", 0, "/x" },
	{ "file://localhost/x", 0, "/x" },
	{ "file:///a%20b%2fc%C3%A9", 0, "/a b/c\xc3\xa9" },
	{ "file:///%", -EINVAL, "hexadecimal" },
	{ "file:///%4", -EINVAL, "hexadecimal" },
	{ "file:///%g0", -EINVAL, "hexadecimal" },
	{ "file:///%00", -EINVAL, "hexadecimal" },
	{ "file://host/x", -EINVAL, "file:///x/y" },
	{ "file://localhost", -EINVAL, "file:///x/y" },
	{ "file://x", -EINVAL, "file:///x/y" },
	{ "rados://pool/object", -EPROTONOSUPPORT, "scheme rados" },
	{ "s3+x-1.0://bucket", -EPROTONOSUPPORT, "scheme s3+x-1.0" },
	{ "filex:///x", -EPROTONOSUPPORT, "scheme filex" },
	{ "fil:///x", -EPROTONOSUPPORT, "scheme fil:" },
};

TEST_TABLE(a_name_is_a_path_or_a_uri, names)
{
	char *path = NULL;
	int r = uri_path(names[_i].name, &path);

	ck_assert_msg(r == names[_i].result, "%s: %d", names[_i].name, r);
	if (r == 0)
		ck_assert_str_eq(path, names[_i].path);
	else
		ck_assert_msg(strstr(dsaio_error(), names[_i].path), "%s", dsaio_error());
	free(path);
}

TEST_MAIN
