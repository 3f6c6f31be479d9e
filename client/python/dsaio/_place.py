"""Where the bytes of an op lie: a place in memory, and what keeps it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, NamedTuple, Optional

    class Place(NamedTuple):
        """A plain tuple at run time."""

        address: int
        nbytes: int
        keep: Any  # owns the memory: to be kept until the op has ended
        finish: Optional[Callable[[], None]]  # to be called after a read that succeeded


class GpuMemory:
    """What an op on memory of a GPU keeps: so its place tells that only the library may use the address."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner
