"""The page of `dsaioctl bench report`: what results are shown, whatever the file holds."""

import html.parser
import importlib.util
import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("matplotlib", reason="bench report draws with it: apt-get install python3-matplotlib")

PROGRAM = os.path.join(os.path.dirname(__file__), "../../client/python/dsaio/bench_report.py")
GB = 1 << 30


def load():
    spec = importlib.util.spec_from_file_location("bench_report", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


report = load()


def point(op="read", block_size=1 << 20, depth=32, speeds=(2.0,), **more):
    repetitions = [{"at_sec": 100.0 + i, "e2e_sec": 1.0, "bytes": int(s * GB)} for i, s in enumerate(speeds)]
    return {
        "op": op, "block_size": block_size, "queue_depth": depth, "sequential_requests": False, "single_submit": False,
        "io_parallel": 1, "repetitions": repetitions, "bytes": int(sum(speeds) * GB), "e2e_sec": float(len(speeds)),
        "error": None, "is_disturbed": False, **more,
    }  # fmt: skip


def results(kind="sweep", points=(), **more):
    return {"format": report.FORMAT, "kind": kind, "is_complete": True, "points": list(points), **more}


def page_of(*all_results):
    return report.page([report.Run(f"run{i}", r) for i, r in enumerate(all_results)])


class Checker(html.parser.HTMLParser):
    """Elements are closed in order."""

    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in self.VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def check(page):
    checker = Checker()
    checker.feed(page)
    assert not checker.open
    assert 'href="http' not in page and "src=" not in page and "<script" not in page
    return " ".join("".join(checker.text).split())


def run(*args):
    return subprocess.run([sys.executable, PROGRAM, *args], capture_output=True, text=True)


def test_points_are_in_the_maps_the_bars_and_the_best_profiles():
    text = check(
        page_of(
            results(
                points=[point(speeds=(2.0, 2.2, 2.4)), point("write", speeds=(1.0,)), point(depth=4, speeds=(1.5,))]
            )
        )
    )
    for words in (
        "Best profiles",
        "fastest profile",
        "1M d32 p1 overlap",
        "read, 1 part",
        "write, 1 part",
        "intervals of 95%",
        "All lie between 1.5 and 2.2",
        "since the run began",
    ):
        assert words in text, words


def test_disturbed_points_are_counted_in_the_head_line_and_marked_in_every_picture_and_table():
    quiet, disturbed = point(depth=4, speeds=(1.0,)), point(speeds=(3.0,), is_disturbed=True)
    page = page_of(results(points=[quiet, disturbed]))
    text = check(page)
    assert "1 of 2 points were disturbed" in text
    assert "<th>disturbed points</th><td>1 of 2</td>" in page
    assert "! disturbed" in text  # the best profile
    assert text.count("3!") == 2  # heat map, bars
    assert "read, disturbed" in text  # repetitions over time
    assert "disturbed:" not in check(page_of(results(points=[quiet])))


def test_steps_of_a_tuner_are_one_point():
    run = report.Run("r", results("tune", [point(speeds=(1.0,)), point(speeds=(3.0,))]))
    assert [p.speed for p in run.points] == [2.0]
    assert len(run.points[0].repetitions) == 2


def test_a_tunes_recommendation_is_named_with_its_ties():
    profiles = [
        {
            "block_size": 1 << 20,
            "queue_depth": d,
            "single_submit": False,
            "overlap_events": True,
            "intra_op_parallelism": 1,
        }
        for d in (64, 32)
    ]
    ranks = [{"profile": p, "speed": 2.0, "speed_low": 1.9, "speed_high": 2.1, "is_tied": True} for p in profiles]
    text = check(
        page_of(
            results(
                "tune",
                [point(depth=64), point(depth=32)],
                best={"aio": profiles[1]},
                tune={"read": {"ranks": ranks, "recommended": 1}},
            )
        )
    )
    for words in (
        "recommended, 2 tied",
        "* 1M d32 p1 overlap",
        "= 1M d64 p1 overlap",
        "recommended profile",
        "2 (1.9-2.1)",
    ):
        assert words in text, words


def test_latencies_have_a_row_and_a_line_each_and_missing_percentiles_a_dash():
    one = {
        "op": "read",
        "size": 4096,
        "n": 20,
        "mean_nsec": 1500.0,
        "p50_nsec": 1000,
        "p90_nsec": 2e6,
        "p99_nsec": None,
        "p999_nsec": None,
        "max_nsec": 3e9,
        "sd_nsec": 5,
        "histogram": [{"nsec": 1000, "count": 10}, {"nsec": 2000, "count": 10}],
        "series": [[0.1, 1000]],
    }
    text = check(page_of(results("latency", latency=[one])))
    for words in (
        "read 4 KiB",
        "1.5 us",
        "2 ms",
        "3 s",
        "Which share of the ops took no longer",
        "Mean latency over time",
    ):
        assert words in text, words
    assert "Best profiles" not in text and "read 4 KiB!" not in text
    beside = point(io_size=4096, is_disturbed=True)
    assert "read 4 KiB!" in check(page_of(results("latency", [beside], latency=[one])))


def test_a_mix_shows_each_client_alone_and_together():
    run = {"bytes_per_sec": 2 << 30, "p99_nsec": 1500}
    slow = {"bytes_per_sec": 1 << 20, "p99_nsec": None}
    clients = [
        {"name": "$writer<", "alone": run, "together": slow},
        {"name": "reader.1", "alone": run, "together": run},
    ]
    page = page_of(results("mix", clients=clients))
    text = check(page)
    for words in ("$writer<", "reader.1", "alone", "together", "2 GiB/s", "1 MiB/s", "1.5 us"):
        assert words in text, words
    wrong = [{"name": value, "alone": value, "together": {"p99_nsec": value}} for value in WRONG]
    check(page_of(results("mix", clients=[*WRONG, *wrong])))
    check(page_of(results("mix", clients=WRONG[0])))


def test_text_of_a_file_stays_text():
    evil = "<script>alert(1)</script>&\"'"
    page = page_of(
        results(
            points=[point(error=evil)],
            command=["dsaioctl", evil],
            machine={"host": evil},
            folders=[{"folder": evil, "device": evil}],
            began=evil,
        )
    )
    assert "Failed" in check(page)
    assert evil not in page


WRONG = [None, True, "x", -1, -7, 1e308, [], {}, [[]], [None]]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_values_that_cannot_be_do_no_harm(wrong):
    check(
        page_of(results(points=[wrong, {**point(), "block_size": wrong, "repetitions": wrong, "io_parallel": wrong}]))
    )
    check(page_of(results("latency", latency=[wrong, {"histogram": wrong, "series": [wrong], "size": wrong}])))
    step = {"nsec": wrong, "count": wrong}
    check(page_of(results("latency", latency=[{"histogram": [wrong, step]}])))
    check(page_of(results(buffers=wrong, folders=wrong, command=wrong, machine=wrong, gpu_paths=wrong, best=wrong)))
    check(
        page_of(results("tune", [point()], tune={"sum": {"ranks": [wrong, {}], "recommended": wrong}, "read": wrong}))
    )


def test_an_unfinished_run_is_read_from_its_rows_up_to_one_that_was_cut_short(tmp_path):
    for n in (2, 10):
        (tmp_path / f"sweep.{n}").mkdir()
        (tmp_path / f"sweep.{n}/results.json").write_text(
            json.dumps({**results(rows_file="rows.jsonl"), "is_complete": False})
        )
    rows = [json.dumps({"points": point(depth=d)}) for d in (1, 2, 3)]
    (tmp_path / "sweep.10/rows.jsonl").write_text("\n".join(rows)[:-20])
    (found,) = report.find_runs(str(tmp_path))
    assert found.name.endswith("sweep.10/results.json")
    assert [p.profile[1] for p in found.points] == [1, 2]
    assert "not complete" in check(report.page([found]))


def test_of_a_log_directory_the_run_is_shown_that_its_link_names(tmp_path):
    for n in (2, 3):
        (tmp_path / f"sweep.{n}").mkdir()
        (tmp_path / f"sweep.{n}/results.json").write_text(json.dumps(results(points=[point(depth=n)])))
    (tmp_path / "results.json").symlink_to("sweep/results.json")
    (tmp_path / "sweep").symlink_to("sweep.2")
    (found,) = report.find_runs(str(tmp_path))
    assert found.name == str(tmp_path) and [p.profile[1] for p in found.points] == [2]
    (tmp_path / "sweep").unlink()
    (tmp_path / "sweep").symlink_to("../sweep.3")
    with pytest.raises(report.Refused, match="symbolic link"):
        list(report.find_runs(str(tmp_path)))


def test_an_old_page_stays_if_the_new_one_fails_and_a_link_is_not_followed(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results(points=[point()])))
    precious = tmp_path / "precious"
    precious.write_text("precious")
    page = tmp_path / "report.html"
    page.symlink_to(precious)
    assert run(str(tmp_path)).stdout == f"{page}\n"
    assert precious.read_text() == "precious" and not page.is_symlink()
    before = page.read_text()
    (tmp_path / "results.json").write_text("{}")
    failed = run(str(tmp_path))
    assert failed.returncode == 1 and "is no results of dsaioctl bench" in failed.stderr
    assert page.read_text() == before
    (tmp_path / "results.json").unlink()
    (tmp_path / "results.json").symlink_to(precious)
    assert "is a symbolic link, which is not followed" in run(str(tmp_path)).stderr
    assert sorted(os.listdir(tmp_path)) == ["precious", "report.html", "results.json"]


def test_the_same_results_give_the_same_page():
    both = [page_of(results(points=[point(), point("write")])) for _ in range(2)]
    assert both[0] == both[1]


def test_without_matplotlib_one_message_says_what_to_install(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('gone', name='matplotlib')")
    (tmp_path / "results.json").write_text(json.dumps(results()))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    failed = subprocess.run([sys.executable, PROGRAM, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert failed.returncode == 1 and "apt-get install python3-matplotlib" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_settings_of_the_current_directory_changed_the_page_or_ended_the_program(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results(points=[point()])))
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 40\n")
    environment = {**os.environ, "MPLBACKEND": "none such"}
    command = [sys.executable, PROGRAM, "results.json"]
    made = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (made.returncode, made.stdout, made.stderr) == (0, "report.html\n", "")
    assert "40px" not in (tmp_path / "report.html").read_text()


def test_in_a_virtual_environment_what_apt_get_installs_had_no_effect(tmp_path):
    python = report.DEBIANS_PYTHON
    if not os.access(python, os.X_OK) or subprocess.run([python, "-c", "import matplotlib"]).returncode != 0:
        pytest.skip(f"{python} has no matplotlib: apt-get install python3-matplotlib")
    (tmp_path / "results.json").write_text(json.dumps(results()))
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    command = [tmp_path / "venv/bin/python3", PROGRAM, tmp_path]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    made = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (made.returncode, made.stderr) == (0, "")


@pytest.mark.parametrize("output", [(), ("-o", "-")], ids=repr)
def test_a_full_disk_behind_standard_output_is_one_message(tmp_path, output):
    (tmp_path / "results.json").write_text(json.dumps(results()))
    with open("/dev/full", "wb") as full:
        command = [sys.executable, PROGRAM, *output, str(tmp_path)]
        failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert failed.returncode == 1
    assert failed.stderr == "dsaioctl: bench report: standard output: No space left on device\n"


def test_ctrl_c_ends_it_without_a_traceback(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results()))
    (tmp_path / "matplotlib.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, PROGRAM, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")
