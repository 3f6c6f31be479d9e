"""Awaiting ops in an event loop, by the descriptor of their handle.

Imported by the first `await op`.  Each loop that awaits ops of a handle watches the handle's descriptor
while it does.  Whichever thread finds that an op has ended wakes the tasks of all loops.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading

from . import _library as library
from . import _op
from ._connection import at_fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

_ROOM = 64  # ops taken by one call; a guess

# Guards the watchers of all handles, and the waiters of all ops.
_lock = threading.Lock()


def wake(op: _op.Op) -> None:
    """The op has ended: wakes the tasks that await it.  Any thread."""
    with _lock:
        waiters: List[Tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = op._waiters
        op._waiters = []
    for loop, future in waiters:
        try:
            loop.call_soon_threadsafe(_set, future)
        except RuntimeError:  # that loop is closed
            pass


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Watchers:
    """The loops that watch a handle's descriptor, each with the number of its futures."""

    def __init__(self, handle: _op.CHandle) -> None:
        self.handle = handle
        self.fd = library.check(library.handle_fd(handle.pointer))
        self.n_futures: Dict[asyncio.AbstractEventLoop, int] = {}
        self.room = threading.local()

    def take(self) -> None:
        """Looks at all ops that have ended, which wakes their tasks, and arms the descriptor."""
        room = self.room.__dict__.setdefault("pointers", (ctypes.c_void_p * _ROOM)())
        while _op.reap(self.handle, room):
            pass

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        with _lock:
            n = self.n_futures.get(loop, 0)
            self.n_futures[loop] = n + 1
        if n == 0:
            loop.add_reader(self.fd, self.take)

    def unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        with _lock:
            self.n_futures[loop] -= 1
            is_last = self.n_futures[loop] == 0
            if is_last:
                del self.n_futures[loop]
        if is_last and not loop.is_closed():
            loop.remove_reader(self.fd)


async def ended(op: _op.Op) -> None:
    """Returns when the op has ended."""
    loop = asyncio.get_running_loop()
    with _lock:
        watchers = op._handle.watchers
        if watchers is None:
            watchers = op._handle.watchers = _Watchers(op._handle)
    future: asyncio.Future[None] = loop.create_future()
    with _lock:
        op._waiters.append((loop, future))
    watchers.watch(loop)
    try:
        watchers.take()
        if op.done():  # another thread may have seen its end before it saw our future
            wake(op)
        await future
    finally:
        watchers.unwatch(loop)


def _forget() -> None:
    global _lock
    _lock = threading.Lock()


at_fork(_forget)
