"""client/python/examples/optimizer_swapper.py trains as torch.optim.Adam does, bit by bit."""

import errno
import os
import sys

import pytest

from conftest import ROOT

EXAMPLES = os.path.join(ROOT, "client", "python", "examples")

torch = pytest.importorskip("torch")
sys.path.insert(0, EXAMPLES)
import optimizer_swapper  # noqa: E402

SHAPES = [(7, 3), (), (1,), (1000, 33), (4096,), (129, 65), (5,)]


def parameters(dtype):
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in SHAPES]


def set_gradients(tensors, step):
    """In each step, another one has none."""
    torch.manual_seed(100 + step)
    for i, tensor in enumerate(tensors):
        gradient = torch.randn(tensor.shape, dtype=tensor.dtype)
        tensor.grad = None if (i + step) % 5 == 0 else gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("n_buffers", [2, 3, 9])
def test_it_equals_adam_in_memory(path, n_buffers, dtype):
    expected, swapped = parameters(dtype), parameters(dtype)
    adam = torch.optim.Adam(expected, lr=0.01, weight_decay=0.1)
    with optimizer_swapper.SwappedAdam(swapped, path, n_buffers, lr=0.01, weight_decay=0.1) as optimizer:
        for step in range(7):
            set_gradients(expected, step)
            set_gradients(swapped, step)
            adam.step()
            optimizer.step()
            assert all(torch.equal(a, b) for a, b in zip(expected, swapped))


def test_a_read_and_a_write_are_open_during_a_step(path, monkeypatch):
    swapped = parameters(torch.float32)
    n_open = []
    with optimizer_swapper.SwappedAdam(swapped, path) as optimizer:
        step_one = optimizer.step_one

        def look(*arguments):
            n_open.append(optimizer.handle.stats().open)
            step_one(*arguments)

        monkeypatch.setattr(optimizer, "step_one", look)
        for tensor in swapped:
            tensor.grad = torch.ones_like(tensor)
        optimizer.step()
    # Nobody has looked at their end.  The first has no write before it; the last has two, and no read behind it.
    assert n_open == [1] + [2] * (len(SHAPES) - 1)


def test_a_file_that_lost_its_bytes_is_an_error(path):
    swapped = parameters(torch.float32)
    optimizer = optimizer_swapper.SwappedAdam(swapped, path)
    for tensor in swapped:
        tensor.grad = torch.ones_like(tensor)
    optimizer.step()
    optimizer.close()
    optimizer = optimizer_swapper.SwappedAdam(swapped, path)
    os.truncate(path, 0)
    with pytest.raises(OSError) as e:
        optimizer.step()
    assert e.value.errno == errno.ENODATA and e.value.filename == path


def test_the_program_compares_both(python, folder):
    code = f"""
    sys.path.insert(0, {EXAMPLES!r})
    sys.argv = ["optimizer_swapper.py", folder, "--width=64", "--depth=3"]
    import optimizer_swapper
    optimizer_swapper.main()
    """
    lines = python(code).splitlines()
    assert lines[0].startswith("in memory: ") and lines[1].startswith("swapped: ")
    assert lines[2] == "the parameters are the same, bit by bit"
    assert os.listdir(folder) == []
