#!/usr/bin/python3
"""The cost of the Python package: its import, submission by path and on an open file, is_pinned(), and waits.

Starts a daemon of its own below TMPDIR (/var/tmp).  A line is the median of rounds that take turns, with
quartiles.  CPU time is that of the calling thread, with the kernel's part, which other programs on the
machine change less than the time by the clock.

    BUILD=build tests/bench/python.py [ROUNDS]
"""

import os
import resource
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
from conftest import PACKAGE, Daemon  # noqa: E402

N = 1000
BYTES = 4096


def show(name, unit, values):
    low, middle, high = statistics.quantiles(values, n=4)
    print(f"{name:48} {middle:9.2f} {unit:4} {low:.2f}-{high:.2f}", flush=True)


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_of_import(module):
    """CPU time of a Python that imports it."""
    began = children_seconds()
    subprocess.run([sys.executable, "-c", f"import {module}"], env=dict(os.environ, PYTHONPATH=PACKAGE), check=True)
    return children_seconds() - began


def cpu(function, n):
    began = time.thread_time()
    for _ in range(n):
        function()
    return (time.thread_time() - began) / n


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    daemon = Daemon()
    os.environ["DSAIO_SOCKET"] = daemon.socket
    try:
        run(daemon.store, rounds)
    finally:
        daemon.stop()


def run(store, rounds):
    imports = {"sys": [], "dsaio": [], "dsaio.deepnvme": []}
    seconds_of_import("dsaio.deepnvme")  # compiles it
    for i in range(2 * rounds):
        for module in sorted(imports, reverse=i % 2 == 1):
            imports[module].append(seconds_of_import(module))
    for module in ("dsaio", "dsaio.deepnvme"):
        show(f"import {module}, over bare Python, CPU time", "ms", [(a - b) * 1e3 for a, b in zip(imports[module], imports["sys"])])

    import dsaio

    handle = dsaio.aio_handle(overlap_events=True)
    try:
        import torch

        whole = handle.new_cpu_locked_tensor(N * BYTES, torch.empty(0, dtype=torch.uint8))
    except ImportError:
        whole = dsaio.alloc(N * BYTES)
        print("torch is not installed: the tensors are memoryviews")
    tensors = [whole[i * BYTES : (i + 1) * BYTES] for i in range(N)]
    paths = [os.path.join(store, str(i)) for i in range(N)]
    for tensor, path in zip(tensors, paths):
        handle.async_pwrite(tensor, path)
    handle.wait()
    # The same open files as by path: more of them would exceed what a client may keep open.
    files = [dsaio.File(path) for path in paths]

    kinds = {
        "async_pread by path": (handle.async_pread, paths),
        "async_pwrite by path": (handle.async_pwrite, paths),
        "async_pread on an open file": (handle.async_pread, files),
    }
    submits = {kind: [] for kind in kinds}
    totals = {kind: [] for kind in kinds}
    waits = []
    for i in range(rounds):
        for kind in list(kinds)[:: 1 if i % 2 else -1]:
            function, names = kinds[kind]
            arguments = list(zip(tensors, names))
            clock, began = time.perf_counter(), time.thread_time()
            for pair in arguments:
                function(*pair)
            submitted = time.thread_time()
            if handle.wait() != N:
                raise RuntimeError("wait() has lost ops")
            waits.append((time.thread_time() - submitted) / N * 1e6)
            submits[kind].append((submitted - began) / N * 1e6)
            totals[kind].append((time.perf_counter() - clock) * 1e3)
    for kind in kinds:
        show(f"{kind}, CPU time of a call", "us", submits[kind])
    show(f"wait() for {N} ops, CPU time of an op", "us", waits)
    for kind in kinds:
        show(f"{N} of {kind}, one wait(), by the clock", "ms", totals[kind])

    show("is_pinned() of a view, CPU time", "us", [cpu(lambda: handle.is_pinned(tensors[7]), 5000) * 1e6 for _ in range(rounds)])
    show("get_alignment(), CPU time", "us", [cpu(handle.get_alignment, 5000) * 1e6 for _ in range(rounds)])
    syncs = []
    for _ in range(100 * rounds):
        began = time.perf_counter()
        handle.sync_pread(tensors[0], paths[0])
        syncs.append((time.perf_counter() - began) * 1e6)
    show(f"sync_pread of {BYTES} bytes, by the clock", "us", syncs)


main()
