/* bench full: the whole matrix, or a part of it. */
#ifndef DSAIO_TESTS_BENCH_FULL_H
#define DSAIO_TESTS_BENCH_FULL_H

/* argv[0] is "full"; the program's exit status. */
int full_main(int argc, char **argv);

#endif
