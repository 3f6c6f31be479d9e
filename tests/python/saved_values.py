"""Values that tests of dsaio.torch save, and the comparison with what they load."""

import torch


def byte_of(tensor):
    return tensor.detach().contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor


def assert_same(a, b, assert_more=lambda a, b: None):
    """assert_more(a, b): further assertions for the two, and for all in them."""
    assert_more(a, b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.size() == b.size()
        assert torch.equal(byte_of(a), byte_of(b))
    elif isinstance(a, dict):
        assert set(a) == set(b)
        for key in a:
            assert_same(a[key], b[key], assert_more)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same(x, y, assert_more)
    else:
        assert type(a) is type(b) and a == b


def tensors(seed):
    """Of several forms."""
    torch.manual_seed(seed)
    matrix = torch.randn(300, 500)
    return {
        "matrix": matrix,
        "transposed": matrix.t(),
        "slice": matrix[10:20, ::3],
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0),
        "empty of a shape": torch.empty(3, 0, 5, dtype=torch.int32),
    }
