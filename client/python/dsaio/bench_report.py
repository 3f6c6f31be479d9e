"""The page of `dsaioctl bench report`: results of benches with pictures, as one HTML file.

dsaioctl runs this file as a program; it needs matplotlib, and neither the package nor its library.  The page refers
to nothing outside: pictures are SVG within it.  Their text and axes have the page's colour, so they follow light
and dark.

Any program may have written the results: a value of a wrong type is left out, and text is escaped.  No link is
followed where another user could have put one, and the page replaces an old one only when it is complete.
"""

from __future__ import annotations

import argparse
import errno
import html
import io
import itertools
import json
import math
import os
import re
import shlex
import signal
import stat
import sys
import tempfile
from typing import Any, Dict, Iterable, List, NoReturn, Optional, Sequence, Tuple

FORMAT = "dsaioctl bench 1"
FILES = {"sweep": "results.json", "tune": "tune.json", "latency": "latency.json", "mix": "mix.json"}
ROWS = "rows.jsonl"
PAGE = "report.html"
FILE_BYTES_MAX = 256 << 20  # 10,000 points have 10 MB
RUNS_MAX = 32  # a guess: more columns are not readable
BARS_MAX = 12  # profiles that are shown as bars: more are in the heat maps
GB = 1 << 30
OPS = ("read", "write")
INK = "#010203"  # of text and axes: becomes the page's colour
COLOURS = ("#3b87c8", "#d9772b", "#3f9c5c", "#9a66c0", "#c9546f", "#7c8a2f")
# Two-sided 95% quantiles of Student's distribution by degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1c2430;--dim:#5b6675;--rule:#d5dae1;--card:#f6f8fa;--bad:#b03a58}
@media screen and (prefers-color-scheme:dark){:root{--page:#12161c;--ink:#e4e9f0;--dim:#9aa6b5;--rule:#323b47;
--card:#1a2029;--bad:#ec7f9b}}
@media print{:root{color-scheme:light}figure,article,table{break-inside:avoid}*{print-color-adjust:exact}}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:0 auto;padding:1.5rem;
max-width:90rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2rem 0 .6rem}h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.2rem 0 .8rem;max-width:60rem}p,figcaption{color:var(--dim)}figcaption{font-size:.87rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--rule)}
td.n{text-align:right}td.n,.short td{white-space:nowrap}code,pre{font:13px ui-monospace,"DejaVu Sans Mono",monospace}
code{overflow-wrap:anywhere}pre{background:var(--card);border:1px solid var(--rule);padding:.7rem;overflow-x:auto}
.runs{display:grid;gap:1rem 2.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,36rem),1fr))}
article{min-width:0}figure{margin:0 0 1.2rem}svg{display:block;width:100%;height:auto}.bad{color:var(--bad)}
"""


class Refused(Exception):
    """A message for the user: object, cause, action."""


# ---- values of a file that any program may have written ----


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e24:  # nor NaN
        return 0.0
    return float(value)


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def members(value: Any) -> Dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> List[Any]:
    return value if isinstance(value, list) else []


# ---- units, as dsaioctl prints them ----


def size(n_bytes: float) -> str:
    unit = 0
    while n_bytes >= 1024 and unit < 5:
        n_bytes, unit = n_bytes / 1024, unit + 1
    return f"{n_bytes:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def duration(nsec: float) -> str:
    for unit, nsecs in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nsec >= nsecs:
            return f"{nsec / nsecs:.3g} {unit}"
    return f"{nsec:.0f} ns"


def speed(gb_per_sec: float) -> str:
    return f"{gb_per_sec:.3g}" if gb_per_sec < 100 else f"{gb_per_sec:.0f}"


# ---- runs ----

Profile = Tuple[int, int, bool, bool, int]  # block size, depth, overlap, single, parts


def profile_name(profile: Profile) -> str:
    block, depth, overlap, single, parts = profile
    return (
        f"{size(block).replace(' ', '').replace('iB', '')} d{depth} p{parts} {'overlap' if overlap else 'seq'}"
        f"{' single' if single else ''}"
    )


def is_disturbed(row: Dict[str, Any]) -> bool:
    """Did others on the device move bytes meanwhile?"""
    return row.get("is_disturbed") is True


class Point:
    """An op and a profile with all its repetitions: the steps of a tuner are one, like those of a sweep."""

    def __init__(self, op: str, profile: Profile) -> None:
        self.op, self.profile = op, profile
        self.n_bytes = self.sec = 0.0
        self.repetitions: List[Tuple[float, float]] = []  # when, GB/s
        self.error = ""
        self.is_disturbed = False

    def add(self, row: Dict[str, Any]) -> None:
        self.n_bytes += number(row.get("bytes"))
        self.sec += number(row.get("e2e_sec"))
        self.error = text(row.get("error")) or self.error
        self.is_disturbed |= is_disturbed(row)
        for repetition in map(members, items(row.get("repetitions"))):
            sec = number(repetition.get("e2e_sec"))
            if sec > 0:
                self.repetitions.append((number(repetition.get("at_sec")), number(repetition.get("bytes")) / sec / GB))

    @property
    def speed(self) -> float:
        return self.n_bytes / self.sec / GB if self.sec > 0 and not self.error else 0.0

    @property
    def half(self) -> float:
        """Half of the interval of 95% that the repetitions give; 0: two or fewer say nothing."""
        speeds = [s for _, s in self.repetitions]
        n = len(speeds)
        if n < 3:
            return 0.0
        mean = sum(speeds) / n
        variance = sum((s - mean) ** 2 for s in speeds) / (n - 1)
        return (STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96 + 2.4 / (n - 1)) * math.sqrt(variance / n)


class Run:
    def __init__(self, name: str, results: Dict[str, Any]) -> None:
        self.name, self.results = name, results
        self.kind = text(results.get("kind"))
        points: Dict[Tuple[str, Profile], Point] = {}
        self.n_rows = self.n_disturbed = 0
        for row in items(results.get("points")):
            if not isinstance(row, dict):
                continue
            op = "write" if row.get("op") == "write" else "read"
            key = (op, self._profile(row))
            points.setdefault(key, Point(*key)).add(row)
            self.n_rows += 1
            self.n_disturbed += is_disturbed(row)
        self.points = list(points.values())
        self.measured = [p for p in self.points if p.speed > 0]

    @staticmethod
    def _profile(row: Dict[str, Any]) -> Profile:
        overlap = row["overlap_events"] if "overlap_events" in row else not row.get("sequential_requests")
        parts = row.get("io_parallel", row.get("intra_op_parallelism"))
        return (
            int(number(row.get("block_size"))),
            int(number(row.get("queue_depth"))),
            bool(overlap),
            bool(row.get("single_submit")),
            int(number(parts)),
        )

    @property
    def has_profiles(self) -> bool:
        """False for latencies and mixes: they are of several sizes, and their profile is no point of a space."""
        return self.kind not in ("latency", "mix")

    def goal(self, name: str) -> Optional[Dict[str, Any]]:
        """What bench tune found for that goal; None: it has no ranks."""
        goal = members(members(self.results.get("tune")).get(name))
        return goal if items(goal.get("ranks")) else None

    def main_goal(self) -> Tuple[str, Optional[Dict[str, Any]]]:
        return next(((name, self.goal(name)) for name in ("sum", *OPS) if self.goal(name)), ("", None))

    def pairs(self) -> List[Tuple[Profile, Dict[str, Point]]]:
        """Profiles with their reads and writes: those with both first, then the larger sum."""
        pairs: Dict[Profile, Dict[str, Point]] = {}
        for point in self.measured:
            pairs.setdefault(point.profile, {})[point.op] = point
        return sorted(pairs.items(), key=lambda pair: (-len(pair[1]), -sum(p.speed for p in pair[1].values())))


def rank_profile(rank: Any) -> Profile:
    return Run._profile(members(members(rank).get("profile")))


def recommended(goal: Dict[str, Any]) -> int:
    n = int(number(goal.get("recommended")))
    return n if 0 <= n < len(items(goal["ranks"])) else 0


# ---- reading ----


def read_file(dir_fd: int, name: str) -> bytes:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise Refused(f"{name}: is a symbolic link, which is not followed") from None
        raise
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
            raise Refused(f"{name}: is no results of dsaioctl bench")
        return file.read(FILE_BYTES_MAX)


def load_run(name: str, dir_fd: int, file: str) -> Run:
    try:
        results = json.loads(read_file(dir_fd, file))
    except (ValueError, RecursionError):
        results = None
    if not isinstance(results, dict) or results.get("format") != FORMAT or results.get("kind") not in FILES:
        raise Refused(f"{file}: is no results of dsaioctl bench")
    if text(results.get("rows_file")):  # the run did not end: a line for each row, of which the last may be cut short
        try:
            lines = read_file(dir_fd, ROWS).split(b"\n")[:-1]
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                break
            for key, value in members(row).items():
                if isinstance(results.setdefault(key, []), list):
                    results[key].append(value)
    return Run(name, results)


def published(dir_fd: int, kind: str) -> str:
    """The last complete run of that kind, as "sweep.3"; "": there is none.  The link may be another user's."""
    try:
        folder = os.readlink(kind, dir_fd=dir_fd)
    except OSError:
        return ""
    return folder if re.fullmatch(kind + r"\.[0-9]{1,9}", folder) else ""


def unfinished(dir_fd: int, kind: str, file: str) -> str:
    """The newest run of that kind that did not end, as "sweep.3"; "": there is none."""
    numbers = [int(m[1]) for m in (re.fullmatch(kind + r"\.([0-9]{1,9})", name) for name in os.listdir(dir_fd)) if m]
    for n in sorted(numbers, reverse=True):
        try:
            os.stat(f"{kind}.{n}/{file}", dir_fd=dir_fd, follow_symlinks=False)
            return f"{kind}.{n}"
        except OSError:
            continue
    return ""


def find_runs(arg: str) -> Iterable[Run]:
    """Of a --log_dir the last complete run of each kind, else its last unfinished one; or of one file."""
    if not os.path.isdir(arg):
        # A link that the user names is followed; the results themselves are none.
        os.stat(arg)
        folder, name = os.path.split(os.path.realpath(arg))
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield load_run(arg, fd, name)
        finally:
            os.close(fd)
        return
    top = os.open(arg, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = []
        for kind, file in FILES.items():
            folder = published(top, kind)
            if folder:
                found.append((folder, "", file))
                continue
            try:
                os.stat(file, dir_fd=top, follow_symlinks=False)
                found.append(("", "", file))
            except OSError:
                folder = unfinished(top, kind, file)
                if folder:
                    found.append((folder, folder, file))
        if not found:
            raise Refused("has no results of dsaioctl bench")
        for folder, shown, file in found:
            name = arg if len(found) == 1 and not shown else os.path.join(arg, shown, file)
            fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            try:
                yield load_run(name, fd, file)
            finally:
                os.close(fd)
    finally:
        os.close(top)


# ---- pictures ----


class Pictures:
    """Figures of matplotlib as elements of the page."""

    def __init__(self) -> None:
        # A page looks the same for everybody: not as a matplotlibrc says, which may be the current directory's.
        os.environ.pop("MPLBACKEND", None)
        import matplotlib

        matplotlib.rcdefaults()
        matplotlib.use("svg")
        from matplotlib import pyplot

        self.pyplot = pyplot
        pyplot.rcParams.update(
            {"svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
        )
        for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
            pyplot.rcParams[key] = INK
        self.n = 0

    def axes(self, width: float, height: float, columns: int = 1) -> Tuple[Any, List[Any]]:
        figure, axes = self.pyplot.subplots(1, columns, figsize=(width, height), squeeze=False, layout="constrained")
        return figure, list(axes[0])

    @staticmethod
    def legend(ax: Any) -> None:
        """Above the axes, where it covers nothing."""
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncol=4, borderaxespad=0)

    def html(self, figure: Any, caption: str) -> str:
        self.n += 1
        # Ids do not clash with another picture's, and the same results give the same page.
        self.pyplot.rcParams["svg.hashsalt"] = str(self.n)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        self.pyplot.close(figure)
        svg = out.getvalue()
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
        svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace(INK, "currentColor")
        svg = re.sub(r'(?<=[" #(])([a-z]+[0-9a-f]{10}|[a-z]+_[0-9]+)(?=[")])', rf"f{self.n}-\1", svg)
        return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>\n"


def heat_maps(pictures: Pictures, run: Run, op: str) -> str:
    points = [p for p in run.measured if p.op == op]
    if not points:
        return ""
    blocks, depths, parts = (sorted({p.profile[i] for p in points}) for i in (0, 1, 4))
    best: Dict[Tuple[int, int, int], Point] = {}  # a cell stands for all ways to submit
    for p in points:
        key = (p.profile[0], p.profile[1], p.profile[4])
        if key not in best or best[key].speed < p.speed:
            best[key] = p
    low, high = min(p.speed for p in points), max(p.speed for p in points)
    per_row = 3
    rows = []
    for chunk in (parts[i : i + per_row] for i in range(0, len(parts), per_row)):
        width = (0.9 + 0.62 * len(blocks)) * len(chunk)
        figure, axes = pictures.axes(max(width, 7), 0.9 + 0.34 * len(depths), len(chunk))
        for ax, part in zip(axes, chunk):
            cells = [[best.get((b, d, part)) for b in blocks] for d in depths]
            values = [[c.speed if c else math.nan for c in row] for row in cells]
            centers = (range(len(blocks)), range(len(depths)))
            ax.pcolormesh(*centers, values, cmap="Blues", vmin=low - 0.4 * (high - low), vmax=high or 1)
            ax.invert_yaxis()
            for (y, row), (x, _) in itertools.product(enumerate(cells), enumerate(blocks)):
                c = row[x]
                if c:
                    colour = "#ffffff" if c.speed > (low + high) / 2 else "#10161f"
                    shown = speed(c.speed) + "!" * c.is_disturbed
                    ax.text(x, y, shown, ha="center", va="center", color=colour, fontsize=8)
            ax.set_xticks(range(len(blocks)), [size(b).replace(" ", "").replace("iB", "") for b in blocks])
            ax.set_yticks(range(len(depths)), [str(d) for d in depths])
            ax.set(title=f"{op}, {part} part{'' if part == 1 else 's'}", xlabel="block size", ylabel="depth")
        rows.append(figure)
    caption = (
        f"{op.capitalize()}s in GB/s, by block size, queue depth and parts of a transfer side by side; the fastest way "
        f"to submit counts. All lie between {speed(low)} and {speed(high)}: the slowest is "
        f"{(1 - low / high) * 100:.0f}% below the fastest."
    )
    return "".join(pictures.html(f, caption if f is rows[-1] else "") for f in rows)


def bars(pictures: Pictures, run: Run) -> str:
    pairs = run.pairs()
    if not pairs:
        return ""
    name, goal = run.main_goal()
    shown: List[Tuple[str, Dict[str, Point]]]
    if goal:
        ranks, best = goal["ranks"], recommended(goal)
        order = list(range(min(len(ranks), BARS_MAX)))
        if best not in order:
            order[-1] = best  # is shown wherever it stands
        by_profile = dict(pairs)
        shown = [
            (
                ("* " if i == best else "= " if members(ranks[i]).get("is_tied") else "")
                + profile_name(rank_profile(ranks[i])),
                by_profile.get(rank_profile(ranks[i]), {}),
            )
            for i in order
        ]
        caption = (
            f"{len(shown)} of the {len(ranks)} profiles that bench tune measured to the end, in the order of its "
            f"ranking by {name}; * is the one that it recommends, = those that are tied with the fastest. "
        )
    else:
        shown = [(profile_name(profile), pair) for profile, pair in pairs[:BARS_MAX]]
        caption = f"The fastest {len(shown)} of {len(pairs)} profiles, by the sum of reads and writes. "
    figure, (ax,) = pictures.axes(7, 0.8 + 0.42 * len(shown))
    has_interval = False
    for i, op in enumerate(OPS):
        points = [(y, pair[op]) for y, (_, pair) in enumerate(shown) if op in pair]
        if not points:
            continue
        has_interval |= any(p.half for _, p in points)
        intervals = [[min(p.half, p.speed) for _, p in points], [p.half for _, p in points]]
        drawn = ax.barh(
            [y + 0.4 * i - 0.2 for y, _ in points],
            [p.speed for _, p in points],
            0.38,
            color=COLOURS[i],
            label=op,
            xerr=intervals if any(intervals[1]) else None,
            error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 2},
        )
        ax.bar_label(drawn, [speed(p.speed) + "!" * p.is_disturbed for _, p in points], padding=4, fontsize=7)
    ax.set_yticks(range(len(shown)), [label for label, _ in shown])
    ax.invert_yaxis()
    ax.set_xlabel("GB/s")
    ax.margins(x=0.12)
    pictures.legend(ax)
    caption += (
        "The lines are intervals of 95% (Student's) from the repetitions."
        if has_interval
        else "Each was measured once: there is no interval; repeat with --loops 5, or use bench tune."
    )
    return pictures.html(figure, caption)


def times(pictures: Pictures, run: Run) -> str:
    all_times = [at for p in run.points for at, _ in p.repetitions]
    if not all_times:
        return ""
    first = min(all_times)
    figure, (ax,) = pictures.axes(7, 2.6)
    for op, is_disturbed in itertools.product(OPS, (False, True)):
        points = [r for p in run.points if p.op == op and p.is_disturbed == is_disturbed for r in p.repetitions]
        if points:
            colour = COLOURS[OPS.index(op)]
            ax.scatter(
                [at - first for at, _ in points],
                [s for _, s in points],
                12,
                marker="o",
                facecolors="none" if is_disturbed else colour,
                edgecolors=colour,
                label=op + (", disturbed" if is_disturbed else ""),
            )
    ax.set(xlabel="s since the run began", ylabel="GB/s")
    ax.set_ylim(bottom=0)
    pictures.legend(ax)
    return pictures.html(figure, "Every repetition when it was measured: a device that drifts shows here.")


# ---- latencies ----

LATENCIES = (
    ("mean", "mean_nsec"), ("median", "p50_nsec"), ("90%", "p90_nsec"), ("99%", "p99_nsec"), ("99.9%", "p999_nsec"),
    ("max", "max_nsec"), ("deviation", "sd_nsec"),
)  # fmt: skip


SHARES_MAX = 500  # of a curve: more make a page of many results slow


def shares(one: Dict[str, Any]) -> List[List[float]]:
    """Which share of the transfers took no longer, at some steps of the histogram and at its end."""
    steps = [(number(s.get("nsec")), number(s.get("count"))) for s in map(members, items(one.get("histogram")))]
    total = sum(count for _, count in steps)
    if total <= 0:
        return []
    n, curve = 0.0, []
    for nsec, count in steps:
        n += count
        curve.append([nsec, n / total])
    return curve[:: len(curve) // SHARES_MAX + 1] + curve[-1:]


def latencies(pictures: Pictures, run: Run) -> str:
    all_sizes = [members(one) for one in items(run.results.get("latency"))]
    if not all_sizes:
        return ""
    rows = map(members, items(run.results.get("points")))
    disturbed = {(text(row.get("op")), number(row.get("io_size"))) for row in rows if is_disturbed(row)}

    def mark(one: Dict[str, Any]) -> str:
        return "!" if (text(one.get("op")), number(one.get("size"))) in disturbed else ""

    out = ['<div class="wide"><table class="short">\n<tr><th>op</th><th>size</th><th>n</th>']
    out += [f"<th>{title}</th>" for title, _ in LATENCIES] + ["</tr>\n"]
    for one in all_sizes:
        name = size(number(one.get("size"))) + mark(one)
        n = str(int(number(one.get("n"))))
        out.append(f"<tr>{cell(text(one.get('op')))}{cell(name)}{cell(n)}")
        # Too few transfers for it: null.
        out += [
            f'<td class="n">{duration(number(one[k])) if one.get(k) is not None else "-"}</td>' for _, k in LATENCIES
        ]
        out.append("</tr>\n")
    out.append("</table></div>\n")
    for key, caption, x, y in (
        ("histogram", "Which share of the ops took no longer", "latency", "share of ops"),
        ("series", "Mean latency over time", "s since the measurement began", "latency"),
    ):
        figure, (ax,) = pictures.axes(7, 2.8)
        for i, one in enumerate(all_sizes):
            pairs = shares(one) if key == "histogram" else map(items, items(one.get(key)))
            pairs = [pair for pair in pairs if len(pair) == 2]
            if pairs:
                ax.plot(
                    [number(a) for a, _ in pairs],
                    [number(b) for _, b in pairs],
                    color=COLOURS[i % len(COLOURS)],
                    linewidth=1.3,
                    label=f"{text(one.get('op'))} {size(number(one.get('size')))}{mark(one)}",
                )
        nsec_axis = ax.xaxis if key == "histogram" else ax.yaxis
        (ax.set_xscale if key == "histogram" else ax.set_yscale)("log")
        nsec_axis.set_major_formatter(lambda nsec, _: duration(nsec))
        nsec_axis.set_minor_formatter(lambda nsec, _: "")
        ax.set(xlabel=x, ylabel=y)
        pictures.legend(ax)
        out.append(pictures.html(figure, caption))
    return "".join(out)


def bandwidth(value: float) -> str:
    return f"{size(value)}/s"


def mixes(pictures: Pictures, run: Run) -> str:
    clients = [members(one) for one in items(run.results.get("clients"))]
    if run.kind != "mix" or not clients:
        return ""
    out = []
    for key, title, show in (
        ("bytes_per_sec", "Bandwidth of each client, alone and together", bandwidth),
        ("p99_nsec", "Latency that 99% of its ops did not pass", duration),
    ):
        figure, (ax,) = pictures.axes(7, 0.7 + 0.5 * len(clients))
        largest = 0.0
        for i, when in enumerate(("alone", "together")):
            values = [number(members(one.get(when)).get(key)) for one in clients]
            largest = max([largest, *values])
            places = [k + (i - 0.5) * 0.38 for k in range(len(clients))]
            drawn = ax.barh(places, values, 0.36, color=COLOURS[i], label=when)
            ax.bar_label(drawn, [show(value) if value else "-" for value in values], padding=3, fontsize=8)
        ax.set_yticks(range(len(clients)), [text(one.get("name")).replace("$", r"\$") for one in clients])
        ax.invert_yaxis()
        if largest > 0:
            ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda value, _, show=show: show(value))
        ax.xaxis.set_minor_formatter(lambda value, _: "")
        ax.margins(x=0.15)
        pictures.legend(ax)
        out.append(pictures.html(figure, title))
    return "".join(out)


# ---- tables ----


def cell(content: str) -> str:
    return f"<td>{html.escape(content) if content else '-'}</td>"


def best_cells(run: Run, op: str) -> str:
    goal = run.goal(op)
    if goal:
        rank = members(goal["ranks"][recommended(goal)])
        n_tied = sum(members(r).get("is_tied") is True for r in goal["ranks"])
        low, high = (speed(number(rank.get(k))) for k in ("speed_low", "speed_high"))
        return (
            f'<td class="n">{speed(number(rank.get("speed")))} ({low}-{high})</td>'
            f"<td><code>{html.escape(profile_name(rank_profile(rank)))}</code><br/>recommended, {n_tied} tied</td>"
        )
    point = max((p for p in run.measured if p.op == op), key=lambda p: p.speed, default=None)
    if not point:
        return "<td>-</td><td></td>"
    mark = ' <span class="bad">! disturbed</span>' if point.is_disturbed else ""
    return (
        f'<td class="n">{speed(point.speed)}</td><td><code>{html.escape(profile_name(point.profile))}</code>{mark}</td>'
    )


def best_profiles(runs: Sequence[Run]) -> str:
    runs = [run for run in runs if run.has_profiles]
    if not any(run.points for run in runs):
        return ""
    out = [
        "<h2>Best profiles</h2>\n<p>GB/s, 1 GB being 1024<sup>3</sup> bytes, with the waits between processes. A "
        "profile: block size, queue depth (d), parts of a transfer side by side (p); overlap refills the queue as "
        "requests end, seq waits for all of it; single submits one by one. For a sweep this is the fastest profile, "
        "and the fastest of many is partly luck: see the intervals. For bench tune it is the profile that it "
        "recommends for reads or writes alone, the cheapest of those that are tied with the fastest, with its interval "
        "of 95%.</p>\n"
        '<div class="wide"><table>\n<tr><th>run</th><th>read</th><th></th><th>write</th><th></th></tr>\n'
    ]
    out += [f"<tr>{cell(run.name)}{best_cells(run, 'read')}{best_cells(run, 'write')}</tr>\n" for run in runs]
    out.append('</table></div>\n<div class="runs">\n')
    for run in runs:
        # The profile that bench tune recommends, else the one with the largest sum of read and write speed.
        best = run.results.get("best")
        pairs = run.pairs()
        if best is None and not pairs:
            continue
        what = "recommended profile" if best is not None else "fastest profile"
        if best is None:
            block, depth, overlap, single, parts = pairs[0][0]
            best = {"aio": {"single_submit": single, "overlap_events": overlap, "intra_op_parallelism": parts,
                            "queue_depth": depth, "block_size": block}}  # fmt: skip
        out.append(
            f"<article><h3>{html.escape(run.name)}: {what}</h3>\n"
            f"<pre>{html.escape(json.dumps(best, indent=2))}</pre></article>\n"
        )
    out.append("</div>\n")
    return "".join(out)


def failures(run: Run) -> str:
    failed = [p for p in run.points if p.error]
    if not failed:
        return ""
    lines = "".join(f"<li>{p.op} {html.escape(profile_name(p.profile))}: {html.escape(p.error)}</li>\n" for p in failed)
    return f'<h3 class="bad">Failed</h3>\n<ul>\n{lines}</ul>\n'


def disturbance(run: Run) -> str:
    """The head line's share of points beside which others used the device."""
    if not run.n_disturbed:
        return ""
    return (
        f'<p class="bad">{run.n_disturbed} of {run.n_rows} points were disturbed: others on the device moved bytes '
        "meanwhile. They are marked by ! in pictures and tables, and by hollow circles.</p>\n"
    )


def buffers(run: Run) -> str:
    """A run that was resumed has several."""
    lines = []
    for one in map(members, items(run.results.get("buffers"))):
        total, huge = number(one.get("bytes")), one.get("huge_page_bytes")
        if items(one.get("gpus")):
            share = "none: a GPU's,"
        elif huge is None:
            share = "not known"
        else:
            share = "all" if number(huge) == total else "none" if number(huge) == 0 else size(number(huge))
        lines.append(html.escape(f"{share} of {size(total)}"))
    return f"<td>{'<br/>'.join(lines) or 'not known'}</td>"


def gpus(run: Run) -> str:
    """A run that is resumed has the same ones again."""
    first: Dict[str, Any] = next(map(members, items(run.results.get("buffers"))), {})
    return ", ".join(map(text, items(first.get("gpus"))))


def gpu_cell(run: Run) -> str:
    paths = ", ".join(map(text, items(run.results.get("gpu_paths"))))
    return cell(gpus(run) + (": " + paths if gpus(run) and paths else ""))


def command(run: Run) -> str:
    return f"<td><code>{html.escape(shlex.join(map(text, items(run.results.get('command')))))}</code></td>"


def folders(run: Run, *keys: str) -> str:
    lines = [
        ", ".join(filter(None, (text(members(one).get(key)) for key in keys)))
        for one in items(run.results.get("folders"))
    ]
    return f"<td>{'<br/>'.join(map(html.escape, lines)) or '-'}</td>"


def facts(runs: Sequence[Run]) -> str:
    def member(run: Run, group: str, key: str) -> Any:
        return members(run.results.get(group)).get(key)

    table = [
        (
            "bench",
            lambda run: f"<td>{run.kind}"
            + ("" if run.results.get("is_complete") else ', <span class="bad">not complete</span>')
            + "</td>",
        ),
        ("began", lambda run: cell(text(run.results.get("began")))),
        ("disturbed points", lambda run: cell(f"{run.n_disturbed} of {run.n_rows}")),
        ("folders", lambda run: folders(run, "folder", "fs_type")),
        ("device", lambda run: folders(run, "device", "model")),
        ("host", lambda run: cell(text(member(run, "machine", "host")))),
        ("kernel", lambda run: cell(text(member(run, "machine", "kernel")))),
        ("processor", lambda run: cell(text(member(run, "machine", "cpu")))),
        ("processors", lambda run: cell(f"{number(member(run, 'machine', 'cpus')):.0f}")),
        ("memory", lambda run: cell(size(number(member(run, "machine", "memory_bytes"))))),
        ("dsaiod", lambda run: cell(text(member(run, "daemon", "version")))),
        ("buffers in huge pages", buffers),
        *([("memory of GPUs", gpu_cell)] if any(map(gpus, runs)) else []),
        ("command", command),
    ]
    out = ['<h2>What was measured, where, and how to do it again</h2>\n<div class="wide"><table>\n<tr><th>run</th>']
    out += [f"<th>{html.escape(run.name)}</th>" for run in runs] + ["</tr>\n"]
    out += [f"<tr><th>{title}</th>{''.join(map(make, runs))}</tr>\n" for title, make in table]
    out.append(
        "</table></div>\n<p>Large transfers to and from huge pages cost the kernel a fraction of the time: compare "
        "runs only where the same share of the buffers is in huge pages. To see the difference, measure once with "
        "<code>huge_pages = auto</code> and once with <code>huge_pages = no</code> in dsaiod.conf, each into a "
        "directory of its own, and name both to bench report.</p>\n"
    )
    return "".join(out)


def page(runs: Sequence[Run]) -> str:
    pictures = Pictures()
    out = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n<meta name="viewport" '
        'content="width=device-width, initial-scale=1"/>\n<title>dsaioctl bench report</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>dsaioctl bench report</h1>\n"
        f"<p>{html.escape(', '.join(run.name for run in runs))}</p>\n",
        best_profiles(runs),
        '<div class="runs">\n',
    ]
    for run in runs:
        out.append(f'<article class="run">\n<h2>{html.escape(run.name)}</h2>\n{disturbance(run)}')
        if run.has_profiles:
            out += [heat_maps(pictures, run, op) for op in OPS] + [bars(pictures, run)]
        out += [mixes(pictures, run), latencies(pictures, run), times(pictures, run), failures(run), "</article>\n"]
    out += ["</div>\n", facts(runs), "</body>\n</html>\n"]
    return "".join(out)


# ---- the program ----


def write_page(path: str, content: bytes, is_named: bool) -> None:
    """A complete page or none: a new file replaces the old one."""
    folder, name = os.path.split(path)
    try:
        status = os.lstat(path)
        # rename(2) would replace a device, too.  A link at the default place may be another user's trap, so it is
        # replaced.  A link that -o names, such as /dev/stdout, is not.
        is_replaceable = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if not is_replaceable and (is_named or not stat.S_ISLNK(status.st_mode)):
            raise Refused("is no regular file: name another page with -o; -o - writes to standard output")
    except FileNotFoundError:
        pass
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    fd, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder or ".")
    try:
        with open(fd, "wb") as file:
            file.write(content)
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(fd, 0o666 & ~umask)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def fail(what: str, why: str) -> NoReturn:
    sys.exit(f"dsaioctl: bench report: {what}: {why}")


def write_output(content: bytes) -> None:
    """Not by sys.stdout, which is None where standard output is closed, and reports a full disk after main()."""
    try:
        with open(1, "wb", closefd=False) as file:
            file.write(content)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as e:
        fail("standard output", os.strerror(e.errno or 0))


def main() -> None:
    parser = argparse.ArgumentParser(prog="dsaioctl bench report")
    parser.add_argument("-o", "--output")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("args", nargs="+")
    options = parser.parse_args()
    runs: List[Run] = []
    for arg in options.args:
        try:
            runs += find_runs(arg)
        except OSError as e:
            fail(arg, os.strerror(e.errno or 0))
        except Refused as e:
            fail(arg, str(e))
    if len(runs) > RUNS_MAX:
        fail(options.args[0], f"{len(runs)} runs: at most {RUNS_MAX} fit beside each other")
    first = options.args[0]
    path = options.output or os.path.join(first if os.path.isdir(first) else os.path.dirname(first), PAGE)
    content = page(runs).encode(errors="replace")
    if path == "-":
        write_output(content)
        return
    try:
        write_page(path, content, options.output is not None)
    except Refused as e:
        fail(path, str(e))
    except OSError as e:
        fail(path, f"cannot be written: {os.strerror(e.errno or 0)}: name another page with -o")
    answer = json.dumps({"report": path, "runs": len(runs)}) if options.json else path
    write_output(os.fsencode(answer) + b"\n")


DEBIANS_PYTHON = "/usr/bin/python3"

if __name__ == "__main__":
    # The folder of this file has a module numpy of its own.
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.realpath(__file__))]
    try:
        main()
    except ModuleNotFoundError as e:
        if not (e.name or "").startswith("matplotlib"):
            raise
        # The first python3 of the path may be another than that which apt-get installs for; that of a virtual
        # environment is a link to it, and has other packages.
        if os.access(DEBIANS_PYTHON, os.X_OK) and sys.executable != DEBIANS_PYTHON:
            os.execv(DEBIANS_PYTHON, [DEBIANS_PYTHON, *sys.argv])
        fail(
            "pictures need matplotlib",
            f"{sys.executable} does not have it: apt-get install python3-matplotlib, or pip install matplotlib",
        )
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
