"""dsaio.open(): a file as an object of io, for programs and libraries that take such.

(_stream.Writer, which torch.save() writes to here, is none: it writes ahead, and only a file that replaces another.)
"""

from __future__ import annotations

import errno
import io
import os

from . import _check as check
from . import _library as library
from ._file import File
from ._handle import Handle, handle_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ._file import Path
    from ._op import Op

_FLAGS = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL}


class _RawFile(io.RawIOBase):
    """A file whose reads and writes are ops, each awaited."""

    def __reduce__(self) -> Any:
        raise TypeError(f"dsaio: {self!r} cannot be copied or pickled: open the path again")

    def __init__(self, file: File, mode: str, handle: Handle, is_own: bool) -> None:
        self.name = file.name
        self.mode = mode
        self._can_read = mode[0] == "r" or "+" in mode
        self._can_write = mode[0] != "r" or "+" in mode
        self._at = 0
        self._file = file
        self._handle = handle
        self._is_own = is_own  # to be closed with the file

    def _refuse(self, may: bool, verb: str) -> None:
        self._file.opened()
        if not may:
            raise io.UnsupportedOperation(f"dsaio: {self.name!r} is open in mode {self.mode!r}: not for {verb}")

    def _end(self, op: Op) -> int:
        """Waits for the op.  Returns its bytes, fewer where the file ends.  Raises OSError."""
        try:
            return op.wait()
        except BaseException as e:
            if op._result is None:
                # A signal handler has raised.  The caller may free its buffer now, also one that the op cannot keep,
                # as that of io.BufferedReader: so the op must have ended.
                op.cancel()
                library.op_wait(op._pointer, -1, None)
                op.done()
            elif isinstance(e, OSError) and e.errno == errno.ENODATA:
                return op.bytes_done
            raise

    def readinto(self, buffer: Any) -> int:
        self._refuse(self._can_read, "reading")
        n = self._end(self._handle.submit_read(buffer, self._file, self._at))
        self._at += n
        return n

    def readall(self) -> bytes:
        self._refuse(self._can_read, "reading")
        data = bytearray(max(0, self._file.size() - self._at))
        return bytes(memoryview(data)[: self.readinto(data)])

    def write(self, buffer: Any) -> int:
        self._refuse(self._can_write, "writing")
        n = self._end(self._handle.submit_write(buffer, self._file, self._at))
        self._at += n
        return n

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.opened()
        if whence == os.SEEK_CUR:
            offset += self._at
        elif whence == os.SEEK_END:
            offset += self._file.size()
        elif whence != os.SEEK_SET:
            raise ValueError(f"dsaio: whence {whence!r}: must be 0, 1 or 2")
        self._at = check.integer("position", offset, 0, check.MAX, errno.EINVAL)
        return self._at

    def tell(self) -> int:
        self._file.opened()
        return self._at

    def truncate(self, size: Optional[int] = None) -> int:
        self._refuse(self._can_write, "writing")
        size = self._at if size is None else size
        self._file.truncate(size)
        return size

    def readable(self) -> bool:
        self._file.opened()
        return self._can_read

    def writable(self) -> bool:
        self._file.opened()
        return self._can_write

    def seekable(self) -> bool:
        self._file.opened()
        return True

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._file.close()
        if self._is_own:
            self._handle.close()


def open(path: Path, mode: str = "rb", *, handle: Optional[Handle] = None) -> io.RawIOBase:
    """A file object without a buffer, whose reads and writes go through the daemon, each as one op that it waits for.

    path: also rados://POOL/NAMESPACE/FILE, with mode "rb".  mode: "rb", "wb" or "xb", and with "+" for both
    directions, as of the built-in open().  handle: whose ops they are, which stays open; None: the file has one of its
    own.

    io.BufferedReader and io.BufferedWriter, with a large buffer_size, suit callers that read or write few bytes at a
    time.  It has no fileno(), since what goes by a descriptor would not go through the daemon.  Like all files it
    must not be used by several threads at once.  Raises OSError, ValueError for another mode.
    """
    if not isinstance(mode, str) or sorted(mode.replace("+", "", 1)) not in (["b", "r"], ["b", "w"], ["b", "x"]):
        raise ValueError(f"dsaio: mode {mode!r}: must be 'rb', 'wb' or 'xb', or one of them with '+'")
    mode = "".join(sorted(mode, key="rwxb+".index))
    flags = (os.O_RDWR if "+" in mode else os.O_RDONLY if mode[0] == "r" else os.O_WRONLY) | _FLAGS[mode[0]]
    ops_of = handle_for(path) if handle is None else handle
    return _RawFile(File(path, flags), mode, ops_of, handle is None)
