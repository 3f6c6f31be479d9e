"""DeepSpeed on dsaiod without a change of the program.

    import dsaio.deepspeed

    dsaio.deepspeed.install()

From then on, load() of DeepSpeed's AsyncIOBuilder, PinMemoryBuilder and GDSBuilder returns the package
dsaio, and nothing is compiled for them.  DeepSpeed need not be imported yet, and is not imported here.

All importers of a builder hold its class, so the methods of the class are replaced: of classes that exist
at once, and of later ones by an import hook when their module has been executed.  The hook leaves the
module's own loader in place.  Child processes are reached as _start.py says.
"""

from __future__ import annotations

import importlib
import sys
from threading import Lock

from . import _start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict, List, Tuple

__all__ = ["install", "uninstall"]

_VARIABLE = "DSAIO_DEEPSPEED"


# ---- the builders ----

# DeepSpeed has one set of builders for each kind of accelerator, each in a folder of op_builder.  In its
# source tree, the whole may also be a package of its own.
_TREES = ("deepspeed.ops.op_builder.", "op_builder.")


def _load(self: Any, verbose: bool = False) -> ModuleType:
    """Returns the package dsaio, which has all that the genuine module has."""
    import dsaio

    dsaio.aio_handle  # a library that is missing is reported here
    return dsaio


def _is_compatible(self: Any, verbose: bool = False) -> bool:
    return True


_BUILDERS = ("AsyncIOBuilder", "PinMemoryBuilder", "GDSBuilder")
_METHODS = {"load": _load, "is_compatible": _is_compatible}
_OPS = ("async_io", "pin_memory", "gds")  # all are compatible
_MISSING = object()

_replaced: List[Tuple[Any, Dict[str, Any]]] = []  # each class, and what its own dict had before
_stand_ins: Dict[Any, Any] = {}  # of a class that missing ops share: its subclass for gds
_answers: Dict[str, Any] = {}  # of __compatible_ops__ before


def _is_of_builders(name: str) -> bool:
    return (name + ".").startswith(_TREES)


def _replace(module: ModuleType) -> None:
    """Replaces the methods of the builders that the module defines."""
    if module.__name__.startswith("op_builder") and not hasattr(sys.modules.get("op_builder"), "__deepspeed__"):
        return  # another package of that name
    for name in _BUILDERS:
        builder = vars(module).get(name)
        if not isinstance(builder, type) or any(builder is other for other, _ in _replaced):
            continue
        if (builder.__module__, builder.__name__) == (module.__name__, name):
            _replaced.append((builder, {method: vars(builder).get(method, _MISSING) for method in _METHODS}))
            for method, function in _METHODS.items():
                setattr(builder, method, function)
    _stand_in(module)


def _stand_in(module: ModuleType) -> None:
    """Gives GDSBuilder a class of its own where it is the one of all missing ops, which stays what it is."""
    builder = vars(module).get("GDSBuilder")
    if isinstance(builder, type) and getattr(builder, "NAME", None) == "deepspeed_not_implemented":
        if builder in _stand_ins.values():
            return
        if builder not in _stand_ins:
            own = dict(_METHODS, __module__=builder.__module__)
            _stand_ins[builder] = type("GDSBuilder", (builder,), own)
        setattr(module, "GDSBuilder", _stand_ins[builder])


def _restore_builders() -> None:
    while _replaced:
        builder, before = _replaced.pop()
        for method, function in before.items():
            if function is _MISSING:
                delattr(builder, method)
            else:
                setattr(builder, method, function)
    for module in _modules():
        for builder, own in _stand_ins.items():
            if vars(module).get("GDSBuilder") is own:
                setattr(module, "GDSBuilder", builder)
    _stand_ins.clear()


def _modules() -> List[ModuleType]:
    """The modules of DeepSpeed that have been imported."""
    names = [name for name in list(sys.modules) if name.partition(".")[0] in ("deepspeed", "op_builder")]
    return [module for module in map(sys.modules.get, names) if module is not None]


# ---- deepspeed.ops.__compatible_ops__ ----


def _compatible_ops() -> Dict[str, Any]:
    """DeepSpeed makes the dict at its first use, and keeps it.  Before that, there is nothing to correct."""
    ops = sys.modules.get("deepspeed.ops")
    return {} if ops is None else vars(ops).get("__compatible_ops__", {})


def _correct_compatible_ops() -> None:
    """To be called by the first install(): a dict that is made after it has the answers of the replaced methods."""
    ops = _compatible_ops()
    for name in set(ops) & set(_OPS):
        _answers[name] = ops[name]
        ops[name] = True


def _restore_compatible_ops() -> None:
    ops = _compatible_ops()
    for name in set(ops) & set(_OPS):
        ops[name] = _answers[name] if name in _answers else _genuine_answer(name)
    _answers.clear()


def _genuine_answer(name: str) -> bool:
    """The dict was made while the builders were replaced: asks the genuine one."""
    all_ops = sys.modules.get("deepspeed.ops.op_builder.all_ops")
    try:
        return bool(vars(all_ops)["ALL_OPS"][name].is_compatible())
    except Exception:
        return False  # as DeepSpeed does


# ---- modules that are imported later ----


_finder: Any = _start.Finder(_is_of_builders, _replace)


# ---- install and uninstall ----

_lock = Lock()


def install() -> None:
    """DeepSpeed's builders of DeepNVMe load dsaio, in this process and in those that it starts.

    It may be called before or after DeepSpeed is imported; handles that exist stay what they are.
    Twice is fine.
    """
    _install(_start.has_pth())


def _install(is_by_pth: bool) -> None:
    with _lock:
        _start.reach_children(_VARIABLE, is_by_pth)
        is_first = _finder not in sys.meta_path
        if is_first:
            sys.meta_path.insert(0, _finder)
        for module in _modules():
            if _is_of_builders(module.__name__):
                # Waits where another thread is executing the module right now.
                _replace(importlib.import_module(module.__name__))
            else:
                _stand_in(module)
        if is_first:
            _correct_compatible_ops()


def uninstall() -> None:
    """DeepSpeed's builders are the genuine ones again.  Handles of dsaio that exist go on.  Twice is fine."""
    with _lock:
        _start.spare_children(_VARIABLE)
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
            _restore_builders()
            _restore_compatible_ops()
