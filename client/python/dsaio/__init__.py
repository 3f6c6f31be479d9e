"""Tensors to and from NVMe storage through dsaiod.

    import dsaio, dsaio.torch

    tensor = dsaio.torch.empty(1 << 20)
    with dsaio.Handle() as handle:
        handle.submit_read(tensor, "/nvme/weights.bin").wait()

`Handle` has ops to wait for, await and cancel.  `aio_handle` is DeepNVMe's interface over it: a call whose op does
not start returns -1 there.
dsaio-python(7) is the manual.  Everything is loaded at its first use.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._buffer import is_pinned as is_pinned
    from ._file import File as File
    from ._file import drop as drop
    from ._future import ALL_COMPLETED as ALL_COMPLETED
    from ._future import FIRST_COMPLETED as FIRST_COMPLETED
    from ._future import FIRST_EXCEPTION as FIRST_EXCEPTION
    from ._future import wait as wait
    from ._handle import Handle as Handle
    from ._handle import Profile as Profile
    from ._handle import Stats as Stats
    from ._memory import alloc as alloc
    from ._op import Op as Op
    from ._rados import create as create
    from ._rados import list_files as list_files
    from ._rados import remove as remove
    from ._rados import stat as stat
    from ._raw import open as open
    from ._register import Registration as Registration
    from ._register import register as register
    from .deepnvme import aio_handle as aio_handle
    from .deepnvme import aio_read as aio_read
    from .deepnvme import aio_write as aio_write
    from .deepnvme import deepspeed_memcpy as deepspeed_memcpy
    from .deepnvme import gds_handle as gds_handle
    from .deepnvme import pin_handle as pin_handle

_MODULES = {
    "ALL_COMPLETED": "_future",
    "FIRST_COMPLETED": "_future",
    "FIRST_EXCEPTION": "_future",
    "File": "_file",
    "Handle": "_handle",
    "Op": "_op",
    "Profile": "_handle",
    "Registration": "_register",
    "Stats": "_handle",
    "aio_handle": "deepnvme",
    "aio_read": "deepnvme",
    "aio_write": "deepnvme",
    "alloc": "_memory",
    "create": "_rados",
    "deepspeed_memcpy": "deepnvme",
    "drop": "_file",
    "gds_handle": "deepnvme",
    "is_pinned": "_buffer",
    "list_files": "_rados",
    "open": "_raw",
    "pin_handle": "deepnvme",
    "register": "_register",
    "remove": "_rados",
    "stat": "_rados",
    "wait": "_future",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'dsaio' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module("." + _MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
