"""The programs that lie beside the package in a wheel: its commands dsaioctl and dsaiod run them.

The program takes the place of Python: status, signals and descriptors are those of the program itself.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def _run(name: str) -> NoReturn:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    # Python ignores these, and a program inherits what is ignored.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"{name}: {path}: {e.strerror}: install the wheel of dsaio again")


def dsaioctl() -> NoReturn:
    """Runs dsaioctl(1) with the arguments of this process."""
    _run("dsaioctl")


def dsaiod() -> NoReturn:
    """Runs dsaiod(8) with the arguments of this process."""
    _run("dsaiod")
