"""Compiles ops of DeepSpeed by the names of their builders, or finds them compiled."""

import importlib
import pkgutil
import sys

from deepspeed.ops import op_builder

# On CPU, deepspeed.ops.op_builder has a stand-in for some that work there, such as UtilsBuilder.
PACKAGES = ("deepspeed.ops.op_builder.cpu", "deepspeed.ops.op_builder")


def builder(name):
    for package in PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
            # Its packages are for other accelerators.
            found = None if module.ispkg else getattr(importlib.import_module(module.name), name, None)
            if found is not None and found.__name__ == name:
                return found
    return getattr(op_builder, name)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, builder(name)().load(verbose=False))
