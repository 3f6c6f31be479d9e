"""For children where Python does not read dsaio.pth: installs what _start.py says when Python starts.

This folder is at the front of PYTHONPATH and hides a sitecustomize of the user, which runs after.
"""

import os
import sys


def _install(package: str) -> None:
    # The program may have found the package in a folder that is not on its children's path.
    sys.path.insert(0, os.path.dirname(package))
    try:
        import dsaio._start

        dsaio._start.start(False)
    finally:
        sys.path.remove(os.path.dirname(package))


def _run_next() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None and spec.has_location:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _start() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    try:
        # A child may be a Python that is too old for the package.
        variables = ("DSAIO_DEEPSPEED", "DSAIO_SAFETENSORS")
        if any(os.environ.get(v, "0") not in ("", "0") for v in variables) and sys.version_info >= (3, 9):
            _install(os.path.dirname(folder))
    finally:
        _run_next()


_start()
