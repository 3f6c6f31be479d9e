"""dsaio.safetensors: which files are accepted, what is read and written, and what happens when something fails.

Where the package safetensors is installed, its verdict, values and files are compared with ours.
"""

import ctypes
import errno
import gc
import hashlib
import itertools
import json
import os
import random
import re
import struct
import threading
import weakref

import pytest

import dsaio
from conftest import BUILD, Daemon, file_bytes, make_file
from dsaio import _safetensors as header
from dsaio import _stream, safetensors
from dsaio.safetensors import SafetensorError, load_file, load_into, safe_open, save_file


@pytest.fixture
def reference():
    return pytest.importorskip("safetensors", reason="safetensors is not installed: make check-deepspeed")


@pytest.fixture
def same_reference(reference):
    """The reference where it is of the version whose verdicts are ours: older ones know fewer dtypes."""
    if tuple(int(n) for n in re.findall(r"\d+", reference.__version__)[:2]) < (0, 8):
        pytest.skip(f"safetensors {reference.__version__} is older than 0.8.0, and knows fewer dtypes")
    return reference


def file_of(text, data=b"", length=None):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape="[2]", offsets="[0,8]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def one(more="", data=bytes(8), **fields):
    """A file with the tensor a."""
    return file_of('{"a":' + tensor(more=more, **fields) + "}", data)


def two(first, second, data=bytes(16), names=("b", "a")):
    return file_of(f'{{"{names[0]}":{first},"{names[1]}":{second}}}', data)


def extra(value):
    return one(f',"x":{value}')


def metadata(value):
    return file_of(f'{{"__metadata__":{value}}}')


# ---- what is accepted ----

# Files, and a part of the message of those that are refused.
ACCEPTED = None
FILES = {
    "a tensor": (one(), ACCEPTED),
    "no bytes": (b"", "has 0 bytes"),
    "fewer bytes than the length takes": (b"1234567", "has 7 bytes"),
    "no header": (file_of(""), "byte 8 of the file: the header is not JSON"),
    "no tensors": (file_of("{}"), ACCEPTED),
    "a byte behind the header": (file_of("{}", b"x"), "the tensors end at byte 10, and the file at byte 11"),
    "spaces before and behind": (file_of(" \t\r\n{} \t\r\n"), ACCEPTED),
    "a header padded with NUL": (file_of("{}\0"), "byte 10 of the file"),
    "a header over the limit": (file_of("{}", length=100_000_001), "a header of 100000001 bytes: at most"),
    "a header of 2^63": (file_of("{}", length=1 << 63), "at most 100000000"),
    "a header of 2^64 - 1": (file_of("{}", length=(1 << 64) - 1), "at most 100000000"),
    "a header behind the end": (file_of("{}", length=3), "a header of 3 bytes, and the file has 10"),
    "an array": (file_of("[]"), "must be a JSON object"),
    "null": (file_of("null"), "the header is null: must be"),
    "a byte order mark": (file_of("\ufeff{}"), "byte 8 of the file"),
    "a byte that is no UTF-8": (file_of(b'{"\xff":1}'), "byte 10 of the file: the header is not UTF-8"),
    "a surrogate in UTF-8": (metadata('{"').replace(b'{"}', b'{"\xed\xa0\x80":"1"}'), "the header is not UTF-8"),
    "half of a surrogate pair": (metadata(r'{"\ud800":"1"}'), "half of a surrogate pair"),
    "halves in the wrong order": (metadata(r'{"a":"\ude00\ud83d"}'), "half of a surrogate pair"),
    "half of a pair in another key": (extra(r'"\udc00"'), "half of a surrogate pair"),
    "half of a pair in a key of another key": (extra(r'[{"\udc00":0}]'), "half of a surrogate pair"),
    "a surrogate pair": (metadata(r'{"\ud83d\ude00":"\uD83D\uDE00"}'), ACCEPTED),
    "a backslash before u": (metadata(r'{"\\ud800":"1"}'), ACCEPTED),
    "trailing comma": (file_of("{" + f'"a":{tensor()},' + "}", bytes(8)), "the header is not JSON"),
    "metadata: null": (metadata("null"), ACCEPTED),
    "metadata: nothing": (metadata("{}"), ACCEPTED),
    "metadata: a number": (metadata('{"a":1}'), "the value of 'a' is 1: must be a string"),
    "metadata: an object": (metadata('{"a":{}}'), "the value of 'a' is an object"),
    "metadata: an array": (metadata("[]"), "__metadata__ is []: must be an object"),
    "metadata: array of pairs": (metadata('[["a","b"]]'), "must be an object"),
    "metadata: a key twice": (metadata('{"a":"1","a":"2"}'), ACCEPTED),
    "metadata: twice": (file_of('{"__metadata__":null,"__metadata__":{}}'), "has __metadata__ twice"),
    "metadata: escaped": (file_of(r'{"\u005f_metadata__":{"a":"2"}}'), ACCEPTED),
    "metadata: a tensor": (file_of(f'{{"__metadata__":{tensor()}}}', bytes(8)), "the value of 'shape' is [2]"),
    "metadata: behind a tensor": (file_of(f'{{"a":{tensor()},"__metadata__":{{"a":"2"}}}}', bytes(8)), ACCEPTED),
    "a name twice": (two(tensor(), tensor(), bytes(8), "aa"), ACCEPTED),
    "a name twice: the last one counts": (two(tensor(offsets="[0,800]"), tensor(), bytes(8), "aa"), ACCEPTED),
    "a name twice: the first is no tensor": (two("3", tensor(), bytes(8), "aa"), "tensor 'a': is 3: must be an object"),
    "a name twice: the first has no dtype": (two(tensor("X"), tensor(), bytes(8), "aa"), "tensor 'a': dtype 'X'"),
    "a field twice": (one(',"dtype":"F32"'), "tensor 'a': has dtype twice"),
    "another key twice": (one(',"x":1,"x":2'), ACCEPTED),
    "another key": (extra('{"y":[1,null,true,-3.5e3,"z"]}'), ACCEPTED),
    "a number that no double holds": (extra("1e999"), "out of range"),
    "zero with a large exponent": (extra("0e999"), ACCEPTED),
    "a number close to zero": (extra("1e-999"), ACCEPTED),
    "300 digits": (extra("1" * 300), ACCEPTED),
    "310 digits": (extra("1" * 310), "out of range"),
    "310 digits, negative": (extra("-" + "1" * 310), "out of range"),
    "NaN": (extra("NaN"), "NaN is no number"),
    "Infinity": (extra("Infinity"), "Infinity is no number"),
    "-Infinity": (extra("-Infinity"), "-Infinity is no number"),
    "01": (extra("01"), "the header is not JSON"),
    "-0": (extra("-0"), ACCEPTED),
    "1.": (extra("1."), "the header is not JSON"),
    "a control character": (extra('"\x1f"'), "the header is not JSON"),
    "DEL": (extra('"\x7f"'), ACCEPTED),
    "a wrong escape": (extra(r'"\x41"'), "the header is not JSON"),
    "nested 127 deep": (extra("[" * 125 + "]" * 125), ACCEPTED),
    "nested 128 deep": (extra("[" * 126 + "]" * 126), "nested deeper than 127"),
    "objects nested 127 deep": (extra('{"y":' * 125 + "1" + "}" * 125), ACCEPTED),
    "objects nested 128 deep": (extra('{"y":' * 126 + "1" + "}" * 126), "nested deeper than 127"),
    "nested 90,000 deep": (extra("[" * 90_000 + "]" * 90_000), "nested deeper than 127"),
    "nested a million deep": (extra("[" * 10**6 + "]" * 10**6), "too many to describe tensors"),
    "no dtype": (file_of('{"a":{"shape":[2],"data_offsets":[0,8]}}', bytes(8)), "has no dtype"),
    "no shape": (file_of('{"a":{"dtype":"F32","data_offsets":[0,8]}}', bytes(8)), "has no shape"),
    "no offsets": (file_of('{"a":{"dtype":"F32","shape":[2]}}', bytes(8)), "has no data_offsets"),
    "a tensor as an array": (file_of('{"a":["F32",[2],[0,8]]}', bytes(8)), ACCEPTED),
    "a tensor as an array of 4": (file_of('{"a":["F32",[2],[0,8],1]}', bytes(8)), "is an array of 4 values"),
    "a tensor as an array of 2": (file_of('{"a":["F32",[2]]}', bytes(8)), "is an array of 2 values"),
    "a tensor that is null": (file_of('{"a":null}'), "tensor 'a': is null: must be an object"),
    "dtype: an object": (file_of('{"a":[{"F32":null},[2],[0,8]]}', bytes(8)), ACCEPTED),
    "dtype: an object with a value": (file_of('{"a":[{"F32":{}},[2],[0,8]]}', bytes(8)), "dtype an object: must be"),
    "dtype: an object of two": (file_of('{"a":[{"F32":null,"F16":null},[2],[0,8]]}', bytes(8)), "dtype an object"),
    "dtype: nothing": (file_of('{"a":[{},[2],[0,8]]}', bytes(8)), "dtype an object"),
    "dtype: a number": (file_of('{"a":[12,[2],[0,8]]}', bytes(8)), "dtype 12: must be one of BOOL, F4"),
    "dtype: null": (file_of('{"a":[null,[2],[0,8]]}', bytes(8)), "dtype null"),
    "dtype: small letters": (one(dtype="f32"), "dtype 'f32'"),
    "dtype: unknown": (one(dtype="C128", shape="[0]", offsets="[0,0]", data=b""), "dtype 'C128'"),
    "dtype: escaped": (one(dtype=r"\u004632"), ACCEPTED),
    "shape: null": (one(shape="null"), "shape null: must be an array"),
    "shape: an object": (one(shape="{}"), "shape an object: must be an array"),
    "shape: a fraction": (one(shape="[2.0]"), "shape has 2.0"),
    "shape: an exponent": (one(shape="[2e0]"), "shape has 2.0"),
    "shape: negative": (one(shape="[-2]"), "shape has -2: must be"),
    "shape: -0": (one(shape="[-0]", offsets="[0,0]", data=b""), "shape has -0.0"),
    "shape: a boolean": (one(shape="[true,2]"), "shape has True"),
    "shape: text": (one(shape='["2"]'), "shape has '2'"),
    "shape: nested": (one(shape="[[2]]"), "shape has [2]"),
    "shape: a scalar": (one(shape="[]", offsets="[0,4]", data=bytes(4)), ACCEPTED),
    "shape: no elements": (one(shape="[3,0,5]", offsets="[0,0]", data=b""), ACCEPTED),
    "shape: passes 2^64 before a 0": (one(shape=f"[{1 << 63},{1 << 63},0]", offsets="[0,0]", data=b""), "passes 2^64"),
    "shape: a 0 before what passes 2^64": (one(shape=f"[0,{1 << 63},{1 << 63}]", offsets="[0,0]", data=b""), ACCEPTED),
    "shape: 2^64 - 1 and 0": (one(shape=f"[{(1 << 64) - 1},0]", offsets="[0,0]", data=b""), ACCEPTED),
    "shape: 2^64 and 0": (one(shape=f"[{1 << 64},0]", offsets="[0,0]", data=b""), "shape has 1.8"),
    "shape: 2^64 bits": (one(shape=f"[{1 << 59}]", offsets="[0,0]", data=b""), "passes 2^64"),
    "shape: fewer than 2^64 bits": (one(shape=f"[{(1 << 59) - 1}]", offsets="[0,0]", data=b""), "takes 23058430092136"),
    "shape: other than the bytes": (one(shape="[3]"), "shape [3] of F32 takes 12 bytes, and data_offsets [0, 8] 8"),
    "offsets: 3": (one(offsets="[0,8,9]"), "data_offsets has 3 numbers"),
    "offsets: 1": (one(offsets="[0]"), "data_offsets has 1 numbers"),
    "offsets: text": (one(offsets='"08"'), "data_offsets '08': must be an array"),
    "offsets: swapped": (one(offsets="[8,0]"), "data_offsets [8, 0] end before they start"),
    "offsets: negative": (one(offsets="[-8,0]"), "data_offsets has -8: must be"),
    "offsets: behind the end": (one(data=bytes(7)), "the file at byte 69: it is truncated"),
    "offsets: 2^64 - 1": (one(dtype="U8", shape=f"[{(1 << 64) - 1}]", offsets=f"[0,{(1 << 64) - 1}]"), "passes 2^64"),
    "offsets: 2^61 - 1": (one(dtype="U8", shape=f"[{(1 << 61) - 1}]", offsets=f"[0,{(1 << 61) - 1}]"), "is truncated"),
    "a hole at the start": (one(offsets="[8,16]", data=bytes(16)), "the data starts at 0, so there is a hole"),
    "a hole": (two(tensor(), tensor(offsets="[9,17]"), bytes(17)), "tensor 'b' ends at 8, so there is a hole"),
    "an overlap": (two(tensor(), tensor(offsets="[4,12]"), bytes(12)), "tensor 'b' ends at 8, so there is an overlap"),
    "one range twice": (two(tensor(), tensor(), bytes(8)), "so there is an overlap"),
    "a byte behind the tensors": (one(data=bytes(9)), "it has bytes behind them"),
    "two tensors in another order": (two(tensor(offsets="[8,16]"), tensor()), ACCEPTED),
    "a tensor that is not aligned": (two(tensor("U8", "[1]", "[0,1]"), tensor(offsets="[1,9]"), b"\1" * 9), ACCEPTED),
    "a header of 61 bytes": (file_of('{"a":' + tensor() + "}" + " " * 5, bytes(8)), ACCEPTED),
    "no elements, between": (two(tensor(shape="[0]", offsets="[8,8]"), tensor(), bytes(8)), ACCEPTED),
    "no elements, within another": (two(tensor(shape="[0]", offsets="[4,4]"), tensor(), bytes(8)), "an overlap"),
    "a name of no letters": (file_of('{"":' + tensor() + "}", bytes(8)), ACCEPTED),
    "a name with NUL": (file_of(r'{"a\u0000b":' + tensor() + "}", bytes(8)), ACCEPTED),
    "bits that do not end at a byte": (one(dtype="F4", shape="[3]", offsets="[0,2]", data=b"12"), "the 12 bits do not"),
    "3 times 4 of 4 bits": (one(dtype="F4", shape="[4,3]", offsets="[0,6]", data=bytes(6)), ACCEPTED),
    "4 of 6 bits": (one(dtype="F6_E2M3", shape="[4]", offsets="[0,3]", data=bytes(3)), ACCEPTED),
}
FILES.update(
    (f"dtype {code}", (one(dtype=code, shape="[2,4]", offsets=f"[0,{bits}]", data=bytes(bits)), ACCEPTED))
    for code, bits in {
        **dict.fromkeys("BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ".split(), 8),
        **dict.fromkeys("I16 U16 F16 BF16".split(), 16),
        **dict.fromkeys("I32 U32 F32".split(), 32),
        **dict.fromkeys("C64 F64 I64 U64".split(), 64),
        **dict.fromkeys("F6_E2M3 F6_E3M2".split(), 6),
        "F4": 4,
    }.items()
)


def description(file):
    """An open file: its metadata, and dtype, shape and bytes of its tensors."""
    tensors = {}
    for name in file.offset_keys():
        part = file.get_slice(name)
        info = file._source.header.tensors[name]
        data = os.pread(file._source.fd, info.end - info.start, info.start)
        tensors[name] = part.get_dtype(), tuple(part.get_shape()), data
    return file.metadata(), tensors


def reference_description(reference, path):
    """The same by safetensors; None if it refuses the file."""
    try:
        with reference.safe_open(path, "np") as file:
            metadata = file.metadata()
            assert file.keys() == sorted(file.offset_keys())
    except reference.SafetensorError:
        return None
    tensors = reference.deserialize(file_bytes(path))
    return metadata, {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in tensors}


@pytest.mark.parametrize("what", FILES)
def test_what_is_accepted(path, what):
    data, message = FILES[what]
    make_file(path, data)
    if message is ACCEPTED:
        with safe_open(path, "np") as file:
            description(file)
        return
    with pytest.raises(SafetensorError) as e:
        safe_open(path, "np")
    assert str(e.value).startswith(path + ": ") and message in str(e.value), str(e.value)
    assert len(str(e.value)) < 400 + len(path)


def test_the_reference_accepts_the_same(path, same_reference):
    for what, (data, message) in FILES.items():
        make_file(path, data)
        theirs = reference_description(same_reference, path)
        assert (theirs is None) == (message is not ACCEPTED), what
        if theirs is not None:
            with safe_open(path, "np") as file:
                assert description(file) == theirs, what


def test_a_header_of_small_arrays_alone_is_refused_before_it_is_decoded(path):
    for value in ("[" + "[]," * 200_000 + "[]]", "[" + "{}," * 200_000 + "[]]", '{"":[' + "[[]]," * 100_000 + "[]]}"):
        make_file(path, extra(value))
        with pytest.raises(SafetensorError, match="20000[0-9] arrays and objects in a header of"):
            safe_open(path, "np")


def test_a_header_of_many_tensors_is_accepted(path):
    n = 50_000  # the shortest headers that save_file() writes: scalars of short names
    tensors = ",".join(f'"{i}":' + tensor("U8", "[]", f"[{i},{i + 1}]") for i in range(n))
    make_file(path, file_of("{" + tensors + "}", bytes(n)))
    with safe_open(path, "np") as file:
        assert len(file.keys()) == n


# Pieces that mutants get.
TOKENS = '{ } [ ] , : " \\ 0 1 8 9 - . e E null true "F32" "U8" "a" "dtype" "shape" "data_offsets"'.split()
TOKENS.append('"__metadata__"')
TOKENS += [" ", "\n", "\t", "\0", "\x01", "\x7f", "é", "\\u0041", "\\ud800", "\\ude00", "\\n", "\\x"]
TOKENS += ["1e3", "-0", "0.5"]
TOKENS += [str(n) for n in (1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 10**30)]
N_MUTANTS = 3000


def mutants():
    """Files that are not far from right ones, always the same."""
    rng = random.Random(12)

    def shape_of(n):
        shape = []
        while n % 2 == 0 and rng.randrange(2):
            shape.append(2)
            n //= 2
        return [*shape, n]

    for _ in range(N_MUTANTS):
        tensors, at = {}, 0
        for i in range(rng.randrange(4)):
            dtype = rng.choice(list(header.DTYPES))
            n = rng.choice((0, 1, 2, 4, 8, 8, 16, 24))
            nbytes = (n * header.DTYPES[dtype].bits + 7) // 8
            fields = [("dtype", dtype), ("shape", shape_of(n)), ("data_offsets", [at, at + nbytes])]
            if rng.randrange(8) == 0:
                fields[2][1][rng.randrange(2)] += rng.choice((-1, 1, 8))
            if rng.randrange(8) == 0:
                fields.append((rng.choice(("x", "dtype")), rng.choice(("F32", [[]], None))))
            if rng.randrange(3) == 0:
                fields.reverse()
            tensors[f"t{i}"] = dict(fields)
            at += nbytes
        items = list(tensors.items())
        if rng.randrange(2):
            items.reverse()
        if rng.randrange(3) == 0:
            items.insert(rng.randrange(len(items) + 1), ("__metadata__", {"a": "b", "ä": "\t"}))
        if items and rng.randrange(8) == 0:
            items.append(rng.choice(items))
        spaces = rng.choice(((",", ":"), (", ", " : ")))
        text = ",".join(f"{json.dumps(k, ensure_ascii=False)}:{json.dumps(v, separators=spaces)}" for k, v in items)
        text = ("{" + text + "}" + " " * rng.randrange(9)).encode()
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
            i, n = rng.randrange(len(text) + 1), rng.randrange(1, 9)
            how = rng.randrange(5)
            if how == 0:
                text = text[:i] + text[i + n :]
            elif how == 1:
                text = text[:i] + rng.choice(TOKENS).encode() + text[i:]
            elif how == 2:
                text = text[:i] + rng.choice(TOKENS).encode() + text[i + n :]
            elif how == 3:
                text = text[:i] + bytes([rng.randrange(256)]) + text[i + 1 :]
            else:
                digits = [m for m in re.finditer(rb"\d+", text)]
                if digits:
                    m = rng.choice(digits)
                    other = str(rng.choice((0, 1, 2, 4, 7, 8, 1 << 40, 1 << 64))).encode()
                    text = text[: m.start()] + other + text[m.end() :]
        length = len(text)
        if rng.randrange(20) == 0:
            length = rng.choice((0, length - 1, length + 1, length + at, 1 << 32, (1 << 64) - 1)) % (1 << 64)
        data = bytes(rng.randrange(256) for _ in range(max(0, at + rng.choice((0,) * 20 + (-1, 1)))))
        yield file_of(text, data, length)


# By safetensors 0.8.0: how many are accepted, and a digest of verdicts and contents.
MUTANTS_ACCEPTED = 735
MUTANTS_DIGEST = "af5533852aa12318aeed0a2c419352fb253cf1628eb9f05cfb76f15e6be89568"


def test_mutants_are_accepted_and_refused_as_the_reference_did(path):
    """The recorded verdicts, so that the comparison also runs where there is no reference."""
    digest = hashlib.sha256()
    n = 0
    for data in mutants():
        make_file(path, data)
        try:
            with safe_open(path, "np") as file:
                digest.update(repr(sorted_description(description(file))).encode())
            n += 1
        except SafetensorError as e:
            assert str(e).startswith(path + ": ")
            digest.update(b"refused")
    assert (n, digest.hexdigest()) == (MUTANTS_ACCEPTED, MUTANTS_DIGEST)


def sorted_description(description):
    metadata, tensors = description
    return metadata and sorted(metadata.items()), sorted(tensors.items())


def test_mutants_beside_the_reference(path, same_reference):
    digest = hashlib.sha256()
    n = 0
    for data in mutants():
        make_file(path, data)
        theirs = reference_description(same_reference, path)
        try:
            with safe_open(path, "np") as file:
                ours = description(file)
        except SafetensorError as e:
            assert theirs is None, (data, e)
            digest.update(b"refused")
            continue
        assert ours == theirs, data
        digest.update(repr(sorted_description(theirs)).encode())
        n += 1
    assert (n, digest.hexdigest()) == (MUTANTS_ACCEPTED, MUTANTS_DIGEST)


# ---- reading ----


def framework(kind):
    return "pt" if hasattr(kind, "torch") else "np"


def load(kind, path):
    return load_file(path, framework=framework(kind))


def safetensors_file(tensors, spaces=None):
    """A file with tensors (name, dtype, shape, bytes) one behind the other in this order.

    spaces: behind the header; None: so that its length is a multiple of 8.
    """
    at, parts = 0, []
    for name, dtype, shape, data in tensors:
        parts.append(f"{json.dumps(name)}:{tensor(dtype, json.dumps(shape), f'[{at},{at + len(data)}]')}")
        at += len(data)
    text = "{" + ",".join(parts) + "}"
    text += " " * (-len(text) % 8 if spaces is None else spaces)
    return file_of(text, b"".join(t[3] for t in tensors))


def many_tensors(n=20):
    """Tensors of odd sizes, so that all but a few are not at multiples of a page."""
    rng = random.Random(3)
    return [(f"t{i}", "I16", [rng.randrange(1, 9000)], b"") for i in range(n)]


@pytest.fixture
def example(path):
    """A file of a few tensors, and their bytes by name."""
    rng = random.Random(1)
    tensors = []
    for name, dtype, shape, _ in many_tensors():
        tensors.append((name, dtype, shape, rng.getrandbits(16 * shape[0]).to_bytes(2 * shape[0], "little")))
    make_file(path, safetensors_file(tensors))
    return {name: data for name, _, _, data in tensors}


def bytes_of(kind, tensors):
    return {name: kind.bytes(tensor) for name, tensor in tensors.items()}


def tensor_bytes(kind, tensor):
    """Also of dtypes that numpy() and bytes() of torch do not know."""
    if not hasattr(kind, "torch"):
        return tensor.tobytes()
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


@pytest.mark.parametrize("code", header.DTYPES)
def test_every_dtype_is_read_and_written(path, kind, code):
    bits, name = header.DTYPES[code]
    data = bytes(random.Random(code).randrange(2 if code == "BOOL" else 256) for _ in range(3 * 8 * bits // 8))
    make_file(path, safetensors_file([("a", code, [3, 8], data)]))
    has_it = bool(name) and hasattr(kind, "torch") and hasattr(kind.torch, name)
    has_it = has_it or not hasattr(kind, "torch") and name in kind.numpy.sctypeDict
    with safe_open(path, framework(kind)) as file:
        part = file.get_slice("a")
        assert (part.get_dtype(), part.get_shape()) == (code, [3, 8])
        if not has_it:
            with pytest.raises(SafetensorError, match=f"f: tensor 'a': .* has no tensor of {code} with shape"):
                file.get_tensor("a")
            with pytest.raises(SafetensorError, match="has no tensor of"):
                part[0]
            return
        tensor = file.get_tensor("a")
        row = part[1]
    assert str(tensor.dtype).rpartition(".")[2] == name
    assert list(tensor.shape) == ([3, 4] if code == "F4" else [3, 8])
    assert tensor_bytes(kind, tensor) == data
    assert tensor_bytes(kind, row) == data[len(data) // 3 : 2 * len(data) // 3]
    save_file({"a": tensor}, path + "2")
    with safe_open(path + "2", framework(kind)) as file:
        assert (file.get_slice("a").get_dtype(), file.get_slice("a").get_shape()) == (code, [3, 8])
    assert file_bytes(path + "2").endswith(data)


def allocation_of(kind, tensor):
    return dsaio._memory.find(kind.address(tensor), 1)


def test_tensors_are_views_of_pinned_memory(kind, path, example):
    tensors = load(kind, path)
    assert list(tensors) == list(example)  # the order of the file
    assert bytes_of(kind, tensors) == example
    assert all(dsaio.is_pinned(tensor) for tensor in tensors.values())
    assert len({id(allocation_of(kind, tensor)) for tensor in tensors.values()}) == 1
    # At the same distance from a page as in the file, where direct I/O needs no copy.
    with safe_open(path, framework(kind)) as file:
        for name, info in file._source.header.tensors.items():
            assert kind.address(tensors[name]) % 4096 == info.start % 4096
            assert kind.address(file.get_tensor(name)) % 4096 == info.start % 4096
    tensors["t1"][:] = 7
    del example["t1"], tensors["t1"]
    assert bytes_of(kind, tensors) == example


def test_ordinary_memory(kind, path, example):
    for spaces in (0, 1):
        tensors = [(name, "I16", [len(data) // 2], data) for name, data in example.items()]
        make_file(path, safetensors_file(tensors, spaces))
        loaded = load_file(path, framework=framework(kind), pinned=False)
        assert bytes_of(kind, loaded) == example
        assert not any(dsaio.is_pinned(tensor) for tensor in loaded.values())
        load_into(path, loaded)
        assert bytes_of(kind, loaded) == example
    with pytest.raises(TypeError, match="pinned 'no'"):
        load_file(path, framework=framework(kind), pinned="no")


def test_a_tensor_of_torch_has_a_storage_of_its_own(path, example):
    """So torch.save() of one does not write all."""
    pytest.importorskip("torch")
    for name, tensor in load_file(path).items():
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        assert storage.nbytes() == len(example[name]) and storage.data_ptr() == tensor.data_ptr()


def test_memory_lives_as_long_as_one_tensor(kind, path, example):
    tensors = load(kind, path)
    kept = tensors.pop("t7")
    tensors.clear()
    address = kind.address(kept)
    gc.collect()
    assert dsaio._memory.find(address, 1) is not None and kind.bytes(kept) == example["t7"]
    view = kind.narrow(kept, 1, 5)
    del kept
    gc.collect()
    assert kind.bytes(view) == example["t7"][2:12]
    del view
    gc.collect()
    assert dsaio._memory.find(address, 1) is None


def test_a_tensor_that_is_not_aligned_is_copied_and_no_other(kind, path):
    tensors = [("a", "U8", [1], b"x"), ("b", "F32", [2], b"12345678"), ("c", "U8", [3], b"xyz")]
    tensors.append(("d", "I64", [1], b"abcdefgh"))
    for spaces in range(16):
        make_file(path, safetensors_file(tensors, spaces=spaces))
        loaded = load(kind, path)
        assert bytes_of(kind, loaded) == {name: data for name, _, _, data in tensors}
        start = 8 + struct.unpack("<Q", file_bytes(path)[:8])[0]
        for name, at, itemsize in (("a", 0, 1), ("b", 1, 4), ("c", 9, 1), ("d", 12, 8)):
            is_view = allocation_of(kind, loaded[name]) is allocation_of(kind, loaded["a"])
            assert is_view == ((start + at) % itemsize == 0)
            assert kind.address(loaded[name]) % itemsize == 0 and dsaio.is_pinned(loaded[name])


def test_no_elements_no_dimensions_no_tensors(kind, path):
    tensors = [("z", "F32", [2, 0, 3], b""), ("s", "F32", [], b"\0\0\x80?"), ("y", "BOOL", [0], b"")]
    make_file(path, safetensors_file(tensors))
    loaded = load(kind, path)
    assert {name: tuple(tensor.shape) for name, tensor in loaded.items()} == {"z": (2, 0, 3), "s": (), "y": (0,)}
    assert float(loaded["s"]) == 1.0
    load_into(path, loaded)
    with safe_open(path, framework(kind)) as file:
        assert tuple(file.get_slice("z")[1].shape) == (0, 3)
        assert tuple(file.get_tensor("z").shape) == (2, 0, 3)
        assert float(file.get_slice("s")[()]) == float(file.get_slice("s")[...]) == 1.0
    make_file(path, safetensors_file([]))
    assert load(kind, path) == {}
    load_into(path, {})
    make_file(path, safetensors_file([("z", "F32", [0], b"")]))
    assert tuple(load(kind, path)["z"].shape) == (0,)


def test_a_shape_that_the_framework_cannot_have_is_named(kind, path):
    for shape in ([0, 1 << 63, 1 << 63], [(1 << 64) - 1, 0]):
        make_file(path, one(shape=json.dumps(shape), offsets="[0,0]", data=b""))
        with pytest.raises(SafetensorError, match="f: tensor 'a': .* has no tensor of F32 with shape"):
            load(kind, path)


def test_a_large_file_is_read_in_pieces(kind, path, example, monkeypatch):
    monkeypatch.setattr(safetensors, "_PIECE", 8192)
    tensors = load(kind, path)
    assert bytes_of(kind, tensors) == example
    allocations = {id(allocation_of(kind, tensor)) for tensor in tensors.values()}
    assert 5 < len(allocations) < len(tensors)
    make_file(path, file_bytes(path)[:-2] + b"xy")
    load_into(path, tensors)
    example["t19"] = example["t19"][:-2] + b"xy"
    assert bytes_of(kind, tensors) == example


@pytest.fixture
def reads(monkeypatch):
    """Sizes of the reads that are started."""
    sizes = []
    real = dsaio.Handle.submit_reads

    def submit_reads(self, requests):
        requests = list(requests)
        sizes.extend(memoryview(request[0]).nbytes for request in requests)
        return real(self, requests)

    monkeypatch.setattr(dsaio.Handle, "submit_reads", submit_reads)
    return sizes


def test_lazy_access(kind, path, example):
    with safe_open(path, framework(kind)) as file:
        assert file.keys() == sorted(example) and file.offset_keys() == list(example)
        assert file.metadata() is None
        for name, data in example.items():
            assert kind.bytes(file.get_tensor(name)) == data
        assert bytes_of(kind, file.get_tensors()) == example
        for call in (file.get_tensor, file.get_slice):
            with pytest.raises(SafetensorError, match="f: has no tensor 'zz'"):
                call("zz")
        part = file.get_slice("t3")
    for call in (file.keys, file.offset_keys, file.metadata, file.get_tensors, lambda: file.get_tensor("t3")):
        with pytest.raises(SafetensorError, match="is closed"):
            call()
    assert kind.bytes(part[:]) == example["t3"]  # as safetensors': it keeps the file open
    file = safe_open(path, framework(kind))  # without a block
    assert kind.bytes(file.get_tensor("t0")) == example["t0"]


def test_a_file_is_closed_with_its_last_user(path, example):
    real = os.path.realpath(path)

    def n_open():
        return sum(os.path.realpath(f"/proc/self/fd/{fd}") == real for fd in os.listdir("/proc/self/fd"))

    before = n_open()  # the library may keep one
    file = safe_open(path, "np")
    part = file.get_slice("t1")
    assert n_open() == before + 1
    with file:
        pass
    assert n_open() == before + 1
    del part
    gc.collect()
    assert n_open() == before
    for data in (b"", one(data=b"")):
        make_file(path, data)
        with pytest.raises(SafetensorError):
            safe_open(path, "np")
    gc.collect()
    assert n_open() == before


def test_metadata(path):
    make_file(path, metadata('{"b":"1","a":"\\n"}'))
    with safe_open(path, "np") as file:
        assert file.metadata() == {"b": "1", "a": "\n"}
        file.metadata().clear()
        assert file.metadata() == {"b": "1", "a": "\n"}


E_ = Ellipsis
INDICES = [
    slice(None), 0, 4, -1, -5, slice(1, 3), slice(-2, None), slice(0, 0), slice(3, 1), slice(7, 9),
    slice(None, None, 2), slice(1, None, 3), (slice(None), 1), (slice(1, 4), slice(0, 2), -1),
    (2, E_, 0), (E_, 1), E_, (), None, (None, 1),
    (1, None), (4, 2, 3), [0, 3], [], (slice(None), [0, 2]), (slice(2, 4), [0, 2]),
]  # fmt: skip


def test_slices_are_those_of_the_framework(kind, path):
    data = bytes(range(5 * 3 * 4))
    make_file(path, safetensors_file([("b", "U8", [3], b"xyz"), ("a", "I8", [5, 3, 4], data)]))
    with safe_open(path, framework(kind)) as file:
        whole, part = file.get_tensor("a"), file.get_slice("a")
        for key in INDICES:
            wanted, got = whole[key], part[key]
            assert tuple(got.shape) == tuple(wanted.shape) and got.tolist() == wanted.tolist(), key
        for key in (5, -6, (0, 3), (0, 0, 0, 0), (slice(None), slice(None), 4)):
            with pytest.raises(IndexError):
                part[key]
        with pytest.raises((TypeError, IndexError)):
            part["a"]


def test_a_slice_reads_only_its_rows(path, reads):
    rows, length = 64, 8192
    data = os.urandom(rows * length)
    make_file(path, safetensors_file([("a", "U8", [rows, length], data)]))
    with safe_open(path, "np") as file:
        part = file.get_slice("a")
        for key, n in ((3, 1), (slice(10, 20), 10), ((-1, slice(0, 5)), 1), (slice(5, 5), 0), (slice(0, 64, 7), 64)):
            del reads[:]
            got = part[key]
            assert n * length <= sum(reads) <= n * length + (8192 if n else 0)
            first = key[0] if isinstance(key, tuple) else key
            lines = [data[i * length : (i + 1) * length] for i in range(rows)][first]
            if key == (-1, slice(0, 5)):
                lines = lines[:5]
            assert got.tobytes() == (lines if isinstance(lines, bytes) else b"".join(lines))


def test_arguments(path, example):
    torch = pytest.importorskip("torch")
    for name in ("pt", "torch", "pytorch"):
        assert isinstance(load_file(path, framework=name)["t0"], torch.Tensor)
    for device in ("cpu", None, torch.device("cpu")):
        assert load_file(path, device)["t0"].device.type == "cpu"
    assert load_file(path, "meta")["t0"].device.type == "meta"
    numpy = pytest.importorskip("numpy")
    for name in ("np", "numpy"):
        assert isinstance(load_file(path, framework=name)["t0"], numpy.ndarray)
    with pytest.raises(ValueError, match="framework 'tf'.* without dsaio.safetensors.install"):
        safe_open(path, "tf")
    with pytest.raises(TypeError, match="framework None"):
        safe_open(path, None)
    with pytest.raises(ValueError, match="device 'cuda'"):
        load_file(path, "cuda", framework="np")
    with pytest.raises(ValueError, match="device 'xx'"):
        load_file(path, "xx")
    for wrong in (3, None, b"a\0b"):
        for call in (load_file, lambda p: load_into(p, {}), lambda p: save_file({}, p)):
            with pytest.raises((TypeError, ValueError), match="file 3|file None|null byte"):
                call(wrong)
    import pathlib

    for other in (os.fsencode(path), pathlib.Path(path)):
        assert set(load_file(other)) == set(example)
        save_file(load_file(other), other)
    for wrong in ([1], 3, None):
        with pytest.raises(TypeError, match="tensors"):
            load_into(path, wrong)
        with pytest.raises(TypeError, match="tensors"):
            save_file(wrong, path)


def test_a_device_that_is_missing_is_an_error_before_anything_is_read(path, example, reads):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((RuntimeError, AssertionError), match="(?i)cuda|nvidia"):
        load_file(path, "cuda")
    assert reads == []


def test_what_is_no_file(folder):
    os.mkfifo(folder + "/fifo")
    os.mkdir(folder + "/folder")
    for path, code in (
        (folder + "/none", errno.ENOENT),
        (folder + "/folder", errno.EISDIR),
        (folder + "/fifo", errno.EINVAL),
        ("/dev/null", errno.EINVAL),
    ):
        for call in (lambda: load_file(path, framework="np"), lambda: load_into(path, {})):
            with pytest.raises(OSError) as e:
                call()
            assert e.value.errno == code and e.value.filename == path


def test_a_file_larger_than_all_memory_is_an_error_that_names_it(path):
    n = 1 << 43
    make_file(path, one(dtype="U8", shape=f"[{n}]", offsets=f"[0,{n}]", data=b""))
    try:
        os.truncate(path, os.path.getsize(path) + n)
    except OSError:
        pytest.skip("the file system has no files of 8 TB")
    with safe_open(path, "np") as file:
        assert file.get_slice("a")[n - 3 :].tobytes() == bytes(3)
        with pytest.raises(OSError, match=f"{n} bytes of tensors are more than this host's memory") as e:
            file.get_tensor("a")
    assert e.value.errno == errno.ENOMEM and e.value.filename == path


def test_an_index_that_is_text_is_refused_before_anything_is_read(kind, path, reads):
    make_file(path, one())
    with safe_open(path, framework(kind)) as file:
        for key in ("x", b"x", (0, "x")):
            with pytest.raises(TypeError, match="^dsaio: tensor 'a': index b?'x': must be"):
                file.get_slice("a")[key]
    assert reads == []


def test_a_row_that_is_not_there_is_named(path):
    make_file(path, one(dtype="U8", shape="[2]", offsets="[0,2]", data=b"ab"))
    part = safe_open(path, "np").get_slice("a")
    for row in (2, -3):
        with pytest.raises(IndexError, match=rf"tensor 'a' with shape \[2\] has no row {row}"):
            part[row]


def test_a_read_that_fails_is_reported_when_all_others_have_ended(path, example, monkeypatch):
    real = dsaio.Handle.submit_reads
    monkeypatch.setattr(safetensors, "_PIECE", 8192)
    for where in ("start", "end"):
        ops = []

        def submit_reads(self, requests):
            requests = list(requests)
            if len(ops) == 2 and where == "start":
                failure = OSError(errno.EIO, "as if the device had failed")
                failure.ops = real(self, requests)
                ops.extend(failure.ops)
                raise failure
            if len(ops) == 2:
                requests = [(buffer, file, 1 << 40) for buffer, file, _ in requests]
            started = real(self, requests)
            ops.extend(started)
            return started

        monkeypatch.setattr(dsaio.Handle, "submit_reads", submit_reads)
        with safe_open(path, "np") as file:
            with pytest.raises(OSError) as e:
                file.get_tensors()
            assert e.value.errno == (errno.EIO if where == "start" else errno.ENODATA) and e.value.filename == path
            assert len(ops) >= 3 and all(op._result is not None for op in ops)
            monkeypatch.setattr(dsaio.Handle, "submit_reads", real)
            assert {name: array.tobytes() for name, array in file.get_tensors().items()} == example


# ---- files that change ----


def test_a_file_that_is_cut_after_it_was_opened(kind, path, example):
    size = os.path.getsize(path)
    with safe_open(path, framework(kind)) as file:
        os.truncate(path, size - 3 * 4096)
        for call in (file.get_tensors, lambda: file.get_tensor("t19")):
            with pytest.raises(SafetensorError, match=f"^{path}: was changed after it was opened"):
                call()
        with pytest.raises(SafetensorError, match="was changed after it was opened"):
            file.get_tensor("t0")
    with pytest.raises(SafetensorError, match="it is truncated"):
        load(kind, path)


def test_a_file_that_is_changed_where_it_lies(path, example):
    with safe_open(path, "np") as file:
        file.get_tensor("t0")
        make_file(path, file_bytes(path))
        os.utime(path, ns=(0, 0))  # the clock of file systems may not have gone on since
        with pytest.raises(SafetensorError, match="was changed after it was opened: open it again"):
            file.get_tensor("t0")


def test_a_file_that_another_one_has_replaced_is_still_read(kind, path, example):
    with safe_open(path, framework(kind)) as file:
        make_file(path + "new", one())
        os.rename(path + "new", path)
        assert bytes_of(kind, file.get_tensors()) == example
    assert list(load(kind, path)) == ["a"]


# ---- load_into ----


def test_tensors_of_load_file_are_read_into_by_one_read(kind, path, example, reads):
    tensors = load(kind, path)
    for tensor in tensors.values():
        tensor[:] = 0
    addresses = {name: kind.address(tensor) for name, tensor in tensors.items()}
    del reads[:]
    load_into(path, tensors)
    assert bytes_of(kind, tensors) == example
    assert {name: kind.address(tensor) for name, tensor in tensors.items()} == addresses
    assert reads == [sum(map(len, example.values()))]


def test_one_read_is_for_neighbours_in_one_allocation():
    one, other = dsaio._memory.Allocation(4096), dsaio._memory.Allocation(4096)

    def runs(*places):
        infos = [header.Info(str(start), "U8", (8,), start, start + 8) for start, _, _ in places]
        found = safetensors._runs((info, (address, 8, keep, None)) for info, (_, address, keep) in zip(infos, places))
        return [(ctypes.addressof(buffer), ctypes.sizeof(buffer), offset) for buffer, offset in found]

    assert runs((8, 4096, one), (16, 4104, one), (24, 4112, one)) == [(4096, 24, 8)]
    assert runs((16, 4104, one), (8, 4096, one)) == [(4096, 16, 8)]
    for second in ((16, 4104, other), (24, 4104, one), (16, 4112, one), (16, 4088, one)):
        assert runs((8, 4096, one), second) == [(4096, 8, 8), (second[1], 8, second[0])]
    ordinary = bytearray(16)
    assert runs((8, 4096, ordinary), (16, 4104, ordinary)) == [(4096, 8, 8), (4104, 8, 16)]


def test_a_read_into_ordinary_memory_keeps_it_until_it_has_ended(kind, path):
    make_file(path, bytes(64))
    tensor = kind.of(bytes(64))
    info = header.Info("a", "U8", (64,), 0, 64)
    with dsaio.Handle() as handle:
        runs = safetensors._runs([(info, dsaio._buffer.locate(tensor, True))])
        (op,) = handle.submit_reads((buffer, path, offset) for buffer, offset in runs)
        del runs
        alive = weakref.ref(tensor)
        del tensor
        gc.collect()
        assert alive() is not None
        op.wait()
        gc.collect()
        assert alive() is None


def test_other_tensors_are_read_into_where_they_are(kind, path, example):
    some = list(example)[::2]
    wide = {name: kind.of(bytes(2 * len(example[name])), "int16") for name in some}
    for target in (
        {name: kind.of(bytes(len(example[name])), "int16") for name in some},
        {name: kind.narrow(tensor, 1, len(example[name]) // 2) for name, tensor in wide.items()},
        {name: tensor[::2] for name, tensor in wide.items()},
        {name: dsaio.pin_handle().new_cpu_locked_tensor(len(example[name]) // 2, kind.empty("int16")) for name in some},
    ):
        load_into(path, target)
        assert bytes_of(kind, target) == {name: example[name] for name in some}


def test_tensors_with_gaps_take_little_pinned_memory_at_once(kind, path, monkeypatch):
    monkeypatch.setattr(safetensors, "_PIECE", 4096)
    tensors = {str(i): kind.of(bytes([i] * 2000)) for i in range(12)}
    tensors["large"] = kind.of(b"L" * 5000)
    save_file(tensors, path)
    targets = {name: kind.of(bytes(2 * len(kind.bytes(tensor))))[::2] for name, tensor in tensors.items()}
    targets["3"] = kind.of(bytes(2000))  # needs no copy
    taken = []
    real = dsaio._memory.Allocation.__init__

    def init(self, *arguments):
        real(self, *arguments)
        taken.append(self.nbytes)
        alive.add(self)
        most.append(sum(allocation.nbytes for allocation in alive))

    alive, most = weakref.WeakSet(), []
    gc.collect()
    monkeypatch.setattr(dsaio._memory.Allocation, "__init__", init)
    load_into(path, targets)
    assert bytes_of(kind, targets) == bytes_of(kind, tensors)
    assert sum(taken) == 11 * 2000 + 5000 and max(most) == 5000


def test_parameters_are_read_into(path):
    torch = pytest.importorskip("torch")
    make_file(path, one(data=struct.pack("<2f", 3, 4)))
    parameter = torch.nn.Parameter(torch.zeros(2))
    load_into(path, {"a": parameter})
    assert parameter.tolist() == [3, 4] and parameter.requires_grad


def test_tensors_that_do_not_fit_are_refused_before_anything_is_read(kind, path):
    make_file(path, two(tensor(), tensor(offsets="[8,16]"), b"\1" * 16))
    good = kind.of(bytes(8), "float32")
    for wrong, error, message in (
        ({"c": good}, SafetensorError, "has no tensor 'c'"),
        ({"a": kind.of(bytes(8), "int32")}, SafetensorError, r"'a' is F32 with shape \[2\]: .* into I32"),
        ({"a": kind.of(bytes(12), "float32")}, SafetensorError, r"into F32 with shape \[3\]"),
        ({"a": good.reshape(2, 1)}, SafetensorError, r"into F32 with shape \[2, 1\]"),
        ({"a": kind.of(bytes(32), "complex128")}, TypeError, "no .*complex128"),
        ({"a": [1.0, 2.0]}, TypeError, r"tensor 'a' \[1.0, 2.0\]: must be"),
    ):
        with pytest.raises(error, match=message):
            load_into(path, {"b": good, **wrong})
        assert kind.bytes(good) == bytes(8)
    numpy = pytest.importorskip("numpy")
    with pytest.raises(ValueError, match="read-only"):
        load_into(path, {"b": good, "a": numpy.frombuffer(bytes(8), "float32")})
    with pytest.raises(ValueError, match="read-only"):
        load_into(path, {"b": good, "a": numpy.frombuffer(bytes(16), "float32")[::2]})
    assert kind.bytes(good) == bytes(8)


# ---- saving ----


def test_the_bytes_of_a_file(path):
    """As safetensors 0.8.0 wrote them: sorted by dtype and name, padded with spaces to 8."""
    numpy = pytest.importorskip("numpy")
    tensors = {
        "b": numpy.array([1, 2, 3], "uint8"),
        'é"\\\n\x01\x7f': numpy.array(1, "float32"),
        "a": numpy.array([[5], [6]], "float32"),
        "z": numpy.zeros((2, 0), "float64"),
    }
    save_file(tensors, path, {"k": "v"})
    assert file_bytes(path) == (
        b'\x08\x01\0\0\0\0\0\0{"__metadata__":{"k":"v"},"z":{"dtype":"F64","shape":[2,0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"\xc3\xa9\\"\\\\\\n\\u0001\x7f":{"dtype":"F32",'
        b'"shape":[],"data_offsets":[8,12]},"b":{"dtype":"U8","shape":[3],"data_offsets":[12,15]}}       '
        b"\0\0\xa0@\0\0\xc0@\0\0\x80?\1\2\3"
    )


def test_files_are_those_of_the_reference(path, same_reference):
    torch = pytest.importorskip("torch")
    import numpy
    import safetensors.numpy
    import safetensors.torch

    rng = random.Random(5)
    for round_ in range(60):
        tensors, arrays = {}, {}
        for _ in range(rng.randrange(12)):
            name = "".join(rng.choice('ab0._/é"\\\n\0😀') for _ in range(rng.randrange(6)))
            dtype = rng.choice([dtype for dtype in header.CODES if hasattr(torch, dtype)])
            shape = [rng.randrange(4) for _ in range(rng.randrange(dtype.startswith("float4"), 4))]
            itemsize = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
            n = numpy.prod(shape, dtype=int)
            data = torch.randint(0, 2, (n * itemsize,), dtype=torch.uint8)
            tensors[name] = data.view(getattr(torch, dtype)).reshape(shape)
            if dtype in numpy.sctypeDict:
                array = numpy.frombuffer(data.numpy().tobytes(), dtype).reshape(shape)
                arrays[name] = array.astype(array.dtype.newbyteorder(rng.choice("<>")))
        names = rng.choice((None, {"format": "pt"}, {"": "ü\t"}))
        for kind, some in ((safetensors.torch, tensors), (safetensors.numpy, arrays)):
            kind.save_file(some, path + "theirs", names)
            save_file(some, path, names)
            assert file_bytes(path) == file_bytes(path + "theirs"), (round_, some)


def test_files_are_read_in_each_other_s_package(kind, path, example, reference):
    package = pytest.importorskip("safetensors.torch" if framework(kind) == "pt" else "safetensors.numpy")
    assert bytes_of(kind, package.load_file(path)) == example
    save_file(load(kind, path), path, {"a": "b"})
    assert bytes_of(kind, package.load_file(path)) == example
    package.save_file(load(kind, path), path + "2")
    assert bytes_of(kind, load(kind, path + "2")) == example


@pytest.mark.parametrize("size", [1, 4000, 4096, 3 * 8192 - 1, 3 * 8192, 3 * 8192 + 1, 200_000])
def test_a_file_is_written_in_parts(kind, folder, path, size, monkeypatch):
    monkeypatch.setattr(_stream, "PIECE", 8192)
    data = os.urandom(size)
    for cuts in ([], [size // 3, size // 2], range(0, size, 8192)):
        parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, size])]
        tensors = {f"{i:04}": kind.of(part) if part else kind.empty() for i, part in enumerate(parts)}
        save_file(tensors, path)
        assert file_bytes(path).endswith(data) and os.listdir(folder) == [os.path.basename(path)]
        assert bytes_of(kind, load(kind, path)) == {f"{i:04}": part for i, part in enumerate(parts)}


def test_the_blocks_of_a_file_are_reserved_before_it_is_written(kind, path, monkeypatch):
    steps = []
    real_reserve, real_write = dsaio._replace.NewFile.reserve, dsaio.Handle.submit_write
    monkeypatch.setattr(_stream, "PIECE", 8192)
    monkeypatch.setattr(
        dsaio._replace.NewFile, "reserve", lambda self, n: (steps.append(n), real_reserve(self, n))[1]
    )
    monkeypatch.setattr(
        dsaio.Handle, "submit_write", lambda self, *arguments: (steps.append("write"), real_write(self, *arguments))[1]
    )
    save_file({"a": kind.of(bytes(20_000))}, path)
    assert steps == [os.path.getsize(path), "write", "write", "write"]


def test_metadata_is_written_in_its_order(path):
    pairs = {c: c + "ü" for c in "zyxabc"}
    save_file({}, path, pairs)
    with safe_open(path, "np") as file:
        assert list(file.metadata().items()) == list(pairs.items())
    save_file({}, path, {})
    with safe_open(path, "np") as file:
        assert file.metadata() == {}


def test_bytes_of_other_orders_are_written_right(path):
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    c = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    save_file({"big": numpy.array([1, 256], ">i4"), "conj": c.conj(), "neg": c.conj().imag.contiguous()}, path)
    tensors = load_file(path)
    assert tensors["big"].tolist() == [1, 256] and tensors["conj"].tolist() == [1 - 2j, 3 + 4j]
    assert tensors["neg"].tolist() == [-2, 4]


def refused_tensors():
    """What cannot be saved: tensors, metadata, an exception and a part of its message."""
    torch = pytest.importorskip("torch")
    import numpy

    x = torch.zeros(4)
    array = numpy.zeros((2, 3))
    half = getattr(torch, "float4_e2m1fn_x2", None)
    no_scalars = [({"a": x[:1].view(torch.uint8)[0].view(half)}, None, TypeError, "no scalar of")] if half else []
    return no_scalars + [
        ({1: x}, None, TypeError, "the name of a tensor 1"),
        ({"\ud800": x}, None, ValueError, "half of a surrogate pair"),
        ({"__metadata__": x}, None, ValueError, "cannot have the name __metadata__"),
        ({"a": [1.0]}, None, TypeError, "tensor 'a' .*must be a torch tensor or a numpy array"),
        ({"a": numpy.float32(3)}, None, TypeError, "tensor 'a'"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, None, TypeError, "files have no torch.complex128"),
        ({"a": numpy.zeros(2, "O")}, None, TypeError, "files have no object"),
        ({"a": numpy.zeros(2, "M8[s]")}, None, TypeError, "files have no datetime64"),
        ({"a": numpy.zeros(2, "i4,i4")}, None, TypeError, "files have no"),
        ({"a": torch.zeros(2, 3).t()}, None, ValueError, "'a' is not contiguous: pass a contiguous copy"),
        ({"a": x[:1].expand(3)}, None, ValueError, "'a' is not contiguous"),
        ({"a": array.T}, None, ValueError, "'a' is not contiguous"),
        ({"a": array[:, ::2]}, None, ValueError, "'a' is not contiguous"),
        ({"a": torch.eye(3).to_sparse()}, None, ValueError, "'a' is sparse: pass its to_dense"),
        ({"a": torch.zeros(3, device="meta")}, None, ValueError, "'a' is on the device meta"),
        ({"a": x, "b": x}, None, RuntimeError, "'a' and 'b' share memory"),
        ({"a": x, "b": x.view(2, 2)}, None, RuntimeError, "'a' and 'b' share memory"),
        ({"c": x[3:], "b": x[2:], "a": x[:2]}, None, RuntimeError, "'b' and 'c' share memory"),
        ({"a": x}, {"a": 1}, TypeError, "metadata {'a': 1}: must be text by name"),
        ({"a": x}, {1: "a"}, TypeError, "metadata {1: 'a'}"),
        ({"a": x}, ["a"], TypeError, r"metadata \['a'\]"),
        ({"a": x}, {"a": "\udc00"}, ValueError, "half of a surrogate pair"),
    ]


def test_what_cannot_be_saved_leaves_the_old_file(folder, path):
    make_file(path, b"old")
    for tensors, names, error, message in refused_tensors():
        with pytest.raises(error, match=message):
            save_file(tensors, path, names)
    assert os.listdir(folder) == [os.path.basename(path)] and file_bytes(path) == b"old"


def test_memory_that_tensors_may_share(path):
    torch = pytest.importorskip("torch")
    import numpy

    x = torch.arange(4.0)
    array = numpy.zeros(2)
    save_file({"a": x[:2], "b": x[2:], "c": x[1:1], "d": x[1:1]}, path)  # parts without a common byte
    assert load_file(path)["b"].tolist() == [2, 3]
    save_file({"a": array, "b": array}, path)  # as safetensors.numpy
    assert list(load_file(path)) == ["a", "b"]
    loaded = load_file(path)
    save_file(loaded, path)  # views of one memory
    load_into(path, loaded)


def test_what_cannot_be_written(folder, path):
    numpy = pytest.importorskip("numpy")
    for wrong, code in ((folder, errno.EISDIR), (folder + "/none/f", errno.ENOENT), ("/dev/null", errno.EINVAL)):
        with pytest.raises(OSError) as e:
            save_file({"a": numpy.zeros(3)}, wrong)
        assert e.value.errno == code and e.value.filename == wrong


def test_a_failure_while_it_is_written_leaves_the_old_file(folder, path, monkeypatch):
    numpy = pytest.importorskip("numpy")
    monkeypatch.setattr(_stream, "PIECE", 8192)
    make_file(path, b"old")
    real = dsaio.Handle.submit_write
    for fatal in range(1, 6):
        n = [0]

        def submit_write(self, buffer, file, offset=0):
            n[0] += 1
            if n[0] == fatal:
                raise OSError(errno.EIO, "as if the device had failed")
            return real(self, buffer, file, offset)

        monkeypatch.setattr(dsaio.Handle, "submit_write", submit_write)
        with pytest.raises(OSError) as e:
            save_file({"a": numpy.zeros(5000)}, path)
        assert e.value.errno == errno.EIO and e.value.filename == path
        assert os.listdir(folder) == [os.path.basename(path)] and file_bytes(path) == b"old"


def test_no_room_leaves_the_old_file(python, folder):
    python(
        """
        import numpy, resource
        from dsaio.safetensors import save_file
        path = folder + "/f"
        open(path, "w").write("old")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            save_file({"a": numpy.zeros(100_000)}, path)
        except OSError as e:
            assert e.filename == path, e
        else:
            assert False
        assert os.listdir(folder) == ["f"] and open(path).read() == "old"
        """
    )


def test_a_process_that_is_killed_leaves_the_old_file_and_the_next_save_its_space(python, folder):
    python(
        """
        import numpy
        from dsaio import safetensors
        from dsaio import _stream
        path = folder + "/f"
        _stream.PIECE = 8192
        safetensors.save_file({"a": numpy.zeros(1000)}, path)
        real = _stream.Writer._submit
        def submit(self):
            real(self)
            if self.tell() > 30000:
                os.kill(os.getpid(), signal.SIGKILL)
        _stream.Writer._submit = submit
        safetensors.save_file({"a": numpy.ones(100_000)}, path)
        """,
        status=-9,
    )
    assert len(os.listdir(folder)) == 2
    tensors = load_file(folder + "/f", framework="np")
    assert tensors["a"].tolist() == [0] * 1000
    save_file(tensors, folder + "/f")
    assert os.listdir(folder) == ["f"]


# ---- threads, processes, the daemon ----


def test_threads_share_an_open_file(kind, path, example):
    failures = []
    with safe_open(path, framework(kind)) as file:

        def run(seed):
            rng = random.Random(seed)
            try:
                for _ in range(30):
                    name = rng.choice(list(example))
                    assert kind.bytes(file.get_tensor(name)) == example[name]
                    assert kind.bytes(file.get_slice(name)[1:]) == example[name][2:]
                assert bytes_of(kind, load(kind, path)) == example
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_many_open_files(folder):
    paths = []
    for i in range(300):
        paths.append(f"{folder}/{i}")
        make_file(paths[-1], one(data=struct.pack("<2f", i, 1)))
    files = [safe_open(path, "np") for path in paths]
    for order in (1, -1):
        for i, file in list(enumerate(files))[::order]:
            assert file.get_tensor("a").tolist() == [i, 1]


def test_a_child_goes_on_with_open_files_and_tensors(python, path, example):
    python(
        f"""
        import numpy
        from dsaio.safetensors import load_file, load_into, safe_open, save_file
        path = {path!r}
        file = safe_open(path, "np")
        tensors = file.get_tensors()
        pid = os.fork()
        if pid == 0:
            try:
                assert all((file.get_tensor(name) == tensors[name]).all() for name in tensors)
                assert file.get_slice("t1")[:3].tolist() == tensors["t1"][:3].tolist()
                load_into(path, tensors)  # the parent's memory
                assert all((load_file(path, framework="np")[name] == tensors[name]).all() for name in tensors)
                save_file(tensors, path + "child")
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        of_child = load_file(path + "child", framework="np")
        assert all((of_child[name] == tensors[name]).all() for name in tensors)
        assert all((file.get_tensor(name) == tensors[name]).all() for name in tensors)
        """
    )


def test_a_child_of_a_thread_s_process_does_not_wait_for_that_thread(python, path, example):
    python(
        f"""
        from dsaio import safetensors
        with safetensors._lock:  # as if another thread were in it
            pid = os.fork()
            if pid == 0:
                safetensors.load_file({path!r}, framework="np")
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_a_daemon_that_dies_and_the_next_one(python, own_daemon):
    python(
        f"""
        import subprocess, numpy
        from dsaio.safetensors import load_file, load_into, safe_open, save_file
        path = folder + "/f"
        wanted = numpy.arange(100_000)
        save_file({{"a": wanted}}, path)
        file = safe_open(path, "np")
        tensors = file.get_tensors()
        real = dsaio.Handle.submit_reads
        def submit_reads(self, requests):
            freeze()
            ops = real(self, requests)
            os.kill(daemon, signal.SIGKILL)
            return ops
        dsaio.Handle.submit_reads = submit_reads
        try:
            file.get_tensors()
            raise AssertionError("it has not failed")
        except ConnectionResetError as e:
            assert e.filename == path, e
        dsaio.Handle.submit_reads = real
        for call in (lambda: file.get_tensor("a"), lambda: save_file(tensors, path)):
            try:
                call()
                raise AssertionError("it has not failed")
            except ConnectionRefusedError as e:
                assert e.filename in (path, None), e
        assert os.listdir(folder) == ["f"]
        command = [{BUILD + "/dsaiod"!r}, "--config", "/dev/null", "--socket", os.environ["DSAIO_SOCKET"]]
        new_daemon = subprocess.Popen(command + ["--store", "t=" + folder], stderr=subprocess.PIPE)
        for line in new_daemon.stderr:
            if b" ready: " in line:
                break
        assert (file.get_tensor("a") == wanted).all()
        load_into(path, tensors)  # memory of the daemon that has gone
        assert (tensors["a"] == wanted).all()
        save_file(tensors, path)
        assert (load_file(path, framework="np")["a"] == wanted).all()
        new_daemon.terminate()
        new_daemon.wait()
        """,
        daemon=own_daemon,
    )


def test_where_there_is_no_daemon_the_file_is_not_said_to_be_missing(python, folder):
    output = python(
        """
        import errno, numpy
        from dsaio.safetensors import load_file, save_file
        path = folder + "/f"
        calls = {
            "load": lambda: load_file(open_file(), framework="np"),
            "save": lambda: save_file({"a": numpy.zeros(3)}, path),
            "handle": dsaio.Handle,
            "alloc": lambda: dsaio.alloc(4096),
            "File": lambda: dsaio.File(path),
        }
        def open_file():
            header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
            open(path, "wb").write(len(header).to_bytes(8, "little") + header + b"x")
            return path
        for name, call in calls.items():
            try:
                call()
                raise AssertionError("it has not failed")
            except ConnectionRefusedError as e:
                assert e.filename is None and e.errno == errno.ENOENT and "none.sock" in e.strerror, (name, e)
        """,
        DSAIO_SOCKET=folder + "/none.sock",
    )
    assert output == ""


def test_a_daemon_that_dies_while_a_file_is_written_leaves_the_old_one(python, own_daemon):
    python(
        """
        import numpy
        from dsaio import safetensors
        path = folder + "/f"
        open(path, "w").write("old")
        real = safetensors.Writer.write
        def write(self, data):
            freeze()
            os.kill(daemon, signal.SIGKILL)
            return real(self, data)
        safetensors.Writer.write = write
        try:
            safetensors.save_file({}, path)
            raise AssertionError("it has not failed")
        except OSError as e:
            assert e.filename == path, e
        assert os.listdir(folder) == ["f"] and open(path).read() == "old"
        """,
        daemon=own_daemon,
    )


def test_ctrl_c_ends_a_load(python, own_daemon):
    python(
        """
        import numpy
        from dsaio.safetensors import safe_open, save_file
        path = folder + "/f"
        save_file({"a": numpy.arange(100_000)}, path)
        file = safe_open(path, "np")
        file.get_tensors()
        real = dsaio.Handle.submit_reads
        def submit_reads(self, requests):
            requests = list(requests)
            freeze()
            ops = real(self, requests)
            os.kill(os.getpid(), signal.SIGINT)
            return ops
        dsaio.Handle.submit_reads = submit_reads
        try:
            file.get_tensors()
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:
            pass
        dsaio.Handle.submit_reads = real
        os.kill(daemon, signal.SIGCONT)
        assert file.get_tensors()["a"][-1] == 99_999
        """,
        daemon=own_daemon,
    )


def test_tensors_at_the_end_of_the_interpreter(python, path, example):
    python(
        f"""
        from dsaio.safetensors import load_file, safe_open
        tensors = load_file({path!r}, framework="np")
        file = safe_open({path!r}, "np")
        part = file.get_slice("t1")
        cycle = [tensors, file]
        cycle.append(cycle)
        """
    )


def test_the_module_loads_no_framework(python):
    python("import dsaio.safetensors; assert 'torch' not in sys.modules and 'numpy' not in sys.modules")


def test_a_framework_that_is_missing_is_named(python, path, example):
    python(
        f"""
        from dsaio.safetensors import load_file
        sys.modules["torch"] = None
        try:
            load_file({path!r})
            raise AssertionError("it has not failed")
        except ImportError as e:
            assert e.name == "torch" and "framework 'pt'" in str(e) and 'and "np" arrays' in str(e), e
        assert load_file({path!r}, framework="np")
        """
    )
