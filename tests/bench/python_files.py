"""How long the Python package saves and loads, beside safetensors and torch: files, and folders of checkpoints."""

import ctypes
import inspect
import os
import shutil
import time
import warnings

from python_sides import PAGE, Library, forget, ratio_of, read_all, size_text

# ---- safetensors ----


def model(nbytes):
    """Tensors of that size together, as a transformer has them."""
    import torch

    layer = [(2048, 2048)] * 4 + [(8192, 2048)] * 3 + [(2048,)] * 2
    block = torch.frombuffer(bytearray(os.urandom(1 << 20)), dtype=torch.bfloat16)
    tensors, left = {}, nbytes // 2
    while left:
        for shape in layer:
            n = torch.Size(shape).numel()
            if n > left:
                n, shape = left, (left,)
            if n:
                tensors[f"tensor.{len(tensors)}"] = block.repeat(-(-n // block.numel()))[:n].reshape(shape)
                left -= n
    return tensors


def read_pages(tensors):
    """Reads one byte of each page."""
    import torch

    for tensor in tensors.values():
        tensor.reshape(-1).view(torch.uint8)[::PAGE].sum()


def measure_safetensors(bench):
    from dsaio import _buffer, safetensors

    nbytes = bench.options.safetensors
    size = size_text(nbytes)
    path = os.path.join(bench.daemon.store, "model.safetensors")
    safetensors.save_file(model(nbytes), path)
    into = bench.row(f"load_into() of {size}, beside safetensors", "MB/s", 1.4, True, 0)
    new = bench.row(f"load_file() of {size}, beside safetensors", "MB/s", 1, True, 0)
    written = bench.row(f"save_file() of {size}, synced, beside safetensors", "MB/s", None, True, 0)
    library = bench.row(f"load_into() of {size}, beside the C library", "MB/s", 0.95, True, 0)
    try:
        from safetensors import torch as genuine
    except ImportError:
        genuine = None
        into.missing = new.missing = written.missing = "safetensors is not installed"

    def rate(function, *arguments):
        forget(path)
        began = time.perf_counter()
        tensors = function(*arguments)
        if tensors is not None:
            read_pages(tensors)
        return nbytes / (time.perf_counter() - began) / 1e6

    backends = {}  # arguments
    if genuine and "backend" in inspect.signature(genuine.load_file).parameters:
        backends = {"mmap": {"backend": "mmap"}, "pread": {"backend": "pread"}}
    elif genuine:
        backends = {"mmap": {}}  # the one that older versions have

    # New tensors first: the memory of the others would leave less of the pool.
    if genuine:
        sides = {name: lambda name=name: rate(lambda: genuine.load_file(path, **backends[name])) for name in backends}
        sides["ours"] = lambda: rate(safetensors.load_file, path)
        for results in bench.turns(sides):
            new.add(results["ours"], max(results[name] for name in backends))

    tensors = safetensors.load_file(path)

    def copy(backend):
        with genuine.safe_open(path, "pt", **backends[backend]) as file:
            for name, tensor in tensors.items():
                tensor.copy_(file.get_tensor(name))
        return tensors

    def ours():
        safetensors.load_into(path, tensors)
        return tensors

    def by_library():
        c.read(ranges)
        return tensors

    c = Library(path, is_tuned=True)
    with safetensors.safe_open(path, "pt") as file:
        infos = file._source.header.tensors
        places = [(infos[name], _buffer.locate(tensor, True)) for name, tensor in tensors.items()]
    runs = list(safetensors._runs(places))
    ranges = [(ctypes.addressof(buffer), ctypes.sizeof(buffer), offset) for buffer, offset in runs]
    sides = {"ours": lambda: rate(ours), "library": lambda: rate(by_library)}
    sides.update((name, lambda name=name: rate(copy, name)) for name in backends)
    for results in bench.turns(sides):
        library.add(results["ours"], results["library"])
        if genuine:
            into.add(results["ours"], max(results[name] for name in backends))

    def save_genuine():
        genuine.save_file(tensors, path + ".genuine")
        with open(path + ".genuine", "rb") as file:
            os.fsync(file.fileno())

    if genuine:
        sides = {"ours": lambda: rate(safetensors.save_file, tensors, path), "genuine": lambda: rate(save_genuine)}
        for results in bench.turns(sides):
            ratio_of(written, results)


# ---- file objects ----


def load_npy(file):
    """All of the array at once: numpy.load() would read 256 KiB at a time."""
    import numpy

    numpy.lib.format.read_magic(file)
    shape, _, dtype = numpy.lib.format.read_array_header_1_0(file)
    array = numpy.empty(shape, dtype)
    file.readinto(array)
    return array


def measure_objects(bench):
    """What libraries that take a file object gain by dsaio.open(), beside the path: from the device, and where this
    host has the file in its page cache.
    """
    import dsaio
    import numpy
    import torch

    nbytes = bench.options.checkpoint
    path = os.path.join(bench.daemon.store, "object.npy")
    states = (
        (lambda: torch.save({str(i): torch.ones(nbytes // 32) for i in range(8)}, path), torch.load, (torch.load,)),
        (lambda: numpy.save(path, numpy.ones(nbytes // 4, numpy.float32)), numpy.load, (numpy.load, load_npy)),
    )

    def by_object(load):
        with dsaio.open(path) as file:
            load(file)

    def time_of(is_cold, function, argument):
        forget(path) if is_cold else read_all(path)
        began = time.perf_counter()
        function(argument)
        return (time.perf_counter() - began) * 1e3

    for save, by_path, loads in states:
        save()
        for is_cold in (True, False):
            rows, sides = {}, {"path": lambda load=by_path, is_cold=is_cold: time_of(is_cold, load, path)}
            for load in loads:
                name = f"{load.__module__.split('.')[0]}.load()" if load is not load_npy else "readinto() of an array"
                rows[name] = bench.row(f"{name} of an object, {'cold' if is_cold else 'cached'}, beside a path", "ms")
                sides[name] = lambda load=load, is_cold=is_cold: time_of(is_cold, by_object, load)
            for results in bench.turns(sides):
                for name, row in rows.items():
                    row.add(results[name], results["path"])
        os.unlink(path)


# ---- torch ----


class Saved:
    """A state that is saved at a path and loaded from there."""

    def __init__(self, state, path, save, load):
        self.state, self.path = state, path
        self.target = {name: tensor.clone() for name, tensor in state.items()}
        self.functions = save, load

    def save(self):
        """Until all is on the device."""
        began = time.perf_counter()
        self.functions[0](self.state, self.path)
        return (time.perf_counter() - began) * 1e3

    def load(self):
        """From the device: no cache of this machine has it."""
        names = [os.path.join(self.path, name) for name in os.listdir(self.path)] if os.path.isdir(self.path) else []
        for name in names or [self.path]:
            forget(name)
        began = time.perf_counter()
        self.functions[1](self.target, self.path)
        return (time.perf_counter() - began) * 1e3


def save_by_torch(state, path):
    import torch

    torch.save(state, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def ways_of_folders():
    """How dsaio and torch save and load a folder of torch.distributed.checkpoint."""
    from dsaio.torch.checkpoint import StorageReader, StorageWriter  # says if torch is too old
    import torch.distributed.checkpoint as dcp

    def way(writer, reader):
        def save(state, path):
            dcp.save(state, storage_writer=writer(path))

        def load(state, path):
            dcp.load(state, storage_reader=reader(path))

        return save, load

    warnings.simplefilter("ignore")  # torch's, of folders with a checkpoint and of processes without others
    return way(StorageWriter, StorageReader), way(dcp.FileSystemWriter, dcp.FileSystemReader)


def measure_checkpoint(bench):
    import dsaio.torch
    import torch

    nbytes, n = bench.options.checkpoint, 10 * bench.options.tensors
    states = {
        size_text(nbytes): {str(i): torch.ones(nbytes // 32) for i in range(8)},
        f"{n} x 4 KiB": {str(i): torch.ones(1024) for i in range(n)},
    }
    files = (
        (dsaio.torch.save, lambda _, path: dsaio.torch.load(path)),
        (save_by_torch, lambda _, path: torch.load(path, weights_only=True)),
    )
    missing = ""
    try:
        folders = ways_of_folders()
    except ImportError as e:
        missing = str(e)
    for what, state in states.items():
        for way, of_folder in (("a file", False), ("a folder", True)):
            rows = {verb: bench.row(f"{verb} of {what} in {way}, beside torch", "ms") for verb in ("save", "load")}
            if of_folder and missing:
                for row in rows.values():
                    row.missing = missing
                continue
            sides = [
                Saved(state, os.path.join(bench.daemon.store, f"{way} {i}"), *functions)
                for i, functions in enumerate(folders if of_folder else files)
            ]
            for verb, row in rows.items():
                functions = {name: getattr(side, verb) for name, side in zip(("ours", "torch"), sides)}
                for results in bench.turns(functions):
                    row.add(results["ours"], results["torch"])
            for side in sides:
                shutil.rmtree(side.path) if of_folder else os.unlink(side.path)
