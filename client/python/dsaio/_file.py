"""Open files."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys

from . import _check as check
from . import _library as library
from ._connection import connection, existing, is_of_file
from ._context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple, Union

    from ._connection import Connection

    Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
    FileArgument = Union[Path, int, "File"]

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_IS_UTF_8 = _ENCODING == "utf-8"


_ANY_FILE = "a path, a descriptor or a dsaio.File"
_HINTS = {  # for file objects
    _ANY_FILE: ": pass its fileno(), or open its path as a dsaio.File",
    "a path": ": pass the path of that file",
}


def path_bytes(path: Path, expected: str = _ANY_FILE) -> bytes:
    """The bytes of a path for the library.  Raises TypeError, or ValueError if one of them is 0 or it names no local
    file where only those do."""
    try:
        if type(path) is str:
            # Without the name of the encoding, which takes 0.1 us to look up, where it makes no difference.
            encoded = path.encode() if _IS_UTF_8 and path.isascii() else path.encode(_ENCODING, _ERRORS)
        else:
            encoded = os.fsencode(path)
    except TypeError:
        if hasattr(path, "fileno"):
            expected += _HINTS.get(expected, "")
        raise check.wrong_type("file", path, expected) from None
    if b"\0" in encoded:
        raise ValueError(f"dsaio: embedded null byte in path {path!r}")
    if expected is _ANY_FILE and encoded.startswith(b"rados://"):
        raise ValueError(f"dsaio: {path!r}: open it as a dsaio.File first")
    return encoded


def is_rados(path: object) -> bool:
    """Is it a name of a RADOS store?"""
    return isinstance(path, (str, bytes)) and os.fsencode(path[:8]) == b"rados://"


class naming:
    """OSErrors in its `with` block that name no file are of this one."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, e: Any, traceback: Any) -> None:
        if isinstance(e, OSError) and e.filename is None and is_of_file(e):
            e.filename = self._path


def open_regular(path: Path, kind: str) -> Tuple[int, os.stat_result]:
    """A descriptor to read a regular file from.  kind: of the file, for errors.  Raises OSError."""
    path_bytes(path, "a path")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, f"is a directory, no {kind}", path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, f"is no regular file, and so no {kind}", path)
    except BaseException:
        os.close(fd)
        raise
    return fd, found


class _OpenFile:
    """struct dsaio_file: closed when the File, and the last call with it, have let go of it."""

    __slots__ = ("pointer", "argument", "connection")

    def __init__(self, path: Path, flags: int, fd: Optional[int] = None) -> None:
        pointer = ctypes.c_void_p()
        self.pointer: Optional[int] = None
        name = path_bytes(path, "a path")
        flags = check.integer("flags", flags, 0, (1 << 31) - 1, expected="flags of os.open(), such as os.O_RDWR")
        of_rados = is_rados(path)
        self.connection = connection(of_rados)
        if fd is None:
            uri = library.OpenOptions(flags=library.OPEN_URI)
            options = ctypes.byref(uri) if of_rados else None
            result = library.file_open(self.connection.pointer, name, flags, options, ctypes.byref(pointer))
        else:
            result = library.file_from_fd(self.connection.pointer, fd, ctypes.byref(pointer))
        library.check(result, path)
        self.pointer = pointer.value
        self.argument = pointer  # of calls: ctypes converts an int at each

    @classmethod
    def _of_pointer(cls, pointer: ctypes.c_void_p, of: Connection) -> _OpenFile:
        self = cls.__new__(cls)
        self.pointer, self.argument, self.connection = pointer.value, pointer, of
        return self

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending, close: Any = library.file_close) -> None:
        if self.pointer and not self.connection.is_of_parent and not is_ending():
            close(self.pointer)


class File(Context):
    """A file that the daemon reads and writes for this process.

    path: opened with this process's rights.  flags: as of os.open(): O_RDONLY, O_WRONLY or O_RDWR, and
    O_CREAT (mode 0666 less the umask), O_EXCL, O_TRUNC.  Raises OSError.  rados://POOL/NAMESPACE/FILE names a file of a
    RADOS store, of its own daemon, to read (O_RDONLY); dsaio.create() makes one.

    Every method of a handle that takes a path takes a File, too, and is faster with it.  Use it
    as a context manager, or close() it; ops on it go on after that.  Where it is pickled, the other process opens
    the path again.
    """

    __slots__ = ("name", "_flags", "_opened")

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self._opened: Optional[_OpenFile] = None
        self.name = path
        self._flags: Optional[int] = flags
        self._opened = _OpenFile(path, flags)

    @classmethod
    def _of_descriptor(cls, fd: int, path: Path) -> File:
        """The file of a descriptor, which stays the caller's.  path: for errors.  Raises OSError."""
        self = cls.__new__(cls)
        self.name = path
        self._flags = None
        self._opened = _OpenFile(path, 0, fd)
        return self

    def __reduce__(self) -> Any:
        if self._opened is None or self._flags is None:
            raise TypeError(f"dsaio: {self!r} cannot be pickled: pickle the path of an open dsaio.File")
        return File, (self.name, self._flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC))

    def opened(self) -> _OpenFile:
        """What calls of the library need; ValueError after close(), EPERM in a child of fork()."""
        opened = self._opened
        if opened is None:
            raise ValueError(f"dsaio: file {self.name!r} is closed")
        if opened.connection.is_of_parent:
            text = "the file was opened before fork(), in the parent: make a new dsaio.File here"
            raise OSError(errno.EPERM, text, self.name)
        return opened

    @property
    def _is_rados(self) -> bool:
        return self._opened is not None and self._opened.connection.is_rados

    @property
    def alignment(self) -> int:
        """Offsets, sizes and addresses that are multiples of it, in bytes, go without a copy."""
        opened = self.opened()
        alignment: int = library.file_alignment(opened.pointer)
        return alignment

    def size(self) -> int:
        """The file's size in bytes now.  Raises OSError."""
        opened = self.opened()
        return library.check(library.file_size(opened.pointer), self.name)

    def truncate(self, size: int) -> None:
        """Sets the file's size in bytes.  Ops on the range that goes must have ended.  Raises OSError."""
        opened = self.opened()
        size = check.integer("size", size, 0, check.MAX)
        library.check(library.file_truncate(opened.pointer, size), self.name)

    def close(self) -> None:
        """Gives the file back.  Twice is fine."""
        self._opened = None

    def _refuse_if_closed(self) -> None:
        self.opened()

    def __repr__(self) -> str:
        return f"<dsaio.File {self.name!r}{' (closed)' if self._opened is None else ''}>"


def drop(path: Optional[Path] = None) -> None:
    """Closes the file of this path (None: all) that this process has closed and the daemon still has in its cache.

    So its file system can be unmounted at once, and not only when the file was idle for 10 to 20 s.  Raises OSError:
    EBUSY where the file is open or has ops, ETIMEDOUT where it cannot be closed within 10 s.
    """
    name = None if path is None else path_bytes(path, "a path")
    opened = existing()
    if opened is not None and not opened.is_lost():  # a daemon that has gone has nothing open
        library.check(library.file_drop(opened.pointer, name), path)
