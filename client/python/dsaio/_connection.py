"""The connection of this process to the daemon.

There is one, made by the first object that needs it, and shared by all.  Handles and pinned memory
keep it open.  It goes on with the next daemon.  Where none comes in time, the objects of the lost connection
fail with ENOTCONN, and the next new object makes a new connection.  A child of fork() makes one of its own.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import weakref

from . import _library as library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional

# The children of fork() forget the objects of their parent.
_in_child: List[Callable[[], None]] = []


def at_fork(forget: Callable[[], None]) -> None:
    """Calls forget() in each child of fork(), before other Python code runs there."""
    _in_child.append(forget)


class Connection:
    """struct dsaio_client.  Closed when the last object that uses it is gone."""

    __slots__ = ("pointer", "is_of_parent", "__weakref__")

    def __init__(self) -> None:
        pointer = ctypes.c_void_p()
        self.pointer: Optional[int] = None
        self.is_of_parent = False
        code = library.connect(None, ctypes.byref(pointer))
        if code < 0:
            raise _connect_error(library.error(code))
        self.pointer = pointer.value
        _all.add(self)

    def is_lost(self) -> bool:
        """Has the daemon gone for good?"""
        state: int = library.client_state(self.pointer)
        return state not in (library.CONNECTED, library.RECONNECTING)

    def __del__(self, is_ending: Callable[[], bool] = library.is_ending, disconnect: Any = library.disconnect) -> None:
        if self.pointer and not self.is_of_parent and not is_ending():
            disconnect(self.pointer)


def _connect_error(e: OSError) -> OSError:
    if e.errno == errno.ENOENT:
        # Most programs take a FileNotFoundError for the file that they are about to read.
        e = ConnectionRefusedError(e.errno, e.strerror)
    e.is_of_connect = True  # type: ignore[attr-defined]
    return e


def is_of_file(e: OSError) -> bool:
    """May the error be one of the file that was being used?  Not if there was no connection."""
    return not hasattr(e, "is_of_connect")


_lock = threading.Lock()
_current: Optional[Connection] = None
_all: weakref.WeakSet[Connection] = weakref.WeakSet()


def connection() -> Connection:
    """The connection for new objects; connects, or starts a daemon, where there is none yet.

    Raises OSError, whose message says what to do: ConnectionRefusedError where there is no daemon.
    """
    global _current
    with _lock:
        if _current is None or _current.is_lost():
            _current = Connection()
        return _current


def existing() -> Optional[Connection]:
    """The connection, if this process has made one."""
    return _current


def _forget() -> None:
    global _current, _lock
    _lock = threading.Lock()
    for of_parent in _all:
        of_parent.is_of_parent = True
    _current = None
    for forget in _in_child:
        forget()


os.register_at_fork(after_in_child=_forget)
