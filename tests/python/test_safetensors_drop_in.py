"""dsaio.safetensors in the place of the package safetensors: modules, arguments, errors, models.

Where that package is installed, its functions, files and results are compared with ours.
"""

import importlib
import inspect
import os

import pytest

from conftest import PACKAGE, file_bytes, make_file
from dsaio.safetensors import SafetensorError, load_file, safe_open, save_file

FUNCTIONS = {
    "torch": {
        "load": ["data"],
        "load_file": ["filename", "device", "backend"],
        "load_model": ["model", "filename", "strict", "device", "backend"],
        "save": ["tensors", "metadata"],
        "save_file": ["tensors", "filename", "metadata"],
        "save_model": ["model", "filename", "metadata", "force_contiguous"],
        "storage_ptr": ["tensor"],
        "storage_size": ["tensor"],
    },
    "numpy": {
        "load": ["data"],
        "load_file": ["filename", "backend"],
        "save": ["tensor_dict", "metadata"],
        "save_file": ["tensor_dict", "filename", "metadata"],
    },
}
OUR_OWN = {"framework", "pinned"}


def genuine(name):
    module = pytest.importorskip(name, reason="safetensors is not installed: make check-deepspeed")
    version = importlib.import_module("safetensors").__version__
    if tuple(int(n) for n in version.split(".")[:2]) < (0, 8):
        pytest.skip(f"safetensors {version} is older than 0.8.0, and has other arguments")
    return module


def name_of(kind):
    return "torch" if hasattr(kind, "torch") else "numpy"


def ours(kind):
    return importlib.import_module("dsaio.safetensors." + name_of(kind))


def content(kind, tensors):
    return {name: (list(tensor.shape), kind.bytes(tensor)) for name, tensor in tensors.items()}


@pytest.fixture
def tensors(kind):
    return {"a": kind.of(bytes(range(8)), "int16"), "b": kind.of(bytes(12), "float32"), "none": kind.empty()}


# ---- arguments ----


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_safe_open_refused_the_argument_backend(kind, path, tensors, backend):
    save_file(tensors, path)
    with safe_open(path, framework=name_of(kind), device="cpu", backend=backend) as file:
        assert content(kind, file.get_tensors()) == content(kind, tensors)
    assert content(kind, load_file(path, backend=backend, framework=name_of(kind))) == content(kind, tensors)


def test_a_backend_that_does_not_exist_is_named(path):
    save_file({}, path)
    with pytest.raises(SafetensorError, match='backend \'uring\': must be "mmap" or "pread"'):
        safe_open(path, "np", backend="uring")
    with pytest.raises(TypeError, match="backend None"):
        safe_open(path, "np", backend=None)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name not in OUR_OWN]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_safetensors_were_missing(name):
    module = importlib.import_module("dsaio.safetensors." + name)
    for function, names in FUNCTIONS[name].items():
        assert [p[0] for p in parameters(getattr(module, function))] == names
        assert function in module.__all__
    assert module.safe_open is safe_open and module.SafetensorError is SafetensorError


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_and_defaults_are_those_of_safetensors(name):
    theirs = genuine("safetensors." + name)
    module = importlib.import_module("dsaio.safetensors." + name)
    for function in FUNCTIONS[name]:
        assert parameters(getattr(module, function)) == parameters(getattr(theirs, function)), function


# ---- errors ----


def test_a_refused_file_was_no_error_of_safetensors_own(python, folder):
    """A program that catches theirs sees ours, too."""
    make_file(folder + "/f", b"no header")
    os.mkdir(folder + "/safetensors")
    make_file(folder + "/safetensors/__init__.py", b"class SafetensorError(Exception): pass\n")
    code = f"""
    from safetensors import SafetensorError
    import dsaio.safetensors
    for error in (SafetensorError, ValueError, dsaio.safetensors.SafetensorError):
        try:
            dsaio.safetensors.safe_open({folder + "/f"!r}, "np")
            raise AssertionError("it has not failed")
        except error:
            pass
    """
    python(code, PYTHONPATH=os.pathsep.join((folder, PACKAGE)))


def test_a_refused_file_is_an_error_of_the_installed_safetensors(path):
    make_file(path, b"no header")
    with pytest.raises(genuine("safetensors").SafetensorError):
        safe_open(path, "np")


# ---- content in memory ----


@pytest.mark.parametrize("pinned", [True, False])
def test_load_copies_the_tensors_of_bytes(kind, path, tensors, pinned):
    save_file(tensors, path)
    data = file_bytes(path)
    for source in (data, bytearray(data), memoryview(data)):
        loaded = ours(kind).load(source, pinned=pinned)
        assert content(kind, loaded) == content(kind, tensors)
        loaded["a"][0] = 7  # its own memory
    with pytest.raises(SafetensorError, match="the data: no safetensors file: .* and the file at byte"):
        ours(kind).load(data[:-1])
    with pytest.raises(SafetensorError, match="the data: no safetensors file: has 0 bytes"):
        ours(kind).load(b"")
    with pytest.raises(TypeError):
        ours(kind).load(path)


def test_save_returns_the_bytes_of_save_file(kind, path, tensors):
    save_file(tensors, path, {"k": "v"})
    assert ours(kind).save(tensors, {"k": "v"}) == file_bytes(path)
    assert ours(kind).save({}) == b"\x08" + bytes(7) + b"{}      "
    with pytest.raises(TypeError, match="tensor 'a'"):
        ours(kind).save({"a": 3})


def test_bytes_are_those_of_safetensors(kind, tensors):
    theirs = genuine("safetensors." + name_of(kind))
    assert ours(kind).save(tensors) == theirs.save(tensors)
    assert content(kind, theirs.load(ours(kind).save(tensors))) == content(kind, tensors)


# ---- models ----


def tied_model(seed=1):
    """Two layers with one weight, and a buffer that is a part of another one."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    model = torch.nn.Module()
    model.first, model.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    model.second.weight = model.first.weight
    model.register_buffer("whole", torch.randn(6))
    model.register_buffer("part", model.whole[2:4])
    return model


def state(model):
    return {name: tensor.tolist() for name, tensor in model.state_dict().items()}


def test_a_model_with_tied_weights_is_saved_once_and_loaded(path):
    module = importlib.import_module("dsaio.safetensors.torch")
    model, other = tied_model(1), tied_model(2)
    with pytest.raises(RuntimeError, match="share memory.*save_model"):
        module.save_file(model.state_dict(), path)
    names = {"of": "the caller"}
    module.save_model(model, path, names)
    assert names == {"of": "the caller"}
    with safe_open(path, "pt") as file:
        assert file.keys() == ["first.bias", "first.weight", "second.bias", "whole"]
        assert file.metadata() == {"of": "the caller", "part": "whole", "second.weight": "first.weight"}
    assert state(model) != state(other)
    assert module.load_model(other, path) == (set(), [])
    assert state(model) == state(other)
    assert other.second.weight is other.first.weight


def test_a_model_whose_file_has_other_names_is_refused(path):
    module = importlib.import_module("dsaio.safetensors.torch")
    torch = pytest.importorskip("torch")
    model = tied_model()
    save_file({"second.weight": torch.ones(4, 4), "whole": torch.ones(6), "more": torch.ones(1)}, path)
    with pytest.raises(RuntimeError, match=r"lacks \['first.bias', 'second.bias'\] and has \['more'\]"):
        module.load_model(model, path)
    missing, unexpected = module.load_model(model, path, strict=False)
    assert (missing, unexpected) == ({"first.bias", "second.bias"}, ["more"])
    assert model.first.weight.tolist() == [[1.0] * 4] * 4  # by its other name


def test_a_model_whose_tensors_share_a_part_is_refused(path):
    module = importlib.import_module("dsaio.safetensors.torch")
    model = tied_model()
    model.whole = model.whole[1:]
    with pytest.raises(RuntimeError, match="'whole'.*none has all of it"):
        module.save_model(model, path)
    model.whole = model.whole.clone()
    model.part = model.part.clone()
    model.first.weight.data = model.first.weight.data.t()
    with pytest.raises(ValueError, match="not contiguous"):
        module.save_model(model, path, force_contiguous=False)
    module.save_model(model, path)
    assert load_file(path)["first.weight"].tolist() == model.first.weight.tolist()


def test_models_are_saved_and_loaded_as_by_safetensors(path):
    theirs = genuine("safetensors.torch")
    module = importlib.import_module("dsaio.safetensors.torch")
    model = tied_model(1)
    del model.part  # theirs writes more than one name in random order
    module.save_model(model, path)
    theirs.save_model(model, path + "theirs")
    assert file_bytes(path) == file_bytes(path + "theirs")
    for loads, name in ((theirs, path), (module, path + "theirs")):
        other = tied_model(2)
        del other.part
        assert loads.load_model(other, name) == (set(), [])
        assert state(other) == state(model)
    save_file({"more": model.whole}, path)
    assert module.load_model(model, path, strict=False) == theirs.load_model(model, path, strict=False)


# ---- what frameworks use ----


def test_storage_of_a_view_which_transformers_asks_for():
    torch = pytest.importorskip("torch")
    module = importlib.import_module("dsaio.safetensors.torch")
    whole = torch.zeros(4, 4)

    assert module.storage_ptr(whole[2]) == module.storage_ptr(whole) == whole.data_ptr()
    assert module.storage_size(whole[2]) == 64
    meta = torch.zeros(3, device="meta")
    assert (module.storage_ptr(meta), module.storage_size(meta)) == (0, 12)
