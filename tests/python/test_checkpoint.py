"""dsaio.torch.checkpoint: checkpoints of torch.distributed.checkpoint, which no crash loses."""

import copy
import gc
import inspect
import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import weakref

import pytest

from conftest import PACKAGE, SECONDS, make_file

torch = pytest.importorskip("torch", reason="torch is not installed: make deps-python")

import dsaio  # noqa: E402
from dsaio import _stream  # noqa: E402
from saved_values import assert_same, byte_of, tensors  # noqa: E402

try:
    from dsaio.torch import _layout, checkpoint
except ImportError:
    IS_OLD = True
    REASON = f"torch {torch.__version__} is too old for dsaio.torch.checkpoint: make check-deepspeed"
else:
    IS_OLD = False
    import torch.distributed.checkpoint as dcp

    from dsaio.torch.checkpoint import AsyncStager, StorageReader, StorageWriter

    WRITERS = {"dsaio": StorageWriter, "torch": dcp.FileSystemWriter}
    READERS = {"dsaio": StorageReader, "torch": dcp.FileSystemReader}

needs_dcp = pytest.mark.skipif(IS_OLD, reason=REASON if IS_OLD else "")
MIB = 1 << 20


def needs_parameter(function, name, without):
    if name not in inspect.signature(function).parameters:
        pytest.skip(f"torch {torch.__version__} {without}")


# torch warns of a process without others, and of folders that hold a checkpoint already.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.skipif(torch.__version__ >= "2.3", reason="torch is new enough")
def test_an_old_torch_is_refused_with_a_message():
    with pytest.raises(ImportError, match="needs torch 2.3 or newer, and this is torch 1") as e:
        import dsaio.torch.checkpoint  # noqa: F401
    assert e.value.name == "torch"


def values(seed=1):
    dtypes = "uint8 int8 int16 int32 int64 float16 float32 float64 complex64 bool bfloat16 float8_e4m3fn".split()
    return {
        **tensors(seed),
        "huge": torch.randn(3, MIB + 1)[1:],  # a view of a larger storage
        "huge and transposed": torch.randn(1030, 1031).t(),
        "huge in one dimension": torch.randn(3 * MIB),
        "parameter": torch.nn.Parameter(torch.randn(400, 400)),
        "dtypes": {name: torch.arange(0, 4096).to(getattr(torch, name)) for name in dtypes},
        "layers": {f"{i}.weight": torch.randn(32, 32) for i in range(200)},
        "step": 3 + seed,
        "name": "x" * 1000,
        "large object": list(range(MIB // 2)),
    }


def zeroed(state):
    """Of the same form, to be loaded into."""
    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state).detach()
    if isinstance(state, dict):
        return {key: zeroed(value) for key, value in state.items()}
    return None


def save(state, folder, writer=None, **options):
    dcp.save({"state": state}, storage_writer=writer or StorageWriter(folder), **options)


def load(state, folder, reader=None, **options):
    loaded = {"state": zeroed(state)}
    dcp.load(loaded, storage_reader=(reader or StorageReader)(folder), **options)
    return loaded["state"]


def data_files(folder):
    return sorted(name for name in os.listdir(folder) if name != ".metadata")


# ---- both ways ----


@needs_dcp
@pytest.mark.parametrize("options", [{}, {"single_file_per_rank": False}], ids=["one file", "many files"])
@pytest.mark.parametrize("reader", ["dsaio", "torch"])
@pytest.mark.parametrize("writer", ["dsaio", "torch"])
def test_folders_of_each_load_in_the_other(folder, writer, reader, options):
    state = values()
    folder = os.path.join(folder, "made", "with its parents")
    save(state, folder, WRITERS[writer](folder, **options))
    assert_same(load(state, folder, READERS[reader]), state)


@needs_dcp
def test_a_folder_becomes_a_file_of_torch_save(folder, path):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    state = {"a": torch.randn(1000, 300), "b": {"c": torch.arange(10)}, "d": 7}
    save(state, folder)
    dcp_to_torch_save(folder, path + ".pt")
    assert_same(torch.load(path + ".pt", weights_only=False)["state"], state)


@needs_dcp
def test_elements_of_large_tensors_are_aligned_in_the_file(folder):
    state = {"a": torch.randn(100, 1000), "b": torch.randn(7), "c": torch.randn(2 * MIB)}
    save(state, folder)
    (name,) = data_files(folder)
    with open(os.path.join(folder, name), "rb") as f:
        data = f.read()
    for tensor in (state["a"], state["c"]):
        assert data.find(bytes(byte_of(tensor)[:100].tolist())) % 4096 == 0


@needs_dcp
def test_pinned_tensors_are_written_and_read_where_they_lie(folder, copied):
    pinned = dsaio._buffer.new_tensor(2 * MIB, torch.float32).copy_(torch.randn(2 * MIB))
    save({"a": pinned}, folder)
    assert sum(copied) == 0
    back = dsaio._buffer.new_tensor(2 * MIB, torch.float32).zero_()
    dcp.load({"state": {"a": back}}, storage_reader=StorageReader(folder))
    assert torch.equal(back, pinned) and sum(copied) == 0
    assert torch.equal(load({"a": pinned}, folder)["a"], pinned)
    assert sum(copied) == pinned.numel() * 4


@needs_dcp
@pytest.mark.parametrize("writer", ["dsaio", "torch"])
def test_targets_of_another_dtype_or_with_gaps(folder, writer):
    state = {"small": torch.randn(50, 60), "huge": torch.randn(1024, 513)}
    save(state, folder, WRITERS[writer](folder))
    other = {
        "small": torch.zeros(50, 60, dtype=torch.float64),
        "huge": torch.zeros(1024, 1026)[:, ::2],
    }
    dcp.load({"state": other}, storage_reader=StorageReader(folder))
    assert torch.equal(other["small"], state["small"].double()) and torch.equal(other["huge"], state["huge"])


@needs_dcp
def test_a_part_of_a_checkpoint(folder):
    state = values()
    save(state, folder)
    part = {"layers": {"7.weight": torch.zeros(32, 32)}, "huge": torch.zeros(2, MIB + 1)}
    dcp.load({"state": part}, storage_reader=StorageReader(folder))
    assert torch.equal(part["layers"]["7.weight"], state["layers"]["7.weight"])
    assert torch.equal(part["huge"], state["huge"])


@needs_dcp
def test_tensors_that_only_torch_can_load(folder):
    quantized = torch.quantize_per_tensor(torch.randn(1200, 1200), 0.1, 0, torch.qint8)
    state = {"q": torch.nn.Parameter(torch.randn(5)), "huge and with gaps": torch.randn(2000, 700).t()}
    save(state, folder)
    assert_same(load(state, folder), state)
    # By hand, since DCP itself refuses quantized tensors.
    data = memoryview(bytearray(saved_bytes(quantized)))
    assert _layout.Layouts().find(data) is None
    for good in (torch.randn(10), torch.randn(4, 6)[2:], torch.randn(3, 0)):
        assert _layout.Layouts().find(memoryview(bytearray(saved_bytes(good)))) is not None


@needs_dcp
def test_elements_of_another_byte_order_are_left_to_torch():
    data = saved_bytes(torch.randn(10))
    other = data.replace(sys.byteorder.encode(), b"x" * len(sys.byteorder))
    assert other != data
    layouts = _layout.Layouts()
    assert layouts.find(memoryview(data)) is not None and layouts.find(memoryview(other)) is None


@needs_dcp
def test_elements_that_planners_get_are_aligned():
    tensor = torch.randn(10)
    data = saved_bytes(tensor)
    memory = bytearray(len(data) + 64)
    for at in range(64):
        memory[at : at + len(data)] = data
        found = checkpoint._Loading(None)._tensor(memoryview(memory)[at : at + len(data)])
        assert found.data_ptr() % 64 == 0 and torch.equal(found, tensor)


def saved_bytes(value):
    f = io.BytesIO()
    torch.save(value, f)
    return f.getvalue()


@needs_dcp
def test_checkpoint_id_and_no_dist(folder):
    state = values()
    second = {"checkpoint_id": folder + "/second"}
    if "no_dist" in inspect.signature(dcp.save).parameters:
        second["no_dist"] = True
    save(state, None, StorageWriter(folder + "/first"), **second)
    assert os.listdir(folder) == ["second"]
    assert_same(load(state, folder + "/first", **second), state)


@needs_dcp
def test_plans_that_are_used_again(folder):
    if "enable_plan_caching" not in inspect.signature(dcp.DefaultSavePlanner).parameters:
        pytest.skip(f"torch {torch.__version__} does not keep plans")
    writer, old = StorageWriter(folder), None
    for seed in range(3):
        state = values(seed)
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        save(state, folder, writer, planner=planner)
        assert_same(load(state, folder), state)
        assert data_files(folder) != old
        old = data_files(folder)
        assert len(old) == 1


@needs_dcp
def test_a_model_and_an_optimizer(folder):
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def made():
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
        return model, torch.optim.Adam(model.parameters())

    model, optimizer = made()
    model(torch.randn(8, 30)).sum().backward()
    optimizer.step()
    m, o = get_state_dict(model, optimizer)
    save({"model": m, "optimizer": o}, folder)
    other, other_optimizer = made()
    m2, o2 = get_state_dict(other, other_optimizer)
    loaded = {"model": m2, "optimizer": o2}
    dcp.load({"state": loaded}, storage_reader=StorageReader(folder))
    set_state_dict(other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    assert_same(dict(other.state_dict()), dict(model.state_dict()))
    assert_same(other_optimizer.state_dict()["state"], optimizer.state_dict()["state"])


@needs_dcp
def test_many_files_are_not_open_at_once(folder, monkeypatch):
    state = {str(i): dsaio._buffer.new_tensor(MIB // 4, torch.float32).fill_(i) for i in range(30)}
    state.update({f"small {i}": torch.full((10,), float(i)) for i in range(30)})
    save(state, folder, StorageWriter(folder, single_file_per_rank=False))
    alive, most = weakref.WeakSet(), [0]

    class Counted(dsaio.File):
        def __init__(self, path):
            super().__init__(path)
            alive.add(self)
            most[0] = max(most[0], len(alive))

    monkeypatch.setattr(checkpoint, "File", Counted)
    back = {name: dsaio._buffer.new_tensor(t.numel(), t.dtype).zero_() for name, t in state.items()}
    dcp.load({"state": back}, storage_reader=StorageReader(folder))
    assert_same(back, state)
    assert 1 < most[0] <= _stream.N_PIECES + 2  # those of open jobs, the next one, and the one before it


# ---- errors ----


@needs_dcp
def test_a_pinned_tensor_whose_elements_are_cut_off(folder):
    save({"a": torch.randn(4 * MIB)}, folder)
    (name,) = data_files(folder)
    path = os.path.join(folder, name)
    back = dsaio._buffer.new_tensor(4 * MIB, torch.float32)
    real = _stream.read_jobs
    calls = []

    def read(handle, jobs):
        real(handle, jobs)
        calls.append(jobs)
        os.truncate(path, MIB)  # when the ends have been read

    with pytest.MonkeyPatch.context() as m:
        m.setattr(checkpoint, "read_jobs", read)
        with pytest.raises(dcp.CheckpointException, match="ends after") as e:
            dcp.load({"state": {"a": back}}, storage_reader=StorageReader(folder))
    assert e.value.failures[0][0].filename == path and len(calls) == 1


@needs_dcp
def test_errors_name_the_file(folder):
    state = {"a": torch.randn(2 * MIB), "b": torch.randn(4)}
    save(state, folder)
    (name,) = data_files(folder)
    path = os.path.join(folder, name)
    for size in (os.path.getsize(path) - 1, MIB, 100, 0):
        os.truncate(path, size)
        with pytest.raises(dcp.CheckpointException, match="ends after") as e:
            load(state, folder)
        assert e.value.failures[0][0].filename == path
    os.unlink(path)
    with pytest.raises(dcp.CheckpointException) as e:
        load(state, folder)
    failure = e.value.failures[0][0]
    assert isinstance(failure, FileNotFoundError) and failure.filename == path


@needs_dcp
def test_overwrite(folder):
    save({"a": torch.ones(3)}, folder)
    with pytest.raises(dcp.CheckpointException, match="overwrite is False"):
        save({"a": torch.zeros(3)}, folder, StorageWriter(folder, overwrite=False))
    assert_same(load({"a": torch.zeros(3)}, folder), {"a": torch.ones(3)})


@needs_dcp
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_save_that_fails_keeps_what_an_interrupted_one_of_filesystemwriter_left(folder, monkeypatch, overwrite):
    def state(value):
        return {"a": torch.full((3,), value)}

    save(state(1.0), folder, dcp.FileSystemWriter(folder))
    metadata = os.path.join(folder, ".metadata")
    os.rename(metadata, metadata + ".tmp")  # as if it was killed between rm_file() and rename()
    make_file(os.path.join(folder, "__7_0.distcp"), b"of another save")
    files = data_files(folder)

    def fail(*_, **__):
        raise OSError(28, "no space", "f")

    steps = [(_stream.Writer, "_submit"), (os, "replace")]  # of the data, and of the metadata
    for owner, name in steps if overwrite else [*steps, (None, None)]:
        with monkeypatch.context() as m:
            if owner:
                m.setattr(owner, name, fail)
            with pytest.raises(dcp.CheckpointException, match=None if overwrite else "overwrite is False: rename it"):
                save(state(2.0), folder, StorageWriter(folder, overwrite=overwrite))
        left = [name for name in data_files(folder) if len(name) < 20 and not name.endswith(".new")]
        assert left == files, name
        os.rename(metadata + ".tmp", metadata)
        assert_same(load(state(0.0), folder), state(1.0))
        os.rename(metadata, metadata + ".tmp")
    save(state(2.0), folder)
    assert len(os.listdir(folder)) == 2
    assert_same(load(state(0.0), folder), state(2.0))


@needs_dcp
def test_a_failure_leaves_the_previous_checkpoint(folder, monkeypatch):
    old, new = values(1), values(2)
    save(old, folder)
    files = data_files(folder)

    def submit(self):
        raise OSError(28, "no space", "f")

    with monkeypatch.context() as m:
        m.setattr(_stream.Writer, "_submit", submit)
        with pytest.raises(dcp.CheckpointException) as e:
            save(new, folder)
        assert e.value.failures[0][0].errno == 28
    assert data_files(folder) == files
    assert_same(load(old, folder), old)


# ---- crashes ----

CRASH = """
import io, itertools, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed.checkpoint as dcp
from dsaio.torch.checkpoint import StorageReader, StorageWriter

torch.set_num_threads(1)  # all is done in children of fork()
place = folder + "/c"

def state(i):
    tensors = {"large": torch.full((300_000,), float(i)), "small": torch.full((10,), float(i))}
    return {"object": "x" * (5000 * i), **tensors}  # so the places in the file differ

def save(i):
    dcp.save({"state": state(i)}, storage_writer=StorageWriter(place))
    assert len(os.listdir(place)) == 2, os.listdir(place)

def found(reader):
    loaded = state(0)
    dcp.load({"state": loaded}, storage_reader=reader(place))
    i = int(loaded["small"][0])
    assert all(torch.equal(loaded[name], state(i)[name]) for name in ("large", "small"))
    return i

def in_child(function, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(function(*arguments) or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(100)
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

def save_and_die(kill_at):
    calls = itertools.count()
    def counted(function):
        def call(*arguments, **options):
            if next(calls) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        return call
    for name in "open rename replace unlink fsync close mkdir ftruncate fchmod".split():
        setattr(os, name, counted(getattr(os, name)))
    io.open = counted(io.open)
    for owner, name in ((dsaio.Handle, "submit_write"), (dsaio.Handle, "submit_fsync"), (dsaio.File, "truncate")):
        setattr(owner, name, counted(getattr(owner, name)))
    save(2)

results = []
while True:
    assert in_child(save, 1) == 0
    how = in_child(save_and_die, len(results))
    if how == 0:  # there are no further calls
        break
    assert how == -signal.SIGKILL, how
    results.append(in_child(found, dcp.FileSystemReader))
assert len(results) > 10 and results == sorted(results) and set(results) == {1, 2}, results
assert in_child(found, StorageReader) == 2
"""


@needs_dcp
def test_kill_9_at_any_step_leaves_a_checkpoint_and_the_next_save_cleans_up(python):
    python(CRASH)


@needs_dcp
def test_all_is_on_the_device_before_the_metadata_names_it_and_the_old_is_removed_last(folder, monkeypatch):
    writer = StorageWriter(folder)
    save(values(1), folder, writer)
    steps = []

    def noting(name, function):
        def call(*arguments, **options):
            steps.append((name,))
            return function(*arguments, **options)

        return call

    def note_fsync(fd, real=os.fsync):
        steps.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(os, "fsync", note_fsync)
    for name in ("rename", "replace", "unlink"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    monkeypatch.setattr(dsaio.Handle, "submit_fsync", noting("fsync of data", dsaio.Handle.submit_fsync))
    save(values(2), folder, writer)
    assert steps == [
        ("unlink",),  # of a file that tells the mode of new ones
        ("fsync of data",),
        ("rename",),
        ("fsync", folder),
        ("fsync", folder + "/.metadata.tmp.new"),
        ("replace",),
        ("fsync", folder),
        ("unlink",),
    ]


@needs_dcp
def test_a_folder_that_is_made_is_on_the_device_with_its_parents(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(checkpoint, "sync_folder", lambda path: synced.append(path))
    save({"a": torch.ones(3)}, folder + "/x/y")
    assert {folder, folder + "/x"} <= set(synced)


@needs_dcp
def test_a_folder_of_filesystemwriter_is_replaced_as_a_whole(folder):
    make_file(os.path.join(folder, "notes.distcp"), b"of the user")
    save(values(1), folder, dcp.FileSystemWriter(folder))
    save(values(2), folder)
    files = data_files(folder)
    assert len(files) == 2 and "notes.distcp" in files and "__0_0.distcp" not in files
    assert_same(load(values(), folder), values(2))


@needs_dcp
def test_the_metadata_is_not_unpickled_by_a_save(folder, path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (path + ".ran",)

    make_file(os.path.join(folder, ".metadata"), pickle.dumps(["__0_5.distcp", Hostile()]))
    make_file(os.path.join(folder, "__0_5.distcp"), b"used")
    make_file(os.path.join(folder, "__0_0123456789abcdef_0.distcp"), b"left over")
    StorageWriter(folder).set_up_storage_writer(True)
    assert data_files(folder) == ["__0_5.distcp"] and not os.path.exists(path + ".ran")


@needs_dcp
def test_a_rank_with_metadata_of_its_own_leaves_the_files_of_others(folder):
    needs_parameter(dcp.save, "use_collectives", "has only one metadata for all ranks")
    for rank in range(2):  # each has written one, and not yet its metadata
        make_file(os.path.join(folder, f"__{rank}_0123456789abcdef_0.distcp"), b"data")
    StorageWriter(folder).set_up_storage_writer(True, rank=0, use_collectives=False)
    assert data_files(folder) == ["__1_0123456789abcdef_0.distcp"]
    StorageWriter(folder).set_up_storage_writer(True)
    assert data_files(folder) == []


# ---- several ranks ----


def run_ranks(folder, daemon, n, code):
    """Runs the code in n processes that form a group of gloo.  `rank` is the number of each."""
    prelude = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
import dsaio
from dsaio.torch.checkpoint import AsyncStager, StorageReader, StorageWriter
rank, folder = int(sys.argv[1]), {folder!r}
dist.init_process_group("gloo", init_method="file://" + folder + "/rendezvous", rank=rank, world_size={n})
"""
    script = os.path.join(folder, "script.py")  # a file: children of spawn import it
    body = textwrap.indent(textwrap.dedent(code), "    ")
    make_file(script, f"def main():\n{textwrap.indent(prelude, '    ')}\n{body}\n    dist.barrier()\n    "
              "dist.destroy_process_group()\nif __name__ == '__main__':\n    main()\n".encode())
    environment = dict(os.environ, PYTHONPATH=PACKAGE, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                       MASTER_ADDR="127.0.0.1")
    processes = [
        subprocess.Popen([sys.executable, script, str(rank)], env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, start_new_session=True)
        for rank in range(n)
    ]
    try:
        outputs = [process.communicate(timeout=2 * SECONDS)[0].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * n, "\n".join(outputs)
    os.unlink(os.path.join(folder, "rendezvous")) if os.path.exists(os.path.join(folder, "rendezvous")) else None


SHARDED = """
    from torch.distributed._tensor import DeviceMesh, Shard, distribute_tensor
    def sharded(n_rows, seed=5):
        torch.manual_seed(seed)
        mesh = DeviceMesh("cpu", list(range(dist.get_world_size())))
        whole = torch.randn(n_rows, 400)
        return distribute_tensor(whole, mesh, [Shard(0)]), whole
"""


@needs_dcp
def test_sharded_state_of_several_ranks_and_of_another_number_of_them(folder, daemon):
    place = os.path.join(folder, "c")
    code = textwrap.dedent(SHARDED) + textwrap.dedent(
        f"""
        for writer, reader in ((StorageWriter, StorageReader), (StorageWriter, dcp.FileSystemReader),
                               (dcp.FileSystemWriter, StorageReader)):
            t, whole = sharded(2050)
            small, small_whole = sharded(7, 6)
            dcp.save({{"t": t, "small": small, "same": torch.arange(100.0)}}, storage_writer=writer({place!r}))
            back, _ = sharded(2050, 9)
            small_back, _ = sharded(7, 9)
            loaded = {{"t": back, "small": small_back, "same": torch.zeros(100)}}
            dcp.load(loaded, storage_reader=reader({place!r}))
            assert torch.equal(loaded["t"].to_local(), t.to_local())
            assert torch.equal(loaded["small"].to_local(), small.to_local())
            assert torch.equal(loaded["same"], torch.arange(100.0))
            if writer is StorageWriter:
                assert len([n for n in os.listdir({place!r}) if n.endswith(".distcp")]) == 2
        future = dcp.async_save({{"t": t, "same": torch.ones(5)}}, storage_writer=StorageWriter({place!r}))
        t.to_local().zero_()  # it is staged
        future.result()
        """
    )
    run_ranks(folder, daemon, 2, code)
    # One process gets the whole, and a part that crosses the ranks' borders.
    torch.manual_seed(5)
    whole = torch.randn(2050, 400)
    loaded = {"t": torch.zeros(2050, 400), "same": torch.zeros(5)}
    dcp.load(loaded, storage_reader=StorageReader(place))
    assert torch.equal(loaded["t"], whole) and torch.equal(loaded["same"], torch.ones(5))
    code = textwrap.dedent(SHARDED) + textwrap.dedent(
        f"""
        t, whole = sharded(2050)
        back, _ = sharded(2050, 9)
        dcp.load({{"t": back}}, storage_reader=StorageReader({place!r}))
        assert torch.equal(back.to_local(), t.to_local())
        """
    )
    run_ranks(folder, daemon, 3, code)


@needs_dcp
def test_ranks_with_metadata_of_their_own(folder, daemon):
    needs_parameter(dcp.save, "use_collectives", "has only one metadata for all ranks")
    place = os.path.join(folder, "c")
    code = f"""
        for step in range(2):
            dcp.save({{"a": torch.full((1000,), 10.0 * step + rank)}}, storage_writer=StorageWriter({place!r}),
                     use_collectives=False)
        dist.barrier()
        assert len(os.listdir({place!r})) == 4, os.listdir({place!r})
        for reader in (StorageReader, dcp.FileSystemReader):
            loaded = {{"a": torch.zeros(1000)}}
            dcp.load(loaded, storage_reader=reader({place!r}))
            assert loaded["a"][0] == 10 + rank
    """
    run_ranks(folder, daemon, 2, code)


@needs_dcp
def test_async_save_in_a_process(folder, daemon):
    needs_parameter(dcp.async_save, "async_checkpointer_type", "saves only in a thread")
    place = os.path.join(folder, "c")
    code = f"""
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
        writer = StorageWriter({place!r})
        for i in (1.0, 2.0):
            state = {{"a": torch.full((500_000,), i), "b": torch.full((3,), i)}}
            future = dcp.async_save(state, storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType.PROCESS)
            state["a"].zero_()
            future.result()
            loaded = {{"a": torch.zeros(500_000), "b": torch.zeros(3)}}
            dcp.load(loaded, storage_reader=StorageReader({place!r}))
            assert (loaded["a"] == i).all() and (loaded["b"] == i).all()
        assert len(os.listdir({place!r})) == 2
    """
    run_ranks(folder, daemon, 1, code)


# ---- staging ----


@needs_dcp
def test_the_stager_copies_into_one_pinned_range_and_uses_it_again():
    state = values()
    del state["large object"]  # each of its elements is looked at
    original = copy.deepcopy(state)
    stager = AsyncStager()
    staged = stager.stage(state)
    assert_same(staged, original)
    tensors = [t for t in staged["layers"].values()] + [staged["matrix"], staged["huge"]]
    assert all(dsaio.is_pinned(t) and t.data_ptr() % 4096 == 0 for t in tensors)
    state["matrix"].zero_()
    assert_same(staged, original)
    # While the first is in use, the next one has memory of its own.
    other = stager.stage(state)
    assert_same(staged, original)
    address = other["matrix"].data_ptr()
    del other
    gc.collect()
    again = stager.stage(state)
    assert again["matrix"].data_ptr() == address
    stager.close()
    assert_same(again["huge"], original["huge"])
    del again, staged, tensors
    gc.collect()
    assert dsaio._memory.find(address, 1) is None


@needs_dcp
def test_writer_and_stager_pickle(folder):
    stager = AsyncStager()
    kept = stager.stage({"a": torch.ones(5)})
    again = pickle.loads(pickle.dumps(stager))
    assert torch.equal(again.stage(kept)["a"], torch.ones(5))
    writer = StorageWriter(folder, overwrite=False)
    writer.stage({"a": torch.ones(5)})
    again = pickle.loads(pickle.dumps(writer))
    save({"a": torch.ones(5)}, folder, again)
    with pytest.raises(dcp.CheckpointException):
        save({"a": torch.ones(5)}, folder, again)
    assert torch.equal(again.stage(kept)["a"], torch.ones(5))


@needs_dcp
def test_the_writer_is_the_stager_of_async_save(folder):
    staging = pytest.importorskip("torch.distributed.checkpoint.staging", reason="torch 2.3 stages by itself")
    for one in (StorageWriter(folder), AsyncStager()):
        assert isinstance(one, staging.AsyncStager) and not one.should_synchronize_after_execute
    staged = StorageWriter(folder).stage({"a": torch.ones(5)})
    assert dsaio.is_pinned(staged["a"])
