"""A program with types, over the package's public names.

.ci/tidy checks it as the program of somebody who has installed the package, and a test runs it.  Each value
has a type of its own here, so that one that the package leaves open (Any) is found.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from concurrent.futures import Future
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Set

import dsaio
import dsaio.safetensors.numpy
from dsaio import safetensors

if TYPE_CHECKING:
    # By these, a type that is Any is an error: it equals no other.
    from typing_extensions import assert_type
else:

    def assert_type(value: object, _: object) -> object:
        return value


def deepnvme(folder: str) -> None:
    handle = dsaio.aio_handle(block_size=1 << 20, queue_depth=32, overlap_events=True, op_timeout=60.0)
    assert_type(handle, dsaio.aio_handle)
    memory = dsaio.alloc(4096, wait=1.5)
    assert_type(memory, memoryview)
    path = os.path.join(folder, "deepnvme")
    assert_type(handle.async_pwrite(memory, path), int)
    assert_type(handle.wait(), int)
    assert_type(handle.async_pread(memory, filename=path, file_offset=0), int)
    assert_type(handle.pread(memory, path, False, True), int)
    assert_type(handle.sync_pread(memory, path), int)
    assert_type(handle.get_alignment(), int)
    assert_type(handle.get_single_submit(), bool)
    assert_type(handle.is_pinned(memory), bool)
    assert_type(handle.free_cpu_locked_tensor(memory), bool)
    assert_type(dsaio.pin_handle().free_cpu_locked_tensor_by_ptr(0), bool)
    assert_type(dsaio.is_pinned(memory), bool)
    with handle as same:
        assert_type(same, dsaio.aio_handle)
    with dsaio.gds_handle(block_size=1 << 20) as gds:
        assert_type(gds, dsaio.gds_handle)
        assert_type(gds.get_alignment(), int)
        assert_type(gds.unpin_device_tensor(memory), bool)


def handles(folder: str) -> None:
    path = os.path.join(folder, "handles")
    profile = dsaio.Profile(queue_depth=16)
    with dsaio.Handle(profile, io_class="demand", weight=2) as handle, dsaio.File(path, os.O_RDWR | os.O_CREAT) as file:
        assert_type(handle, dsaio.Handle)
        assert_type(file, dsaio.File)
        assert_type(dsaio.drop(b"/another"), None)
        op = handle.submit_write(b"x" * 4096, file, 4096, timeout=5)
        assert_type(op, dsaio.Op)
        assert_type(op.wait(timeout=30), int)
        assert_type(op.done(), bool)
        assert_type(op.bytes_done, int)
        assert_type(op.path, Optional[str])
        assert_type(op.why_copied, str)
        assert_type(op.future(), "Future[int]")
        assert_type(handle.submit_fsync(file).wait(), int)
        buffers = [bytearray(1024) for _ in range(4)]
        ops = handle.submit_reads((buffer, path, 4096 + i * 1024) for i, buffer in enumerate(buffers))
        assert_type(ops, List[dsaio.Op])
        asyncio.run(awaited(ops))
        done, not_done = dsaio.wait(ops, 30.0, dsaio.FIRST_EXCEPTION)
        assert_type(done, Set[dsaio.Op])
        assert_type(not_done, Set[dsaio.Op])
        stats = handle.stats()
        assert_type(stats, dsaio.Stats)
        assert_type(stats.bytes_read, int)
        assert_type(stats.wait_seconds, float)
        assert_type(file.size(), int)
        assert_type(file.alignment, int)


def files_and_memory(folder: str) -> None:
    path = os.path.join(folder, "file")
    with dsaio.open(path, "wb") as file:
        assert_type(file, io.RawIOBase)
        file.write(b"x")
    shared = SharedMemory(create=True, size=4096)
    with dsaio.register(shared) as registration:
        assert_type(registration, dsaio.Registration)
    shared.close()
    shared.unlink()


def files_of_safetensors(folder: str) -> None:
    path = os.path.join(folder, "safetensors")
    safetensors.save_file({}, path, {"key": "value"})
    safetensors.load_into(path, {})
    assert_type(safetensors.save({}), bytes)
    assert_type(dsaio.safetensors.numpy.save({}), bytes)
    with safetensors.safe_open(path, framework="np", backend="pread", pinned=False) as file:
        assert_type(file, safetensors.safe_open)
        assert_type(file.keys(), List[str])
        assert_type(file.offset_keys(), List[str])
        assert_type(file.metadata(), Optional[Dict[str, str]])
    try:
        safetensors.load_file(path, "cpu", framework="tf")
    except safetensors.SafetensorError:
        raise
    except ValueError as e:
        assert_type(e, ValueError)


async def awaited(ops: Sequence[dsaio.Op]) -> None:
    async with dsaio.Handle() as handle:
        assert_type(handle, dsaio.Handle)
    for op in ops:
        assert_type(await op, int)


def main(folder: str) -> None:
    deepnvme(folder)
    handles(folder)
    files_and_memory(folder)
    files_of_safetensors(folder)
    assert_type(dsaio.__version__, str)


if __name__ == "__main__":
    main(sys.argv[1])
