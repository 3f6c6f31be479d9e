"""The header of a safetensors file: read strictly, and made.

A file is 8 bytes with the length n of the header (little endian), n bytes of JSON, and the data.  The
JSON object has, for each tensor, its dtype, its shape and where its bytes lie in the data; and
"__metadata__", strings by name.

The parser accepts and refuses the same files as safetensors 0.8.0.  The tensors cover the data
without holes and overlaps.  A tensor may lie at any address, objects may have further keys, and the last of
several tensors of one name counts.  JSON is that of serde_json: it refuses numbers that no double
holds, halves of surrogate pairs, and values nested deeper than 127.

One limit is our own, since Python's objects are large: a header with more than 100,000 arrays and objects has 12
bytes for each at least.  That of a tensor takes more than 50 bytes and has three.

Nothing is allocated by a number of the file before it has been compared with the file's size.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections import namedtuple
from math import isinf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

    _Theirs = Exception

    class Dtype(NamedTuple):
        bits: int  # of an element
        name: str  # the dtype's name in torch, and in numpy where it has one; "" if torch has none

    class Info(NamedTuple):
        """A tensor of a file."""

        name: str
        dtype: str  # a key of DTYPES
        shape: Tuple[int, ...]
        start: int  # of its first byte in the file
        end: int

    class Header(NamedTuple):
        tensors: Dict[str, Info]  # in the order of their bytes
        metadata: Optional[Dict[str, str]]

else:
    try:
        from safetensors import SafetensorError as _Theirs  # loads neither torch nor numpy
    except ImportError:
        _Theirs = Exception
    Dtype = namedtuple("Dtype", "bits name")
    Info = namedtuple("Info", "name dtype shape start end")
    Header = namedtuple("Header", "tensors metadata")

# In ascending order of their alignment, as the format's reference has them: a file has the last ones first.
DTYPES: Dict[str, Dtype] = {
    "BOOL": Dtype(8, "bool"),
    "F4": Dtype(4, "float4_e2m1fn_x2"),
    "F6_E2M3": Dtype(6, ""),
    "F6_E3M2": Dtype(6, ""),
    "U8": Dtype(8, "uint8"),
    "I8": Dtype(8, "int8"),
    "F8_E5M2": Dtype(8, "float8_e5m2"),
    "F8_E4M3": Dtype(8, "float8_e4m3fn"),
    "F8_E8M0": Dtype(8, "float8_e8m0fnu"),
    "F8_E4M3FNUZ": Dtype(8, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": Dtype(8, "float8_e5m2fnuz"),
    "I16": Dtype(16, "int16"),
    "U16": Dtype(16, "uint16"),
    "F16": Dtype(16, "float16"),
    "BF16": Dtype(16, "bfloat16"),
    "I32": Dtype(32, "int32"),
    "U32": Dtype(32, "uint32"),
    "F32": Dtype(32, "float32"),
    "C64": Dtype(64, "complex64"),
    "F64": Dtype(64, "float64"),
    "I64": Dtype(64, "int64"),
    "U64": Dtype(64, "uint64"),
}
CODES = {dtype.name: code for code, dtype in DTYPES.items() if dtype.name}
_RANKS = {code: rank for rank, code in enumerate(DTYPES)}

METADATA = "__metadata__"
LENGTH = struct.Struct("<Q")
HEADER_MAX = 100_000_000
_END = 1 << 64  # of the reference's integers
_DEPTH_MAX = 127
_ARRAYS_MAX = 100_000  # arrays and objects in a header, or
_ARRAY_BYTES = 12  # one in so many bytes: an empty one takes 3 bytes in a file, and 64 or more here


class SafetensorError(ValueError, _Theirs):
    """A file is no safetensors file, or does not have what was asked for.  The text names the file.

    Where the package safetensors is installed, it is a subclass of its SafetensorError, too.
    """


# ---- JSON ----


class _Refused(Exception):
    """What is wrong, without the file's name."""


def _shown(value: Any) -> str:
    if type(value) is tuple:
        return "an object"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _number(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise _Refused(f"the number {digits[:40]}... is out of range")
    return number


def _integer(digits: str) -> Any:
    # Python's int() takes quadratic time for long texts.
    if len(digits) <= 20 and digits != "-0":  # which is no integer for serde_json
        number = int(digits)
        if number < _END:
            return number
    return _number(digits)  # no length, offset or number of elements


def _constant(name: str) -> Any:
    raise _Refused(f"{name} is no number of JSON")


# Objects become tuples of (key, value), which keep what is double, and arrays lists.
_decoder = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _check_tree(value: Any, depth: int) -> None:
    """Refuses what Python takes and serde_json does not: deep nesting, and halves of surrogate pairs."""
    left = [(value, depth)]
    while left:
        value, depth = left.pop()
        if type(value) is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _Refused(f"half of a surrogate pair in the string {_shown(value)}") from None
        elif type(value) in (list, tuple):
            # The (key, value) of an object are no level of their own.
            is_pair = type(value) is tuple and len(value) == 2 and type(value[0]) is str
            if not is_pair:
                depth += 1
                if depth > _DEPTH_MAX:
                    raise _Refused(f"values are nested deeper than {_DEPTH_MAX}")
            left.extend((item, depth) for item in value)


def _decode(text: bytes) -> Any:
    n = text.count(b"[") + text.count(b"{")
    if n > max(_ARRAYS_MAX, len(text) // _ARRAY_BYTES):
        raise _Refused(f"{n} arrays and objects in a header of {len(text)} bytes: too many to describe tensors")
    try:
        string = text.decode()
    except UnicodeDecodeError as e:
        raise _Refused(f"byte {LENGTH.size + e.start} of the file: the header is not UTF-8") from None
    try:
        tree = _decoder.decode(string)
    except json.JSONDecodeError as e:
        at = LENGTH.size + len(string[: e.pos].encode())
        raise _Refused(f"byte {at} of the file: the header is not JSON: {e.msg}") from None
    except RecursionError:
        raise _Refused(f"values are nested deeper than {_DEPTH_MAX}") from None
    if _SURROGATE.search(string):
        _check_tree(tree, 0)
    return tree


# ---- a tensor ----

_FIELDS = ("dtype", "shape", "data_offsets")


def _fields(value: Any) -> List[Any]:
    """The values of _FIELDS."""
    if type(value) is list:  # serde takes a struct as an array of its fields, too
        if len(value) != len(_FIELDS):
            raise _Refused(f"is an array of {len(value)} values: must be dtype, shape and data_offsets")
        return value
    if type(value) is not tuple:
        raise _Refused(f"is {_shown(value)}: must be an object with dtype, shape and data_offsets")
    found: Dict[str, Any] = {}
    for key, field in value:
        if key not in _FIELDS:
            _check_tree(field, 2)
        elif key in found:
            raise _Refused(f"has {key} twice")
        else:
            found[key] = field
    for key in _FIELDS:
        if key not in found:
            raise _Refused(f"has no {key}")
    return [found[key] for key in _FIELDS]


def _numbers(name: str, value: Any) -> Tuple[int, ...]:
    if type(value) is not list:
        raise _Refused(f"{name} {_shown(value)}: must be an array of integers")
    for number in value:
        if type(number) is not int or number < 0:
            raise _Refused(f"{name} has {_shown(number)}: must be an integer from 0 to 2^64 - 1")
    return tuple(value)


def _tensor(value: Any) -> Tuple[str, Tuple[int, ...], int, int]:
    """dtype, shape, and the two offsets in the data."""
    dtype, shape, offsets = _fields(value)
    if type(dtype) is tuple and len(dtype) == 1 and dtype[0][1] is None:
        dtype = dtype[0][0]  # serde's other way to write a variant
    if type(dtype) is not str or dtype not in DTYPES:
        raise _Refused(f"dtype {_shown(dtype)}: must be one of {', '.join(DTYPES)}")
    shape = _numbers("shape", shape)
    offsets = _numbers("data_offsets", offsets)
    if len(offsets) != 2:
        raise _Refused(f"data_offsets has {len(offsets)} numbers: must be the first byte and the end")
    return dtype, shape, offsets[0], offsets[1]


def _check_size(dtype: str, shape: Tuple[int, ...], start: int, end: int) -> None:
    n = 1
    for length in shape:
        n *= length
        if n >= _END:
            break
    bits = n * DTYPES[dtype].bits
    if bits >= _END:
        raise _Refused(f"shape {_shown(list(shape))} of {dtype}: the number of bits passes 2^64")
    if bits % 8:
        raise _Refused(f"shape {_shown(list(shape))} of {dtype}: the {bits} bits do not end at a byte")
    if end - start != bits // 8:
        raise _Refused(
            f"shape {_shown(list(shape))} of {dtype} takes {bits // 8} bytes, and data_offsets"
            f" [{start}, {end}] {end - start}"
        )


# ---- the header ----


def _strings(value: Any) -> Optional[Dict[str, str]]:
    if value is None:
        return None
    if type(value) is not tuple:
        raise _Refused(f"{METADATA} is {_shown(value)}: must be an object")
    for key, text in value:
        if type(text) is not str:
            raise _Refused(f"{METADATA}: the value of {_shown(key)} is {_shown(text)}: must be a string")
    return dict(value)


def _parse(text: bytes, data_bytes: int) -> Header:
    tree = _decode(text)
    if type(tree) is not tuple:
        raise _Refused(f"the header is {_shown(tree)}: must be a JSON object")
    metadata = None
    n_metadata = 0
    found = {}
    for name, value in tree:
        if name == METADATA:
            n_metadata += 1
            if n_metadata > 1:
                raise _Refused(f"the header has {METADATA} twice")
            metadata = _strings(value)
            continue
        try:
            found[name] = _tensor(value)
        except _Refused as e:
            raise _Refused(f"tensor {_shown(name)}: {e}") from None
    data = LENGTH.size + len(text)
    tensors: Dict[str, Info] = {}
    last, at = "", 0
    for name, (dtype, shape, start, end) in sorted(found.items(), key=lambda item: (item[1][2:], item[0])):
        try:
            if end < start:
                raise _Refused(f"data_offsets [{start}, {end}] end before they start")
            if start != at:
                behind = f"tensor {_shown(last)} ends at" if tensors else "the data starts at"
                kind = "a hole" if start > at else "an overlap"
                raise _Refused(f"data_offsets [{start}, {end}]: {behind} {at}, so there is {kind}")
            _check_size(dtype, shape, start, end)
        except _Refused as e:
            raise _Refused(f"tensor {_shown(name)}: {e}") from None
        tensors[name] = Info(name, dtype, shape, data + start, data + end)
        last, at = name, end
    if at != data_bytes:
        what = "is truncated" if at > data_bytes else "has bytes behind them"
        raise _Refused(f"the tensors end at byte {data + at}, and the file at byte {data + data_bytes}: it {what}")
    return Header(tensors, metadata)


def pread(fd: int, nbytes: int, offset: int) -> bytes:
    """Those bytes of a file.  Raises OSError; what read_header() makes a SafetensorError if there are fewer."""
    parts = []
    while nbytes:
        part = os.pread(fd, nbytes, offset)
        if not part:
            raise _Refused(f"byte {offset}: the file ends in its header")
        parts.append(part)
        nbytes -= len(part)
        offset += len(part)
    return b"".join(parts)


def read_header(read: Callable[[int, int], bytes], file_bytes: int, shown: str) -> Header:
    """The header of a file of that size.  read: returns that many bytes from an offset on.

    Raises SafetensorError, which names `shown`, and what read() raises.
    """
    try:
        if file_bytes < LENGTH.size:
            raise _Refused(f"has {file_bytes} bytes, and the length of the header alone takes {LENGTH.size}")
        (n,) = LENGTH.unpack(read(LENGTH.size, 0))
        if n > HEADER_MAX:
            raise _Refused(f"byte 0: a header of {n} bytes: at most {HEADER_MAX} are allowed")
        if n > file_bytes - LENGTH.size:
            raise _Refused(f"byte 0: a header of {n} bytes, and the file has {file_bytes}")
        return _parse(read(n, LENGTH.size), file_bytes - LENGTH.size - n)
    except _Refused as e:
        raise SafetensorError(f"{shown}: no safetensors file: {e}") from None


def make_header(
    tensors: Iterable[Tuple[str, str, Tuple[int, ...], int]], metadata: Optional[Dict[str, str]]
) -> Tuple[bytes, List[str]]:
    """The first bytes of a file, and the names of the tensors in the order of their bytes.

    tensors: (name, dtype, shape, bytes).  The header has the bytes that the format's reference gives it,
    which writes more than one pair of metadata in random order; here they are in theirs.  Raises ValueError.
    """
    tree: Dict[str, Any] = {} if metadata is None else {METADATA: metadata}
    at = 0
    names = []
    for name, dtype, shape, nbytes in sorted(tensors, key=lambda tensor: (-_RANKS[tensor[1]], tensor[0])):
        tree[name] = {"dtype": dtype, "shape": shape, "data_offsets": (at, at + nbytes)}
        at += nbytes
        names.append(name)
    try:
        text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as e:
        half = _shown(e.object[e.start])
        raise ValueError(f"dsaio: a name or metadata with half of a surrogate pair: {half}") from None
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_MAX:
        raise ValueError(f"dsaio: names, shapes and metadata take {len(text)} bytes: at most {HEADER_MAX} are allowed")
    return LENGTH.pack(len(text)) + text, names
