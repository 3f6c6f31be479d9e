/*
 * An error on its way to the edge: the negative errno and the message made where the values
 * were known.  It is logged or sent once, at the edge.
 */
#ifndef DSAIO_DAEMON_BASE_ERROR_H
#define DSAIO_DAEMON_BASE_ERROR_H

#define ERROR_TEXT_BYTES 480

struct error {
	int code; /* negative errno */
	char text[ERROR_TEXT_BYTES];
};

/*
 * Fills in *error and returns code.  The message gets ": " and the errno's text behind it.
 * error_set_plain() leaves the message as it is.
 */
int error_set(struct error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int error_set_plain(struct error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
