"""Ops: starting one, waiting for it, and its result.

CHandle is a handle of the C library.  Everything that uses it has a reference, and the last one closes
it, so close() in one thread never takes it away from a call in another.

A signal handler that raises may lose an op that was just started, and which then still uses the memory.
So a slot keeps the op's memory from before its start until the op is where its end will be seen:
in `_open_ops`, or with the pending ops of an aio_handle.  The slot of an op that was lost keeps it for
good.

An open Op is in `_open_ops`, which keeps it until it has ended, also if the program has dropped it.  An op
that has ended leaves `_open_ops` when somebody looks at it: wait(), done(), the thread of _watch.py, or every now
and then the start of a further op.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import os
import threading
import time
from array import array

from . import _check as check
from . import _library as library
from . import _watch
from ._connection import Connection, at_fork, connection
from ._file import File, path_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any, Callable, Dict, Generator, Iterable, List, Optional, Sequence, Tuple

    from ._file import FileArgument
    from ._future import OpFuture
    from ._place import Place

    # An op without an Op: struct dsaio_op, opcode, file, offset, place, whether the file is to be read again when
    # it has ended, and the handle, which is kept open
    Pending = Tuple[int, int, FileArgument, int, Place, bool, "CHandle"]

# How often a wait returns to the interpreter, which runs the handlers of Ctrl-C and other signals.
SLICE_USEC = 100_000
# How long a finalizer waits for ops that it has cancelled: some are at the device.
_CLOSE_USEC = 10_000_000
_never_closed: List["Connection"] = []  # of handles whose ops did not end: a disconnect would wait for them
_MAX = check.MAX
_REAP_MAX = 64  # ops taken by one call; a guess
_SWEEP_MIN = 64  # open ops, before the start of one more looks at all of them


class CHandle:
    """struct dsaio_handle."""

    __slots__ = ("pointer", "argument", "connection", "n_futures", "__weakref__")

    def __init__(self, options: library.HandleOptions, is_rados: bool = False) -> None:
        pointer = ctypes.c_void_p()
        self.pointer: Optional[int] = None
        self.connection: Connection = connection(is_rados)
        self.n_futures = 0  # of its open ops, for _watch
        library.check(
            library.handle_open(self.connection.pointer, ctypes.byref(options), ctypes.byref(pointer))
        )
        self.pointer = pointer.value
        self.argument = pointer  # of calls: ctypes converts an int at each

    def reap(self) -> None:
        """Looks at all ops that have ended since the last call, and arms the handle's descriptor for the next one."""
        room: Any = (library.Completion * _REAP_MAX)()
        size = ctypes.sizeof(library.Completion)
        n = 1
        while n > 0:  # -ENOTCONN: the daemon has gone, and no op is open any more
            n = library.handle_reap(self.pointer, room, size, 0, _REAP_MAX, 0)
            for completion in room[: max(n, 0)]:
                op = _open_ops.get(completion.op)
                if op is not None:
                    op.done()

    def __del__(
        self,
        is_ending: Callable[[], bool] = library.is_ending,
        cancel: Any = library.handle_cancel,
        close: Any = library.handle_close,
    ) -> None:
        if not self.pointer or self.connection.is_of_parent or is_ending():
            return
        cancel(self.pointer)
        if close(self.pointer, _CLOSE_USEC) == -errno.EINPROGRESS:
            _never_closed.append(self.connection)


# ---- starting ----


class Slot:
    """Where the library puts an op that it starts; and what the op needs until somebody else keeps that."""

    __slots__ = ("out", "reference", "kept")

    def __init__(self) -> None:
        self.out = ctypes.c_void_p()
        self.reference = ctypes.byref(self.out)
        self.kept: Any = None
        _all_slots.append(self)


_all_slots: List[Slot] = []
_free_slots: List[Slot] = []  # pop() and append() are safe in any thread


def release(slot: Slot) -> None:
    """Its op is where its end will be seen, or did not start."""
    slot.kept = None
    _free_slots.append(slot)


def lose(pending: List[Pending]) -> None:
    """Nobody will see the end of these ops, so what they need is kept for good."""
    Slot().kept = pending


def lost_error(kind: str = "dsaio.Handle", filename: Any = None) -> OSError:
    """The OSError of a handle or file whose daemon has gone away.  kind: its class."""
    advice = f"make a new {kind}, which connects to the next daemon, or starts one"
    text = f"the daemon of this {kind} has gone away: {advice}"
    return library.os_error(-errno.ENOTCONN, text, filename)


def _opened_fd(handle: CHandle, fd: int) -> int:
    """The file of the caller's descriptor, to be closed."""
    pointer = ctypes.c_void_p()
    fd = check.integer("descriptor", fd, 0, (1 << 31) - 1, errno.EBADF)
    r = library.file_from_fd(handle.connection.pointer, fd, ctypes.byref(pointer))
    if r < 0:
        raise library.error(r, fd)
    return pointer.value or 0


def _opened_file(handle: CHandle, file: File) -> Any:
    """What keeps the file open until the call has returned."""
    opened = file.opened()
    if opened.connection is not handle.connection:
        if opened.connection.is_rados != handle.connection.is_rados:
            text = "files of RADOS stores are for the methods of dsaio.Handle, in calls without other files"
            raise OSError(errno.EXDEV, text, file.name)
        raise lost_error("dsaio.Handle" if handle.connection.is_lost() else "dsaio.File", file.name)
    return opened


# By opcode.
_BY_FILE = (None, library.pread, library.pwrite)
_BY_PATH = (None, library.pread_path, library.pwrite_path)


def start(
    handle: CHandle,
    opcode: int,
    file: FileArgument,
    place: Place,
    offset: int,
) -> Slot:
    """Starts a read or a write.  Returns a slot with its struct dsaio_op.  Raises OSError.

    The caller calls release() when the op is where its end will be seen.
    """
    if type(offset) is not int or not 0 <= offset <= _MAX:
        offset = check.integer("file_offset", offset, 0, _MAX)
    fd_file = None
    function: Any = _BY_FILE[opcode]
    if type(file) is str:
        function = _BY_PATH[opcode]
        target: Any = path_bytes(file)
    elif isinstance(file, File):
        opened: Any = file._opened  # keeps the file open until the call has returned
        if opened is None or opened.connection is not handle.connection:
            opened = _opened_file(handle, file)
        target = opened.argument
    elif isinstance(file, int):
        target = fd_file = _opened_fd(handle, file)
    else:
        function = _BY_PATH[opcode]
        target = path_bytes(file)
    try:
        slot = _free_slots.pop()
    except IndexError:
        slot = Slot()
    slot.kept = place
    code = function(handle.argument, target, place[0], place[1], offset, slot.reference)
    if code < 0:
        release(slot)
        e = library.error(code, file_name(file))
        if fd_file:
            library.file_close(fd_file)
        raise e
    if fd_file:
        library.file_close(fd_file)
    return slot


def start_many(
    handle: CHandle,
    opcode: int,
    files: Sequence[FileArgument],
    places: Sequence[Place],
    offsets: Sequence[int],
    timeout_usec: int = 0,
) -> Tuple[List[int], Optional[OSError], Slot]:
    """Starts ops of any kind in their order.  Returns those that were started, and why the next one was not.

    Also returns a slot, as start() does, for all of them.
    """
    n = len(files)
    ios = (library.Io * n)()
    out = (ctypes.c_void_p * n)()
    opened = []  # kept open until the call has returned
    fd_files = []
    done = 0
    failure = None
    try:
        for io, file, place, offset in zip(ios, files, places, offsets):
            offset = check.integer("file_offset", offset, 0, check.MAX)
            if isinstance(file, File):
                opened.append(_opened_file(handle, file))
                io.file = opened[-1].pointer
            elif isinstance(file, int):
                io.file = _opened_fd(handle, file)
                fd_files.append(io.file)
            else:
                io.path = path_bytes(file)
            io.opcode = opcode
            if opcode == library.FDATASYNC:
                io.opcode, io.flags = library.FSYNC, library.DATASYNC
            io.buf, io.len = place[0], place[1]
            io.off = offset
            io.timeout_usec = timeout_usec
        try:
            slot = _free_slots.pop()
        except IndexError:
            slot = Slot()
        slot.kept = places
        while done < n and failure is None:
            # Returns the errno of an op only where it is the first of the call.
            size = ctypes.sizeof(library.Io)
            rest = ctypes.byref(ios, size * done)
            r = library.submit(handle.pointer, rest, size, n - done, 0, ctypes.byref(out, 8 * done))
            if r < 0:
                failure = library.error(r, file_name(files[done]))
            else:
                done += r
    finally:
        for pointer in fd_files:
            library.file_close(pointer)
    return out[:done], failure, slot  # type: ignore[return-value]


# ---- ends ----


def file_name(file: FileArgument) -> Any:
    """For the attribute `filename` of an OSError."""
    return file.name if isinstance(file, File) else file


def await_end(pointer: int, result: ctypes.c_int64, deadline: Optional[float] = None) -> bool:
    """Waits until the op has ended, and sets its result.  Returns False if the deadline is over.

    deadline: by time.monotonic().  Signal handlers run meanwhile, so KeyboardInterrupt may come.
    """
    reference = ctypes.byref(result)
    r = library.op_look(pointer, 0, reference)
    while r == -errno.ETIMEDOUT:
        usec = SLICE_USEC
        if deadline is not None:
            usec = int(min(usec, (deadline - time.monotonic()) * 1e6 + 1))
            if usec <= 0:
                return False
        r = library.op_wait(pointer, usec, reference)
    library.check(r)
    return True


def await_all(pointers: List[int]) -> List[int]:
    """Waits until all ops have ended, as await_end().  Returns their results."""
    n = len(pointers)
    ops, results = array("Q", pointers), array("q", bytes(8 * n))
    arguments = ops.buffer_info()[0], n
    to = results.buffer_info()[0]
    r = library.op_look_many(*arguments, 0, to)
    while r == -errno.ETIMEDOUT:
        r = library.op_wait_many(*arguments, SLICE_USEC, to)
    library.check(r)
    return results.tolist()


def free_all(pointers: List[int]) -> None:
    """Lets go of the ops."""
    ops = array("Q", pointers)
    library.op_free_many(ops.buffer_info()[0], len(ops))


_TIMEOUT = "timeout= of the op, or op_timeout= of the handle, is over; what the range holds is undefined"


def _advised(text: str, code: int, advice: str) -> str:
    """The library's text for an errno, with an advice for programs in Python in the place of its own."""
    before, reason, rest = text.partition(os.strerror(code))
    return f"{before}{reason}{rest.partition(': ')[0]}: {advice}" if reason else text


def _end_error(
    pointer: int, result: int, opcode: int, file: FileArgument, nbytes: int, offset: int
) -> Optional[OSError]:
    """The OSError of an op that has ended, or None if it did all that it was asked for."""
    name = file_name(file)
    if result < 0:
        text = library.op_error(pointer).decode(errors="replace")
        if result == -errno.ETIMEDOUT:
            text = _advised(text, errno.ETIMEDOUT, _TIMEOUT)
        return library.os_error(result, text, name)
    if opcode == library.READ and result < nbytes:
        shown = f"descriptor {name}" if isinstance(name, int) else os.fsdecode(name)
        text = f"pread of {nbytes} bytes at {offset} of {shown}: the file ends after {result} of them"
        return library.os_error(-errno.ENODATA, text, name)
    return None


def finish(
    pointer: int, result: int, opcode: int, file: FileArgument, offset: int, place: Place
) -> Optional[Exception]:
    """An op has ended with that result: fills the buffer of a read that went through a pinned copy.

    Returns why the op failed, or None if it did all that it was asked for.
    """
    failure = _end_error(pointer, result, opcode, file, place[1], offset) if result != place[1] else None
    if failure is None and place[3] is not None:
        try:
            place[3]()
        except Exception as e:
            return e
    return failure


class Op:
    """A read, write or sync that was started by a submit_ method of a handle.

    Its buffer is kept until it has ended.  `await op` waits without blocking the event loop, and
    returns or raises as wait() does.  The end of a wait, by a timeout or because an awaiting task was
    cancelled, is not the end of the op: its buffer stays in use until it has ended.  future() makes a future
    of it, and dsaio.wait() waits for several.
    """

    __slots__ = (
        "_handle",
        "_pointer",
        "_opcode",
        "_file",
        "_nbytes",
        "_offset",
        "_place",
        "_counters",
        "_lock",
        "_result",
        "_error",
        "_future",
    )

    def __init__(
        self,
        handle: CHandle,
        pointer: int,
        opcode: int,
        file: FileArgument,
        offset: int,
        place: Place,
        counters: Counters,
    ) -> None:
        self._handle = handle
        self._pointer = pointer
        self._opcode = opcode
        self._file = file
        self._offset = offset
        self._nbytes = place[1]
        self._place: Optional[Place] = place
        self._counters = counters
        self._lock = threading.Lock()
        self._result: Optional[int] = None
        self._error: Optional[BaseException] = None
        self._future: Optional[OpFuture] = None
        _open_ops[pointer] = self

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits until the op has ended, at most timeout seconds (None: forever).

        Returns the bytes that it transferred, which are all of the buffer; 0 for a sync.  Raises the op's
        OSError, ENODATA if a read passes the end of the file; or TimeoutError if the op has not ended,
        which then goes on.
        """
        result = ctypes.c_int64()
        if self._result is None:
            self._refuse_in_child()
            try:
                deadline = None if timeout is None else time.monotonic() + timeout
            except TypeError:
                raise check.wrong_type("timeout", timeout, "a number of seconds, or None") from None
            began = time.perf_counter()
            try:
                has_ended = await_end(self._pointer, result, deadline)
            finally:
                self._counters.waited_since(began)
            if not has_ended:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"dsaio: the op has not ended after {timeout} s: it goes on, wait again"
                )
            self._settle(result.value)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def done(self) -> bool:
        """Has the op ended?  Never blocks."""
        if self._result is None:
            self._refuse_in_child()
            result = ctypes.c_int64()
            r = library.op_look(self._pointer, 0, ctypes.byref(result))
            if r == -errno.ETIMEDOUT:
                return False
            library.check(r)
            self._settle(result.value)
        return True

    def cancel(self) -> None:
        """Asks that the op ends soon: with ECANCELED, or with its result if all was done.

        It is still to be waited for.  The content of its range is undefined then.  Raises OSError.
        """
        if self._result is None:
            self._refuse_in_child()
            library.check(library.op_cancel(self._pointer))

    def future(self) -> Future[int]:
        """A concurrent.futures.Future of the op, each time the same: its result and exception are those of wait().

        Its cancel() asks for the end of the op, as cancel() here, and returns False: it runs until the op has
        ended, and has the op's result or OSError then.  Its callbacks run in the thread that finds the end
        of the op: mostly one of this package.  Raises OSError, or RuntimeError if that thread cannot start.
        """
        from ._future import OpFuture

        is_open = False
        with self._lock:
            if self._future is None:
                is_open = self._result is None
                if is_open:
                    self._refuse_in_child()
                    _watch.add(self._handle)
                self._future = OpFuture(self)
                if self._result is not None:
                    self._future.end(self._result, self._error)
        if is_open:
            self._handle.reap()
            self.done()  # reap() tells of each op once, and may have done so
        return self._future

    @property
    def bytes_done(self) -> int:
        """Bytes transferred from the start of the buffer on, also by an op that failed; 0 while it is open."""
        done: int = library.op_bytes(self._pointer) if self._result is not None else 0
        return done

    @property
    def path(self) -> Optional[str]:
        """How the bytes of an op that has ended went; None while it is open.

        "shared": between the device and memory that the daemon shares; "gpu": between the device and memory of
        a GPU, by the daemon; "copied": through pinned memory, from or to which the library copies; "none".
        """
        path: int = library.op_path(self._pointer) if self._result is not None else -1
        return library.PATHS[path] if path >= 0 else None

    @property
    def is_unknown(self) -> bool:
        """May the bytes of a write to a RADOS store that failed still reach it?  It may be repeated."""
        return self._result is not None and bool(library.op_is_unknown(self._pointer))

    @property
    def why_copied(self) -> str:
        """Why an op that has ended copied memory of a GPU; "" for others."""
        why: bytes = library.op_why(self._pointer) if self._result is not None else b""
        return why.decode(errors="replace")

    def __await__(self) -> Generator[Any, None, int]:
        if not self.done():
            from . import _future

            yield from _future.ended(self).__await__()
        return self.wait()

    def _refuse_in_child(self) -> None:
        if self._handle.connection.is_of_parent:
            raise self._error_in_child()

    def _error_in_child(self) -> OSError:
        text = "the op was started before fork(), by the parent: it is for the parent to wait for"
        return library.os_error(-errno.EPERM, text, file_name(self._file))

    def _settle(self, result: int) -> None:
        """It has ended with that result of the library.  Any thread, any number of times."""
        with self._lock:
            if self._result is not None:
                return
            place: Place = self._place  # type: ignore[assignment]
            failure = finish(self._pointer, result, self._opcode, self._file, self._offset, place)
            self._error = failure
            self._place = None
            self._counters.add(self._opcode, 1, max(result, 0), failure is not None)
            self._result = result
            future = self._future
        _open_ops.pop(self._pointer, None)
        if future is not None:
            _watch.remove(self._handle)
            future.end(result, failure)

    def __reduce__(self) -> Any:
        raise TypeError("dsaio: an op cannot be pickled: it is for the process that started it to wait for")

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending, free: Any = library.op_free) -> None:
        if not is_ending() and not self._handle.connection.is_of_parent:
            free(self._pointer)

    def __repr__(self) -> str:
        verb = ("", "read", "write", "fsync", "fdatasync")[self._opcode]
        state = "open" if self._result is None else "failed" if self._error else "done"
        return f"<dsaio.Op {verb} of {self._nbytes} bytes at {self._offset} of {self._file!r}: {state}>"


_open_ops: Dict[int, Op] = {}
_sweep_at = _SWEEP_MIN


def sweep() -> None:
    """Lets go of ops that have ended and that nobody has asked for, if there may be many."""
    global _sweep_at
    if len(_open_ops) < _sweep_at:
        return
    for op in list(_open_ops.values()):
        op.done()
    _sweep_at = max(_SWEEP_MIN, 2 * len(_open_ops))


def open_of(counters: Counters) -> List[Op]:
    """Ops in `_open_ops` of the handle that has these counters."""
    return [op for op in list(_open_ops.values()) if op._counters is counters]


def end_all(ops: Iterable[Op]) -> None:
    """Waits until all have ended.  Failures stay with the ops."""
    is_open = [op for op in ops if op._result is None]
    for op in is_open:
        op._refuse_in_child()
    if is_open:
        for op, result in zip(is_open, await_all([op._pointer for op in is_open])):
            op._settle(result)


def wait_all(ops: Sequence[Op]) -> None:
    """Waits until all have ended, also where one has failed.  Raises the first failure."""
    end_all(ops)
    for op in ops:
        op.wait()


# ---- what a handle has done ----


class Counters:
    """Numbers of a handle's ops that have ended, and of the bytes that they transferred."""

    __slots__ = ("lock", "reads", "writes", "syncs", "failed", "bytes_read", "bytes_written", "wait_seconds")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reads = self.writes = self.syncs = self.failed = self.bytes_read = self.bytes_written = 0
        self.wait_seconds = 0.0

    def add(self, opcode: int, n: int, nbytes: int, n_failed: int) -> None:
        """n ops have ended, n_failed of them failed."""
        with self.lock:
            self.failed += n_failed
            if opcode == library.READ:
                self.reads += n
                self.bytes_read += nbytes
            elif opcode == library.WRITE:
                self.writes += n
                self.bytes_written += nbytes
            else:
                self.syncs += n

    def waited_since(self, began: float) -> None:
        """A thread has waited since then, by time.perf_counter()."""
        seconds = time.perf_counter() - began
        with self.lock:
            self.wait_seconds += seconds


# ---- fork, exit ----


def keep_at_exit(container: Callable[[], Any]) -> None:
    """At exit, what container() returns then is never freed: ops may be open on memory in it."""

    def leak() -> None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(container()))

    atexit.register(leak)


def _forget() -> None:
    # The parent's ops.  Their memory is the child's own copy, so it may go.
    for op in _open_ops.values():
        if op._future is not None:
            op._future.forget(op._error_in_child())
    _open_ops.clear()
    _all_slots.clear()
    _free_slots.clear()


keep_at_exit(lambda: _open_ops)
keep_at_exit(lambda: _all_slots)
at_fork(_forget)
