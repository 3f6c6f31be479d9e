"""A file that is written under a temporary name and then takes the place of another file.

    with new_file(path, handle) as new:
        new.reserve(nbytes)
        for op in handle.submit_writes([(tensor, new.file, 0), ...]):
            op.wait()

Readers find the old file or the whole new one, and after a crash of the machine so does the next boot.
An exception that leaves the block removes the temporary file, when no op of the handle is open any more,
and the old file stays as it was.

The temporary name is ".dsaio-RANDOM.new", in the folder of the file.  Its NewFile holds a lock
(flock(2)) on it, so remove_leftovers() can tell the file of a process that was killed from one that is
being written.

A symbolic link stays a link: the file that it leads to is replaced.  Other names (hard links) of the old
file keep the old content.  The new file has the permission bits of the old one, and its owner where that
is allowed; where there is none, the mode 0666 less the umask.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat

from . import _op
from ._file import File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ._file import Path
    from ._handle import Handle

_PREFIX, _SUFFIX = ".dsaio-", ".new"  # dsaioctl's temporary files, which it does not lock, end with ".tmp"


def _fallocate(fd: int, nbytes: int) -> None:
    # Python has only posix_fallocate(), which writes zeros where the file system cannot reserve blocks.
    function = ctypes.CDLL(None, use_errno=True).fallocate64
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while function(fd, 0, 0, nbytes) < 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def _is_removed(fd: int) -> bool:
    return os.fstat(fd).st_nlink == 0


class NewFile:
    """A new file, which place() puts in the place of `path`.

    Raises OSError: the folder is missing, the path names a directory or a device, or the file that is
    there must not be written.
    """

    def __init__(self, path: Path) -> None:
        self.path: str = os.path.realpath(os.fsdecode(path))
        self._shown = path
        self._fd = -1
        self._temporary = ""
        try:
            self._old = self._look()
            while not self._make():
                pass
            self.file = File(self._temporary, os.O_RDWR)
        except BaseException:
            self._remove()
            raise
        self.file.name = path  # for errors

    def _look(self) -> Any:
        """The stat of the file that is replaced, or None."""
        try:
            old = os.stat(self._shown)
        except FileNotFoundError:
            if os.fsdecode(self._shown).endswith("/"):
                raise
            return None
        if stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory: name a file in it", self._shown)
        if not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, "is no regular file: a new one cannot take its place", self._shown)
        if not os.access(self.path, os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, "the file that is there must not be written", self._shown)
        return old

    def _make(self) -> bool:
        """Makes the temporary file, locked.  False: another name has to be tried."""
        number = os.urandom(8).hex()
        # Known before it is made: a signal handler may raise at any point.
        self._temporary = os.path.join(os.path.dirname(self.path), _PREFIX + number + _SUFFIX)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._fd = os.open(self._temporary, flags, 0o666 if self._old is None else 0o600)
        except FileExistsError:
            self._temporary = ""
            return False
        except OSError as e:
            self._temporary = ""
            raise OSError(e.errno, f"cannot make a temporary file beside it: {e.strerror}", self._shown) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: remove_leftovers() gets none either
            return True
        if not _is_removed(self._fd):
            return True
        os.close(self._fd)  # remove_leftovers() of another process came before the lock
        self._fd = -1
        return False

    def reserve(self, nbytes: int) -> None:
        """Gives the file that size, with blocks for all of it.  Raises OSError, ENOSPC if there is no room.

        To be called before the first write: direct writes that extend a file are slow.
        """
        try:
            if nbytes:
                _fallocate(self._fd, nbytes)
        except OSError as e:
            if e.errno != errno.EOPNOTSUPP:
                raise OSError(e.errno, f"cannot reserve {nbytes} bytes: {e.strerror}", self._shown) from None
            os.ftruncate(self._fd, nbytes)

    def _keep_owner(self, old: os.stat_result) -> None:
        mode = stat.S_IMODE(old.st_mode) & 0o777
        new = os.fstat(self._fd)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            try:
                os.fchown(self._fd, old.st_uid, old.st_gid)
            except OSError:
                try:
                    os.fchown(self._fd, -1, old.st_gid)
                except OSError:
                    # Another group must not get more rights than all other users have.
                    mode &= ~0o070 | (mode & 0o007) << 3
        os.fchmod(self._fd, mode)

    def place(self) -> None:
        """Renames the file.  Its bytes must be on the device before, and its folder synced after."""
        if self._old is not None:
            self._keep_owner(self._old)
        os.rename(self._temporary, self.path)
        self._temporary = ""
        self.discard()

    def discard(self) -> None:
        """Closes the file, and removes it if it was not renamed.  Twice is fine."""
        self.file.close()
        self._remove()

    def _remove(self) -> None:
        if self._temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)
            self._temporary = ""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sync_folder(path: str) -> None:
    """Brings the names in a folder to the device.  Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # one that may be searched but not read cannot be synced
    try:
        os.fsync(fd)
    except OSError as e:
        if e.errno != errno.EINVAL:  # a file system that cannot
            raise OSError(e.errno, f"cannot sync the folder: {e.strerror}", path) from None
    finally:
        os.close(fd)


@contextlib.contextmanager
def new_file(path: Path, handle: Handle, *, syncs_name: bool = True) -> Iterator[NewFile]:
    """A NewFile to write to, with ops of the handle.  It replaces `path` at the end of the block.

    When the block has ended, the new file is on the device, and its name unless syncs_name is False: then
    the caller calls sync_folder(), after many files.  Raises OSError.
    """
    new = NewFile(path)
    try:
        try:
            yield new
            handle.submit_fsync(new.file).wait()
        finally:
            _op.wait_all(handle._counters)
        new.place()
    finally:
        new.discard()
    if syncs_name:
        sync_folder(os.path.dirname(new.path))


def remove_leftovers(folder: str) -> None:
    """Removes the temporary files of processes that were killed."""
    with os.scandir(folder) as entries:
        names = [e.path for e in entries if e.name.startswith(_PREFIX) and e.name.endswith(_SUFFIX)]
    for name in names:
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # it has gone, or is another user's
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
        except OSError:  # it is being written, or may not be removed
            pass
        finally:
            os.close(fd)
