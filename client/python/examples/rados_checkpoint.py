#!/usr/bin/env python3
"""A checkpoint that two hosts save together through Ceph, and three hosts load in other shards.

    python3 rados_checkpoint.py rados://tensors/llama/step-1000

Two processes stand for the hosts.  Each has half of the rows of a matrix, with its optimizer's state, and writes them
into the same two files: the first host creates these and hands their tokens on.  When all bytes are there, the first
host commits both files, and then a file MANIFEST that describes them: readers begin with that.  Three processes load
a third of the rows each, by offset.  An interrupted save leaves what was there before.

With --socket, each host uses a daemon of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from typing import Any, Dict, List

import torch

import dsaio
import dsaio.torch

ROWS, COLUMNS = 1201, 1024
TENSORS = ("weight", "exp_avg")
ROW_BYTES = COLUMNS * 4


def shard(host: int, n_hosts: int) -> range:
    return range(ROWS * host // n_hosts, ROWS * (host + 1) // n_hosts)


def values(tensor: str, rows: range) -> torch.Tensor:
    """What the training would have left there."""
    first = torch.arange(rows.start, rows.stop, dtype=torch.float32)
    return first.unsqueeze(1) + torch.arange(COLUMNS) / COLUMNS + TENSORS.index(tensor)


def save(host: int, n_hosts: int, name: str, sockets: List[str], tokens: Any, barrier: Any) -> None:
    use_daemon(host, sockets)
    files: Dict[str, Any] = {}
    if host == 0:
        for tensor in TENSORS:
            files[tensor] = dsaio.create(f"{name}/{tensor}", ROWS * ROW_BYTES)
        for _ in range(1, n_hosts):
            tokens.put({tensor: file.token for tensor, file in files.items()})
    else:
        for tensor, token in tokens.get(timeout=60).items():
            files[tensor] = dsaio.create(f"{name}/{tensor}", ROWS * ROW_BYTES, token=token)

    rows = shard(host, n_hosts)
    with dsaio.Handle(io_class="background") as handle:
        ops = [handle.submit_write(values(t, rows), files[t], rows.start * ROW_BYTES) for t in TENSORS]
        for op in ops:
            op.wait()  # the bytes are on all replicas

    barrier.wait(60)  # of the job
    if host == 0:
        for file in files.values():
            file.commit()
        manifest = json.dumps({tensor: [ROWS, COLUMNS] for tensor in TENSORS}).encode()
        with dsaio.Handle() as handle, dsaio.create(f"{name}/MANIFEST") as last:
            handle.submit_write(manifest, last).wait()
            last.commit()


def load(host: int, n_hosts: int, name: str, sockets: List[str]) -> None:
    use_daemon(host, sockets)
    rows = shard(host, n_hosts)
    with dsaio.open(f"{name}/MANIFEST") as manifest:
        shapes = json.loads(manifest.readall())
    with dsaio.Handle() as handle:
        for tensor, (_, columns) in shapes.items():
            ours = torch.empty(len(rows), columns)
            with dsaio.File(f"{name}/{tensor}") as file:
                handle.submit_read(ours, file, rows.start * ROW_BYTES).wait()
            assert torch.equal(ours, values(tensor, rows)), f"{tensor}: rows {rows} differ"


def use_daemon(host: int, sockets: List[str]) -> None:
    if sockets:
        os.environ["DSAIO_RADOS_SOCKET"] = sockets[host % len(sockets)]


def run(target: Any, n_hosts: int, *arguments: Any) -> None:
    context = multiprocessing.get_context("spawn")
    hosts = [context.Process(target=target, args=(host, n_hosts, *arguments)) for host in range(n_hosts)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    if any(host.exitcode for host in hosts):
        raise SystemExit(f"{target.__name__}: a host has failed")


def main() -> None:
    parser = argparse.ArgumentParser(description="Saves a checkpoint by two hosts, and loads it by three.")
    parser.add_argument("name", help="rados://POOL/NAMESPACE/NAME, behind which the names of its files come")
    parser.add_argument("--socket", action="append", default=[], help="of a host's daemon; once for each host")
    arguments = parser.parse_args()

    context = multiprocessing.get_context("spawn")
    run(save, 2, arguments.name, arguments.socket, context.Queue(), context.Barrier(2))
    run(load, 3, arguments.name, arguments.socket)
    print(f"{arguments.name}: saved by 2 hosts, loaded by 3")


if __name__ == "__main__":
    main()
