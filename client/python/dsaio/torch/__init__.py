"""Pinned tensors, files of torch.save(), and checkpoints of torch.distributed.checkpoint (dsaio.torch.checkpoint).

    import dsaio.torch

    dsaio.torch.save(model.state_dict(), "/nvme/model.pt")
    model.load_state_dict(dsaio.torch.load("/nvme/model.pt"))

The files are torch's own: each side loads what the other one saves.
"""

from __future__ import annotations

import errno
import io
import os
import pickle

from .. import _buffer
from .. import _check as check
from .. import _memory as memory
from .._file import File, is_rados, naming, open_regular, path_bytes
from .._handle import Handle, handle_for
from .._raw import open as dsaio_open
from .._replace import new_file, remove_leftovers_beside
from .._stream import Writer
from ._archive import MAGIC, Archive, Damaged, Unsupported, unpickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Optional, Sequence, Union

    import torch

    from .._file import Path

__all__ = ["empty", "load", "save"]


def empty(shape: Union[int, Sequence[int]], dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """A pinned tensor, page aligned, whose content is undefined.  dtype: None for torch's default.

    The memory returns to the pool when the last tensor on it is gone.  Raises OSError: ENOMEM if the pool has no room.
    """
    tensor: torch.Tensor = _buffer.new_tensor(shape, dtype)
    return tensor


def save(obj: Any, path: Path, *arguments: Any, **options: Any) -> None:
    """torch.save() to a file.  Further arguments are those of torch.save().

    The file is on the device when this returns, and until then readers find the old one: a failure
    leaves that as it was.  A symbolic link is followed.  The bytes go through pinned pieces of 16 MiB in
    all; pinned tensors of 1 MiB and more do not, where torch aligns records to 4096 bytes
    (torch.utils.serialization.config.save.storage_alignment).

    Raises OSError, with errno and filename; TypeError for a file object; and what torch.save() raises for the
    object.
    """
    import torch

    path_bytes(path, "a path; torch.save() itself writes to file objects")
    remove_leftovers_beside(path)  # of saves that were killed
    with handle_for(path) as handle, new_file(path, handle) as new:
        with naming(path):
            writer: Any = Writer(new, handle)
        with writer:
            torch.save(obj, writer, *arguments, **options)


def load(
    path: Union[Path, IO[bytes]],
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
    torch itself, and so are all with mmap=True, and file objects.  Some damaged archives load that torch refuses.

    Raises OSError, with errno and filename: ENOMEM if the pool has no room; and what torch.load() raises.
    """
    import torch

    if os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true"):
        weights_only = True

    def by_torch() -> Any:
        named: Any = path if is_object else os.fsdecode(path)  # type: ignore[arg-type]
        if is_rados(path):
            named = io.BufferedReader(dsaio_open(path))  # type: ignore[arg-type]
        return torch.load(named, map_location, pickle_module, weights_only=weights_only, **pickle_load_args)

    is_object = hasattr(path, "read")
    pinned = check.boolean("pinned", pinned)
    if is_object:
        return by_torch()
    if pickle_module is not None and weights_only:
        return by_torch()  # which refuses that
    if pickle_load_args.get("mmap"):
        return by_torch()
    pickle_load_args.pop("mmap", None)
    archive = _read(path, pinned)  # type: ignore[arg-type]
    if archive is None:
        return by_torch()
    if not weights_only:
        return unpickle(archive, map_location, pickle_module or pickle, **pickle_load_args)
    try:
        return unpickle(archive, map_location, **pickle_load_args)
    except Damaged:
        raise
    except (pickle.UnpicklingError, RuntimeError):
        return by_torch()  # whose error says what to do


def _read_all(handle: Handle, file: File, pinned: bool) -> memoryview:
    try:
        data = memoryview(memory.new(file.size(), pinned, file._is_rados)).cast("B")
    except OSError as e:
        if e.errno == errno.ENOMEM and pinned:
            e.strerror = f"pass pinned=False for ordinary memory: {e.strerror}"
        raise
    handle.submit_read(data, file).wait()
    return data


def _read(path: Path, pinned: bool) -> Optional[Archive]:
    """The whole file; None if it is one for torch.load().  Raises OSError."""
    if is_rados(path):
        with naming(path), handle_for(path) as handle, File(path) as file:
            data = _read_all(handle, file, pinned)
    else:
        fd, _ = open_regular(path, "file of torch.save()")
        try:
            if os.pread(fd, len(MAGIC), 0) != MAGIC:
                return None
            with naming(path), Handle() as handle, File._of_descriptor(fd, path) as file:
                data = _read_all(handle, file, pinned)
        finally:
            os.close(fd)
    try:
        archive = Archive(data)
    except Unsupported:
        return None
    return None if "constants.pkl" in archive.get_all_records() else archive
