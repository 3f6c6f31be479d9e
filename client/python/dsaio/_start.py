"""Putting parts of this package in the places of others: in modules when they are imported, and in child processes.

Child processes get an environment variable for each kind.  The file dsaio.pth of the wheel looks at them when
Python starts; where Python does not see that file, a folder at the front of PYTHONPATH has a sitecustomize that does.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable, Optional, Sequence

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_SITE = os.path.join(_PACKAGE, "_site")

# By the variable: the module whose _install() it calls, and what that does.
_KINDS = {
    "DSAIO_DEEPSPEED": ("dsaio.deepspeed", "makes DeepSpeed use dsaio"),
    "DSAIO_SAFETENSORS": ("dsaio._loaders", "makes safetensors use dsaio"),
}


# ---- modules that are imported later ----


class _Loader:
    """Loads as `loader` does, and then calls after()."""

    def __init__(self, loader: Any, finder: Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        module: Optional[ModuleType] = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Its own loader also answers questions for its source and for files beside it.
        spec: Any = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = self._loader
        if module.__loader__ is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            self._finder._after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Finder:
    """In sys.meta_path, before the finders that find these modules: calls after() when one has been executed."""

    def __init__(self, is_wanted: Callable[[str], bool], after: Callable[[ModuleType], None]) -> None:
        self._is_wanted = is_wanted
        self._after = after

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if not self._is_wanted(name):
            return None
        finders: Any = list(sys.meta_path)
        if self not in finders:  # another thread has just removed it
            return None
        for finder in finders[finders.index(self) + 1 :]:
            spec: Optional[ModuleSpec] = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module") and not isinstance(spec.loader, _Loader):
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None


# ---- child processes ----


def has_pth() -> bool:
    """Is the package installed where Python reads dsaio.pth at its start?"""
    import site

    folder = os.path.realpath(os.path.dirname(_PACKAGE))
    folders = list(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return folder in [os.path.realpath(f) for f in folders] and os.path.exists(os.path.join(folder, "dsaio.pth"))


def reach_children(variable: str, is_by_pth: bool) -> None:
    """From now on, Python processes that this one starts, or becomes by exec, install that kind at their start.

    is_by_pth: what has_pth() returns.
    """
    os.environ[variable] = "1"
    if not is_by_pth:
        others = os.environ.get("PYTHONPATH")
        paths = others.split(os.pathsep) if others else []
        # An empty one among them is the current directory.
        os.environ["PYTHONPATH"] = os.pathsep.join([_SITE] + [path for path in paths if path != _SITE])


def spare_children(variable: str) -> None:
    os.environ.pop(variable, None)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _SITE in paths and not any(os.environ.get(kind) == "1" for kind in _KINDS):
        paths.remove(_SITE)
        if paths:
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        else:
            del os.environ["PYTHONPATH"]


def reach_all_children() -> None:
    """With all kinds whose variable is not 0."""
    is_by_pth = has_pth()
    for variable in _KINDS:
        if os.environ.get(variable) != "0":
            reach_children(variable, is_by_pth)


def start(is_by_pth: bool) -> None:
    """What dsaio.pth (True) and _site/sitecustomize.py (False) call where a variable is neither empty nor 0.

    While the .pth files of a virtual environment are read, has_pth() does not know its folders yet.
    """
    for variable, (module, what) in _KINDS.items():
        value = os.environ.get(variable, "0")
        if value == "1":
            import_module(module)._install(is_by_pth or has_pth())
        elif value not in ("", "0"):
            del os.environ[variable]  # one line is enough, for children and a second look at dsaio.pth, too
            print(f"dsaio: {variable}={value} is ignored: 1 {what}, and 0 does not", file=sys.stderr)
