/*
 * The ops of a trace, as a table and as JSON.
 */
#ifndef DSAIO_CLIENT_CTL_CMD_TRACE_SHOW_H
#define DSAIO_CLIENT_CTL_CMD_TRACE_SHOW_H

#include "client/ctl/cmd/trace_file.h"
#include "client/ctl/cmd/trace_ops.h"

struct json_object;

/* Cells that both kinds of rows have: "97.7 KiB", "EIO after 4 KiB". */
struct table;
void trace_add_result(struct table *table, int64_t result);

/* end_nsec: TIME is before it.  files: of the ops' lanes.  Returns 0, -ENOMEM or -EIO. */
int trace_ops_print(const struct trace_op *ops, size_t n, const struct trace_file *files,
		    uint64_t end_nsec);

struct json_object *trace_ops_json(const struct trace_op *ops, size_t n,
				   const struct trace_file *files, uint64_t end_nsec);

#endif
