"""Pinned arrays of numpy."""

from __future__ import annotations

from ._buffer import new_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence, Union

    import numpy

__all__ = ["empty"]


def empty(shape: Union[int, Sequence[int]], dtype: Any = None) -> numpy.ndarray[Any, Any]:
    """A pinned array, page aligned, whose content is undefined.  dtype: None for float64.

    The memory returns to the pool when the last array on it is gone.  Raises OSError: ENOMEM if the pool has no
    room; TypeError for a dtype of Python objects.
    """
    array: numpy.ndarray[Any, Any] = new_array(shape, dtype)
    return array
