"""The sides of the benches of the Python package, which take turns, and the rows of their table."""

import ctypes
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
from conftest import BUILD, PACKAGE, Daemon  # noqa: E402, F401

PAGE = 4096
HANDLE = (1 << 20, 128, False, True, 1)  # as aio_handle() makes it, with overlap_events, on both sides

HEADER = "{:<52} {:<5} {:>10} {:>10} {:>7} {:>15} {:>8} {:>6} {:>5}".format(
    "measure", "unit", "ours", "reference", "ratio", "quartiles", "bar", "rounds", "holds"
)


class Row:
    """A line of the table.  Without a reference, its bar is for the value itself."""

    def __init__(self, name, unit, bar=None, is_higher_better=False, decimals=1):
        self.name, self.unit, self.bar = name, unit, bar
        self.is_higher_better, self.decimals = is_higher_better, decimals
        self.rounds = []  # (ours, reference or None)
        self.missing = ""

    def add(self, ours, reference=None):
        self.rounds.append((ours, reference))

    def ratios(self):
        return [ours if reference is None else ours / reference for ours, reference in self.rounds]

    def holds(self):
        middle = statistics.median(self.ratios())
        return middle >= self.bar if self.is_higher_better else middle <= self.bar

    def line(self):
        if self.missing:
            return f"{self.name:<52} {self.unit:<5} not measured: {self.missing}"
        ours = statistics.median(ours for ours, _ in self.rounds)
        low, middle, high = statistics.quantiles(self.ratios(), n=4, method="inclusive")
        is_absolute = self.rounds[0][1] is None
        digits = self.decimals if is_absolute else 3
        reference = ratio = bar = holds = "-"
        if not is_absolute:
            reference = f"{statistics.median(reference for _, reference in self.rounds):.{self.decimals}f}"
            ratio = f"{middle:.3f}"
        if self.bar is not None:
            bar = f"{'>=' if self.is_higher_better else '<='} {self.bar:.2f}"
            holds = "yes" if self.holds() else "NO"
        return (
            f"{self.name:<52} {self.unit:<5} {ours:>10.{self.decimals}f} {reference:>10} {ratio:>7} "
            f"{f'{low:.{digits}f}-{high:.{digits}f}':>15} {bar:>8} {len(self.rounds):>6} {holds:>5}"
        )

    def json(self):
        found = {"name": self.name, "unit": self.unit, "better": "higher" if self.is_higher_better else "lower"}
        if self.missing:
            return dict(found, missing=self.missing)
        low, middle, high = statistics.quantiles(self.ratios(), n=4, method="inclusive")
        found.update(rounds=self.rounds, ratio=middle, quartiles=[low, high])
        if self.bar is not None:
            found.update(bar=self.bar, holds=self.holds())
        return found


class Bench:
    def __init__(self, options):
        import dsaio
        import torch

        self.options = options
        self.rows = []
        self.daemon = Daemon()
        os.environ.update(DSAIO_SOCKET=self.daemon.socket, DSAIO_AUTOSTART="0")
        self.example = torch.empty(0, dtype=torch.uint8)
        self.modules = {"ours": dsaio}  # and "genuine"
        self.missing, op = genuine_op()
        if op is not None:
            self.modules["genuine"] = op

    def row(self, *arguments, **named):
        row = Row(*arguments, **named)
        self.rows.append(row)
        return row

    def print(self, first):
        """The rows from that one on."""
        for row in self.rows[first:]:
            if not row.rounds:
                row.missing = row.missing or self.missing
            print(row.line(), flush=True)

    def turns(self, sides):
        """Calls each function of `sides` once a round.  Yields their results: a dict, with the same keys."""
        names = list(sides)
        for i in range(self.options.rounds + 1):
            results = {name: sides[name]() for name in (names if i % 2 else reversed(names))}
            if i > 0:
                yield results

    def files(self, name, n, nbytes):
        """Paths of n files of that size, which are on the device and in no cache of this machine."""
        block = os.urandom(min(nbytes, 1 << 20))
        paths = [os.path.join(self.daemon.store, f"{name}.{i}") for i in range(n)]
        for path in paths:
            with open(path, "wb") as file:
                for at in range(0, nbytes, len(block)):
                    file.write(block[: nbytes - at])
        os.sync()
        for path in paths:
            forget(path)
        return paths


def forget(path):
    """Its bytes are on the device, and in no cache of this machine."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(path):
    """So that the page cache has it."""
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


def genuine_op():
    """Why there is none, or the module async_io of DeepSpeed."""
    venv = venv_of_deepspeed()
    if venv is None:
        return f"no DeepSpeed in DEEPSPEED_VENV or {BUILD}/deepspeed", None
    os.environ["PATH"] = os.path.join(venv, "bin") + os.pathsep + os.environ["PATH"]  # ninja
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(venv, "ops"))
    try:
        from deepspeed.ops.op_builder import AsyncIOBuilder

        return "", AsyncIOBuilder().load(verbose=False)
    except Exception as e:  # whatever a compiler or an import raises
        return f"the op of {venv} cannot be loaded: {str(e).splitlines()[0]}", None


def venv_of_deepspeed():
    for venv in (os.environ.get("DEEPSPEED_VENV"), os.path.join(BUILD, "deepspeed")):
        if venv and os.access(os.path.join(venv, "bin", "python"), os.X_OK):
            return os.path.abspath(venv)
    return None


def ratio_of(row, results, side="ours", reference="genuine"):
    if reference in results:
        row.add(results[side], results[reference])


def size_text(nbytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} bytes"


class Library:
    """The functions of dsaio.h that large ops need, on a handle of the package's connection.

    is_tuned: with the store's own profile, in place of HANDLE.
    """

    def __init__(self, path, is_tuned=False):
        from dsaio import _connection, _library

        library = _library.blocking
        self.start = {"sync_pread": library.dsaio_pread_async, "sync_pwrite": library.dsaio_pwrite_async}
        for function in self.start.values():
            function.argtypes = (*[ctypes.c_void_p] * 3, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p)
        self.wait, self.free = _library.op_wait, _library.op_free
        self.op = ctypes.c_void_p()
        self.handle, self.file = ctypes.c_void_p(), ctypes.c_void_p()
        connection = _connection.connection()
        profile = _library.Profile(
            block_size=HANDLE[0],
            queue_depth=HANDLE[1],
            single_submit=_library.YES if HANDLE[2] else _library.NO,
            overlap_events=_library.YES if HANDLE[3] else _library.NO,
            intra_op_parallelism=HANDLE[4],
        )
        options = _library.HandleOptions(profile=ctypes.pointer(profile))
        chosen = None if is_tuned else ctypes.byref(options)
        _library.check(_library.handle_open(connection.pointer, chosen, ctypes.byref(self.handle)))
        name = os.fsencode(path)
        _library.check(_library.file_open(connection.pointer, name, os.O_RDWR, None, ctypes.byref(self.file)))

    def run(self, method, tensor):
        result = ctypes.c_int64()
        started = self.start[method](
            self.handle, self.file, tensor.data_ptr(), tensor.numel(), 0, ctypes.byref(self.op)
        )
        if started < 0 or self.wait(self.op, -1, ctypes.byref(result)) < 0 or result.value != tensor.numel():
            raise RuntimeError(f"the library's {method} has failed: {started}, {result.value}")
        self.free(self.op)

    def read(self, ranges):
        """Starts a read for each (address, bytes, offset), and waits for all."""
        ops = []
        for address, nbytes, offset in ranges:
            if self.start["sync_pread"](self.handle, self.file, address, nbytes, offset, ctypes.byref(self.op)) < 0:
                raise RuntimeError("the library's read has not started")
            ops.append((self.op.value, nbytes))
        result = ctypes.c_int64()
        for op, nbytes in ops:
            if self.wait(op, -1, ctypes.byref(result)) < 0 or result.value != nbytes:
                raise RuntimeError(f"the library's read has failed: {result.value}")
            self.free(op)
