#!/usr/bin/python3
"""What ZeRO-Infinity gains: training on dsaiod, beside DeepSpeed's own op and beside the same calls from C.

In each round, both ops train the same model for some steps, in processes of their own and in an order that
changes with each round.  The optimizer's state is in files of the same disk.  All calls of DeepSpeed's handles are
timed: the time in a step is that of all calls but those that allocate and free.  The first two steps, which make
and extend the files, do not count; a round's value is the median of the others.

The calls of dsaio's last step are recorded, and build/bench replay makes them again at once, from C, on the files
that the training has left.

It needs a virtual environment with DeepSpeed, as bench-python does.  Where DeepSpeed's own op cannot be
compiled, the rows beside it say so.  A bar that does not hold is a result, not a failure.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "python"), os.path.join(TESTS, "deepspeed")]
from conftest import BUILD, PACKAGE, Daemon  # noqa: E402
from python_sides import HEADER, Row, venv_of_deepspeed  # noqa: E402

FIRST = 2  # steps that do not count
LAYERS, WIDTH = 18, 512  # 18.9 M parameters


# ---- a training, in a process of its own ----

TRANSFERS = {"async_pread": "read", "async_pwrite": "write", "sync_pread": "read", "sync_pwrite": "write"}
WAITS = ("wait", "sync_pread", "sync_pwrite")
ALLOCATIONS = ("new_cpu_locked_tensor", "free_cpu_locked_tensor")


class Clock:
    """Times of the calls of all handles."""

    def __init__(self):
        self.handles = []  # the arguments of each
        self.calls = []  # of the current step: name, handle, transfer, start, end, in nsec

    def handle(self, kind):
        """A handle of that class whose calls are timed."""

        class Timed:
            def __init__(own, **arguments):
                own._handle = kind(**arguments)
                own._number = len(self.handles)
                self.handles.append(arguments)

            def __getattr__(own, name):
                function = getattr(own._handle, name)

                def timed(*arguments, **named):
                    start = time.perf_counter_ns()
                    result = function(*arguments, **named)
                    end = time.perf_counter_ns()
                    self.calls.append((name, own._number, name in TRANSFERS and transfer(*arguments), start, end))
                    return result

                setattr(own, name, timed)
                return timed

        return Timed


def transfer(tensor, file, offset=0):
    """What is kept of a transfer's arguments: path, address, bytes, offset."""
    return str(file), tensor.data_ptr(), tensor.numel() * tensor.element_size(), offset


def timed_module(module, clock):
    class Module:
        aio_handle = clock.handle(module.aio_handle)

        def __getattr__(self, name):
            return getattr(module, name)

    return Module()


def train(folder, n_steps, path):
    """Writes the times of each step, and the calls of the last one, as JSON to that path."""
    import deepspeed  # noqa: F401
    from deepspeed.ops.op_builder import AsyncIOBuilder

    import training

    clock = Clock()
    module = timed_module(AsyncIOBuilder().load(verbose=False), clock)
    AsyncIOBuilder.load = lambda self, verbose=False: module
    zero = {"stage": 3, "sub_group_size": 1_000_000}
    zero["offload_optimizer"] = {"device": "nvme", "nvme_path": folder, "pin_memory": True, "buffer_count": 4}
    engine = training.engine(zero, n_layers=LAYERS, width=WIDTH)
    steps = []
    for i in range(n_steps):
        clock.calls = []
        began = time.perf_counter_ns()
        training.step(engine, i, WIDTH)
        ended = time.perf_counter_ns()
        calls = [call for call in clock.calls if call[0] not in ALLOCATIONS]
        submits = [end - start for name, _, _, start, end in calls if name.startswith("async_")]
        steps.append(
            {
                "msec": (ended - began) / 1e6,
                "aio_msec": sum(end - start for *_, start, end in calls) / 1e6,
                "call_usec": sum(submits) / len(submits) / 1e3,
                "calls": len(calls),
            }
        )
    with open(path, "w") as file:
        json.dump({"steps": steps, "lines": lines(clock, began)}, file)


def lines(clock, began):
    """The calls of the clock's step, for build/bench replay."""
    transfers = [transfer for name, _, transfer, _, _ in clock.calls if name in TRANSFERS]
    spans = memories((address, address + nbytes) for _, address, nbytes, _ in transfers)
    files = sorted({file for file, *_ in transfers})
    found = []
    for a in clock.handles:
        names = ("block_size", "queue_depth", "single_submit", "overlap_events", "intra_op_parallelism")
        found.append("handle " + " ".join(str(int(a[name])) for name in names))
    found += [f"memory {end - start}" for start, end in spans]
    found += [f"file {name}" for name in files]
    last = began
    for name, handle, moved, start, end in clock.calls:
        gap = start - last
        if name in TRANSFERS:
            file, address, nbytes, offset = moved
            memory = next(i for i, (low, high) in enumerate(spans) if low <= address < high)
            numbers = (handle, files.index(file), memory, address - spans[memory][0], nbytes, offset, gap)
            found.append(f"{TRANSFERS[name]} " + " ".join(map(str, numbers)))
            gap = 0
        if name in WAITS:
            found.append(f"wait {handle} {gap}")
        if name in TRANSFERS or name in WAITS:
            last = end
    return found


def memories(ranges):
    """Ranges of addresses that hold all of these, in order and apart."""
    spans = []
    for start, end in sorted(ranges):
        if spans and start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end])
    return spans


# ---- the rounds ----


class Bench:
    def __init__(self, daemon, n_steps):
        self.daemon = daemon
        self.n_steps = n_steps
        self.work = tempfile.mkdtemp(dir=daemon.dir)

    def run(self, command, **variables):
        environment = dict(os.environ, DSAIO_SOCKET=self.daemon.socket, DSAIO_AUTOSTART="0", **variables)
        process = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True
        )
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{process.stdout[-2000:]}{process.stderr[-4000:]}")
        return process.stdout

    def train(self, is_ours):
        """Medians of the steps that count."""
        folder = os.path.join(self.daemon.store, "ours" if is_ours else "genuine")
        os.makedirs(folder)
        path = os.path.join(self.work, "steps")
        arguments = [os.path.abspath(__file__), "--train", folder, "--steps", str(self.n_steps), "--output", path]
        if is_ours:
            self.run([sys.executable, "-m", "dsaio", "run", *arguments], PYTHONPATH=PACKAGE)
        else:
            self.run([sys.executable, *arguments])
        with open(path) as file:
            found = json.load(file)
        medians = {key: statistics.median(step[key] for step in found["steps"][FIRST:]) for key in found["steps"][0]}
        if is_ours:
            medians["replay_msec"] = self.replay(found["lines"])
        shutil.rmtree(folder)
        return medians

    def replay(self, lines):
        path = os.path.join(self.work, "calls")
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
        output = self.run([os.path.join(BUILD, "bench"), "replay", path, str(self.n_steps - FIRST + 1)])
        return statistics.median(float(usec) / 1e3 for usec in output.split()[1:])


def why_no_genuine_op(venv):
    """DeepSpeed compiles its op here, for minutes, or finds it compiled."""
    command = [sys.executable, os.path.join(TESTS, "deepspeed", "compile.py"), "AsyncIOBuilder"]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    lines = process.stdout.strip().splitlines() or ["it printed nothing"]
    return "" if process.returncode == 0 else f"the op of {venv} cannot be loaded: {lines[-1]}"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds, after the first (%(default)s)")
    parser.add_argument("--steps", type=int, default=8, help=f"steps of a training, at least {FIRST + 1} (%(default)s)")
    parser.add_argument("--short", action="store_true", help="two rounds of five steps, and none before")
    parser.add_argument("--json", metavar="FILE", help="write all rounds to this file, too")
    parser.add_argument("--train", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.short:
        options.rounds, options.steps = 2, 5
    if options.rounds < 2 or options.steps <= FIRST:
        parser.error(f"at least 2 rounds, and {FIRST + 1} steps")
    return options


def main():
    options = parse(sys.argv[1:])
    if options.train:
        train(options.train, options.steps, options.output)
        return
    venv = venv_of_deepspeed()
    if venv is None:
        sys.exit(f"bench: no DeepSpeed in DEEPSPEED_VENV or {BUILD}/deepspeed: make check-deepspeed makes it")
    if os.path.realpath(sys.prefix) != os.path.realpath(venv):
        python = os.path.join(venv, "bin", "python")
        os.execv(python, [python, os.path.abspath(__file__), *sys.argv[1:]])
    os.environ["PATH"] = os.path.join(venv, "bin") + os.pathsep + os.environ["PATH"]  # ninja
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(venv, "ops"))
    missing = why_no_genuine_op(venv)
    step = Row("ZeRO-Infinity, a step", "ms", 0.88)
    aio = Row("calls of a step, without allocation", "ms", 0.80)
    call = Row("async_pread and async_pwrite, a call", "us")
    replay = Row("calls of a step, beside the same from C", "ms", 1.05)
    for row in (step, aio, call):
        row.missing = missing
    rows = [step, aio, call, replay]
    daemon = Daemon()
    try:
        bench = Bench(daemon, options.steps)
        for i in range(options.rounds + (not options.short)):
            sides = [True, False] if i % 2 else [False, True]
            found = {is_ours: bench.train(is_ours) for is_ours in sides if is_ours or not missing}
            if i == 0 and not options.short:
                continue
            ours, genuine = found[True], found.get(False)
            replay.add(ours["aio_msec"], ours["replay_msec"])
            if genuine is not None:
                step.add(ours["msec"], genuine["msec"])
                aio.add(ours["aio_msec"], genuine["aio_msec"])
                call.add(ours["call_usec"], genuine["call_usec"])
    finally:
        daemon.stop()
    print(f"{LAYERS * (4 * WIDTH + 3) * WIDTH / 1e6:.1f} M parameters, {ours['calls']:.0f} calls a step, ", end="")
    print(f"{options.steps} steps, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, files in {daemon.store}")
    print(HEADER)
    for row in rows:
        print(row.line())
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rows": [row.json() for row in rows]}, file, indent=2)


if __name__ == "__main__":
    main()
