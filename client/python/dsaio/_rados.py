"""Files of RADOS stores, by their names: rados://POOL/NAMESPACE/FILE.

    with dsaio.create("rados://tensors/llama/step-1000", size=tensor.nbytes) as file, dsaio.Handle() as handle:
        handle.submit_write(tensor, file).wait()
        file.commit()
    dsaio.stat("rados://tensors/llama/step-1000").size

A file is seen by nobody before its commit, and never changes after it.  Closing never commits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections import namedtuple

from . import _check as check
from . import _library as library
from ._connection import connection
from ._file import File, _OpenFile, is_rados, path_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, NamedTuple, Optional

    from ._file import Path
    from ._handle import Handle

    class Stat(NamedTuple):
        name: str
        size: int
        mtime: int
        object_size: int
        id: int

else:
    Stat = namedtuple("Stat", "name size mtime object_size id")

Stat.__doc__ = """A committed file of a RADOS store.

name: without rados://POOL/NAMESPACE/
size: in bytes
mtime: of its commit, in seconds since 1970
object_size: bytes of each of its objects
id: another file of that name has another one
"""


def _name(path: Path) -> bytes:
    name = path_bytes(path, "a path")
    if not is_rados(path):
        raise ValueError(f"dsaio: {path!r}: must be rados://POOL/NAMESPACE/FILE: use the functions of os for others")
    return name


class Created(File):
    """A file of a RADOS store that create() has begun, or that another process has, on any host.

    It is open for reading and writing.  When no process has it open any more, its store abandons it after a while.
    """

    __slots__ = ()

    def __init__(self, path: Path, size: int, token: int, sparse: bool) -> None:
        self._opened = None
        self.name = path
        self._flags = None
        flags = library.SPARSE if sparse else 0
        options = library.CreateOptions(file_size=size, token=token, flags=flags)
        name, pointer, of_rados = _name(path), ctypes.c_void_p(), connection(True)
        library.check(library.create(of_rados.pointer, name, ctypes.byref(options), ctypes.byref(pointer)), path)
        self._opened = _OpenFile._of_pointer(pointer, of_rados)

    @property
    def token(self) -> int:
        """By this number other processes open the file: create(path, token=...)."""
        opened = self.opened()
        token: int = library.file_token(opened.pointer)
        return token

    def commit(self, size: Optional[int] = None) -> None:
        """Makes it the file of its name, for all hosts.  All ops on it, of all processes, must have ended.

        size: in bytes, None for the one of create() or, where it had none, the end of the last byte that this process
        has written.  Raises OSError: EBUSY if an op of this process is open.
        """
        opened = self.opened()
        size = 0 if size is None else check.integer("size", size, 0, check.MAX)
        library.check(library.file_commit(opened.pointer, size), self.name)

    def abandon(self) -> None:
        """Removes its bytes.  Raises OSError."""
        opened = self.opened()
        library.check(library.file_abandon(opened.pointer), self.name)


def create(path: Path, size: Optional[int] = None, *, token: int = 0, sparse: bool = False) -> Created:
    """Begins a file of a RADOS store: rados://POOL/NAMESPACE/FILE.

    size: in bytes; None: commit() says it.  token: of a file that another process has created with a size, to write it
    together.
    sparse: ranges that nobody writes read as zeroes; else they fail as lost bytes do.  Raises OSError.
    """
    size = 0 if size is None else check.integer("size", size, 0, check.MAX)
    token = check.integer("token", token, 0, (1 << 64) - 1)
    return Created(path, size, token, check.boolean("sparse", sparse))


def _stat(c: Any, name: str) -> Stat:
    return Stat(name, c.file_size, c.mtime_sec, c.object_size, c.id)


def stat(path: Path) -> Stat:
    """What a name of a RADOS store means now.  Raises OSError, FileNotFoundError if there is no such file."""
    c = library.Stat()
    name = _name(path)
    library.check(library.stat(connection(True).pointer, name, ctypes.byref(c)), path)
    return _stat(c, os.fsdecode(name).split("/", 4)[-1])


def list_files(path: Path) -> List[Stat]:
    """The committed files whose names begin with that of path, sorted by name.

    path: rados://POOL/NAMESPACE/ and the start of names, or none.  Raises OSError.
    """
    found: List[Stat] = []

    def each(c: Any, _: Any) -> int:
        found.append(_stat(c[0], os.fsdecode(c[0].name)))
        return 0

    name = _name(path)
    library.check(library.list(connection(True).pointer, name, library.EACH(each), None), path)
    return sorted(found)


def remove(path: Path) -> None:
    """Removes a file of a RADOS store.  Readers that have it open go on for a while.  Raises OSError."""
    name = _name(path)
    library.check(library.remove(connection(True).pointer, name), path)


class NewRadosFile:
    """What _stream.Writer needs of a NewFile."""

    def __init__(self, path: Path) -> None:
        self.file = create(path)

    def reserve(self, nbytes: int) -> None:
        """Nothing: RADOS reserves none."""

    def set_size(self, nbytes: int) -> None:
        """Nothing: the commit does it."""


@contextlib.contextmanager
def new_rados_file(path: Path, handle: Handle) -> Iterator[NewRadosFile]:
    """new_file() of a RADOS store: committed at the end of the block, abandoned after an exception."""
    new = NewRadosFile(path)
    with new.file:
        try:
            try:
                yield new
            finally:
                handle._end_ops()
            new.file.commit()
        except BaseException:
            with contextlib.suppress(OSError):  # its store abandons it later
                new.file.abandon()
            raise
