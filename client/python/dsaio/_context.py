"""`with` and `async with` of the objects that are to be closed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Self = TypeVar("Self", bound="Context")


class Context:
    """Closed at the end of its block.  The close may wait: in `async with` it does so in a thread, not in the loop."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def _refuse_if_closed(self) -> None:
        """Raises ValueError."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        self._refuse_if_closed()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    async def __aenter__(self: Self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exception: Any) -> None:
        from asyncio import to_thread

        await to_thread(self.close)
