#!/usr/bin/env python3
"""A model and its optimizer, saved and loaded: in a file of torch.save(), and in a folder of
torch.distributed.checkpoint.

    python3 checkpoint.py /var/tmp/examples

trains a model, saves it, goes on, and trains a loaded copy in the same way: both end with the same
parameters, bit by bit.  A save that is interrupted leaves the one before it loadable.
"""

from __future__ import annotations

import argparse
import os
from typing import Tuple

import torch

import dsaio.torch

# With weights_only, torch 1.13 loads tensors, but not the numbers of an optimizer.
WEIGHTS_ONLY = torch.__version__ >= "2"

Training = Tuple[torch.nn.Module, torch.optim.Optimizer]


def begin(seed: int) -> Training:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(training: Training, steps: range) -> None:
    model, optimizer = training
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()


# ---- a file ----


def save_file(training: Training, path: str) -> None:
    model, optimizer = training
    dsaio.torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def load_file(training: Training, path: str) -> None:
    model, optimizer = training
    state = dsaio.torch.load(path, weights_only=WEIGHTS_ONLY)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


# ---- a folder, which any number of ranks can load (torch 2.3 or newer) ----


def save_folder(training: Training, path: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    from dsaio.torch.checkpoint import StorageWriter

    model, optimizer = get_state_dict(*training)
    dcp.save({"model": model, "optimizer": optimizer}, storage_writer=StorageWriter(path))


def load_folder(training: Training, path: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    from dsaio.torch.checkpoint import StorageReader

    model, optimizer = get_state_dict(*training)
    state = {"model": model, "optimizer": optimizer}
    dcp.load(state, storage_reader=StorageReader(path))
    set_state_dict(*training, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="on the disk to be used; made if it is missing")
    folder = parser.parse_args().folder
    os.makedirs(folder, exist_ok=True)

    formats = [("file", save_file, load_file)]
    try:
        import dsaio.torch.checkpoint  # noqa: F401
    except ImportError as e:
        print(f"no folder: {e}")
    else:
        formats.append(("folder", save_folder, load_folder))
    for name, save, load in formats:
        path = os.path.join(folder, f"checkpoint.{name}")
        first, second = begin(seed=1), begin(seed=2)
        train(first, range(3))
        save(first, path)
        load(second, path)
        train(first, range(3, 6))
        train(second, range(3, 6))
        assert all(torch.equal(a, b) for a, b in zip(first[0].parameters(), second[0].parameters()))
        print(f"{name}: the loaded training goes on as the saved one did")


if __name__ == "__main__":
    main()
