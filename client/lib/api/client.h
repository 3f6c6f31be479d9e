/*
 * The one internal call that programs of this project (dsaioctl) make beside dsaio.h.
 */
#ifndef DSAIO_CLIENT_LIB_API_CLIENT_H
#define DSAIO_CLIENT_LIB_API_CLIENT_H

#include "client/lib/dsaio.h"

struct dsaio_conn;

/* The client's connection, for dsaioctl's own requests. */
struct dsaio_conn *client_conn(struct dsaio_client *client);

#endif
