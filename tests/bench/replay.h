/* bench replay: calls of a training step, made again in C. */
#ifndef DSAIO_TESTS_BENCH_REPLAY_H
#define DSAIO_TESTS_BENCH_REPLAY_H

/* argv[0] is "replay"; the program's exit status. */
int replay_main(int argc, char **argv);

#endif
