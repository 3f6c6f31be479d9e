#!/usr/bin/python3
"""What the Python package costs, beside the genuine DeepNVMe op, the C library and bare system calls.

The sides of a comparison take turns in each round, in an order that changes with each, on the same files:
these were written and synced just before, so every side overwrites blocks that exist.  The first round is
thrown away.  The ratio of a row is the median of its rounds' ratios, with quartiles.  CPU time is that of the
calling thread, with the kernel's part.

"The op" is the genuine one.  It needs a virtual environment with torch, DeepSpeed and pytest: DEEPSPEED_VENV,
or deepspeed below BUILD, whose Python then runs everything.  DeepSpeed compiles the op at its first use, to
TORCH_EXTENSIONS_DIR.  Without it, its rows say why they are missing.  So do those beside the package
safetensors, which the same environment has: the faster of its back ends in each round, with no page of the file
in the cache, until each page of the tensors was read.

A bar that does not hold is a result, not a failure: the exit status is 0 if everything was measured.
"""

import argparse
import ctypes
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
from conftest import BUILD, PACKAGE, Daemon  # noqa: E402

PAGE = 4096
CALLS = 5000  # of a call that takes less than some 10 us
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


# ---- the import ----


def measure_import(bench):
    """By the clock, from the start of a Python to its end."""
    kinds = {
        "bare": "import os",
        "dsaio": "import dsaio",
        "aio_handle": "from dsaio import aio_handle",
    }
    environment = dict(os.environ, PYTHONPATH=PACKAGE)

    def run(code):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        return (time.perf_counter() - began) * 1e3

    # The bar is that of a program that imports the package and does not use it.
    bars = {"dsaio": 10, "aio_handle": None}
    rows = {name: bench.row(f"{kinds[name]}, over bare Python", "ms", bar) for name, bar in bars.items()}
    for results in bench.turns({name: lambda code=code: run(code) for name, code in kinds.items()}):
        for name, row in rows.items():
            row.add(results[name] - results["bare"])


# ---- new pinned memory ----


def in_child(side, nbytes):
    """A side in a process of its own, so that its memory is new.  Returns milliseconds since its start: until it
    had the memory, and until each page was written.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            make = side()
            began = time.perf_counter()
            memory, write = make(nbytes)
            made = time.perf_counter()
            write()
            written = time.perf_counter()
            os.write(writing, json.dumps([(made - began) * 1e3, (written - began) * 1e3]).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("new memory: the child has failed")
    return json.loads(text)


def by_module(module, example):
    """Of a handle of its own: the connection to the daemon is there before."""
    handle = module.aio_handle(*HANDLE)

    def make(nbytes):
        tensor = handle.new_cpu_locked_tensor(nbytes, example)
        return (tensor, handle), lambda: tensor[::PAGE].fill_(1)

    return make


def by_system_calls():
    import torch

    mlock = ctypes.CDLL(None, use_errno=True).mlock
    mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

    def make(nbytes):
        fd = os.memfd_create("bench")
        os.ftruncate(fd, nbytes)
        memory = mmap.mmap(fd, nbytes)
        tensor = torch.frombuffer(memory, dtype=torch.uint8)
        if mlock(tensor.data_ptr(), nbytes) < 0:
            raise OSError(ctypes.get_errno(), "mlock")
        return tensor, lambda: tensor[::PAGE].fill_(1)

    return make


def measure_fresh(bench):
    nbytes = bench.options.fresh
    size = size_text(nbytes)
    made = bench.row(f"new pinned {size}, beside memfd and mlock", "ms", 2)
    written = bench.row(f"new pinned {size}, written, beside memfd and mlock", "ms")
    made_genuine = bench.row(f"new pinned {size}, beside the op", "ms")
    written_genuine = bench.row(f"new pinned {size}, written, beside the op", "ms")
    sides = {
        name: lambda module=module: in_child(lambda: by_module(module, bench.example), nbytes)
        for name, module in bench.modules.items()
    }
    sides["system"] = lambda: in_child(by_system_calls, nbytes)
    for results in bench.turns(sides):
        for i, (system, genuine) in enumerate(((made, made_genuine), (written, written_genuine))):
            times = {name: result[i] for name, result in results.items()}
            ratio_of(system, times, reference="system")
            ratio_of(genuine, times)


# ---- many tensors, one wait() ----


class Tensors:
    """A handle of one side, and views of one pinned tensor, as the swappers of DeepSpeed use them."""

    def __init__(self, bench, module, n, nbytes):
        self.handle = module.aio_handle(*HANDLE)
        self.whole = self.handle.new_cpu_locked_tensor(n * nbytes, bench.example)
        self.whole.fill_(1)
        self.views = [self.whole.narrow(0, i * nbytes, nbytes) for i in range(n)]
        if not self.handle.is_pinned(self.views[-1]):
            raise RuntimeError("a view of a pinned tensor is not pinned")

    def run(self, method, files):
        """Starts an op for each view, and waits once.  Returns the seconds by the clock, and the CPU time of the
        calls and of the wait, in microseconds for each op.
        """
        function = getattr(self.handle, method)
        pairs = list(zip(self.views, files))
        clock, began = time.perf_counter(), time.thread_time()
        for view, file in pairs:
            function(view, file)
        submitted = time.thread_time()
        if self.handle.wait() != len(pairs):
            raise RuntimeError("wait() has lost ops")
        n = len(pairs) / 1e6
        return time.perf_counter() - clock, (submitted - began) / n, (time.thread_time() - submitted) / n


def measure_many(bench):
    n = bench.options.tensors
    for nbytes, bar in ((4096, 6), (65536, 2.5)):
        paths = bench.files(f"many{nbytes}", n, nbytes)
        sides = {name: Tensors(bench, module, n, nbytes) for name, module in bench.modules.items()}
        for verb, method in (("read", "async_pread"), ("write", "async_pwrite")):
            row = bench.row(f"{n} {verb}s of {size_text(nbytes)}, one wait(), beside the op", "op/s", bar, True, 0)
            functions = {name: lambda side=side: n / side.run(method, paths)[0] for name, side in sides.items()}
            for results in bench.turns(functions):
                ratio_of(row, results)


def measure_calls(bench):
    n, nbytes = bench.options.tensors, 4096
    paths = bench.files("calls", n, nbytes)
    sides = {name: Tensors(bench, module, n, nbytes) for name, module in bench.modules.items()}
    files = [bench.modules["ours"].File(path, os.O_RDWR) for path in paths]
    kinds = {
        "async_pread by path": ("async_pread", paths, 4.5),
        "async_pwrite by path": ("async_pwrite", paths, 4.5),
        "async_pread on a dsaio.File": ("async_pread", files, 2.5),
        "async_pwrite on a dsaio.File": ("async_pwrite", files, 2.5),
    }
    waits = bench.row(f"wait() for {n} ops, CPU time of an op", "us")
    for kind, (method, names, bar) in kinds.items():
        row = bench.row(f"{kind}, CPU time", "us", bar)
        functions = {"ours": lambda: sides["ours"].run(method, names)[1:]}
        if names is paths:
            beside = bench.row(f"{kind}, CPU time, beside the op", "us")
        if names is paths and "genuine" in sides:
            functions["genuine"] = lambda: sides["genuine"].run(method, names)[1:]
        for results in bench.turns(functions):
            row.add(results["ours"][0])
            waits.add(results["ours"][1])
            if "genuine" in results:
                beside.add(results["ours"][0], results["genuine"][0])

    row = bench.row("is_pinned() of a view, CPU time, beside the op", "us")
    for results in bench.turns(
        {name: lambda side=side: cpu_usec(side.handle.is_pinned, side.views[7 % n]) for name, side in sides.items()}
    ):
        ratio_of(row, results)
    row = bench.row("get_alignment(), CPU time, beside the op", "us", decimals=2)
    for results in bench.turns(
        {name: lambda side=side: cpu_usec(side.handle.get_alignment) for name, side in sides.items()}
    ):
        ratio_of(row, results)


def cpu_usec(function, *arguments):
    began = time.thread_time()
    for _ in range(CALLS):
        function(*arguments)
    return (time.thread_time() - began) / CALLS * 1e6


# ---- one op at a time ----


def measure_sync(bench):
    n, nbytes = bench.options.tensors, 4096
    paths = bench.files("sync", n, nbytes)
    row = bench.row("sync_pread of 4 KiB, beside the op", "us", 0.6)

    def run(side):
        pairs = list(zip(side.views, paths))
        began = time.perf_counter()
        for view, path in pairs:
            side.handle.sync_pread(view, path)
        return (time.perf_counter() - began) / n * 1e6

    sides = {name: Tensors(bench, module, n, nbytes) for name, module in bench.modules.items()}
    for results in bench.turns({name: lambda side=side: run(side) for name, side in sides.items()}):
        ratio_of(row, results)


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
            ctypes.sizeof(_library.Profile),
            HANDLE[0],
            HANDLE[1],
            _library.YES if HANDLE[2] else _library.NO,
            _library.YES if HANDLE[3] else _library.NO,
            HANDLE[4],
        )
        library.dsaio_handle_open.argtypes = (ctypes.c_void_p,) * 3
        chosen = None if is_tuned else ctypes.byref(profile)
        _library.check(library.dsaio_handle_open(connection.pointer, chosen, ctypes.byref(self.handle)))
        _library.check(_library.file_open(connection.pointer, os.fsencode(path), os.O_RDWR, ctypes.byref(self.file)))

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


def measure_large(bench):
    nbytes = bench.options.large
    size = size_text(nbytes)
    (path,) = bench.files("large", 1, nbytes)
    sides = {name: Tensors(bench, module, 1, nbytes) for name, module in bench.modules.items()}
    # The package and the library use the same memory: which pages it has makes more of a difference.
    tensor = sides["ours"].whole
    library = Library(path)

    def rate(function, *arguments):
        began = time.perf_counter()
        function(*arguments)
        return nbytes / (time.perf_counter() - began) / 1e6

    for verb, method in (("read", "sync_pread"), ("write", "sync_pwrite")):
        row = bench.row(f"{verb} of {size}, beside the C library", "MB/s", 0.98, True, 0)
        row_genuine = bench.row(f"{verb} of {size}, beside the op", "MB/s", None, True, 0)
        functions = {
            name: lambda side=side: rate(getattr(side.handle, method), side.whole, path) for name, side in sides.items()
        }
        functions["library"] = lambda: rate(library.run, method, tensor)
        for results in bench.turns(functions):
            ratio_of(row, results, reference="library")
            ratio_of(row_genuine, results)


# ---- safetensors files ----


def model(nbytes):
    """Tensors of that size together, as a transformer has them."""
    import torch

    layer = [(2048, 2048)] * 4 + [(8192, 2048)] * 3 + [(2048,)] * 2
    block = torch.frombuffer(bytearray(os.urandom(1 << 20)), dtype=torch.bfloat16)
    tensors, left = {}, nbytes // 2
    while left:
        for shape in layer:
            n = torch.Size(shape).numel()
            if n > left:
                n, shape = left, (left,)
            if n:
                tensors[f"tensor.{len(tensors)}"] = block.repeat(-(-n // block.numel()))[:n].reshape(shape)
                left -= n
    return tensors


def read_pages(tensors):
    """Reads one byte of each page."""
    import torch

    for tensor in tensors.values():
        tensor.reshape(-1).view(torch.uint8)[::PAGE].sum()


def measure_safetensors(bench):
    from dsaio import _buffer, safetensors

    nbytes = bench.options.safetensors
    size = size_text(nbytes)
    path = os.path.join(bench.daemon.store, "model.safetensors")
    safetensors.save_file(model(nbytes), path)
    into = bench.row(f"load_into() of {size}, beside safetensors", "MB/s", 1.4, True, 0)
    new = bench.row(f"load_file() of {size}, beside safetensors", "MB/s", 1, True, 0)
    written = bench.row(f"save_file() of {size}, synced, beside safetensors", "MB/s", None, True, 0)
    library = bench.row(f"load_into() of {size}, beside the C library", "MB/s", 0.95, True, 0)
    try:
        from safetensors import torch as genuine
    except ImportError:
        genuine = None
        into.missing = new.missing = written.missing = "safetensors is not installed"

    def rate(function, *arguments):
        forget(path)
        began = time.perf_counter()
        tensors = function(*arguments)
        if tensors is not None:
            read_pages(tensors)
        return nbytes / (time.perf_counter() - began) / 1e6

    # New tensors first: the memory of the others would leave less of the pool.
    backends = ("mmap", "pread") if genuine else ()
    if genuine:
        sides = {name: lambda name=name: rate(lambda: genuine.load_file(path, backend=name)) for name in backends}
        sides["ours"] = lambda: rate(safetensors.load_file, path)
        for results in bench.turns(sides):
            new.add(results["ours"], max(results[name] for name in backends))

    tensors = safetensors.load_file(path)

    def copy(backend):
        with genuine.safe_open(path, "pt", backend=backend) as file:
            for name, tensor in tensors.items():
                tensor.copy_(file.get_tensor(name))
        return tensors

    def ours():
        safetensors.load_into(path, tensors)
        return tensors

    def by_library():
        c.read(ranges)
        return tensors

    c = Library(path, is_tuned=True)
    with safetensors.safe_open(path, "pt") as file:
        infos = file._source.header.tensors
        places = [(infos[name], _buffer.locate(tensor, True)) for name, tensor in tensors.items()]
    runs = list(safetensors._runs(places))
    ranges = [(ctypes.addressof(buffer), ctypes.sizeof(buffer), offset) for buffer, offset in runs]
    sides = {"ours": lambda: rate(ours), "library": lambda: rate(by_library)}
    sides.update((name, lambda name=name: rate(copy, name)) for name in backends)
    for results in bench.turns(sides):
        library.add(results["ours"], results["library"])
        if genuine:
            into.add(results["ours"], max(results[name] for name in backends))

    def save_genuine():
        genuine.save_file(tensors, path + ".genuine")
        with open(path + ".genuine", "rb") as file:
            os.fsync(file.fileno())

    if genuine:
        sides = {"ours": lambda: rate(safetensors.save_file, tensors, path), "genuine": lambda: rate(save_genuine)}
        for results in bench.turns(sides):
            ratio_of(written, results)


class Saved:
    """A state that is saved at a path and loaded from there."""

    def __init__(self, state, path, save, load):
        self.state, self.path = state, path
        self.target = {name: tensor.clone() for name, tensor in state.items()}
        self.functions = save, load

    def save(self):
        """Until all is on the device."""
        began = time.perf_counter()
        self.functions[0](self.state, self.path)
        return (time.perf_counter() - began) * 1e3

    def load(self):
        """From the device: no cache of this machine has it."""
        names = [os.path.join(self.path, name) for name in os.listdir(self.path)] if os.path.isdir(self.path) else []
        for name in names or [self.path]:
            forget(name)
        began = time.perf_counter()
        self.functions[1](self.target, self.path)
        return (time.perf_counter() - began) * 1e3


def save_by_torch(state, path):
    import torch

    torch.save(state, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def ways_of_folders():
    """How dsaio and torch save and load a folder of torch.distributed.checkpoint."""
    from dsaio.torch.checkpoint import StorageReader, StorageWriter  # says if torch is too old
    import torch.distributed.checkpoint as dcp

    def way(writer, reader):
        def save(state, path):
            dcp.save(state, storage_writer=writer(path))

        def load(state, path):
            dcp.load(state, storage_reader=reader(path))

        return save, load

    warnings.simplefilter("ignore")  # torch's, of folders with a checkpoint and of processes without others
    return way(StorageWriter, StorageReader), way(dcp.FileSystemWriter, dcp.FileSystemReader)


def measure_checkpoint(bench):
    import dsaio.torch
    import torch

    nbytes, n = bench.options.checkpoint, 10 * bench.options.tensors
    states = {
        size_text(nbytes): {str(i): torch.ones(nbytes // 32) for i in range(8)},
        f"{n} x 4 KiB": {str(i): torch.ones(1024) for i in range(n)},
    }
    files = (
        (dsaio.torch.save, lambda _, path: dsaio.torch.load(path)),
        (save_by_torch, lambda _, path: torch.load(path, weights_only=True)),
    )
    missing = ""
    try:
        folders = ways_of_folders()
    except ImportError as e:
        missing = str(e)
    for what, state in states.items():
        for way, of_folder in (("a file", False), ("a folder", True)):
            rows = {verb: bench.row(f"{verb} of {what} in {way}, beside torch", "ms") for verb in ("save", "load")}
            if of_folder and missing:
                for row in rows.values():
                    row.missing = missing
                continue
            sides = [
                Saved(state, os.path.join(bench.daemon.store, f"{way} {i}"), *functions)
                for i, functions in enumerate(folders if of_folder else files)
            ]
            for verb, row in rows.items():
                functions = {name: getattr(side, verb) for name, side in zip(("ours", "torch"), sides)}
                for results in bench.turns(functions):
                    row.add(results["ours"], results["torch"])
            for side in sides:
                shutil.rmtree(side.path) if of_folder else os.unlink(side.path)


# ---- all of them ----

# fork() comes first: the less a process has mapped, the less it disturbs.
MEASURES = {
    "import": measure_import,
    "fresh": measure_fresh,
    "calls": measure_calls,
    "many": measure_many,
    "sync": measure_sync,
    "large": measure_large,
    "checkpoint": measure_checkpoint,
    "safetensors": measure_safetensors,
}


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number = int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)
    if number <= 0 or number % PAGE != 0:
        raise ValueError
    return number


def size_text(nbytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} bytes"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"one of {', '.join(MEASURES)} (all)")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of each row, after the first (%(default)s)")
    parser.add_argument("--tensors", type=int, default=1000, help="tensors for one wait() (%(default)s)")
    parser.add_argument("--large", type=size, default="400M", help="bytes of a large tensor, as 400M (%(default)s)")
    parser.add_argument("--fresh", type=size, default="1G", help="bytes of a new pinned tensor (%(default)s)")
    parser.add_argument("--safetensors", type=size, default="2G", help="bytes of a safetensors file (%(default)s)")
    parser.add_argument("--checkpoint", type=size, default="1G", help="bytes of a saved state (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file, too")
    options = parser.parse_args(arguments)
    if options.rounds < 2 or options.tensors < 1:
        parser.error("at least 2 rounds and 1 tensor are needed")
    for name in options.measures:
        if name not in MEASURES:
            parser.error(f"{name}: must be one of {', '.join(MEASURES)}")
    return options


def main():
    options = parse(sys.argv[1:])
    venv = venv_of_deepspeed()
    if venv is not None and os.path.realpath(sys.prefix) != os.path.realpath(venv):
        python = os.path.join(venv, "bin", "python")
        os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])
    import torch

    bench = Bench(options)
    try:
        print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, {os.cpu_count()} CPUs, ", end="")
        print(f"load {os.getloadavg()[0]:.2f}, files in {bench.daemon.store}")
        print(HEADER)
        for name, measure in MEASURES.items():
            if not options.measures or name in options.measures:
                first = len(bench.rows)
                measure(bench)
                bench.print(first)
        bars = [row.holds() for row in bench.rows if row.bar is not None and row.rounds]
        print(f"bench: {sum(bars)} of {len(bars)} bars hold")
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"rows": [row.json() for row in bench.rows]}, file, indent=2)
    finally:
        bench.daemon.stop()


if __name__ == "__main__":
    main()
