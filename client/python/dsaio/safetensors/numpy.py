"""safetensors.numpy, through the daemon: its functions, with its arguments.

Files are read straight into pinned memory, which the arrays are views of: see dsaio.safetensors.
"""

from __future__ import annotations

from . import SafetensorError, safe_open
from . import load as _load
from . import load_file as _load_file
from . import save as _save
from . import save_file as _save_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .._file import Path

__all__ = ["SafetensorError", "load", "load_file", "safe_open", "save", "save_file"]


def load_file(filename: Path, *, backend: str = "mmap", pinned: bool = True) -> Dict[str, Any]:
    """dsaio.safetensors.load_file() of arrays of numpy."""
    return _load_file(filename, backend=backend, framework="np", pinned=pinned)


def load(data: Any, *, pinned: bool = True) -> Dict[str, Any]:
    """dsaio.safetensors.load() of arrays of numpy."""
    return _load(data, framework="np", pinned=pinned)


def save_file(tensor_dict: Dict[str, Any], filename: Path, metadata: Optional[Dict[str, str]] = None) -> None:
    """dsaio.safetensors.save_file()."""
    _save_file(tensor_dict, filename, metadata)


def save(tensor_dict: Dict[str, Any], metadata: Optional[Dict[str, str]] = None) -> bytes:
    """dsaio.safetensors.save()."""
    return _save(tensor_dict, metadata)
