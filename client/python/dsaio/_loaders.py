"""safe_open() of dsaio.safetensors in the place of that of the package safetensors: see dsaio.safetensors.install().

All that loads a file with safetensors does so by its safe_open(), its own load_file() included.  Importers hold it
by their own names: so every module that has the genuine one, under whatever name, gets ours, and later ones take it
from the package, which an import hook changes when it has been executed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from threading import Lock

from . import _start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_VARIABLE = "DSAIO_SAFETENSORS"
_lock = Lock()
_genuine: Any = None
_installed: Any = None


def _ours() -> Any:
    """A class of its own, so that uninstall() finds it.  None while dsaio.safetensors is being imported."""
    global _installed
    if _installed is None:
        # Not before it is needed: it loads the library.
        ours = getattr(import_module("dsaio.safetensors"), "safe_open", None)
        if ours is not None:
            _installed = type("safe_open", (ours,), {"__module__": ours.__module__, "__doc__": ours.__doc__})
    return _installed


def _replace_all(old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in list(names.items()) if value is old]:
            if not module.__name__.startswith("dsaio."):
                setattr(module, name, new)


def _replace(package: ModuleType) -> None:
    """The package safetensors has been executed."""
    global _genuine
    found, ours = getattr(package, "safe_open", None), _ours()
    if found is not None and ours is not None and found is not ours:
        _genuine = found
        _replace_all(_genuine, ours)


def finish() -> None:
    """Where the package is imported already.  Also at the end of dsaio.safetensors, which may have imported it."""
    if _finder in sys.meta_path and "safetensors" in sys.modules:
        _replace(sys.modules["safetensors"])


_finder: Any = _start.Finder(lambda name: name == "safetensors", _replace)


def _install(is_by_pth: bool) -> None:
    with _lock:
        _start.reach_children(_VARIABLE, is_by_pth)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        finish()


def install() -> None:
    """safetensors loads files through the daemon, in this process and in those that it starts.

    So do the libraries that load with it, such as transformers, accelerate and diffusers.  It may be called before or
    after they are imported; files that are open stay what they are.  Frameworks are torch and numpy: safe_open()
    refuses others.  Twice is fine.
    """
    _install(_start.has_pth())


def uninstall() -> None:
    """safetensors loads files itself again.  Tensors and files that are open go on.  Twice is fine."""
    global _genuine
    with _lock:
        _start.spare_children(_VARIABLE)
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        if _genuine is not None:
            _replace_all(_ours(), _genuine)
            _genuine = None
