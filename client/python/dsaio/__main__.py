"""python -m dsaio run ...: runs a program as Python does, with dsaio in the places of DeepNVMe and safetensors."""

from __future__ import annotations

import os
import sys

from . import _start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, NoReturn

USAGE = """\
usage: python -m dsaio run SCRIPT [ARGUMENT]...
       python -m dsaio run -m MODULE [ARGUMENT]...

Runs the program as `python SCRIPT` and `python -m MODULE` do.  There, and in the Python processes that the program
starts, DeepSpeed's async_io and pin_memory ops are those of dsaio, and files of safetensors are loaded through it, as
by transformers, accelerate and diffusers.  DSAIO_DEEPSPEED=0 and DSAIO_SAFETENSORS=0 leave one of them out.
dsaio-python(7) is the manual.
"""


def _options() -> List[str]:
    """The interpreter's own options, as -u and -X, from the command line that ends in -m dsaio ARGUMENT..."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    words = words[1 : len(words) - len(sys.argv[1:])]
    if words and words[-1] == "dsaio":
        words = words[:-2] + [words[-2] + words[-1]]
    if not words or not words[-1].endswith("mdsaio"):
        return []  # it was started another way, as by runpy
    last = words.pop()[: -len("mdsaio")]
    return words if last == "-" else words + [last]


def _run(arguments: List[str]) -> NoReturn:
    if sys.flags.no_site:
        sys.exit("dsaio: run: with Python's option -S nothing can be installed when Python starts: leave it out")
    if sys.flags.ignore_environment and not _start.has_pth():
        sys.exit("dsaio: run: Python's options -E and -I ignore PYTHONPATH: leave them out, or install the wheel")
    if not sys.executable:
        sys.exit("dsaio: run: the path of the Python interpreter is not known")
    _start.reach_all_children()
    # A new interpreter, so that the program finds everything as Python itself prepares it.
    os.execv(sys.executable, [sys.executable, *_options(), *arguments])


def main() -> None:
    words = sys.argv[2:] if sys.argv[1:2] == ["run"] else sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
    elif len(sys.argv) > 2 and sys.argv[1] == "run":
        _run(sys.argv[2:])
    else:
        print(USAGE, end="", file=sys.stderr)
        sys.exit(2)


main()
