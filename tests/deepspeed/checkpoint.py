"""Saves a checkpoint by FastFileWriter, and compares what torch.load() reads with what was saved.

    checkpoint.py writer FOLDER		FastFileWriter alone, with one buffer and with two
    checkpoint.py engine FOLDER		an engine of DeepSpeed, whose writer is a process of its own
"""

import glob
import os
import sys

import training


def with_utils_builder():
    """On CPU, DeepSpeed has a stand-in for UtilsBuilder, which works there all the same."""
    import deepspeed.io.fast_file_writer as fast_file_writer
    from deepspeed.ops.op_builder.utils import UtilsBuilder

    fast_file_writer.UtilsBuilder = UtilsBuilder


def writer(folder):
    import torch
    from deepspeed.accelerator import get_accelerator
    from deepspeed.io import FastFileWriter, FastFileWriterConfig
    from deepspeed.ops.op_builder import AsyncIOBuilder

    with_utils_builder()
    torch.manual_seed(2)
    state = {f"t{i}": torch.randn(n) for i, n in enumerate((1, 1000, 3_000_001, 0, 17))}
    state["half"] = torch.randn(1001, 3).half()
    handle = AsyncIOBuilder().load().aio_handle(1 << 20, 8, False, True, 1)
    buffer = get_accelerator().pin_memory(torch.empty(4 << 20, dtype=torch.uint8), make_copy=False)
    assert get_accelerator().is_pinned(buffer) and handle.is_pinned(buffer)
    for is_double in (False, True):
        for is_zip in (False, True):
            path = os.path.join(folder, f"{is_double}-{is_zip}.pt")
            config = FastFileWriterConfig(dnvme_handle=handle, pinned_tensor=buffer, double_buffer=is_double)
            file = FastFileWriter(path, config)
            torch.save(state, file, _use_new_zipfile_serialization=is_zip)
            file.close()
            loaded = torch.load(path)
            assert set(loaded) == set(state)
            assert all(torch.equal(loaded[name], state[name]) for name in state), path
    print("equal")


def engine(folder):
    # The writer's process imports this file again.
    writer_config = {"type": "fast", "decoupled": True, "io_buffer_size": 4 << 20, "data_parallel": "replica"}
    trained = training.engine({"stage": 0}, checkpoint={"writer": writer_config, "checkpoint_serialization": False})
    training.step(trained, 0)
    trained.save_checkpoint(folder, tag="a")
    trained.checkpoint_engine.cleanup()
    import torch

    # Behind its name, a part has its number and that of all parts.
    (path,) = glob.glob(os.path.join(folder, "a", "*model_states.pt*"))
    loaded = torch.load(path, weights_only=False)
    own = trained.module_state_dict()
    assert own and all(torch.equal(loaded["module"][name], own[name]) for name in own)
    print("equal")


if __name__ == "__main__":
    {"writer": writer, "engine": engine}[sys.argv[1]](sys.argv[2])
elif os.environ.get("DS_PIN_MEMORY_BACKEND") == "native":
    with_utils_builder()  # in the writer's process
