"""A client of tests/fault/restarts.c: reads and writes in each way of the package, and knows each byte of its file.

    restart_load.py FILE SEED BOARDS INDEX	BOARDS: the descriptor of the boards, of which it has the one at INDEX
"""

import asyncio
import concurrent.futures
import gc
import mmap
import os
import random
import sys
import time

import numpy

import dsaio
import dsaio.numpy

N_OPS = 12
PIECE = 96 << 10
BATCH = N_OPS * PIECE
FILE_BYTES = 8 << 20
MUST_STOP, ROUNDS, OPS, REPEATED, LONGEST_USEC = range(5)  # of struct board
BOARD_FIELDS = 8


class Client:
    """What a program has open.  All is made anew now and then."""

    def __init__(self, path):
        self.path = path
        self.handle = dsaio.Handle(dsaio.Profile(overlap_events=True))
        self.aio = dsaio.aio_handle(block_size=64 << 10, queue_depth=8)
        self.file = dsaio.File(path, os.O_RDWR | os.O_CREAT)
        self.raw = dsaio.open(path, "r+b", handle=self.handle)
        nbytes = BATCH + 4096
        fd = os.memfd_create("load")
        os.ftruncate(fd, nbytes)
        shared = mmap.mmap(fd, nbytes)
        self.registration = dsaio.register(shared)
        os.close(fd)
        self.memory = [dsaio.numpy.empty(nbytes, "u1"), numpy.empty(nbytes, "u1"), numpy.frombuffer(shared, "u1")]
        self.ops = []

    def start(self, verb, array, offset):
        submit = self.handle.submit_read if verb == "read" else self.handle.submit_write
        self.ops.append(submit(array, self.file, offset))
        return self.ops[-1]

    def end(self):
        """Ops of a batch of which one has failed may be open."""
        dsaio.wait(self.ops)
        self.ops.clear()

    def close(self):
        self.raw.close()
        self.handle.close()
        self.aio.close()
        self.file.close()
        self.registration.close()


# ---- ways to read or write a batch of arrays ----


def one_by_one(client, verb, batch):
    for op in [client.start(verb, *each) for each in batch]:
        op.wait()


def many(client, verb, batch):
    submit = client.handle.submit_reads if verb == "read" else client.handle.submit_writes
    client.ops += submit([(array, client.path, offset) for array, offset in batch])
    is_open = set(client.ops)
    while is_open:
        ended, is_open = dsaio.wait(is_open, return_when=dsaio.FIRST_COMPLETED)
        for op in ended:
            op.wait()


def futures(client, verb, batch):
    for future in concurrent.futures.as_completed([client.start(verb, *each).future() for each in batch]):
        future.result()


def awaited(client, verb, batch):
    async def transfer(array, offset):
        return await client.start(verb, array, offset)

    async def main():
        await asyncio.gather(*(transfer(*each) for each in batch))

    asyncio.run(main())


def deepnvme(client, verb, batch):
    start = client.aio.async_pread if verb == "read" else client.aio.async_pwrite
    for array, offset in batch:
        assert start(array, client.path, offset) == 0
    assert client.aio.wait() == len(batch)


def in_sync(client, verb, batch):
    run = client.aio.sync_pread if verb == "read" else client.aio.sync_pwrite
    for array, offset in batch:
        assert run(array, client.file, offset) == 1


def file_object(client, verb, batch):
    for array, offset in batch:
        client.raw.seek(offset)
        assert (client.raw.readinto if verb == "read" else client.raw.write)(array) == len(array)


def sync(client, *_):
    client.handle.submit_fsync(client.file).wait()


WAYS = (one_by_one, many, futures, awaited, deepnvme, in_sync, file_object)


def run(board, way, client, *arguments):
    """Repeats it where an op was in flight at two crashes, as its message says."""
    is_done = False
    while not is_done:
        began = time.monotonic()
        try:
            way(client, *arguments)
            is_done = True
        except ConnectionResetError as e:
            if "two crashes" not in str(e):
                raise
            board[REPEATED] += 1
        client.end()
        board[OPS] += N_OPS if arguments else 1
        board[LONGEST_USEC] = max(board[LONGEST_USEC], int(1e6 * (time.monotonic() - began)))


def fork():
    """A child has what its parent has open, and ends."""
    pid = os.fork()
    if pid == 0:
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def main():
    path, seed, boards, index = sys.argv[1], *map(int, sys.argv[2:])
    board = numpy.frombuffer(mmap.mmap(boards, mmap.PAGESIZE), "u8")[index * BOARD_FIELDS :]
    choose, generator = random.Random(seed), numpy.random.default_rng(seed)
    wanted = numpy.zeros(FILE_BYTES, "u1")
    size = 0
    client = Client(path)
    while not board[MUST_STOP]:
        memory, skew = choose.choice(client.memory), choose.choice((0, 0, 512, 1234))
        whole = memory[skew : skew + BATCH]
        pieces = numpy.split(whole, N_OPS)
        at = choose.randrange((FILE_BYTES - BATCH) // 4096) * 4096 + choose.choice((0, 0, 1234))
        whole[:] = generator.integers(0, 256, BATCH, "u1")
        wanted[at : at + BATCH] = whole
        size = max(size, at + BATCH)
        run(board, choose.choice(WAYS), client, "write", [(piece, at + i * PIECE) for i, piece in enumerate(pieces)])
        if choose.randrange(4) == 0:
            run(board, sync, client)
        at = choose.choice((at, choose.randrange(size - BATCH + 1)))
        whole[:] = 0
        run(board, choose.choice(WAYS), client, "read", [(piece, at + i * PIECE) for i, piece in enumerate(pieces)])
        assert numpy.array_equal(whole, wanted[at : at + BATCH]), (board[ROUNDS], at)
        board[ROUNDS] += 1
        if board[ROUNDS] % 2 == 0:
            fork()
            client.close()
            client = Client(path)
    client.close()
    assert numpy.array_equal(numpy.fromfile(path, "u1"), wanted[:size])


if __name__ == "__main__":
    main()
