#!/usr/bin/env python3
"""Adam whose states lie in a file: training needs the memory of three parameters' states, not of all.

    python3 optimizer_swapper.py /var/tmp/examples

trains the same model twice, with torch.optim.Adam in memory and with SwappedAdam, and compares the
parameters bit by bit.

While the states of one parameter are used, those of the next are read, and those of the one before are
written.  Three pinned buffers take turns:

    buffer 0    read 0   use 0    write 0   read 3   use 3   ...
    buffer 1    read 1            use 1     write 1  read 4
    buffer 2                      read 2    use 2    write 2
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any, Dict, Iterable, List, Optional

import torch

import dsaio
import dsaio.torch

STATES = ("exp_avg", "exp_avg_sq")  # of torch.optim.Adam, each of the parameter's shape


class SwappedAdam:
    """torch.optim.Adam with its states in the file `path`, which no other program may use meanwhile.

    n_buffers: 2 or more; with 3, reads, steps and writes overlap.  options: as of torch.optim.Adam.
    Parameters are on the CPU; they and their gradients stay in memory.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], path: str, n_buffers: int = 3, **options: Any) -> None:
        self.parameters = list(parameters)
        # One for each, so that each can make its step alone.
        self.adams = [torch.optim.Adam([parameter], **options) for parameter in self.parameters]
        self.handle = dsaio.Handle()
        self.file = dsaio.File(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

        # Any offset works.  Multiples of the alignment go to the device without a copy.
        self.offsets: List[int] = []
        end = 0
        for parameter in self.parameters:
            self.offsets.append(end)
            end += -(-self.nbytes(parameter) // self.file.alignment) * self.file.alignment
        self.file.truncate(end)  # all zeros

        largest = max(self.nbytes(parameter) for parameter in self.parameters)
        self.buffers = [dsaio.torch.empty(largest, torch.uint8) for _ in range(n_buffers)]
        self.writes: List[Optional[dsaio.Op]] = [None] * n_buffers  # the last one of each buffer

    @staticmethod
    def nbytes(parameter: torch.Tensor) -> int:
        one: int = parameter.numel() * parameter.element_size()
        return len(STATES) * one

    def step(self) -> None:
        """One step of each parameter that has a gradient.  Raises OSError if a read or write has failed."""
        indices = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        reads: List[dsaio.Op] = []

        def start_next_read() -> None:
            if len(reads) < len(indices):
                i, slot = indices[len(reads)], len(reads) % len(self.buffers)
                write = self.writes[slot]
                if write is not None:
                    write.wait()
                content = self.buffers[slot][: self.nbytes(self.parameters[i])]
                reads.append(self.handle.submit_read(content, self.file, self.offsets[i]))

        for _ in range(len(self.buffers) - 1):
            start_next_read()
        for n, i in enumerate(indices):
            slot = n % len(self.buffers)
            reads[n].wait()
            content = self.buffers[slot][: self.nbytes(self.parameters[i])]
            self.step_one(i, content)
            self.writes[slot] = self.handle.submit_write(content, self.file, self.offsets[i])
            start_next_read()  # into the buffer whose write has had the time of this step

    def step_one(self, i: int, content: torch.Tensor) -> None:
        parameter, adam = self.parameters[i], self.adams[i]
        views = [part.view(parameter.dtype).view(parameter.shape) for part in content.chunk(len(STATES))]
        state: Dict[str, Any] = adam.state[parameter]
        is_first = not state  # then Adam makes its states, as zeros
        if not is_first:
            state.update(zip(STATES, views))
        adam.step()
        for name, view in zip(STATES, views):
            if is_first:
                view.copy_(state[name])
            state[name] = None  # the next parameter gets the buffer

    def close(self) -> None:
        """Waits for the last writes, and raises OSError if one has failed."""
        for write in self.writes:
            if write is not None:
                write.wait()
        self.handle.close()
        self.file.close()

    def __enter__(self) -> SwappedAdam:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def model(width: int, depth: int) -> torch.nn.Module:
    torch.manual_seed(1)
    layers: List[torch.nn.Module] = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)


def train(network: torch.nn.Module, optimizer: Any, width: int, steps: int) -> float:
    """Returns the seconds that the optimizer took."""
    seconds = 0.0
    torch.manual_seed(2)
    for _ in range(steps):
        network.zero_grad()
        loss = torch.nn.functional.mse_loss(network(torch.randn(8, width)), torch.randn(8, width))
        loss.backward()
        began = time.perf_counter()
        optimizer.step()
        seconds += time.perf_counter() - began
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains with Adam's states in memory, and in a file.")
    parser.add_argument("folder", help="where the file with the states is made, and removed; made if it is missing")
    parser.add_argument("--width", type=int, default=1024, help="of a layer (%(default)s)")
    parser.add_argument("--depth", type=int, default=8, help="layers (%(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="(%(default)s)")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)

    in_memory = model(options.width, options.depth)
    seconds = train(in_memory, torch.optim.Adam(in_memory.parameters()), options.width, options.steps)
    print(f"in memory: {seconds / options.steps * 1e3:.1f} ms a step")

    swapped = model(options.width, options.depth)
    # A folder of its own: the states may not take the place of a file that is there.
    with tempfile.TemporaryDirectory(prefix="adam-", dir=options.folder) as folder:
        with SwappedAdam(swapped.parameters(), os.path.join(folder, "states")) as optimizer:
            seconds = train(swapped, optimizer, options.width, options.steps)
            stats = optimizer.handle.stats()
    megabytes = (stats.bytes_read + stats.bytes_written) / options.steps / 1e6
    waited = stats.wait_seconds / options.steps * 1e3
    print(f"swapped: {seconds / options.steps * 1e3:.1f} ms a step for {megabytes:.1f} MB, {waited:.1f} ms of it waits")

    same = all(torch.equal(a, b) for a, b in zip(in_memory.parameters(), swapped.parameters()))
    print("the parameters are the same, bit by bit" if same else "the parameters differ")
    raise SystemExit(not same)


if __name__ == "__main__":
    main()
