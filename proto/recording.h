/*
 * The files of the flight recorder: the last events of the ops of each lane, which survive the daemon.
 *
 * They lie beside the socket: SOCKET.trace.N of the daemon that serves it, and SOCKET.last-crash.N of the last
 * daemon that did not stop in order.  A file is a header and a ring of events.  The lane alone writes the
 * events, in a mapping.  The kernel keeps what a killed daemon wrote.
 *
 * A program that reads a file may not trust it, and the lane may be writing.  The lane writes event n to its
 * place n % n_events, then sets n_written to n + 1.  So the oldest places may have newer bytes than a reader's
 * n_written says: it leaves out RECORDING_MARGIN of them, and those that were written while it read.
 */
#ifndef DSAIO_PROTO_RECORDING_H
#define DSAIO_PROTO_RECORDING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define RECORDING_MAGIC "dsaiorec"
#define RECORDING_VERSION 2u
#define RECORDING_EVENTS 16384u /* of a file that is made; a power of two */
#define RECORDING_EVENTS_MAX (1u << 16)
#define RECORDING_MARGIN 16u
#define RECORDING_FILES_MAX 128u /* N is below it: more lanes are not recorded.  A guess */
#define RECORDING_NOW "trace"
#define RECORDING_CRASH "last-crash"
#define RECORDING_SUFFIX_BYTES 24u /* room for ".last-crash.N" and its NUL */

enum recording_kind {
	RECORDING_TAKEN = 1, /* the entry was copied; opcode, file, off and len are as it says */
	RECORDING_ENDED,     /* its completion is written; result as in struct ring_completion */
	/* A request to the device was handed to the lane's engine or a worker thread, or will be in this turn; and is
	   done. */
	RECORDING_BLOCK_STARTED,
	RECORDING_BLOCK_DONE,
};

struct recording_event {
	uint64_t nsec;	   /* CLOCK_MONOTONIC at the start of the lane's turn */
	uint64_t id;	   /* of the op: its client's number for it */
	uint64_t off, len; /* 0 where the kind has none; so are the others */
	int64_t result;
	uint32_t client, channel, file, pid, uid;
	uint8_t kind, opcode;
	uint8_t zero[2];
};
static_assert(sizeof(struct recording_event) == 64, "one cache line");

struct recording {
	char magic[8];
	uint32_t version, event_bytes, n_events;
	uint32_t pid;		     /* the daemon's */
	uint64_t process_ticks;	     /* the start of that process: proto/util/process.h */
	uint64_t start_nsec;	     /* when the file was made, CLOCK_MONOTONIC, ... */
	uint64_t start_real_nsec;    /* ... and CLOCK_REALTIME */
	char store[32], program[32]; /* the store's name, and the daemon's version */
	/* Written by the handler of a signal that ends the daemon; 0: none did. */
	uint64_t crash_nsec;
	uint32_t crash_signal;
	_Alignas(64) _Atomic uint64_t n_written; /* the lane: release; a reader: acquire */
	_Alignas(64) struct recording_event events[];
};
static_assert(sizeof(struct recording) == 192, "the header is a part of the format");

#define RECORDING_BYTES(n_events) \
	(sizeof(struct recording) + (n_events) * sizeof(struct recording_event))

#endif
