"""safetensors.torch, through the daemon: its functions, with its arguments.

A model may have tensors that share memory, such as tied weights, which a file cannot express.  save_model() writes
each memory once, under one of its names, and the metadata leads from the others to that.
"""

from __future__ import annotations

from . import SafetensorError, _storage, load, load_file, safe_open, save, save_file, sharing, storage_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

    from .._file import Path
    from . import Device

__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "storage_ptr",
    "storage_size",
]


def storage_ptr(tensor: Any) -> int:
    """The address of the memory that a tensor is a view of; 0: it has none."""
    try:
        return int(storage_of(tensor).data_ptr())
    except NotImplementedError:  # torch 1 has none of a meta tensor
        return 0


def storage_size(tensor: Any) -> int:
    """The bytes of the memory that a tensor is a view of; of a tensor without memory its own."""
    try:
        return int(storage_of(tensor).nbytes())
    except NotImplementedError:
        return int(tensor.numel() * tensor.element_size())


def _is_complete(tensor: Any) -> bool:
    """Has it all of the memory that it is a view of?"""
    return _storage(tensor) == (tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _duplicates(tensors: Dict[str, Any], preferred: Iterable[str] = ()) -> Dict[str, str]:
    """The names of tensors that another one has the memory of, each with the name of that one.

    preferred: names that are kept where there is a choice.
    """
    kept_names: Dict[str, str] = {}
    for group in sharing(tensors):
        complete = {name for name in group if _is_complete(tensors[name])}
        if not complete:
            names = ", ".join(map(repr, group))
            raise RuntimeError(f"dsaio: tensors {names} share memory, and none has all of it: give the model clones")
        kept = min(complete.intersection(preferred) or complete)
        kept_names.update((name, kept) for name in group if name != kept)
    return kept_names


def save_model(
    model: Any, filename: Path, metadata: Optional[Dict[str, str]] = None, force_contiguous: bool = True
) -> None:
    """save_file() of a model's state_dict(), where each memory that tensors share is written once.

    metadata: texts by name, to which the name of each tensor that is left out is added, with the name of the one
    that is written.  force_contiguous: tensors with gaps are copied; False: they are refused.

    Raises as save_file(); RuntimeError if tensors share memory, and none of them has all of it.
    """
    tensors = dict(model.state_dict())
    kept_names = _duplicates(tensors)
    for name in kept_names:
        del tensors[name]
    if kept_names:
        metadata = {**kept_names, **(metadata or {})}
    if force_contiguous:
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, filename, metadata)


def load_model(
    model: Any, filename: Path, strict: bool = True, device: Device = "cpu", *, backend: str = "mmap"
) -> Tuple[Set[str], List[str]]:
    """Loads a file, such as one of save_model(), into a model's tensors.

    Returns the names that the model has and the file lacks, and those that the file alone has.  strict: raises
    RuntimeError if there are any.  Raises as load_file(), and what the model's load_state_dict() raises.
    """
    tensors = load_file(filename, device, backend=backend)
    kept_names = _duplicates(model.state_dict(), tensors)
    lacking, unexpected = model.load_state_dict(tensors, strict=False)
    missing = set(lacking)
    unexpected = list(unexpected)
    unexpected += [name for name in kept_names if name not in missing]
    missing.difference_update(kept_names)
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"dsaio: {type(model).__name__}: the file lacks {sorted(missing)} and has {sorted(unexpected)} beside"
            " what the model has: strict=False loads the others"
        )
    return missing, unexpected
