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

static const struct {
	const char *name;
	int result;
	const char *full; /* or a word of the message */
} rados[] = {
	{ "rados://pool/ns/file", 0, "rados://pool/ns/file" },
	{ "RaDoS://Pool/NS/File", 0, "rados://Pool/NS/File" },
	{ "rados://pool//x", 0, "rados://pool//x" },
	{ "rados://pool/ns/", 0, "rados://pool/ns/" },
	{ "rados://pool/ns/a%20b%2fc", 0, "rados://pool/ns/a b/c" },
	{ "rados://po%20ol/n%2fs/x", 0, "rados://po%20ol/n%2fs/x" },
	{ "rados://pool/ns/%2", -EINVAL, "hexadecimal" },
	{ "rados://pool/ns/%00", -EINVAL, "hexadecimal" },
	{ "rados://", -EINVAL, "rados://POOL/NAMESPACE/FILE" },
	{ "rados:///ns/x", -EINVAL, "rados://POOL/NAMESPACE/FILE" },
	{ "rados://pool", -EINVAL, "rados://POOL/NAMESPACE/FILE" },
	{ "rados://pool/ns", -EINVAL, "rados://POOL/NAMESPACE/FILE" },
	{ "radosx://pool/ns/x", -EINVAL, "no file of a RADOS store" },
	{ "file:///x", -EINVAL, "no file of a RADOS store" },
	{ "/rados://pool/ns/x", -EINVAL, "no file of a RADOS store" },
	{ "", -EINVAL, "no file of a RADOS store" },
};

TEST_TABLE(a_name_of_a_rados_store_has_one_form, rados)
{
	char *full = NULL;
	int r = uri_rados(rados[_i].name, &full);

	ck_assert_msg(r == rados[_i].result, "%s: %d", rados[_i].name, r);
	if (r == 0)
		ck_assert_str_eq(full, rados[_i].full);
	else
		ck_assert_msg(strstr(dsaio_error(), rados[_i].full), "%s", dsaio_error());
	free(full);
}

TEST_MAIN
