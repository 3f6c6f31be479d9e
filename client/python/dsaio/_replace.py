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
is allowed; where there is none, those that open(2) gives with the mode 0666.  Until it takes its place,
nobody else may open it.

Other users may be able to write to the folder, or to own a link on the way to it.  So the folder is
opened once, and all names are looked up in it.  In a folder with the sticky bit that all users may write
to, EACCES refuses a link that belongs neither to this process's user nor to the folder's owner, and a file
alike, as open(2) does with the usual fs.protected_symlinks and fs.protected_regular.  The bytes go to
the descriptor of the file that was made, and its name is compared with it before the rename.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat

from . import _library as library
from ._connection import is_of_file
from ._file import File, is_rados

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional, Union

    from ._file import Path
    from ._handle import Handle
    from ._rados import NewRadosFile

_PREFIX, _SUFFIX = ".dsaio-", ".new"  # dsaioctl's temporary files are named, and locked, in the same way
_LINKS_MAX = 40  # the kernel's limit


def _is_temporary(name: str) -> bool:
    number = name[len(_PREFIX) : -len(_SUFFIX)]
    is_number = len(number) == 16 and all(c in "0123456789abcdef" for c in number)
    return is_number and name == _PREFIX + number + _SUFFIX


def _is_removed(fd: int) -> bool:
    return os.fstat(fd).st_nlink == 0


def _is_named(fd: int, name: str, folder: int) -> bool:
    """Whether the name in the folder is that of the file."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(fd))


def _open_folder(path: str, folder: Optional[int]) -> int:
    return os.open(path or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)


def _is_planted(folder: os.stat_result, found: os.stat_result, writers: int) -> bool:
    """Whether another user may have put it into a sticky folder that `writers` (mode bits) may write to."""
    is_shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & writers
    return bool(is_shared) and found.st_uid not in (os.geteuid(), folder.st_uid)


class NewFile:
    """A new file, which rename_into_place() puts in the place of `path`.

    folder: a descriptor of the folder that it is in, with O_PATH.

    Raises OSError: the folder is missing, the path names a directory or a device, or the file that is
    there must not be written.
    """

    def __init__(self, path: Path) -> None:
        self._shown = path
        self._fd = -1
        self._temporary = ""
        self.folder = -1
        self._old: Any = None  # the stat of the file that is replaced
        try:
            try:
                self._find(os.fsdecode(path))
            except OSError as e:
                raise OSError(e.errno, e.strerror, path) from None
            try:
                self._mode = 0o600 if self._old is not None else self._mode_of_new()
                while not self._make():
                    pass
            except OSError as e:
                raise OSError(e.errno, f"cannot make a temporary file beside it: {e.strerror}", path) from None
            try:
                self.file = File._of_descriptor(self._fd, path)
            except OSError as e:
                if is_of_file(e):
                    e.strerror = f"the temporary file beside it: {e.strerror}"  # which the library names
                raise
        except BaseException:
            self._remove()
            raise

    def _find(self, path: str) -> None:
        """Finds the folder, the name in it, and the old file.

        Each link is pinned by a descriptor, so it cannot become another one between the look at its
        owner and the look at its text.  The kernel follows those in front of the last name.
        """
        for _ in range(_LINKS_MAX):
            head, self._name = os.path.split(path)
            before = self.folder
            self.folder = _open_folder(head, None if before < 0 else before)
            if before >= 0:
                os.close(before)
            if not self._name:
                if not path:
                    raise FileNotFoundError(errno.ENOENT, "the path is empty: name a file")
                raise IsADirectoryError(errno.EISDIR, "is a directory: name a file in it")
            try:
                fd = os.open(self._name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)
            except FileNotFoundError:
                return
            try:
                found = os.fstat(fd)
                if not stat.S_ISLNK(found.st_mode):
                    self._check_old(found)
                    return
                if _is_planted(os.fstat(self.folder), found, 0o002):
                    text = "is a symbolic link of another user in a folder that all may write to"
                    raise PermissionError(errno.EACCES, text)
                path = os.readlink("", dir_fd=fd)
            finally:
                os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _check_old(self, old: os.stat_result) -> None:
        if stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory: name a file in it")
        if not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, "is no regular file: a new one cannot take its place")
        if _is_planted(os.fstat(self.folder), old, 0o022):
            raise PermissionError(errno.EACCES, "is a file of another user in a folder that others may write to")
        if not os.access(self._name, os.W_OK, dir_fd=self.folder, effective_ids=True):
            raise PermissionError(errno.EACCES, "the file that is there must not be written")
        self._old = old

    def _create(self, mode: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            # Set before the file is made: a signal handler may raise at any point.
            self._temporary = _PREFIX + os.urandom(8).hex() + _SUFFIX
            try:
                return os.open(self._temporary, flags, mode, dir_fd=self.folder)
            except OSError as e:
                self._temporary = ""
                if e.errno != errno.EEXIST:
                    raise

    def _mode_of_new(self) -> int:
        """The mode that a new file gets here, which depends on the umask or the folder's access control list."""
        self._fd = self._create(0o666)
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        self._remove_temporary()
        return mode

    def _make(self) -> bool:
        """Makes the temporary file, locked.  False: another one has to be made."""
        self._fd = self._create(0o600)  # who may open a file may lock it, and would keep a lock from us
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # remove_leftovers() of another process, which came first
            is_ours = False
        except OSError:  # a file system without locks: remove_leftovers() gets none either
            is_ours = True
        else:
            is_ours = not _is_removed(self._fd)
        if not is_ours:
            self._remove_temporary()
        return is_ours

    def reserve(self, nbytes: int) -> None:
        """Gives the file that size, with blocks for all of it.  Raises OSError, ENOSPC if there is no room.

        To be called before the first write: direct writes that extend a file are slow.
        """
        code = library.file_allocate(self.file.opened().pointer, 0, nbytes, 0) if nbytes else 0
        if code == -errno.EOPNOTSUPP:
            os.ftruncate(self._fd, nbytes)
        elif code < 0:
            raise OSError(-code, f"cannot reserve {nbytes} bytes: {os.strerror(-code)}", self._shown)

    def set_size(self, nbytes: int) -> None:
        """Ends the file there.  All ops on it have ended.  Raises OSError."""
        self.file.truncate(nbytes)

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

    def _check_name(self) -> None:
        """Raises OSError if the temporary name is not that of our file: it would take the place."""
        if _is_named(self._fd, self._temporary, self.folder):
            return
        text = "another process removed or replaced the temporary file beside it: the old file stays"
        raise OSError(errno.ESTALE, text, self._shown)

    def rename_into_place(self) -> None:
        """Renames the file.  Its bytes must be on the device before, and its folder synced after."""
        if self._old is not None:
            self._keep_owner(self._old)
        else:
            os.fchmod(self._fd, self._mode)
        self._check_name()
        os.rename(self._temporary, self._name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        self._temporary = ""

    def discard(self) -> None:
        """Closes the file, and removes it if it was not renamed.  Twice is fine."""
        self.file.close()
        self._remove()

    def _remove_temporary(self) -> None:
        # Without a descriptor, a signal handler raised before open() returned: nobody else knows the name.
        if self._temporary and (self._fd < 0 or _is_named(self._fd, self._temporary, self.folder)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self.folder)
            # Never one that was renamed: where a later save has replaced that, readers have it open.
            if self._fd >= 0 and _is_removed(self._fd):
                with contextlib.suppress(OSError):  # the daemon keeps it open for some seconds, and with it its room
                    os.ftruncate(self._fd, 0)
        self._temporary = ""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _remove(self) -> None:
        self._remove_temporary()
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1


def sync_folder(path: str, folder: Optional[int] = None) -> None:
    """Brings the names in a folder to the device.  folder: a descriptor of it, with O_PATH.  Raises OSError."""
    try:
        name = path if folder is None else "."
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
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
def new_file(path: Path, handle: Handle, *, syncs_name: bool = True) -> Iterator[Union[NewFile, NewRadosFile]]:
    """A NewFile to write to, with ops of the handle.  It replaces `path` at the end of the block.

    When the block has ended, the new file is on the device, and its name unless syncs_name is False: then
    the caller calls sync_folder(), after many files.  That of a RADOS store is committed then.  Raises OSError.
    """
    if is_rados(path):
        from ._rados import new_rados_file

        with new_rados_file(path, handle) as new_rados:
            yield new_rados
        return
    new = NewFile(path)
    try:
        try:
            yield new
            handle.submit_fsync(new.file).wait()
        finally:
            handle._end_ops()
        new.rename_into_place()
        if syncs_name:
            sync_folder(os.fsdecode(path), new.folder)
    finally:
        new.discard()


def _remove_leftover(name: str, folder: int) -> None:
    """Removes one, if it is this user's and nobody writes it.  Opens no other file: that could wait."""

    def is_ours(found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()

    if not is_ours(os.stat(name, dir_fd=folder, follow_symlinks=False)):
        return
    fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if is_ours(os.fstat(fd)):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(fd, name, folder):  # else it was just renamed into place
                os.unlink(name, dir_fd=folder)
    finally:
        os.close(fd)


def remove_leftovers(path: str) -> None:
    """Removes the temporary files of this user's processes that were killed.  path: the folder.  Raises OSError."""
    folder = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in os.listdir(folder):
            if _is_temporary(name):
                with contextlib.suppress(OSError):  # it has gone, is being written, or may not be removed
                    _remove_leftover(name, folder)
    finally:
        os.close(folder)


def remove_leftovers_beside(path: Path) -> None:
    """remove_leftovers() of the folder of a file, where that can be done: new_file() says what is wrong with it."""
    with contextlib.suppress(OSError):
        remove_leftovers(os.path.dirname(os.path.realpath(os.fsdecode(path))))
