"""Where the elements of a tensor lie within the bytes that torch.save() made of it.

So they can be read without unpickling each item, and of a huge one without the rest of its bytes.
"""

from __future__ import annotations

import sys
from collections import namedtuple

import torch

from ._archive import Archive, Damaged, Unsupported, unpickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NamedTuple, Optional, Tuple

    class Layout(NamedTuple):
        """The elements of a contiguous tensor."""

        dtype: torch.dtype
        size: torch.Size
        start: int  # byte of the item

else:
    Layout = namedtuple("Layout", "dtype size start")


class Ends:
    """The bytes of a large item, of which only the first and the last are there."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.head = self.tail = b""

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self.length)
        if end <= len(self.head):
            return self.head[start:end]
        first = self.length - len(self.tail)
        if start < first:
            raise Unsupported("more than elements between the ends")
        return self.tail[start - first : end - first]


class _WithoutElements(Archive):
    """An archive whose tensors have memory that is never touched."""

    def get_storage_from_record(self, name: str, nbytes: int, _: Any) -> torch.Tensor:
        self.record_range(name)
        return torch.empty(nbytes, dtype=torch.uint8)


class Layouts:
    """Finds the layouts of items.

    The same pickle stands in all tensors of one dtype and size, and the same bytes up to their elements.
    """

    def __init__(self) -> None:
        self._by_pickle: Dict[bytes, Optional[Layout]] = {}  # start: from the first byte of the record on
        # length of the item: its bytes up to the elements, and the layout
        self._by_head: Dict[int, List[Tuple[bytes, Layout]]] = {}

    def find(self, data: Any) -> Optional[Layout]:
        """The layout of an item: its bytes, or its Ends.  None: only torch knows it."""
        heads = self._by_head.setdefault(len(data), [])
        try:
            for head, layout in heads:
                if bytes(data[: len(head)]) == head:
                    return layout
            archive = _WithoutElements(data)
            pickled = archive.get_record("data.pkl")
            if pickled not in self._by_pickle:
                self._by_pickle[pickled] = _look(archive)
            known = self._by_pickle[pickled]
            if known is None or archive.get_record("byteorder") != sys.byteorder.encode():
                return None
            offset, nbytes = archive.record_range("data/0")
            if known.start + known.size.numel() * known.dtype.itemsize > nbytes:
                return None
            layout = known._replace(start=offset + known.start)
            heads.append((bytes(data[:offset]), layout))
        except (Unsupported, Damaged):
            return None
        return layout


def _look(archive: Archive) -> Optional[Layout]:
    try:
        tensor = unpickle(archive, "cpu")
    except Exception:
        return None  # torch.load() says what is wrong
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.is_quantized:
        return None
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    return Layout(tensor.dtype, tensor.size(), int(tensor.storage_offset()) * tensor.element_size())
