"""Handles: submission of ops, one by one or many in one call."""

from __future__ import annotations

import ctypes
import errno
import threading
import weakref
from collections import namedtuple

from . import _check as check
from . import _library as library
from . import _op, _watch
from ._buffer import locate
from ._connection import at_fork
from ._context import Context
from ._file import File, is_rados
from ._op import Op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

    from ._file import FileArgument
    from ._place import Place

    Request = Union[Tuple[Any, FileArgument], Tuple[Any, FileArgument, int]]

    class Profile(NamedTuple):
        block_size: Optional[int] = None
        queue_depth: Optional[int] = None
        single_submit: Optional[bool] = None
        overlap_events: Optional[bool] = None
        intra_op_parallelism: Optional[int] = None

    class Stats(NamedTuple):
        reads: int
        writes: int
        syncs: int
        failed: int
        bytes_read: int
        bytes_written: int
        open: int
        wait_seconds: float

else:
    Profile = namedtuple(
        "Profile",
        "block_size queue_depth single_submit overlap_events intra_op_parallelism",
        defaults=(None,) * 5,
    )
    Stats = namedtuple("Stats", "reads writes syncs failed bytes_read bytes_written open wait_seconds")

Profile.__doc__ = """The five tuning numbers of an I/O handle, with DeepNVMe's meanings.

A value of None is inherited: on each store, the handle uses the one of the store's own profile.

block_size: bytes of a block, 512 to 64 MiB in steps of 512; the daemon uses at least the file's alignment
queue_depth: blocks in flight, 1 to 4096
single_submit: one system call per block
overlap_events: refill as completions come; False: fill, wait for all
intra_op_parallelism: multiplies queue_depth, 1 to 64
"""
Stats.__doc__ = """What a handle has done.

reads, writes, syncs: ops that have ended, those that failed included
failed: ops that failed
bytes_read, bytes_written: their bytes
open: ops that were started and whose end nobody has seen yet
wait_seconds: time that threads spent in wait(), of ops and of the handle
"""

_NO_BUFFER: Any = (0, 0, None, None)
_OF_PROCESS = (
    "_options", "_c", "_rados_c", "_open_lock", "_counters", "_async_c", "_wait_lock", "_pending", "_failures"
)
_RANGES = {"block_size": (512, 64 << 20), "queue_depth": (1, 4096), "intra_op_parallelism": (1, 64)}
_WEIGHT_MAX = 16


def _profile_integer(name: str, value: Any) -> int:
    low, high = _RANGES[name]
    return check.integer(name, value, low, high, errno.EINVAL)


def _c_profile(profile: Profile) -> library.Profile:
    c = library.Profile()
    for name in _RANGES:
        value = getattr(profile, name)
        # 0 means inherited there.
        setattr(c, name, 0 if value is None else _profile_integer(name, value))
    for name in ("single_submit", "overlap_events"):
        value = getattr(profile, name)
        is_given = value is not None
        setattr(c, name, (library.YES if check.boolean(name, value) else library.NO) if is_given else library.INHERIT)
    return c


def _c_options(
    profile: Optional[Profile], io_class: str, weight: int, op_timeout: Optional[float]
) -> library.HandleOptions:
    options = library.HandleOptions()
    if profile is not None:
        if not isinstance(profile, Profile):
            raise check.wrong_type("profile", profile, "a dsaio.Profile, as dsaio.Profile(block_size=1 << 20)")
        options.profile = ctypes.pointer(_c_profile(profile))
    if not isinstance(io_class, str) or io_class not in library.CLASSES:
        raise ValueError(f"dsaio: io_class {io_class!r}: must be one of {', '.join(library.CLASSES)}")
    options.io_class = library.CLASSES[io_class]
    options.weight = check.integer("weight", weight, 1, _WEIGHT_MAX, errno.EINVAL)
    timeout_usec = -1 if op_timeout is None else max(1, check.usec("op_timeout", op_timeout, errno.EINVAL))
    options.op_timeout_usec = timeout_usec
    return options


class Handle(Context):
    """Reads and writes files through the daemon.

    profile: the tuning numbers; None: all are inherited from each store, as `dsaioctl bench tune` finds them.
    io_class: "demand" takes precedence over "normal", and that over "background"; none starves.
    weight: share within the class, 1 to 16.
    op_timeout: an op that takes longer, in seconds, ends with ETIMEDOUT; None: never.

    Connects to the daemon, or starts one.  Raises OSError, EINVAL for a value that is out of range.

    Buffers are torch tensors, numpy arrays, or objects with the buffer protocol; of any size, at any
    address.  Pinned ones are fastest.  Files are paths, descriptors of open files, or dsaio.File.  An op
    transfers the whole buffer from byte file_offset of the file on.  A read that passes the end of the
    file fails with ENODATA.  A write creates the file if there is none, and never shortens it.

    `with` and `async with` close it.

    Threads may share a handle.  Ops that touch the same bytes of a file, one of them writing, take effect in
    the order in which they were submitted to the handle.  A child of fork() may go on with the handle, and so
    may a process that it is pickled for: it then has a connection of its own, and none of the parent's ops.
    """

    _first = "_c"  # opened with it

    def __init__(
        self,
        profile: Optional[Profile] = None,
        *,
        io_class: str = "normal",
        weight: int = 1,
        op_timeout: Optional[float] = None,
    ) -> None:
        self._is_closed = False
        self._c: Optional[_op.CHandle] = None
        self._rados_c: Optional[_op.CHandle] = None  # of files of RADOS stores, from the first of them on
        self._counters = _op.Counters()
        self._open_lock = threading.Lock()
        self._arguments = (profile, io_class, weight, op_timeout)
        self._options = _c_options(*self._arguments)
        self._open(self._first)
        _handles.add(self)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ValueError("dsaio: the handle is closed")

    def _open(self, name: str) -> _op.CHandle:
        """That handle of the C library, opened where there is none yet: at first use, or after fork()."""
        with self._open_lock:
            self._refuse_if_closed()
            if getattr(self, name) is None:
                setattr(self, name, _op.CHandle(self._options, name == "_rados_c"))
            c: _op.CHandle = getattr(self, name)
            return c

    def _c_of(self, file: FileArgument) -> _op.CHandle:
        """The handle of the C library that has the file's connection."""
        if isinstance(file, File) and file._is_rados:
            return self._rados_c or self._open("_rados_c")
        return self._c or self._open("_c")

    # ---- one op ----

    def submit_read(
        self, buffer: Any, file: FileArgument, file_offset: int = 0, *, timeout: Optional[float] = None
    ) -> Op:
        """Starts to read into the buffer: all of it, from byte file_offset of the file on.

        timeout: seconds until the op ends with ETIMEDOUT; None: never.  The buffer is not to be used before
        the op has ended.  Raises OSError if the op cannot start; if it fails later, its wait() does.
        """
        return self._submit_place(library.READ, locate(buffer, True), file, file_offset, timeout)

    def submit_write(
        self, buffer: Any, file: FileArgument, file_offset: int = 0, *, timeout: Optional[float] = None
    ) -> Op:
        """Starts to write the buffer: all of it, from byte file_offset of the file on.

        timeout: seconds until the op ends with ETIMEDOUT; None: never.  The buffer is not to be changed before
        the op has ended.  Raises OSError if the op cannot start; if it fails later, its wait() does.
        """
        return self._submit_place(library.WRITE, locate(buffer, False), file, file_offset, timeout)

    def submit_fsync(self, file: FileArgument, *, data_only: bool = False) -> Op:
        """Starts to bring the file's data and metadata to the device.

        Covers all writes that were submitted to this handle before.  data_only: without the metadata that
        reading does not need (fdatasync(2)).  A path names a file that exists.  Raises OSError.
        """
        c = self._c_of(file)
        opcode = library.FDATASYNC if data_only else library.FSYNC
        return self._start_many(c, opcode, [file], [_NO_BUFFER], [0])[0]

    def _submit_place(
        self, opcode: int, place: Place, file: FileArgument, file_offset: int, timeout: Optional[float] = None
    ) -> Op:
        _op.sweep()
        c = self._c_of(file)
        if timeout is not None:
            timeout_usec = max(1, check.usec("timeout", timeout))
            return self._start_many(c, opcode, [file], [place], [file_offset], timeout_usec)[0]
        slot = _op.start(c, opcode, file, place, file_offset)
        op = Op(c, slot.out.value, opcode, file, file_offset, place, self._counters)  # type: ignore[arg-type]
        _op.release(slot)
        return op

    # ---- many ----

    def submit_reads(self, requests: Iterable[Request]) -> List[Op]:
        """Starts a read for each (buffer, file) or (buffer, file, file_offset), in one call of the library.

        Raises OSError if one of them cannot be started; those before it have been, and are in the
        exception's attribute `ops`.
        """
        return self._submit_many(library.READ, requests)

    def submit_writes(self, requests: Iterable[Request]) -> List[Op]:
        """Starts a write for each (buffer, file) or (buffer, file, file_offset), as submit_reads() does."""
        return self._submit_many(library.WRITE, requests)

    def _submit_many(self, opcode: int, requests: Iterable[Request]) -> List[Op]:
        _op.sweep()
        places, files, offsets = [], [], []
        for i, request in enumerate(requests):
            if not isinstance(request, (tuple, list)) or not 2 <= len(request) <= 3:
                raise ValueError(f"dsaio: request {i}: must be (buffer, file) or (buffer, file, file_offset)")
            buffer, file, *offset = request
            places.append(locate(buffer, opcode == library.READ))
            files.append(file)
            offsets.append(offset[0] if offset else 0)
        c = self._c_of(files[0]) if files else self._c or self._open("_c")
        return self._start_many(c, opcode, files, places, offsets)

    def _start_many(
        self,
        c: _op.CHandle,
        opcode: int,
        files: Sequence[FileArgument],
        places: Sequence[Place],
        offsets: Sequence[int],
        timeout_usec: int = 0,
    ) -> List[Op]:
        pointers, failure, slot = _op.start_many(c, opcode, files, places, offsets, timeout_usec)
        ops = [
            Op(c, pointer, opcode, file, offset, place, self._counters)
            for pointer, file, offset, place in zip(pointers, files, offsets, places)
        ]
        _op.release(slot)
        if failure is not None:
            failure.ops = ops  # type: ignore[attr-defined]
            raise failure
        return ops

    # ---- the rest ----

    def stats(self) -> Stats:
        """What this handle has done so far."""
        n_open = self._n_open()
        n = self._counters
        with n.lock:
            return Stats(
                n.reads, n.writes, n.syncs, n.failed, n.bytes_read, n.bytes_written, n_open, n.wait_seconds
            )

    def _n_open(self) -> int:
        return len(_op.open_of(self._counters))

    def close(self) -> None:
        """Waits until all ops of the handle have ended, and closes it.  Twice is fine.

        Failures stay with the ops.
        """
        self._is_closed = True
        self._c = self._rados_c = None
        self._end_ops()
        _watch.stop_if_idle()

    def _end_ops(self) -> None:
        """Waits until no op of the handle is open.  Failures stay with the ops."""
        _op.end_all(_op.open_of(self._counters))

    def __getstate__(self) -> Any:
        """What another process needs, whose handle is opened at its first use."""
        return {name: value for name, value in self.__dict__.items() if name not in _OF_PROCESS}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._options = _c_options(*self._arguments)
        self._forget()
        _handles.add(self)

    def _forget(self) -> None:
        """In a child of fork(), and in a handle that was pickled."""
        self._c = self._rados_c = None
        self._open_lock = threading.Lock()
        self._counters = _op.Counters()


class RadosHandle(Handle):
    """A handle that connects at first to the daemon of RADOS stores alone."""

    _first = "_rados_c"


def handle_for(path: object) -> Handle:
    """A new handle, for ops on the file of that name."""
    return RadosHandle() if is_rados(path) else Handle()


_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


def _forget() -> None:
    for handle in list(_handles):
        handle._forget()


at_fork(_forget)
