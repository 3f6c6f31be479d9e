"""The thread that finds the ends of ops that have a future.

It sleeps on the descriptors of the handles of which a future is open.  The first future starts it.  The close of a
handle ends it if no future is open, and the next future starts another one.  An op that it finds resolves its
own future, as it does for every other thread that finds its end.
"""

from __future__ import annotations

import os
import sys
import threading

from . import _library as library
from ._connection import at_fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional

    from ._op import CHandle

# Guards what is below, and CHandle.n_futures.
_lock = threading.Lock()
_watch: Optional[_Watch] = None


class _Watch:
    """The thread, and the handles by their descriptors."""

    def __init__(self) -> None:
        import select

        self.handles: Dict[int, CHandle] = {}
        self._epoll = select.epoll()
        self._stop, self._stopper = os.pipe()
        try:
            self._epoll.register(self._stop, select.EPOLLIN)
            threading.Thread(target=self._run, name="dsaio", daemon=True).start()
        except BaseException:  # RuntimeError: no further thread is allowed
            self.close()
            raise

    def _run(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                if fd == self._stop:
                    self.close()
                    return
                try:
                    self._reap(fd)
                except BaseException:  # of a program's callback: other futures go on
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def _reap(self, fd: int) -> None:
        handle = self.handles.get(fd)  # in a frame of its own, since the thread must not keep it
        if handle is not None:
            handle.reap()

    def add(self, handle: CHandle) -> None:
        import select

        fd = library.check(library.handle_fd(handle.pointer))
        self._epoll.register(fd, select.EPOLLIN)
        self.handles[fd] = handle

    def remove(self, handle: CHandle) -> None:
        fd = library.check(library.handle_fd(handle.pointer))
        self._epoll.unregister(fd)
        del self.handles[fd]

    def stop(self) -> None:
        os.write(self._stopper, b"\0")

    def close(self) -> None:
        self._epoll.close()
        os.close(self._stop)
        os.close(self._stopper)


def add(handle: CHandle) -> None:
    """One more future of the handle is open.  Raises OSError, or RuntimeError if the thread cannot start.

    The caller calls the handle's reap() after it, which arms the descriptor.
    """
    global _watch
    with _lock:
        if _watch is None:
            _watch = _Watch()
        if handle.n_futures == 0:
            _watch.add(handle)
        handle.n_futures += 1


def remove(handle: CHandle) -> None:
    """A future of the handle is resolved."""
    with _lock:
        handle.n_futures -= 1
        if handle.n_futures == 0 and _watch is not None:
            _watch.remove(handle)


def stop_if_idle() -> None:
    """Ends the thread if no future is open.  Also from a finalizer, which may run where this thread has the lock."""
    global _watch
    if not _lock.acquire(blocking=False):
        return  # the number of futures is changing: another close ends the thread
    try:
        if _watch is not None and not _watch.handles:
            _watch.stop()
            _watch = None
    finally:
        _lock.release()


def _forget() -> None:
    global _lock, _watch
    _lock = threading.Lock()
    if _watch is not None:
        _watch.close()
        _watch = None


at_fork(_forget)
