"""dsaio.torch.save() and load(): torch's own files, both ways."""

import errno
import gc
import io
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import zipfile

import pytest

from conftest import ROOT, file_bytes, make_file

torch = pytest.importorskip("torch", reason="torch is not installed: make deps-python")

import dsaio  # noqa: E402
import dsaio.torch  # noqa: E402
import saved_values  # noqa: E402
from dsaio import _stream  # noqa: E402
from dsaio.torch import _archive  # noqa: E402

MIB = 1 << 20
IS_OLD = torch.__version__ < "2"  # its weights_only takes tensors in dicts and lists, and little else


def assert_same_form(a, b):
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, torch.Tensor):
        assert a.stride() == b.stride() and a.requires_grad == b.requires_grad
    elif isinstance(a, dict):
        assert list(a) == list(b)


def assert_same(a, b):
    saved_values.assert_same(a, b, assert_same_form)


def values():
    dtypes = "uint8 int8 int16 int32 int64 float16 float32 float64 complex64 bool bfloat16".split()
    return {
        **saved_values.tensors(7),
        "parameter": torch.nn.Parameter(torch.randn(4, 4)),
        "dtypes": [torch.arange(-3, 4).to(getattr(torch, name)) for name in dtypes],
        "plain": {"step": 3, "name": "x" * 1000, "list": [1.5, None, True], "tuple": (1, 2)},
        "large": torch.randn(3 * MIB + 1),  # several pieces
    }


LOADERS = [
    ("dsaio", dsaio.torch.load),
    ("ordinary memory", lambda path, **o: dsaio.torch.load(path, pinned=False, **o)),
    ("torch", torch.load),
]
SAVERS = [("dsaio", dsaio.torch.save), ("torch", torch.save)]


@pytest.mark.parametrize("save", [s for _, s in SAVERS], ids=[n for n, _ in SAVERS])
@pytest.mark.parametrize("load", [l for _, l in LOADERS], ids=[n for n, _ in LOADERS])
def test_files_of_each_load_in_the_other(path, save, load):
    saved = values()
    save(saved, path)
    loaded = load(path, weights_only=not IS_OLD)
    assert_same(saved, loaded)
    assert loaded["matrix"].data_ptr() == loaded["transposed"].data_ptr()  # views of one storage
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None


def test_a_state_dict_of_a_model_and_an_optimizer(path):
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 30)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    dsaio.torch.save(saved, path)
    loaded = dsaio.torch.load(path, weights_only=not IS_OLD)
    assert_same(dict(saved["model"]), dict(loaded["model"]))
    optimizer.load_state_dict(loaded["optimizer"])
    assert_same(saved["optimizer"], optimizer.state_dict())


def test_tensors_lie_in_one_pinned_range_that_any_of_them_keeps(path):
    dsaio.torch.save([torch.arange(1000), torch.full((MIB,), 2.0)], path)
    loaded = dsaio.torch.load(path)
    assert all(dsaio.is_pinned(t) for t in loaded)
    apart = loaded[1].data_ptr() - loaded[0].data_ptr()
    assert 8000 <= apart < 10000  # as in the file: no copy
    allocation = dsaio._memory.find(loaded[0].data_ptr(), 1)
    assert allocation is dsaio._memory.find(loaded[1].data_ptr(), 1)
    address = allocation.address
    del loaded[0], allocation
    gc.collect()
    assert torch.equal(loaded[0], torch.full((MIB,), 2.0))
    del loaded
    gc.collect()
    assert dsaio._memory.find_start(address) is None


def test_loaded_tensors_may_be_changed(path):
    dsaio.torch.save(torch.zeros(100), path)
    loaded = dsaio.torch.load(path)
    loaded += 1
    assert torch.equal(dsaio.torch.load(path), torch.zeros(100))


def test_map_location_and_further_arguments(path):
    dsaio.torch.save({"a": torch.arange(10)}, path)
    for location in ("cpu", torch.device("cpu"), {"cpu": "cpu"}, lambda storage, _: storage):
        assert torch.equal(dsaio.torch.load(path, location)["a"], torch.arange(10))
    if not IS_OLD:
        assert dsaio.torch.load(path, "meta")["a"].device.type == "meta"
    with pytest.raises(RuntimeError, match="pickle_module|picke_module"):
        dsaio.torch.load(path, pickle_module=pickle)
    dsaio.torch.save({"a": torch.arange(10)}, path, pickle_protocol=4)
    assert file_bytes(path).find(b"data.pklFB") < file_bytes(path).find(b"\x80\x04") > 0
    assert torch.equal(dsaio.torch.load(path, weights_only=False, pickle_module=pickle)["a"], torch.arange(10))
    with pytest.raises(TypeError, match="pinned"):
        dsaio.torch.load(path, pinned="yes")


class Custom:
    def __eq__(self, other):
        return type(other) is Custom


def test_objects_load_only_if_they_are_asked_for(path, monkeypatch):
    dsaio.torch.save({"custom": Custom()}, path)
    with pytest.raises(pickle.UnpicklingError, match="(?i)weights.only"):
        dsaio.torch.load(path)
    assert dsaio.torch.load(path, weights_only=False)["custom"] == Custom()
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        dsaio.torch.load(path, weights_only=False)


def test_the_format_before_torch_1_6(path):
    saved = {"a": torch.arange(5000.0)}
    dsaio.torch.save(saved, path, _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(path)
    assert_same(saved, torch.load(path))
    assert_same(saved, dsaio.torch.load(path))


def test_a_torchscript_archive(path):
    class Double(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    torch.jit.save(torch.jit.script(Double()), path)
    with pytest.warns(UserWarning, match="TorchScript"):
        loaded = dsaio.torch.load(path, weights_only=False)
    assert torch.equal(loaded(torch.ones(2)), torch.full((2,), 2.0))


def rewritten(path, change):
    """The archive's records, as zipfile writes them after change(records)."""
    with zipfile.ZipFile(path) as z:
        records = {info.filename: z.read(info) for info in z.infolist()}
    change(records)
    with zipfile.ZipFile(path, "w") as z:
        for name, data in records.items():
            z.writestr(name, data)


def test_records_that_are_not_aligned_are_copied(path):
    saved = [torch.arange(100, dtype=torch.float64), torch.arange(7, dtype=torch.uint8)]
    torch.save(saved, path)
    rewritten(path, lambda records: None)
    loaded = dsaio.torch.load(path)
    assert_same(saved, loaded)
    assert all(t.data_ptr() % 16 == 0 for t in loaded)


@pytest.mark.parametrize("n, number", [(4, b"M\x88\x13"), (0, b"J\x00\x00\x00\x40")], ids=["small", "empty"])
def test_a_tensor_that_is_larger_than_its_record_is_refused(path, n, number):
    torch.save(torch.ones(n), path)
    saved = file_bytes(path)
    for n_moved in range(16):  # records at all places beside the alignment, and at it

        def enlarge(records):
            name = next(name for name in records if name.endswith("data.pkl"))
            assert records[name].count(b"K%c\x85" % n) == 1
            records[name] = records[name].replace(b"K%c\x85" % n, number + b"\x85") + bytes(n_moved)

        make_file(path, saved)
        rewritten(path, enlarge)
        for _, load in LOADERS:
            with pytest.raises(RuntimeError, match="resize storage that is not resizable"):
                load(path, weights_only=False)


def test_a_mapped_file_is_loaded_by_torch(path, monkeypatch):
    torch.save({"a": torch.ones(3)}, path)
    assert dsaio.torch.load(path, mmap=False)["a"].tolist() == [1, 1, 1]
    monkeypatch.setattr(torch, "load", lambda file, *rest, **options: (file, options["mmap"]))
    assert dsaio.torch.load(path, mmap=True) == (path, True)


def test_what_is_no_regular_file_is_refused(folder):
    os.mkfifo(folder + "/fifo")
    for path, code in ((folder, errno.EISDIR), (folder + "/fifo", errno.EINVAL), ("/dev/null", errno.EINVAL)):
        with pytest.raises(OSError) as e:
            dsaio.torch.load(path)
        assert e.value.errno == code and e.value.filename == path


def test_a_file_larger_than_the_pool_is_an_error_that_names_it(path):
    make_file(path, _archive.MAGIC)
    try:
        os.truncate(path, 1 << 40)
    except OSError:
        pytest.skip("the file system has no files of 1 TB")
    with pytest.raises(OSError) as e:
        dsaio.torch.load(path)
    assert e.value.errno == errno.ENOMEM and e.value.filename == path
    assert e.value.strerror.startswith("pass pinned=False"), e.value


def test_a_compressed_archive_is_loaded_by_torch(path):
    saved = torch.zeros(5000)
    torch.save(saved, path)
    with zipfile.ZipFile(path) as z:
        records = {info.filename: z.read(info) for info in z.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in records.items():
            z.writestr(name, data)
    assert_same(saved, dsaio.torch.load(path))


def test_damaged_files(path):
    torch.save(torch.arange(5000), path)
    data = file_bytes(path)

    def cut(records):
        name = next(n for n in records if n.endswith("data/0"))
        records[name] = records[name][:100]

    def lose(records):
        del records[next(n for n in records if n.endswith("data/0"))]

    for change in (cut, lose):
        make_file(path, data)
        rewritten(path, change)
        with pytest.raises(RuntimeError, match="record data/0"):
            dsaio.torch.load(path)
    for end in (0, 3, 10, 1000, len(data) // 2, len(data) - 1):
        make_file(path, data[:end])
        with pytest.raises((RuntimeError, EOFError, OSError, pickle.UnpicklingError)):
            dsaio.torch.load(path)


def test_hostile_directories_are_never_followed_out_of_the_file(path):
    torch.save(torch.arange(50), path)
    data = bytearray(file_bytes(path))
    with zipfile.ZipFile(path) as z:
        start = z.start_dir
    n = 0
    for at in [m.start() for m in re.finditer(b"PK\1\2", data) if m.start() >= start]:
        for field, size in ((20, 4), (24, 4), (42, 4), (8, 2), (10, 2)):
            for value in (0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFF, len(data), len(data) - 1, 1):
                changed = bytearray(data)
                changed[at + field : at + field + size] = struct.pack("<Q", value)[:size]
                try:
                    archive = _archive.Archive(memoryview(bytes(changed)))
                except _archive.Unsupported:
                    continue
                for name in archive.get_all_records():
                    offset, nbytes = archive.record_range(name)
                    assert 0 <= offset <= offset + nbytes <= len(data)
                    n += 1
    assert n


def test_what_has_no_file(folder):
    with pytest.raises(FileNotFoundError) as e:
        dsaio.torch.load(folder + "/none")
    assert e.value.filename == folder + "/none"
    with pytest.raises(IsADirectoryError):
        dsaio.torch.load(folder)
    with pytest.raises(IsADirectoryError):
        dsaio.torch.save({}, folder)
    with pytest.raises(TypeError):
        dsaio.torch.save({}, io.BytesIO())
    assert os.listdir(folder) == []


def test_paths_are_strings_bytes_or_path_like(folder):
    import pathlib

    for path in (folder + "/s", os.fsencode(folder) + b"/b\xff", pathlib.Path(folder, "\u00fc")):
        dsaio.torch.save([1, torch.ones(2)], path)
        assert_same([1, torch.ones(2)], dsaio.torch.load(path))


# ---- failures leave the old file ----


def failing_writes(monkeypatch, n, failure):
    """The nth write and those after it fail."""
    real = _stream.Writer._submit
    calls = []

    def submit(self):
        calls.append(1)
        if len(calls) >= n:
            raise failure
        real(self)

    monkeypatch.setattr(_stream.Writer, "_submit", submit)


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_failure_leaves_the_old_file(path, folder, monkeypatch, failure, n):
    dsaio.torch.save("old", path)
    with monkeypatch.context() as m:
        failing_writes(m, n, failure)
        with pytest.raises(type(failure)) as e:
            dsaio.torch.save([torch.ones(2 * MIB), torch.ones(2 * MIB)], path)
        assert e.value is failure
    assert dsaio.torch.load(path) == "old" and os.listdir(folder) == [os.path.basename(path)]


def test_a_file_object_is_refused_with_what_to_do(folder):
    with pytest.raises(TypeError, match=r"file <_io.BytesIO .*>: must be a path; torch.save\(\) itself writes to file"):
        dsaio.torch.save("x", io.BytesIO())
    with open(folder + "/f", "wb") as f:
        with pytest.raises(TypeError, match=r"BufferedWriter .*: must be a path; torch.save\(\)"):
            dsaio.torch.save("x", f)
    for function in (lambda: dsaio.torch.save("x", 3), lambda: dsaio.torch.load(3)):
        with pytest.raises(TypeError, match="file 3: must be a path"):
            function()


def test_torch_itself_loads_from_a_file_object(path):
    saved = {"a": torch.arange(5), "b": [1, "x"]}
    dsaio.torch.save(saved, path)
    with open(path, "rb") as f:
        assert_same(saved, dsaio.torch.load(f))
        f.seek(0)
        for pinned in (True, False):
            loaded = dsaio.torch.load(io.BytesIO(f.read()), "cpu", pinned=pinned)
            f.seek(0)
            assert_same(saved, loaded)
            assert not dsaio.is_pinned(loaded["a"])
    with pytest.raises(Exception) as ours:
        dsaio.torch.load(io.BytesIO(b"no file of torch.save()"))
    with pytest.raises(Exception) as torchs:
        torch.load(io.BytesIO(b"no file of torch.save()"), weights_only=True)
    assert type(ours.value) is type(torchs.value) and str(ours.value) == str(torchs.value)


def test_an_object_that_cannot_be_pickled_leaves_the_old_file(path, folder):
    dsaio.torch.save("old", path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        dsaio.torch.save(lambda: 0, path)
    assert dsaio.torch.load(path) == "old" and os.listdir(folder) == [os.path.basename(path)]


def test_kill_9_while_it_saves_leaves_the_old_file(python, folder):
    path = folder + "/f"
    dsaio.torch.save("old", path)
    python(
        """
        import torch, dsaio.torch
        from dsaio import _stream
        real = _stream.Writer._submit
        def submit(self):
            real(self)
            if self.tell() > 8 << 20:
                os.kill(os.getpid(), signal.SIGKILL)
        _stream.Writer._submit = submit
        dsaio.torch.save(torch.ones(8 << 20), folder + "/f")
        """,
        status=-signal.SIGKILL,
    )
    assert dsaio.torch.load(path) == "old" and len(os.listdir(folder)) == 2
    dsaio.torch.save("new", folder + "/another")
    assert sorted(os.listdir(folder)) == ["another", "f"]


def test_no_room_in_the_file_system(python):
    python(
        """
        import resource, torch, dsaio.torch
        path = folder + "/f"
        dsaio.torch.save(torch.ones(4), path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        dsaio.torch.save(torch.ones(1000), path)  # what is reserved ahead is more than that
        try:
            dsaio.torch.save(torch.ones(1 << 20), path)
        except OSError as e:
            assert "cannot reserve" in e.strerror and e.filename == path, e
        else:
            assert False
        assert torch.equal(dsaio.torch.load(path), torch.ones(1000)) and os.listdir(folder) == ["f"]
        """
    )


def test_a_daemon_that_is_killed_meanwhile(python, own_daemon):
    python(
        """
        import torch, dsaio.torch
        from dsaio import _stream
        path = folder + "/f"
        dsaio.torch.save("old", path)
        real = _stream.Writer._submit
        def submit(self):
            real(self)
            if self.tell() == 4 << 20:
                os.kill(daemon, signal.SIGKILL)
        _stream.Writer._submit = submit
        try:
            dsaio.torch.save(torch.ones(8 << 20), path)
        except OSError as e:
            print(e)
        else:
            assert False
        assert torch.load(path) == "old" and os.listdir(folder) == ["f"]
        """,
        daemon=own_daemon,
    )


# ---- memory ----


def test_no_second_copy_of_the_state_is_in_memory(python):
    python(
        """
        import resource, torch, dsaio.torch
        tensors = [torch.ones(16 << 20) for _ in range(4)]  # 256 MiB
        dsaio.torch.save(torch.ones(1), folder + "/f")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        dsaio.torch.save(tensors, folder + "/f")
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert more < 64 << 10, more
        """
    )


def test_aligned_pinned_tensors_are_written_where_they_lie(path, copied):
    memory = torch.frombuffer(dsaio.alloc(4 * MIB), dtype=torch.uint8)
    memory[:] = torch.arange(4 * MIB) % 251
    with dsaio.Handle() as handle, dsaio._replace.new_file(path, handle) as new:
        writer = _stream.Writer(new, handle)
        writer.write(b"h" * 4096)
        writer.write(memoryview(memory.numpy())[: 3 * MIB + 5])
        writer.write(b"end")
        writer.finish()
    assert copied == [5]
    assert file_bytes(path) == b"h" * 4096 + bytes(memory[: 3 * MIB + 5].tolist()) + b"end"


@pytest.mark.parametrize("nbytes", [3 * MIB, 4096], ids=["where it lies", "through a piece"])
def test_a_write_that_fails_is_reported_by_the_end_of_the_writer(path, monkeypatch, nbytes):
    make_file(path, b"old")
    memory = dsaio.alloc(3 * MIB)
    with dsaio.Handle() as handle:
        started = []

        def submit_write(buffer, file, offset):
            started.append(buffer.nbytes)
            return handle.submit_read(bytearray(1), file, 1 << 40)  # fails with ENODATA

        with pytest.raises(OSError) as e, dsaio._replace.new_file(path, handle) as new:
            writer = _stream.Writer(new, handle)
            with monkeypatch.context() as m:
                m.setattr(handle, "submit_write", submit_write)
                writer.write(memory[:nbytes])
                writer.finish()
    assert e.value.errno == errno.ENODATA and started == [nbytes] and file_bytes(path) == b"old"


@pytest.mark.parametrize("has_buffers", [False, True], ids=["pieces", "buffers"])
def test_read_jobs_hand_out_ranges_in_order(path, has_buffers):
    data = os.urandom(9 * MIB + 77)
    make_file(path, data)
    ranges = [(0, 10), (5000, 5000 + _stream.JOB_MAX), (4095, 4097), (9 * MIB, len(data)), (len(data) - 1, len(data))]
    ranges += [(i * 1001, i * 1001 + 777) for i in range(20)]
    taken = []
    with dsaio.Handle() as handle, dsaio.File(path) as file:

        def job(start, end, i=0):
            buffer = bytearray(end - start) if has_buffers and i % 3 else None
            return _stream.Job(file, start, end, lambda view: taken.append(bytes(view)), buffer)

        def jobs():
            for i, (start, end) in enumerate(ranges):
                assert i - len(taken) <= _stream.N_PIECES  # which are open
                yield job(start, end, i)

        _stream.read_jobs(handle, jobs())
        assert taken == [data[start:end] for start, end in ranges]
        _stream.read_jobs(handle, [])
        del taken[:]
        with pytest.raises(OSError) as e:
            _stream.read_jobs(handle, [job(len(data) - 9, len(data) + 1, 1)])
        assert e.value.errno == errno.ENODATA and not taken


def test_import_of_dsaio_torch_imports_torch_only_when_it_is_used():
    code = "import sys, dsaio.torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=os.path.dirname(
        os.path.dirname(dsaio.__file__))), check=True)


def test_the_example(python, folder):
    example = os.path.join(ROOT, "client", "python", "examples", "checkpoint.py")
    code = f"sys.argv = ['checkpoint.py', {folder!r}]\nimport runpy\nrunpy.run_path({example!r}, run_name='__main__')"
    output = python(code)
    assert "file: the loaded" in output
    assert ("folder: the loaded" in output) != ("needs torch 2.3 or newer" in output)
