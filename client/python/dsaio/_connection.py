"""The connections of this process to the daemon, and to that of RADOS stores.

There is one of each, made by the first object that needs it, and shared by all.  Handles and pinned memory
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
    from typing import Any, Callable, Dict, List, Optional

_RADOS_SOCKET = "/run/dsaiod-rados/dsaiod.sock"  # of dsaiod@rados.service

# The children of fork() forget the objects of their parent.
_in_child: List[Callable[[], None]] = []


def at_fork(forget: Callable[[], None]) -> None:
    """Calls forget() in each child of fork(), before other Python code runs there."""
    _in_child.append(forget)


class Connection:
    """struct dsaio_client.  Closed when the last object that uses it is gone."""

    __slots__ = ("pointer", "is_rados", "is_of_parent", "__weakref__")

    def __init__(self, is_rados: bool) -> None:
        pointer = ctypes.c_void_p()
        self.pointer: Optional[int] = None
        self.is_rados = is_rados
        self.is_of_parent = False
        options = library.ConnectOptions(socket_path=_rados_socket() if is_rados else None)
        code = library.connect(ctypes.byref(options), ctypes.byref(pointer))
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


def _rados_socket() -> Optional[bytes]:
    """None: where every daemon is looked for."""
    second = _RADOS_SOCKET if os.path.exists(_RADOS_SOCKET) else None
    named = os.environ.get("DSAIO_RADOS_SOCKET") or second
    return os.fsencode(named) if named else None


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
_current: Dict[bool, Connection] = {}  # by whether it is of RADOS stores
_all: weakref.WeakSet[Connection] = weakref.WeakSet()


def connection(is_rados: bool = False) -> Connection:
    """The connection for new objects, to the daemon of RADOS stores or of all others; connects, or starts a daemon,
    where there is none yet.

    Raises OSError, whose message says what to do: ConnectionRefusedError where there is no daemon.
    """
    with _lock:
        current = _current.get(is_rados)
        if current is None or current.is_lost():
            current = _current[is_rados] = Connection(is_rados)
        return current


def existing() -> Optional[Connection]:
    """The connection that is not of RADOS stores, if this process has made one."""
    return _current.get(False)


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    for of_parent in _all:
        of_parent.is_of_parent = True
    _current.clear()
    for forget in _in_child:
        forget()


os.register_at_fork(after_in_child=_forget)
