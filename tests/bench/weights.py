#!/usr/bin/python3
"""Loading weights by several processes at once: dsaio.safetensors beside safetensors' own mmap.

Each process imports what it needs, waits for all others, loads the file with torch and sums all of its bytes; the time
is from the first start to the last end.  Cold: no page of the file is in this host's cache, and no view of it is kept.
The sides take turns in each round; the first round is thrown away.  Memory is that of the daemon's pool and of the file
in the page cache while all tensors are there.

Needs the packages torch and safetensors, so run it with a Python that has them.  --huge reserves huge pages for the
daemon's pool meanwhile, which needs root.  A bar that does not hold is a result, not a failure.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from python_sides import HEADER, PACKAGE, Daemon, Row

WORKER = """
import json, os, sys, time
side = sys.argv[1]
import torch
torch.set_num_threads(1)
if side == "dsaio":
    from dsaio.safetensors import safe_open
    from dsaio.safetensors.torch import load_file
else:
    from safetensors import safe_open
    from safetensors.torch import load_file

def total(tensor):
    return int(tensor.reshape(-1).view(torch.int64).sum())

def work(path, what):
    start = time.monotonic()
    if what in ("all", "map"):
        kept = load_file(path)
        loaded = time.monotonic()
    else:
        with safe_open(path, "pt") as file:
            if what == "first":
                total(file.get_tensor("0"))
                loaded = time.monotonic()
            kept = {name: file.get_tensor(name) for name in file.keys()}
            if what == "small":
                loaded = time.monotonic()
    bytes_sum = 0 if what == "map" else sum(map(total, kept.values()))
    os.write(1, (json.dumps([start, loaded, time.monotonic(), bytes_sum]) + "\\n").encode())
    return kept

print("ready", flush=True)
for line in sys.stdin:
    n, what, path = line.rstrip("\\n").split(" ", 2)
    barrier, end = os.pipe(), os.pipe()
    children = []
    for i in range(int(n)):
        child = os.fork()
        if child == 0:
            os.close(barrier[1])
            os.close(end[1])
            os.read(barrier[0], 1)
            kept = work(path, what)
            os.read(end[0], 1)
            os._exit(0)
        children.append(child)
    os.close(barrier[0])
    os.close(end[0])
    time.sleep(0.2)
    os.close(barrier[1])
    sys.stdin.readline()
    os.close(end[1])
    for child in children:
        os.waitpid(child, 0)
    print("ended", flush=True)
"""


class Crew:
    """A process that has imported all it needs, of which the ones that load are copies."""

    def __init__(self, daemon, side):
        environment = dict(os.environ, PYTHONPATH=PACKAGE, DSAIO_SOCKET=daemon.socket, DSAIO_AUTOSTART="0")
        self.worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, side],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        self._expect("ready\n")

    def _expect(self, line):
        if self.worker.stdout.readline() != line:
            raise SystemExit("weights.py: a process has ended: see above")

    def _tell(self, line):
        self.worker.stdin.write(line + "\n")
        self.worker.stdin.flush()

    def go(self, path, n=1, what="all"):
        """Returns [start, loaded, end, sum] of each.  Their tensors stay until end()."""
        self._tell(f"{n} {what} {path}")
        return [json.loads(self.worker.stdout.readline()) for _ in range(n)]

    def end(self):
        self._tell("")
        self._expect("ended\n")


def read_bytes(path):
    """Of the device that the file is on, since the host was started."""
    stat = os.stat(path)
    with open("/proc/diskstats") as file:
        for line in file:
            fields = line.split()
            if (int(fields[0]), int(fields[1])) == (os.major(stat.st_dev), os.minor(stat.st_dev)):
                return int(fields[5]) * 512
    return 0


def pool_of(daemon):
    ctl = [os.path.join(os.path.dirname(PACKAGE), "dsaioctl"), "--socket", daemon.socket, "status", "--json"]
    while True:
        done = subprocess.run(ctl, stdout=subprocess.PIPE)
        if done.returncode == 0:  # on a busy host the daemon may take dsaioctl for costly
            return json.loads(done.stdout)["pool"]


def memory_bytes(daemon, path):
    """Of the file in the page cache, and of the daemon's pool."""
    cached = subprocess.check_output(["fincore", "--bytes", "--noheadings", "--output", "RES", path])
    return int(cached) + pool_of(daemon)["used_bytes"]


def evict(path, daemon):
    """Until no view is kept, no page of the file is in the cache."""
    while pool_of(daemon)["view_bytes"] or pool_of(daemon)["view_left_bytes"]:
        time.sleep(0.1)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(path):
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


class Result:
    def __init__(self, found, used, read):
        start = min(times[0] for times in found)
        self.seconds = max(times[2] for times in found) - start
        self.loaded = max(times[1] - times[0] for times in found)
        self.sums = {times[3] for times in found}
        self.used, self.read = used, read


def load(daemon, crew, path, n, what="all"):
    read = read_bytes(path)
    found = crew.go(path, n, what)
    result = Result(found, memory_bytes(daemon, path), read_bytes(path) - read)
    crew.end()
    return result


SIDES = ("dsaio", "safetensors")


def measure(daemon, args, path, small):
    """The rows, and of each number of processes and each side the seconds, cold and hot, and the memory."""
    gb = args.mib * (1 << 20) / 1e9
    n = max(args.processes)
    rows = {
        "one": Row("one process, cold", "s", 0.75, decimals=3),
        "many": Row(f"{n} processes, cold", "s", 0.7, decimals=3),
        "more": Row(f"{n} processes, cold, beside one of ours", "s", 1.3, decimals=3),
        "load": Row(f"loading, beside all of {n} processes' seconds", "s", decimals=3),
        "memory": Row(f"memory of {n} processes, beside the file's size", "GB", 1.05, decimals=3),
        "reads": Row(f"bytes that {n} processes read, beside the file's", "GB", 1.01, decimals=3),
        "map": Row(f"{n} processes map a view that is kept", "s", 0.1, decimals=3),
        "cache": Row("one process, from the page cache", "GB/s", 3, True, decimals=2),
        "first": Row("the first tensor, beside all", "s", 0.1, decimals=3),
        "small": Row("2,000 small tensors, one by one", "s", 2, decimals=4),
    }
    points = {}
    crews = {side: Crew(daemon, side) for side in SIDES}
    keeper = Crew(daemon, "dsaio")
    for i in range(args.rounds + 1):
        seconds = {}
        for side in SIDES if i % 2 else SIDES[::-1]:
            for count in args.processes:
                for is_hot in (False, True):
                    evict(path, daemon)
                    if is_hot:
                        warm(path)
                    result = load(daemon, crews[side], path, count)
                    seconds[side, count, is_hot] = result
                    if i:
                        points.setdefault((side, count, is_hot), []).append((result.seconds, result.used))
            warm(small)
            seconds[side, "small"] = load(daemon, crews[side], small, 1, "small")
        if len({tuple(result.sums) for key, result in seconds.items() if key[1] != "small"}) != 1:
            raise SystemExit("weights.py: the sides have loaded different bytes")
        evict(path, daemon)
        first = load(daemon, crews["dsaio"], path, 1, "first")
        evict(path, daemon)
        keeper.go(path)
        kept = load(daemon, crews["dsaio"], path, n, "map")
        keeper.end()
        if not i:
            continue
        ours, theirs = ({key[1:]: value for key, value in seconds.items() if key[0] == side} for side in SIDES)
        rows["one"].add(ours[1, False].seconds, theirs[1, False].seconds)
        rows["many"].add(ours[n, False].seconds, theirs[n, False].seconds)
        rows["more"].add(ours[n, False].seconds, ours[1, False].seconds)
        rows["load"].add(ours[n, False].loaded, ours[n, False].seconds)
        rows["memory"].add(ours[n, False].used / 1e9, gb)
        rows["reads"].add(ours[n, False].read / 1e9, gb)
        rows["map"].add(kept.loaded)
        rows["cache"].add(gb / ours[1, True].loaded)
        rows["first"].add(first.loaded, first.seconds)
        rows["small"].add(ours["small",].loaded, theirs["small",].loaded)
    return list(rows.values()), points


def draw(points, args, filename):
    """Processes against seconds, cold and hot, and against memory."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "dsaio", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4))
    for axis, title, is_hot, which in zip(
        axes, ("cold: seconds", "in the page cache: seconds", "cold: GB of memory"), (False, True, False), (0, 0, 1)
    ):
        for side, style in zip(SIDES, ("o-", "s--")):
            values = [statistics.median(p[which] for p in points[side, n, is_hot]) for n in args.processes]
            axis.plot(args.processes, [v / 1e9 if which else v for v in values], style, label=side)
        axis.set(title=title, xlabel="processes", xticks=args.processes)
        axis.set_ylim(0, 1.1 * axis.dataLim.ymax)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.suptitle(f"{args.mib} MiB of weights, loaded and summed by each process")
    figure.tight_layout()
    figure.savefig(filename, metadata={"Date": None})


def make_files(folder, mib):
    import torch
    from safetensors.torch import save_file

    path, small = (os.path.join(folder, name) for name in ("weights", "small"))
    layers = [24 << 20] * (mib // 24) + [(mib % 24) << 20]
    save_file({str(i): torch.randint(0, 1 << 30, (n // 8,)) for i, n in enumerate(layers) if n}, path)
    save_file({str(i): torch.full((4096,), i) for i in range(2000)}, small)
    time.sleep(2.1)  # what was just written is not shared
    return path, small


def reserved(n):
    """Sets the number of huge pages that the host reserves; returns what it was."""
    with open("/proc/sys/vm/nr_hugepages", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(n))
    return before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=2048, help="of the file (default: 2048)")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of them, from 1 on")
    parser.add_argument("--huge", action="store_true", help="with reserved huge pages")
    parser.add_argument("--json", metavar="FILE", help="write all rounds")
    parser.add_argument("--picture", metavar="FILE", help="draw an SVG, with matplotlib")
    args = parser.parse_args()
    pages = args.mib // 2 + 64
    before = reserved(pages) if args.huge else 0
    daemon = None
    try:
        lines = [f"{name} = {2 * pages}M" for name in ("pool_size", "client_pool_max", "user_pool_max")]
        lines += ["huge_pages = reserved"] if args.huge else []
        daemon = Daemon(config="\n".join(["[daemon]", *lines, ""]))
        rows, points = measure(daemon, args, *make_files(daemon.store, args.mib))
    finally:
        if daemon:
            daemon.stop()
        if args.huge:
            reserved(before)
    print(HEADER)
    for row in rows:
        print(row.line())
    if args.json:
        with open(args.json, "w") as file:
            json.dump([row.json() for row in rows], file, indent=1)
    if args.picture:
        draw(points, args, args.picture)


if __name__ == "__main__":
    main()
