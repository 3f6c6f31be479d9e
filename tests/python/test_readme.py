"""The examples of README.md and of dsaio-python(7) run as they are, on files in the test's folder."""

import os
import re
import subprocess
import sys

import pytest

from conftest import PACKAGE, ROOT


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def blocks(folder):
    found = re.findall(r"^```python\n(.*?)^```$", text_of("README.md"), re.M | re.S)
    return [block.replace("/var/tmp", folder) for block in found]


def run(python, code, **options):
    return python("if True:\n" + "".join("    " + line for line in code.splitlines(True)), **options)


def test_the_examples_of_the_readme_read_files_that_nothing_had_made(python, folder):
    pytest.importorskip("torch")
    handle, deepnvme, safetensors = blocks(folder)
    run(python, handle + deepnvme + "assert (weights == 1).all()\n")
    run(python, safetensors + 'assert tensors["weight"].shape == (1024, 1024) and rows.shape == (10, 1024)\n')


def test_the_examples_of_the_readme_went_on_with_garbage_where_a_file_was_missing(python, folder):
    pytest.importorskip("torch")
    handle, deepnvme, _ = blocks(folder)
    missing = deepnvme.replace("weights.bin", "none.bin")
    output = run(python, handle + missing + "print('goes on')\n", status=1)
    assert "No such file" in output and "the read has not started" in output and "goes on" not in output
    cut = handle.replace("    op =", f"    os.truncate('{folder}/weights.bin', 5)\n    op =")
    output = run(python, cut, status=1)
    assert "the file ends after 5 of them" in output


def test_the_example_of_the_manual_runs(python, folder):
    page = text_of("man/dsaio-python.7")
    (code,) = re.findall(r"^\.Sh EXAMPLES\n\.Bd -literal\n(.*?)^\.Ed$", page, re.M | re.S)
    python(code.replace("/var/tmp", folder))


@pytest.mark.parametrize("name", ["checkpoint", "optimizer_swapper"])
def test_the_examples_needed_a_folder_that_exists(daemon, folder, name):
    pytest.importorskip("torch")
    pattern = rf"^    python3 (client/python/examples/{name}.py) /var/tmp/examples$"
    (line,) = re.findall(pattern, text_of("README.md"), re.M)
    small = ["--width=64", "--depth=3"] if name == "optimizer_swapper" else []
    command = [sys.executable, os.path.join(ROOT, line), os.path.join(folder, "new", "examples"), *small]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": PACKAGE}, check=True, stdout=subprocess.DEVNULL)
