"""libdsaio-client by ctypes: its functions, structs and constants, and its errors.

There is one copy of the library, but two ways to call it.  `blocking` releases the GIL, and serves
all calls that may sleep.  `quick` keeps it, and serves those that never sleep, or never with a timeout
of 0 (dsaio.h lists both): a thread that releases the GIL for half a microsecond may wait 5 ms until it
has it again.

Names below are those of dsaio.h without the prefix.  All functions return a negative errno on failure,
of which error() makes an OSError.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

SONAME = "libdsaio-client.so.0"

READ, WRITE, FSYNC = 1, 2, 3
FDATASYNC = 4  # in this package alone: FSYNC with the flag DATASYNC
DATASYNC = 1
CONNECTED, RECONNECTING = 1, 2
INHERIT, YES, NO = 0, 1, 2
NO_ZERO = 1
OPEN_URI, SPARSE = 1, 1
VIEW_WRITABLE = 1
MEMORY_FD, MEMORY_CUDA = 2, 4
PATHS = ("none", "shared", "gpu", "copied")
CLASSES = {"normal": 0, "demand": 1, "background": 2}


def _fields(*groups: "tuple[Any, str]") -> Any:
    """The fields of a struct: types, each with the names of those that follow one another."""
    return [(name, kind) for kind, names in groups for name in names.split()]


class _Sized(ctypes.Structure):
    """A struct that begins with its size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **values)


class Profile(_Sized):
    """struct dsaio_profile."""

    _fields_ = _fields(
        (c_size_t, "size"),
        (c_uint32, "block_size queue_depth single_submit overlap_events intra_op_parallelism zero"),
    )


class HandleOptions(_Sized):
    """struct dsaio_handle_options."""

    _fields_ = _fields(
        (c_size_t, "size"),
        (ctypes.POINTER(Profile), "profile"),
        (c_uint32, "io_class weight entries flags"),
        (c_int64, "op_timeout_usec spin_usec"),
    )


class AllocOptions(_Sized):
    """struct dsaio_alloc_options."""

    _fields_ = _fields((c_size_t, "size"), (c_uint32, "flags numa_node"), (c_int64, "wait_usec"))


class Memory(_Sized):
    """struct dsaio_memory."""

    _fields_ = _fields(
        (c_size_t, "size"), (c_uint32, "kind"), (c_int32, "fd"), (c_void_p, "start"), (c_uint64, "bytes fd_off")
    )


class ConnectOptions(_Sized):
    """struct dsaio_connect_options."""

    _fields_ = _fields(
        (c_size_t, "size"), (c_char_p, "socket_path name"), (c_int64, "reconnect_timeout_usec"), (c_uint64, "flags")
    )


class OpenOptions(_Sized):
    """struct dsaio_open_options."""

    _fields_ = _fields((c_size_t, "size"), (c_uint32, "flags mode"))


class CreateOptions(_Sized):
    """struct dsaio_create_options."""

    _fields_ = _fields((c_size_t, "size"), (c_uint64, "file_size token"), (c_uint32, "flags zero"))


class Stat(_Sized):
    """struct dsaio_stat."""

    _fields_ = _fields(
        (c_size_t, "size"),
        (c_char_p, "name"),
        (c_uint64, "file_size"),
        (c_int64, "mtime_sec"),
        (c_uint64, "id"),
        (c_uint32, "object_size zero"),
    )


EACH = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(Stat), c_void_p)


class Io(ctypes.Structure):
    """struct dsaio_io."""

    _fields_ = _fields(
        (c_uint32, "opcode flags"),
        (c_void_p, "file"),
        (c_char_p, "path"),
        (c_void_p, "buf"),
        (c_uint64, "len off"),
        (c_void_p, "user_data"),
        (c_int64, "timeout_usec"),
        (c_void_p, "iov"),
        (c_uint32, "n_iov zero"),
    )


class Completion(ctypes.Structure):
    """struct dsaio_completion."""

    _fields_ = _fields(
        (c_void_p, "op user_data"), (c_int64, "result"), (c_uint64, "bytes"), (c_uint32, "flags zero")
    )


def _path() -> str:
    """$DSAIO_LIBRARY, else the library beside this package, else what the loader finds."""
    named = os.environ.get("DSAIO_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    return beside if os.path.exists(beside) else SONAME


def _load(path: str) -> "tuple[ctypes.CDLL, ctypes.PyDLL]":
    try:
        return ctypes.CDLL(path), ctypes.PyDLL(path)
    except OSError as e:
        raise ImportError(
            f"dsaio: {e}: install libdsaio-client, or name the library in DSAIO_LIBRARY", name="dsaio", path=path
        ) from None


blocking, quick = _load(_path())


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = library["dsaio_" + name]
    except AttributeError:
        raise ImportError(
            f"dsaio: {blocking._name} has no function dsaio_{name}: it is older than this package", name="dsaio"
        ) from None
    function.restype = result
    function.argtypes = arguments
    return function


_out = c_void_p  # the address of a result: ctypes.byref() of what it is

connect = _function(blocking, "connect", c_int, _out, _out)
client_state = _function(quick, "client_state", c_int, c_void_p)
client_pool_max = _function(blocking, "client_pool_max", c_int64, c_void_p)
client_is_locked = _function(quick, "client_is_locked", c_int, c_void_p)
disconnect = _function(blocking, "disconnect", c_int, c_void_p)

handle_open = _function(blocking, "handle_open", c_int, c_void_p, _out, _out)
handle_cancel = _function(blocking, "handle_cancel", c_int, c_void_p)
handle_close = _function(blocking, "handle_close", c_int, c_void_p, c_int64)
handle_fd = _function(quick, "handle_fd", c_int, c_void_p)

alloc = _function(blocking, "alloc", c_int, c_void_p, c_size_t, _out, _out)
free = _function(blocking, "free", c_int, c_void_p, c_void_p)
memory_register = _function(blocking, "memory_register", c_int, c_void_p, _out)
memory_unregister = _function(blocking, "memory_unregister", c_int, c_void_p, c_void_p)
memory_kind = _function(quick, "memory_kind", c_int, c_void_p, c_void_p, c_size_t)
memory_gpu = _function(blocking, "memory_gpu", c_int, c_void_p, c_void_p)  # may wait for the loader of libraries

view = _function(blocking, "view", c_int, c_void_p, c_void_p, c_uint64, c_size_t, c_uint, _out)
view_wait = _function(blocking, "view_wait", c_int, c_void_p, c_void_p, c_size_t)
view_free = _function(blocking, "view_free", c_int, c_void_p, c_void_p)

file_open = _function(blocking, "open", c_int, c_void_p, c_char_p, c_int, _out, _out)
file_from_fd = _function(blocking, "file_from_fd", c_int, c_void_p, c_int, _out)
file_close = _function(blocking, "file_close", None, c_void_p)
file_drop = _function(blocking, "file_drop", c_int, c_void_p, c_char_p)
file_size = _function(blocking, "file_size", c_int64, c_void_p)
file_alignment = _function(quick, "file_alignment", c_size_t, c_void_p)
file_truncate = _function(blocking, "file_truncate", c_int, c_void_p, c_uint64)
file_allocate = _function(blocking, "file_allocate", c_int, c_void_p, c_uint64, c_uint64, c_uint)

create = _function(blocking, "create", c_int, c_void_p, c_char_p, _out, _out)
file_token = _function(quick, "file_token", c_uint64, c_void_p)
file_commit = _function(blocking, "file_commit", c_int, c_void_p, c_uint64)
file_abandon = _function(blocking, "file_abandon", c_int, c_void_p)
stat = _function(blocking, "stat", c_int, c_void_p, c_char_p, _out)
list = _function(blocking, "list", c_int, c_void_p, c_char_p, EACH, c_void_p)
remove = _function(blocking, "remove", c_int, c_void_p, c_char_p)

_of_file = (c_void_p, c_void_p, c_void_p, c_size_t, c_uint64, _out)
pread = _function(blocking, "pread_async", c_int, *_of_file)
pwrite = _function(blocking, "pwrite_async", c_int, *_of_file)
_of_path = (c_void_p, c_char_p, c_void_p, c_size_t, c_uint64, _out)
pread_path = _function(blocking, "pread_path_async", c_int, *_of_path)
pwrite_path = _function(blocking, "pwrite_path_async", c_int, *_of_path)
submit = _function(blocking, "submit", c_int, c_void_p, _out, c_size_t, c_int, c_uint, _out)
op_wait = _function(blocking, "op_wait", c_int, c_void_p, c_int64, _out)
op_look = _function(quick, "op_wait", c_int, c_void_p, c_int64, _out)  # with a timeout of 0 only
op_wait_many = _function(blocking, "op_wait_many", c_int, _out, c_int, c_int64, _out)
op_look_many = _function(quick, "op_wait_many", c_int, _out, c_int, c_int64, _out)  # with a timeout of 0 only
op_bytes = _function(quick, "op_bytes", c_uint64, c_void_p)
op_error = _function(quick, "op_error", c_char_p, c_void_p)
op_path = _function(quick, "op_path", c_int, c_void_p)
op_is_unknown = _function(quick, "op_is_unknown", ctypes.c_bool, c_void_p)
op_why = _function(quick, "op_why", c_char_p, c_void_p)
op_cancel = _function(blocking, "op_cancel", c_int, c_void_p)
op_free = _function(quick, "op_free", None, c_void_p)
op_free_many = _function(quick, "op_free_many", None, _out, c_int)
# With min 0 only.
handle_reap = _function(quick, "handle_reap", c_int, c_void_p, _out, c_size_t, c_int, c_int, c_int64)

_error = _function(quick, "error", c_char_p)


def register(client: Any, kind: int, address: int, nbytes: int, fd: int = -1, fd_off: int = 0) -> int:
    """memory_register()."""
    memory = Memory(kind=kind, fd=fd, start=address, bytes=nbytes, fd_off=fd_off)
    code: int = memory_register(client, ctypes.byref(memory))
    return code


def os_error(code: int, text: str, filename: Any = None) -> OSError:
    """An OSError of a negative errno and its message, which names a descriptor itself."""
    if filename is None or isinstance(filename, int):
        return OSError(-code, text)
    return OSError(-code, text, filename)


def error(code: int, filename: Any = None) -> OSError:
    """An OSError of the library's last failure in this thread."""
    return os_error(code, _error().decode(errors="replace"), filename)


def check(code: int, filename: Any = None) -> int:
    """Raises an OSError if a call of this thread returned a negative errno."""
    if code < 0:
        raise error(code, filename)
    return code


# Finalizers also run while the interpreter ends.  Then nothing is released: other objects may still
# use it, and the end of the process gives everything back.
is_ending: Callable[[], bool] = sys.is_finalizing
