"""Files of torch.save(), and checkpoints of torch.distributed.checkpoint (dsaio.torch.checkpoint).

    import dsaio.torch

    dsaio.torch.save(model.state_dict(), "/nvme/model.pt")
    model.load_state_dict(dsaio.torch.load("/nvme/model.pt"))

The files are torch's own: each side loads what the other one saves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import stat

from .. import _check as check
from .. import _memory as memory
from .._file import File
from .._handle import Handle
from .._replace import new_file, remove_leftovers
from .._stream import Writer
from ._archive import MAGIC, Archive, Damaged, Unsupported, unpickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._file import Path

__all__ = ["load", "save"]


def save(obj: Any, path: Path, *arguments: Any, **options: Any) -> None:
    """torch.save() to a file.  Further arguments are those of torch.save().

    The file is on the device when this returns, and until then readers find the old one: a failure
    leaves that as it was.  A symbolic link is followed.  The bytes go through pinned pieces of 16 MiB in
    all; pinned tensors of 1 MiB and more do not, where torch aligns records to 4096 bytes
    (torch.utils.serialization.config.save.storage_alignment).

    Raises OSError, with errno and filename, and what torch.save() raises for the object.
    """
    import torch

    with contextlib.suppress(OSError):  # of saves that were killed; the error, if it is one, comes again
        remove_leftovers(os.path.dirname(os.path.realpath(os.fsdecode(path))))
    with Handle() as handle, new_file(path, handle) as new:
        writer: Any = Writer(new, handle)
        try:
            torch.save(obj, writer, *arguments, **options)
        except BaseException:
            if writer.failure is not None:
                raise writer.failure from None
            raise
        writer.finish()


def load(
    path: Path,
    map_location: Any = None,
    weights_only: bool = True,
    *,
    pinned: bool = True,
    pickle_module: Any = None,
    **pickle_load_args: Any,
) -> Any:
    """torch.load() of a file.  The arguments but `pinned` are those of torch.load().

    The whole file is read into one range of pinned memory, which the tensors lie in, and which returns to
    the pool when the last of them is gone.  pinned: False for ordinary memory, where the pool has too little
    room.  Files of the format before torch 1.6, TorchScript archives and compressed ones are loaded by
    torch itself, and so are all with mmap=True.  Some damaged archives load that torch refuses.

    Raises OSError, with errno and filename: ENOMEM if the pool has no room; and what torch.load() raises.
    """
    import torch

    if os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        weights_only = True

    def by_torch() -> Any:
        named = os.fsdecode(path)
        return torch.load(named, map_location, pickle_module, weights_only=weights_only, **pickle_load_args)

    pinned = check.boolean("pinned", pinned)
    if pickle_module is not None and weights_only:
        return by_torch()  # which refuses that
    if pickle_load_args.get("mmap"):
        return by_torch()
    pickle_load_args.pop("mmap", None)
    if not _is_archive(path):
        return by_torch()
    try:
        archive = Archive(_read(path, pinned))
    except Unsupported:
        return by_torch()
    if "constants.pkl" in archive.get_all_records():
        return by_torch()
    if not weights_only:
        return unpickle(archive, map_location, pickle_module or pickle, **pickle_load_args)
    try:
        return unpickle(archive, map_location, **pickle_load_args)
    except Damaged:
        raise
    except (pickle.UnpicklingError, RuntimeError):
        return by_torch()  # whose error says what to do


def _is_archive(path: Path) -> bool:
    """Does the file begin as one?  Raises OSError, also if it is no regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO without a writer
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory, no file of torch.save()", path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is no regular file: torch.load() reads from other ones", path)
        return os.pread(fd, len(MAGIC), 0) == MAGIC
    finally:
        os.close(fd)


def _read(path: Path, pinned: bool) -> memoryview:
    """The bytes of a file."""
    with Handle() as handle, File(path) as file:
        nbytes = max(1, file.size())
        data = memoryview(memory.new(nbytes, pinned)).cast("B")
        handle.submit_read(data, file).wait()
    return data
