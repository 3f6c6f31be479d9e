"""Trains a small model with ZeRO-3.  Prints a line as each step begins, and then losses, steps and the final weights'
digest as JSON.

    training.py DEVICE FOLDER	DEVICE: nvme or cpu, where optimizer and parameters are between their uses
"""

import hashlib
import json
import os
import sys

STEPS = 5


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def zero(device, folder):
    """The configuration of ZeRO-3."""
    config = {"stage": 3, "sub_group_size": 200_000, "stage3_param_persistence_threshold": 0}
    config["offload_optimizer"] = {"device": device, "pin_memory": True}
    if device == "nvme":
        config["offload_optimizer"].update(nvme_path=folder, buffer_count=4)
        config["offload_param"] = {
            "device": "nvme",
            "nvme_path": folder,
            "pin_memory": True,
            "buffer_count": 8,
            "buffer_size": 300_000,
        }
    return config


def engine(zero_config, n_layers=4, width=256, **more):
    """DeepSpeed's engine for a model whose weights are always the same."""
    import deepspeed
    import torch

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    os.environ.update(CROSS_RANK="0", CROSS_SIZE="1", LOCAL_SIZE="1")
    torch.manual_seed(1)
    layers = []
    for _ in range(n_layers):
        layers += [torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, width)]
    model = torch.nn.Sequential(*layers)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "zero_optimization": zero_config,
        "aio": {"block_size": 1 << 20, "queue_depth": 8, "overlap_events": True},
        **more,
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def step(engine, i, width=256):
    """One step on data that depend on i alone.  Returns the loss."""
    import torch

    data = torch.randn(4, width, generator=torch.Generator().manual_seed(i)).bfloat16()
    loss = engine(data).float().pow(2).mean()
    engine.backward(loss)
    engine.step()
    return loss.item()


def weights(engine):
    """A digest of the master weights' 16-bit copies, which the next step would use."""
    import deepspeed
    import torch

    digest = hashlib.sha256()
    for parameter in engine.module.parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            digest.update(parameter.detach().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()


def main():
    device, folder = sys.argv[1:]
    trained = engine(zero(device, folder))
    losses = []
    for i in range(STEPS):
        print("step", i, flush=True)
        losses.append(step(trained, i).hex())
    print(json.dumps({"losses": losses, "steps": trained.global_steps, "weights": weights(trained)}))


if __name__ == "__main__":
    main()
