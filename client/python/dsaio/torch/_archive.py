"""Files of torch.save() in memory: a zip archive whose records are not compressed.

Archive is what torch's unpickling code reads from.  Storages are not copied: they lie in the memory that
the archive was made of, and keep it.
"""

from __future__ import annotations

import inspect
import os
import struct
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

MAGIC = b"PK\3\4"  # the first bytes
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_ALIGNMENT = 16  # bytes: the largest element has so many


class Unsupported(Exception):
    """torch may be able to load it, but not from this memory."""


class Damaged(RuntimeError):
    """The pickle and the records do not fit."""


class _Bytes:
    """A file object over memory, for zipfile."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._at = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + (0, self._at, len(self._data))[whence]
        if at < 0:
            raise OSError
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def read(self, n: int = -1) -> bytes:
        end = len(self._data) if n < 0 else self._at + n
        data = bytes(self._data[self._at : end])
        self._at += len(data)
        return data


class Archive:
    """The records of an archive.

    data: the file's bytes, or an object that has a length and can be sliced as they can.
    Raises Unsupported.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        # name: offset and size in the file
        self._records: Dict[str, Tuple[int, int]] = {}
        file: Any = _Bytes(data)  # has what ZipFile needs of a file
        try:
            with zipfile.ZipFile(file) as z:
                entries = z.infolist()
                start = z.start_dir
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as e:
            raise Unsupported(f"no zip archive: {e}") from None
        for entry in entries:
            self._add(entry, start)

    def _add(self, entry: zipfile.ZipInfo, directory: int) -> None:
        name = entry.filename.partition("/")[2]
        at = entry.header_offset
        end_of_header = at + _LOCAL_HEADER.size
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or name in self._records:
            raise Unsupported(f"record {entry.filename}: compressed, encrypted or twice there")
        if not 0 <= at <= end_of_header <= directory:
            raise Unsupported(f"record {entry.filename}: outside of the archive")
        magic, n_name, n_extra = _LOCAL_HEADER.unpack(self._data[at:end_of_header])
        offset = end_of_header + n_name + n_extra
        if magic != MAGIC or offset + entry.file_size > directory:
            raise Unsupported(f"record {entry.filename}: outside of the archive")
        self._records[name] = (offset, entry.file_size)

    # ---- what torch calls ----

    def has_record(self, name: str) -> bool:
        # With this one, torch computes offsets as its own writer lays records out.  Without it, torch asks
        # get_record_offset().
        return name in self._records and name != ".format_version"

    def get_all_records(self) -> list[str]:
        return list(self._records)

    def get_record_offset(self, name: str) -> int:
        return self.record_range(name)[0]

    def get_record(self, name: str) -> bytes:
        offset, nbytes = self.record_range(name)
        return bytes(self._data[offset : offset + nbytes])

    def get_storage_from_record(self, name: str, nbytes: int, _: Any) -> Any:
        """A tensor of the record's bytes."""
        import torch
        from torch.utils.dlpack import from_dlpack

        offset, size = self.record_range(name)
        if nbytes != size:
            raise Damaged(f"record {name} has {size} bytes, not the {nbytes} of its tensor")
        if nbytes:
            tensor = torch.frombuffer(self._data[offset : offset + nbytes], dtype=torch.uint8)
            if tensor.data_ptr() % _ALIGNMENT == 0:
                return tensor
            own = tensor.clone()
        else:
            own = torch.empty(0, dtype=torch.uint8)
        # A tensor that is larger than its storage would make it grow, with what was in the memory before.
        # The storage of a tensor of DLPack cannot grow, as that of frombuffer() cannot.
        return from_dlpack(own)

    def serialization_id(self) -> str:
        name = ".data/serialization_id"
        return self.get_record(name).decode(errors="replace") if name in self._records else ""

    def record_range(self, name: str) -> Tuple[int, int]:
        """The record's offset in the file, and its size in bytes."""
        try:
            return self._records[name]
        except KeyError:
            raise Damaged(f"the archive has no record {name}") from None


def unpickle(archive: Archive, map_location: Any, pickle_module: Any = None, **options: Any) -> Any:
    """What torch.save() has saved.  pickle_module: None for tensors and plain values only (weights_only)."""
    from torch import _weights_only_unpickler, serialization

    options.setdefault("encoding", "utf-8")
    if "weights_only" in inspect.signature(serialization._load).parameters:
        options["weights_only"] = pickle_module is None
    load: Any = serialization._load  # private; torch.load() itself would copy each storage
    return load(archive, map_location, pickle_module or _weights_only_unpickler, **options)
