"""The bytes of a file in sequence, through pieces of which several are in flight, pinned where the pool has room.

Writer is what torch.save() and dsaio.safetensors write to: each piece is one aligned direct write.
read_jobs() is the reverse: ranges of files are read into pieces ahead, and handed out in their order.
"""

from __future__ import annotations

import ctypes
import errno
from collections import deque

from . import _memory as memory
from ._buffer import locate
from ._op import wait_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Iterable, List, Optional, Tuple, Union

    from ._file import File
    from ._handle import Handle
    from ._op import Op
    from ._rados import NewRadosFile
    from ._replace import NewFile

PIECE = 4 << 20  # bytes; a device is at its full speed with a few such ops, and the memory is soon pinned
N_PIECES = 4
ALIGNMENT = 4096  # of addresses and offsets: suits every device
JOB_MAX = PIECE - 2 * ALIGNMENT  # bytes of a job: it may begin and end within an aligned unit
_COPY_MIN = 64 << 10  # bytes, from which a copy gives up the GIL
_DIRECT_MIN = 1 << 20  # bytes, from which pinned memory is written where it lies
_RESERVE_MIN, _RESERVE_MAX = 64 << 20, 1 << 30  # bytes by which the file grows ahead


class Piece:
    """A part of pinned memory, and the op that uses it."""

    __slots__ = ("view", "address", "op")

    def __init__(self, owner: Any, at: int) -> None:
        self.view = memoryview(owner).cast("B")[at : at + PIECE]
        self.address = ctypes.addressof(owner) + at
        self.op: Optional[Op] = None  # open, or has ended

    def wait(self) -> None:
        op, self.op = self.op, None
        if op is not None:
            op.wait()


def new_pieces(is_rados: bool) -> List[Piece]:
    try:
        owner = memory.array(N_PIECES * PIECE, is_rados=is_rados)
    except OSError as e:
        if e.errno != errno.ENOMEM:
            raise
        owner = memory.new(N_PIECES * PIECE, pinned=False)  # the tensors to be saved may fill the pool
    return [Piece(owner, i * PIECE) for i in range(N_PIECES)]


class Writer:
    """A file object that writes to a NewFile, and has finished at the end of its `with` block.  Raises OSError.

    nbytes: the size of the file, where it is known, for which the blocks are reserved at once.
    pieces: of a Writer that has finished, or None.
    A write that fails raises its exception again at the end of the block: torch raises another one in its place.
    """

    def __init__(
        self, new: Union[NewFile, NewRadosFile], handle: Handle, nbytes: int = 0, pieces: Optional[List[Piece]] = None
    ) -> None:
        new.reserve(nbytes)
        self._new = new
        self._handle = handle
        self._pieces = pieces or new_pieces(new.file._is_rados)
        self._i = 0  # of the piece that is being filled
        self._start = 0  # its offset in the file
        self._fill = 0
        self._reserved = nbytes
        self._direct: List[Op] = []
        self._failure: Optional[BaseException] = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Optional[type], *_: Any) -> None:
        if kind is None:
            self.finish()
        elif self._failure is not None:
            raise self._failure from None

    def tell(self) -> int:
        return self._start + self._fill

    def write(self, data: Any) -> int:
        if self._failure is not None:
            raise self._failure
        try:
            return self._write(memoryview(data).cast("B"))
        except BaseException as e:
            self._failure = e
            raise

    def _write(self, source: memoryview) -> int:
        n = source.nbytes
        address = locate(source, False)[0] if n >= _COPY_MIN else 0
        done = 0
        if n >= _DIRECT_MIN and address % ALIGNMENT == 0 == self.tell() % ALIGNMENT and memory.find(address, n):
            done = self._write_direct(source)
        while done < n:
            piece = self._pieces[self._i]
            length = min(PIECE - self._fill, n - done)
            if address:
                ctypes.memmove(piece.address + self._fill, address + done, length)
            else:
                piece.view[self._fill : self._fill + length] = source[done : done + length]
            self._fill += length
            done += length
            if self._fill == PIECE:
                self._submit()
        return n

    def _write_direct(self, source: memoryview) -> int:
        """Writes pinned memory without a copy, all but its unaligned end.  Returns how much."""
        self._submit()
        length = source.nbytes - source.nbytes % ALIGNMENT
        self._reserve(self._start + length)
        # The op keeps the pinned memory, whatever becomes of the tensor.
        self._direct.append(self._handle.submit_write(source[:length], self._new.file, self._start))
        self._start += length
        return length

    def _submit(self) -> None:
        """Starts to write the piece, and waits for the next one."""
        if self._fill:
            piece = self._pieces[self._i]
            self._reserve(self._start + self._fill)
            piece.op = self._handle.submit_write(piece.view[: self._fill], self._new.file, self._start)
            self._start += self._fill
            self._fill = 0
            self._i = (self._i + 1) % N_PIECES
            self._pieces[self._i].wait()

    def _reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        ahead = end + max(_RESERVE_MIN, min(end, _RESERVE_MAX))
        try:
            self._new.reserve(ahead)
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise
            ahead = end  # the rest may be less
            self._new.reserve(ahead)
        self._reserved = ahead

    def flush(self) -> None:
        """Nothing: finish() does it."""

    def finish(self) -> None:
        """Waits until all is written, and gives the file its size."""
        self._submit()
        wait_all([piece.op for piece in self._pieces if piece.op is not None] + self._direct)
        self._new.set_size(self._start)


class Job:
    """A range of a file that is to be read.  take() gets its bytes.

    buffer: memory of the range's length, which it is read into; None for a piece, for at most JOB_MAX bytes.
    """

    __slots__ = ("file", "start", "end", "take", "buffer")

    def __init__(
        self, file: File, start: int, end: int, take: Callable[[Any], object], buffer: Any = None
    ) -> None:
        self.file = file
        self.start = start
        self.end = end
        self.take = take
        self.buffer = buffer


def read_jobs(handle: Handle, jobs: Iterable[Job]) -> None:
    """Reads the range of each job, and calls their take() in order.  The memory of a piece is valid until it returns.

    At most N_PIECES jobs are open, and keep their files open.  Raises OSError, ENODATA if a file is shorter.
    """
    pieces: Optional[List[Piece]] = None
    open_jobs: Deque[Tuple[Job, Op, Optional[Piece], int]] = deque()

    def finish_one() -> None:
        job, op, piece, first = open_jobs.popleft()
        op.wait()
        if piece is None:
            job.take(job.buffer)
            return
        job.take(piece.view[job.start - first : job.end - first])
        pieces.append(piece)  # type: ignore[union-attr]

    for job in jobs:
        if len(open_jobs) == N_PIECES:
            finish_one()
        if job.buffer is not None:
            open_jobs.append((job, handle.submit_read(job.buffer, job.file, job.start), None, job.start))
            continue
        if pieces is None:
            pieces = new_pieces(job.file._is_rados)
        piece = pieces.pop()
        first = job.start - job.start % ALIGNMENT
        # Up to the end of an aligned unit goes without a copy, but the file may end within it.
        last = min(job.end + -job.end % ALIGNMENT, max(job.end, job.file.size()))
        open_jobs.append((job, handle.submit_read(piece.view[: last - first], job.file, first), piece, first))
    while open_jobs:
        finish_one()
