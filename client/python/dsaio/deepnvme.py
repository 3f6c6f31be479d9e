"""DeepNVMe's interface: aio_handle, pin_handle and the functions of DeepSpeed's async_io module.

Names, arguments, defaults and results are DeepNVMe's.  Where a call of DeepNVMe fails to start, it returns
-1; here the reason is also logged (logger "dsaio").  An op that fails later raises from wait().
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from threading import Lock

from . import _buffer
from . import _check as check
from . import _library as library
from . import _op
from ._file import File
from ._handle import Handle, Profile, _handles, _profile_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Tuple

    from ._file import FileArgument
    from ._place import Place

READ, WRITE = library.READ, library.WRITE
_locate = _buffer.locate


def _report(what: str, e: OSError) -> int:
    """Logs why a call fails to start, and returns its result."""
    import logging

    logging.getLogger("dsaio").error("%s: %s", what, e)
    return -1


class _Pinned:
    """What aio_handle and pin_handle share: pinned memory, which belongs to the process."""

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """Frees a pinned tensor: is_pinned() denies it from now on.

        The memory returns to the pool when the last view of the tensor is gone.  Returns True if the
        tensor, or a slice that starts at its first element, was of new_cpu_locked_tensor() of any handle.
        """
        return _buffer.unlock(_buffer.extent(tensor)[0])

    def is_pinned(self, tensor: Any) -> bool:
        """Does the tensor lie in pinned memory, of any handle or of torch?  Also for views and slices."""
        return _buffer.is_pinned(tensor)


class pin_handle(_Pinned):
    """Pinned memory alone.  Each handle of the process recognises it."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """A pinned, page aligned tensor of shape (num_elem,) and the example's dtype; for an array, an array.

        The content is undefined.  Raises OSError: ENOMEM if the pool has no room.
        """
        return _buffer.new_like(num_elem, example_tensor)

    def free_cpu_locked_tensor(self, locked_tensor: Any) -> bool:
        """As of aio_handle."""
        return super().free_cpu_locked_tensor(locked_tensor)

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        """As free_cpu_locked_tensor(), by the address of the first byte."""
        return _buffer.unlock(address)


class aio_handle(Handle, _Pinned):
    """DeepNVMe's handle, with the methods of dsaio.Handle beside its own.

    block_size: bytes of a block, 512 to 64 MiB in steps of 512
    queue_depth: blocks in flight, 1 to 4096
    single_submit: one system call per block
    overlap_events: refill as completions come; False: fill, wait for all
    intra_op_parallelism: multiplies queue_depth, 1 to 64
    io_class, weight, op_timeout: as of dsaio.Handle

    Raises OSError, EINVAL for a value that is out of range; TypeError for text in place of a bool.

    Buffers, files and threads as of dsaio.Handle: any size, address and offset works.
    """

    _first = "_async_c"

    def __init__(
        self,
        block_size: int = 1048576,
        queue_depth: int = 128,
        single_submit: bool = False,
        overlap_events: bool = False,
        intra_op_parallelism: int = 1,
        *,
        io_class: str = "normal",
        weight: int = 1,
        op_timeout: Optional[float] = None,
    ) -> None:
        self._values = (
            _profile_integer("block_size", block_size),
            _profile_integer("queue_depth", queue_depth),
            check.boolean("single_submit", single_submit),
            check.boolean("overlap_events", overlap_events),
            _profile_integer("intra_op_parallelism", intra_op_parallelism),
        )
        # Ops of the methods below have a C handle of their own: wait() is for them, and event loops are
        # woken for the others.
        self._async_c: Optional[_op.CHandle] = None
        self._pending: List[_op.Pending] = []
        self._failures: List[BaseException] = []  # of ops whose wait was interrupted: the next wait raises one
        self._wait_lock = Lock()
        super().__init__(Profile(*self._values), io_class=io_class, weight=weight, op_timeout=op_timeout)

    # ---- the constructor's values ----

    def get_block_size(self) -> int:
        """The constructor's value: bytes of a block."""
        return self._values[0]

    def get_queue_depth(self) -> int:
        """The constructor's value: blocks in flight."""
        return self._values[1]

    def get_single_submit(self) -> bool:
        """The constructor's value: one system call per block?"""
        return self._values[2]

    def get_overlap_events(self) -> bool:
        """The constructor's value: does a channel refill as completions come?"""
        return self._values[3]

    def get_intra_op_parallelism(self) -> int:
        """The constructor's value: parts of an op."""
        return self._values[4]

    def get_alignment(self) -> int:
        """Sizes and offsets that are multiples of it, in bytes, suit DeepNVMe.  Here all do."""
        return self._values[4] * 512

    # ---- ops that wait() is for ----

    def async_pread(self, buffer: Any, filename: FileArgument, file_offset: int = 0) -> int:
        """Starts to read into the buffer: all of it, from byte file_offset of the file on.

        The buffer is not to be used before wait(), which raises if the op fails.  Returns 0, or -1 if the op
        fails to start.  Raises TypeError or ValueError for what is no buffer, no file or no offset.
        """
        return self._start(READ, "async_pread", buffer, filename, file_offset)

    def async_pwrite(
        self,
        buffer: Any,
        filename: Optional[FileArgument] = None,
        file_offset: int = 0,
        *,
        fd: Optional[int] = None,
    ) -> int:
        """Starts to write the buffer: all of it, from byte file_offset of the file on.

        filename: also a descriptor that is open for writing, which stays the caller's; or by name, fd.
        The buffer is not to be changed before wait(), which raises if the op fails.  Returns 0, or -1 if the op
        fails to start.  Raises TypeError or ValueError for what is no buffer, no file or no offset.
        """
        if (filename is None) == (fd is None):
            raise TypeError("dsaio: async_pwrite() needs either a filename or an fd")
        file: Any = fd if filename is None else filename
        return self._start(WRITE, "async_pwrite", buffer, file, file_offset)

    def wait(self) -> int:
        """Waits until every op of async_pread(), async_pwrite() and the like has ended.

        Returns how many there were, 0 if there was none.  Raises the OSError of the first that failed, after
        all have ended; ENOTCONN if there was none because the daemon has gone for good.  An op that failed to
        start is none of them: async_pread() and async_pwrite() return -1 for it.
        """
        n = self._wait(None)
        c = self._async_c
        if not n and c is not None and c.connection.is_lost():
            raise _op.lost_error("dsaio.aio_handle")
        return n

    def sync_pread(self, buffer: Any, filename: FileArgument, file_offset: int = 0) -> int:
        """Reads into the buffer, and waits as wait() does.

        Returns how many ops have ended, this one included, or -1 if it fails to start.  Raises OSError.
        """
        return self._run(READ, "sync_pread", buffer, filename, file_offset)

    def sync_pwrite(self, buffer: Any, filename: FileArgument, file_offset: int = 0) -> int:
        """Writes the buffer, and waits as wait() does.

        Returns how many ops have ended, this one included, or -1 if it fails to start.  Raises OSError.
        """
        return self._run(WRITE, "sync_pwrite", buffer, filename, file_offset)

    # `async` is a keyword of Python: callers pass it by position, or as **{"async": True}.

    def pread(self, buffer: Any, filename: FileArgument, validate: bool, *rest: Any, **named: Any) -> int:
        """pread(buffer, filename, validate, async, file_offset=0): async_pread() or sync_pread().

        validate: when the op has ended, reads the file again and prints whether the bytes are the same.
        """
        return self._either(READ, "pread", buffer, filename, validate, rest, named)

    def pwrite(self, buffer: Any, filename: FileArgument, validate: bool, *rest: Any, **named: Any) -> int:
        """pwrite(buffer, filename, validate, async, file_offset=0): async_pwrite() or sync_pwrite().

        validate: when the op has ended, reads the file again and prints whether the bytes are the same.
        """
        return self._either(WRITE, "pwrite", buffer, filename, validate, rest, named)

    # ---- one thread, one op ----

    def read(self, buffer: Any, filename: FileArgument, validate: bool, file_offset: int = 0) -> int:
        """Reads a file of exactly the buffer's size, and waits for this op alone.

        Prints the time that it took, in microseconds.  Returns 0, or -1 on failure, whose reason is logged.
        """
        return self._alone(READ, "read", buffer, filename, validate, file_offset)

    def write(self, buffer: Any, filename: FileArgument, validate: bool, file_offset: int = 0) -> int:
        """Writes the buffer, and waits for this op alone.

        Prints the time that it took, in microseconds.  Returns 0, or -1 on failure, whose reason is logged.
        """
        return self._alone(WRITE, "write", buffer, filename, validate, file_offset)

    # ---- pinned memory ----

    def new_cpu_locked_tensor(self, num_elem: int, example_tenosr: Any = None, *, example_tensor: Any = None) -> Any:
        """A pinned, page aligned tensor of shape (num_elem,) and the example's dtype; for an array, an array.

        The content is undefined.  Raises OSError: ENOMEM if the pool has no room.  The misspelt keyword is
        DeepNVMe's.
        """
        if (example_tenosr is None) == (example_tensor is None):
            raise TypeError("dsaio: new_cpu_locked_tensor() needs one example tensor")
        return _buffer.new_like(num_elem, example_tensor if example_tenosr is None else example_tenosr)

    # ---- the rest ----

    def close(self) -> None:
        """Waits until all ops of the handle have ended, and closes it.  Twice is fine.

        Raises as wait() does; failures of the ops of submit_ methods stay with them.
        """
        super().close()
        self._async_c = None
        self._wait(None)

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending) -> None:
        # Ops use memory that nothing else may keep.
        if not is_ending() and (self.__dict__.get("_pending") or self.__dict__.get("_failures")):
            try:
                self._wait(None)
            except OSError as e:
                _report("aio_handle was dropped, and an op of it failed", e)
            finally:
                if self._pending:  # a signal handler has raised
                    _op.lose(self._pending)

    def _forget(self) -> None:
        super()._forget()
        self._async_c = None
        self._wait_lock = Lock()
        self._pending = []
        self._failures = []

    def _n_open(self) -> int:
        return super()._n_open() + len(self._pending)

    def _either(
        self, opcode: int, name: str, buffer: Any, file: FileArgument, validate: bool, rest: Any, named: Any
    ) -> int:
        is_async, offset = _async_arguments(name, rest, named)
        return (self._start if is_async else self._run)(opcode, name, buffer, file, offset, validate)

    def _start(
        self, opcode: int, name: str, buffer: Any, file: FileArgument, offset: int, validate: bool = False
    ) -> int:
        """Starts an op that wait() is for."""
        try:
            c = self._async_c or self._open("_async_c")
            place = _locate(buffer, opcode == READ)
            slot = _op.start(c, opcode, file, place, offset)
        except OSError as e:
            return _report(name, e)
        self._pending.append((slot.out.value, opcode, file, offset, place, validate, c))  # type: ignore[arg-type]
        _op.release(slot)
        return 0

    def _run(
        self, opcode: int, name: str, buffer: Any, file: FileArgument, offset: int, validate: bool = False
    ) -> int:
        """Starts an op, and waits for it and for all that are pending."""
        try:
            c = self._async_c or self._open("_async_c")
            place = _locate(buffer, opcode == READ)
            slot = _op.start(c, opcode, file, place, offset)
        except OSError as e:
            return _report(name, e)
        own: List[_op.Pending] = [(slot.out.value, opcode, file, offset, place, validate, c)]  # type: ignore[list-item]
        try:
            return self._wait(own)
        finally:
            self._pending += own  # of a wait that did not see its end
            _op.release(slot)

    def _wait(self, own: Optional[List[_op.Pending]]) -> int:
        """Waits for `own` and for all pending ops.  Returns their number, or raises the first failure."""
        began = time.perf_counter()
        failures: List[BaseException] = []
        n = 0
        try:
            if own:
                n += self._end(own, failures)
            # Another thread may be waiting for ops that this one has queued, which must have ended, too.
            with self._wait_lock:
                n += self._end(self._pending, failures)
                failures, self._failures = failures + self._failures, []
        except BaseException:
            self._failures += failures
            raise
        finally:
            self._counters.waited_since(began)
        if failures:
            raise failures[0]
        return n

    def _end(self, pending: List[_op.Pending], failures: List[BaseException]) -> int:
        """Waits for the ops that are pending now, removes them, and adds their failures.  Returns their number.

        Where a signal handler raises, all of them stay pending, and the next wait begins anew.
        """
        ops = pending[:]
        if not ops:
            return 0
        own_failures: List[BaseException] = []
        pointers = [op[0] for op in ops]
        results = _op.await_all(pointers)
        n_failed = {READ: 0, WRITE: 0}
        for op, result in zip(ops, results):
            place, validate = op[4], op[5]
            if result == place[1] and place[3] is None and not validate:
                continue
            pointer, opcode, file, offset = op[:4]
            failure = _op.finish(pointer, result, opcode, file, offset, place)
            if failure is None and validate:
                try:
                    _validate(opcode, place, file, offset)
                except Exception as e:
                    failure = e
            if failure is not None:
                n_failed[opcode] += 1
                own_failures.append(failure)
        failures += own_failures
        del pending[: len(ops)]  # at once, also for other threads
        _op.free_all(pointers)
        for opcode in (READ, WRITE):
            done = [max(result, 0) for op, result in zip(ops, results) if op[1] == opcode]
            if done:
                self._counters.add(opcode, len(done), sum(done), n_failed[opcode])
        return len(ops)

    def _alone(
        self, opcode: int, name: str, buffer: Any, file: FileArgument, validate: bool, offset: int
    ) -> int:
        began = time.perf_counter()
        try:
            place = _buffer.locate(buffer, opcode == READ)
            if opcode == READ:
                size = file.size() if isinstance(file, File) else os.stat(file).st_size
                if size != place[1]:
                    text = f"the buffer has {place[1]} bytes, and the file {size}"
                    raise OSError(errno.EINVAL, text, _op.file_name(file))
            self._submit_place(opcode, place, file, offset).wait()
        except OSError as e:
            return _report(name, e)
        middle = time.perf_counter()
        if validate:
            _validate(opcode, place, file, offset)
        end = time.perf_counter()
        print(f"Elapsed time(usec): aio = {(middle - began) * 1e6:.6g} call = {(end - began) * 1e6:.6g}")
        return 0


def _async_arguments(name: str, rest: Any, named: Any) -> Tuple[bool, int]:
    """Values of the arguments async and file_offset."""
    given = dict(zip(("async", "file_offset"), rest))
    if len(rest) > 2 or set(given) & set(named) or set(named) - {"async", "file_offset"}:
        raise TypeError(f"dsaio: {name}() takes buffer, filename, validate, async and file_offset, each once")
    given.update(named)
    if "async" not in given:
        raise TypeError(f"dsaio: {name}() needs the argument async")
    return bool(given["async"]), given.get("file_offset", 0)


def _validate(opcode: int, place: Place, file: FileArgument, offset: int) -> None:
    """Reads the op's range of the file without the daemon, and prints whether it has the buffer's bytes."""
    is_same = True
    chunk = 1 << 20
    fd = os.dup(file) if isinstance(file, int) else os.open(_op.file_name(file), os.O_RDONLY)
    try:
        for i in range(0, place[1], chunk):
            wanted = _buffer.bytes_of(place, i, min(chunk, place[1] - i))
            is_same = is_same and os.pread(fd, len(wanted), offset + i) == wanted
    finally:
        os.close(fd)
    verb = "read" if opcode == READ else "write"
    print(f"{'Pass' if is_same else 'Fail'}: {verb} of {place[1]} bytes at {offset} of {_op.file_name(file)}")


class gds_handle(aio_handle):
    """DeepNVMe's handle for tensors of a GPU, with the arguments and methods of aio_handle.

    aio_handle takes such tensors, too, and this one takes all that aio_handle does.  It adds the pinning of a
    GPU's memory, which the library then knows before its first op.
    """

    def get_alignment(self) -> int:
        """Sizes and offsets that are multiples of it, in bytes, suit DeepNVMe.  Here all do."""
        return 512

    def new_pinned_device_tensor(self, num_elem: int, example_tenosr: Any = None, *, example_tensor: Any = None) -> Any:
        """A pinned tensor of shape (num_elem,) and the example's dtype, on the example's GPU, or else the current.

        The example is a tensor of torch or CuPy.  The content is undefined.  Raises OSError if the memory cannot
        be pinned; what torch or CuPy raises if there is none.  The misspelt keyword is DeepNVMe's.
        """
        if (example_tenosr is None) == (example_tensor is None):
            raise TypeError("dsaio: new_pinned_device_tensor() needs one example tensor")
        num_elem = check.integer("num_elem", num_elem, 0, check.MAX)
        from . import _gpu

        tensor = _gpu.new_like(num_elem, example_tensor if example_tenosr is None else example_tenosr)
        if num_elem:
            self.pin_device_tensor(tensor)
        return tensor

    def free_pinned_device_tensor(self, tensor: Any) -> bool:
        """As unpin_device_tensor().  The memory is torch's or CuPy's, and free when its last tensor is gone."""
        return self.unpin_device_tensor(tensor)

    def pin_device_tensor(self, buffer: Any) -> bool:
        """Registers the tensor's memory, for ops of all handles on it and on views of it.  Twice is fine.

        Returns True.  Raises TypeError if it is not on a GPU; OSError: EINVAL if its memory is none of a GPU of
        CUDA, ERANGE if it spans several allocations, EEXIST if another tensor that is pinned has a part of it.
        """
        if not _buffer.is_gpu_tensor(buffer):
            device = f" on the device {buffer.device}" if hasattr(buffer, "data_ptr") else ""
            raise TypeError(
                f"dsaio: pin_device_tensor() is for tensors of a GPU, not for a {type(buffer).__name__}{device}:"
                " new_cpu_locked_tensor() makes pinned ones of the CPU"
            )
        from . import _gpu

        _gpu.pin(*_buffer.extent(buffer))
        return True

    def unpin_device_tensor(self, buffer: Any) -> bool:
        """Undoes pin_device_tensor() of a tensor that starts at the same address.  Open ops go on.

        Returns True, or False if there is none.
        """
        from . import _gpu

        return _gpu.unpin(_buffer.extent(buffer)[0])


def _keep_pending() -> Any:
    return [handle._pending for handle in list(_handles) if isinstance(handle, aio_handle)]


_op.keep_at_exit(_keep_pending)


# ---- the functions of the module ----


def aio_read(
    buffer: Any,
    filename: FileArgument,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """aio_handle.read() of a handle of these values.  Returns 0, or -1 on failure."""
    with aio_handle(block_size, queue_depth, single_submit, overlap_events) as handle:
        return handle.read(buffer, filename, validate)


def aio_write(
    buffer: Any,
    filename: FileArgument,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """aio_handle.write() of a handle of these values.  Returns 0, or -1 on failure."""
    with aio_handle(block_size, queue_depth, single_submit, overlap_events) as handle:
        return handle.write(buffer, filename, validate)


_COPY_BYTES = 32 << 20  # of a thread at least: they take 2 ms, and the start of a thread 0.1 ms
_COPIERS_MAX = 8  # threads of one copy: a guess


def _copy(to: Place, source: Place) -> None:
    """Copies to[1] bytes, which may overlap.  Without the GIL; large ones by several threads."""
    nbytes = to[1]
    n_threads = min(nbytes // _COPY_BYTES, _COPIERS_MAX, len(os.sched_getaffinity(0)))
    if n_threads < 2 or abs(to[0] - source[0]) < nbytes:
        ctypes.memmove(to[0], source[0], nbytes)
        return
    step = -(-nbytes // (n_threads * 4096)) * 4096

    def copy(start: int) -> None:  # keeps both buffers, also where a signal handler raises below
        ctypes.memmove(to[0] + start, source[0] + start, min(step, nbytes - start))

    from concurrent.futures import ThreadPoolExecutor

    try:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(copy, range(0, nbytes, step)))
    except RuntimeError:  # RLIMIT_NPROC
        ctypes.memmove(to[0], source[0], nbytes)


def deepspeed_memcpy(dest: Any, src: Any) -> int:
    """Copies the bytes of a tensor into another one of the same number of bytes.  Returns 0.

    The two may overlap.  Other threads of Python run meanwhile.  Above 64 MiB, several threads copy.
    """
    to, source = _buffer.locate_on_host(dest, True), _buffer.locate_on_host(src, False)
    if to[1] != source[1]:
        raise ValueError(f"dsaio: deepspeed_memcpy of {source[1]} bytes to {to[1]}")
    _copy(to, source)
    if to[3] is not None:
        to[3]()
    return 0
