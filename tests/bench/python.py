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
import subprocess
import sys
import time

from python_files import measure_checkpoint, measure_objects, measure_safetensors
from python_sides import HANDLE, HEADER, PACKAGE, PAGE, Bench, Library, ratio_of, size_text, venv_of_deepspeed

CALLS = 5000  # of a call that takes less than some 10 us


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
    "objects": measure_objects,
    "safetensors": measure_safetensors,
}


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number = int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)
    if number <= 0 or number % PAGE != 0:
        raise ValueError
    return number


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
