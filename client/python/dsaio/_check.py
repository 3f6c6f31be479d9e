"""Arguments of callers: their type and range.

ctypes takes integers modulo 2^32 or 2^64, and names no argument in its errors.  So each number is checked
here before it is passed on, in the unit of the caller.
"""

from __future__ import annotations

from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

MAX = (1 << 63) - 1
_SECONDS_MAX = 4294967  # the library's limit: 2^32 - 1 ms


def wrong_type(name: str, value: Any, expected: str) -> TypeError:
    return TypeError(f"dsaio: {name} {value!r}: must be {expected}")


def _refuse(text: str, code: Optional[int]) -> Exception:
    return ValueError(text) if code is None else OSError(code, text)


def integer(
    name: str, value: Any, low: int, high: int, code: Optional[int] = None, expected: str = "an integer"
) -> int:
    """The value as an int.  Out of range, it is a ValueError, or an OSError of the errno `code`."""
    try:
        number = index(value)
    except TypeError:
        raise wrong_type(name, value, expected) from None
    if not low <= number <= high:
        shown = "2^63 - 1" if high == MAX else str(high)
        raise _refuse(f"dsaio: {name} {number}: must be from {low} to {shown}", code)
    return number


def usec(name: str, seconds: Any, code: Optional[int] = None) -> int:
    """Microseconds.  Out of range, it is as of integer()."""
    try:
        is_in_range = 0 <= seconds <= _SECONDS_MAX  # not so for NaN
        number = int(seconds * 1e6) if is_in_range else 0
    except TypeError:
        raise wrong_type(name, seconds, "a number of seconds") from None
    if not is_in_range:
        raise _refuse(f"dsaio: {name} {seconds!r}: must be from 0 to {_SECONDS_MAX} seconds", code)
    return number


def boolean(name: str, value: Any) -> bool:
    """As DeepNVMe takes them: text is a TypeError."""
    if value is None or not hasattr(type(value), "__bool__"):
        raise wrong_type(name, value, "True or False")
    return bool(value)
