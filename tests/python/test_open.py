"""dsaio.open(): file objects, and what takes them."""

import errno
import io
import os
import pickle
import zipfile

import pytest

import dsaio
from conftest import MIB, file_bytes, make_file


@pytest.fixture
def data(path):
    data = os.urandom(3 * MIB + 123)
    make_file(path, data)
    return data


def test_reads(path, data):
    with dsaio.open(path) as file:
        assert isinstance(file, io.RawIOBase) and file.name == path and file.mode == "rb"
        assert file.readable() and not file.writable() and file.seekable() and not file.isatty()
        assert file.read(10) == data[:10] and file.tell() == 10
        buffer = bytearray(MIB)
        assert file.readinto(buffer) == MIB and buffer == data[10 : 10 + MIB]
        assert file.readinto(memoryview(buffer)[:0]) == 0
        assert file.readall() == data[10 + MIB :] and file.tell() == len(data)
        assert file.readall() == b"" == file.read(1) and file.readinto(buffer) == 0
        file.seek(-5, os.SEEK_END)
        assert file.readinto(buffer) == 5 and buffer[:5] == data[-5:]
        assert file.seek(7) == 7 and file.seek(3, os.SEEK_CUR) == 10 and file.seek(0, os.SEEK_END) == len(data)
        assert file.seek(len(data) + 9) == len(data) + 9 and file.read() == b""


def test_writes(path):
    with dsaio.open(path, "wb") as file:
        assert file.writable() and not file.readable()
        assert file.write(b"0123456789") == 10 and file.write(bytearray(MIB)) == MIB and file.write(b"") == 0
        file.seek(5)
        file.write(memoryview(b"abc"))
        assert file.tell() == 8
    assert file_bytes(path) == b"01234abc89" + bytes(MIB)
    with dsaio.open(path, "r+b") as file:
        assert file.mode == "rb+" and file.truncate(6) == 6 and file.tell() == 0
        assert file.read() == b"01234a"
        file.seek(2)
        assert file.truncate() == 2 and file.tell() == 2
        file.seek(4)
        file.write(b"x")
        assert file_bytes(path) == b"01\0\0x"
    with dsaio.open(path, "w+b") as file:
        assert file.read() == b"" and file.write(b"new") == 3 and file.seek(0) == 0 and file.read() == b"new"


def test_x_makes_a_new_file(path):
    with dsaio.open(path, "xb") as file:
        file.write(b"1")
    with pytest.raises(FileExistsError) as e:
        dsaio.open(path, "x+b")
    assert e.value.filename == path and file_bytes(path) == b"1"


@pytest.mark.parametrize("mode", ["r", "w", "b", "", "ab", "rwb", "rb++", "rbt", "rbb", None, 7])
def test_a_wrong_mode_is_named(path, data, mode):
    with pytest.raises(ValueError, match="mode .*: must be 'rb', 'wb' or 'xb'"):
        dsaio.open(path, mode)
    assert file_bytes(path) == data


def test_a_file_that_is_open_for_the_other_direction(path, data):
    with dsaio.open(path) as file:
        for call in (lambda: file.write(b"x"), lambda: file.truncate(0)):
            with pytest.raises(io.UnsupportedOperation, match="mode 'rb': not for writing"):
                call()
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    with dsaio.open(path, "wb") as file:
        for call in (lambda: file.readinto(bytearray(1)), file.readall, lambda: file.read(1)):
            with pytest.raises(io.UnsupportedOperation, match="mode 'wb': not for reading"):
                call()


def test_a_closed_file(path, data):
    file = dsaio.open(path, "r+b")
    file.close()
    file.close()
    assert file.closed
    calls = [file.readall, file.tell, file.readable, file.writable, file.seekable, file.truncate, file.__enter__]
    for call in calls + [lambda: file.read(1), lambda: file.write(b""), lambda: file.seek(0), file.flush]:
        with pytest.raises(ValueError, match="closed"):
            call()


def test_wrong_arguments(path, data, folder):
    with pytest.raises(FileNotFoundError) as e:
        dsaio.open(folder + "/missing")
    assert e.value.filename == folder + "/missing"
    with pytest.raises(TypeError, match="file 7"):
        dsaio.open(7)
    with dsaio.open(path, "r+b") as file:
        with pytest.raises(OSError, match="position -1: must be from 0") as e:
            file.seek(-1)
        assert e.value.errno == errno.EINVAL
        with pytest.raises(ValueError, match="whence 9"):
            file.seek(0, 9)
        with pytest.raises(ValueError, match="read-only"):
            file.readinto(b"abc")
        with pytest.raises(TypeError, match="buffer 'text'"):
            file.write("text")
        assert file.tell() == 0


def test_a_handle_of_the_caller_stays_open(path, data):
    with dsaio.Handle(io_class="demand") as handle:
        with dsaio.open(path, handle=handle) as file:
            assert file.read() == data
        assert handle.stats().reads == 1
        file = dsaio.open(path, handle=handle)
    with pytest.raises(ValueError, match="the handle is closed"):
        file.read(1)


def test_a_daemon_that_dies_is_an_error(python, own_daemon):
    python(
        """
        import errno
        file = dsaio.open(folder + "/f", "w+b")
        file.write(b"abc")
        file.seek(1)
        os.kill(daemon, signal.SIGKILL)
        for call in (file.readall, lambda: file.readinto(bytearray(2)), lambda: file.write(b"x")):
            try:
                call()
                raise AssertionError("it has not failed")
            except OSError as e:
                assert e.errno in (errno.ENOTCONN, errno.ECONNRESET) and e.filename == folder + "/f", e
            assert file.tell() == 1
        file.close()
        """,
        daemon=own_daemon,
    )


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_an_interrupted_read_ends_its_op_first(python, own_daemon, error):
    """io.BufferedReader frees its buffer, which the op cannot keep."""
    python(
        f"""
        import io, threading
        with open(folder + "/f", "wb") as f:
            f.write(b"x" * (1 << 20))
        def interrupt(*_):
            raise {error}
        signal.signal(signal.SIGALRM, interrupt)
        def go_on():
            os.kill(os.getpid(), signal.SIGALRM)
            threading.Event().wait(0.5)
            os.kill(daemon, signal.SIGCONT)
        file = dsaio.open(folder + "/f")
        file.read(1)
        for source in (file, io.BufferedReader(file, 1 << 20)):
            file.seek(0)
            freeze()
            threading.Timer(0.3, go_on).start()
            try:
                source.read(1 << 20)
                raise AssertionError("it has not raised")
            except {error}:
                assert file._handle.stats().open == 0
        file.seek(0)
        assert file.read() == b"x" * (1 << 20)
        """,
        daemon=own_daemon,
    )


def test_a_child_of_fork_opens_its_own(python):
    python(
        """
        file = dsaio.open(folder + "/f", "w+b")
        file.write(b"abc")
        pid = os.fork()
        if pid == 0:
            try:
                for call in (file.readall, file.tell, lambda: file.write(b"x")):
                    try:
                        call()
                    except PermissionError as e:
                        assert "before fork(), " in e.strerror, e
                    else:
                        raise AssertionError(call)
                file.close()
                with dsaio.open(folder + "/f") as own:
                    assert own.read() == b"abc"
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        file.seek(0)
        assert file.read() == b"abc"
        """
    )


def test_nothing_warns_where_it_fails_or_is_dropped(python):
    output = python(
        """
        import gc
        try:
            dsaio.open(folder + "/missing/f")
        except FileNotFoundError:
            pass
        file = dsaio.open(folder + "/f", "wb")
        file.write(b"x")
        del file
        gc.collect()
        at_the_end = dsaio.open(folder + "/f")
        """,
        options=("-X", "dev", "-W", "error"),
    )
    assert output == ""


# ---- what takes it ----


def test_buffered_and_text_files(path):
    with io.BufferedWriter(dsaio.open(path, "wb"), 1 << 16) as file:
        for i in range(10000):
            file.write(b"line %d\n" % i)
    with io.BufferedReader(dsaio.open(path)) as file:
        assert file.readline() == b"line 0\n" and file.peek(4)[:4] == b"line" and len(file.readlines()) == 9999
    with io.TextIOWrapper(io.BufferedReader(dsaio.open(path))) as file:
        assert [line.rstrip() for line in file] == [f"line {i}" for i in range(10000)]
    with io.BufferedRandom(dsaio.open(path, "r+b")) as file:
        file.seek(5)
        file.write(b"X")
        file.seek(0)
        assert file.readline() == b"line X\n"
    with dsaio.open(path) as file:
        assert file.readline() == b"line X\n"


def test_pickle_and_zipfile(path):
    value = {"a": bytes(MIB), "b": list(range(1000))}
    with dsaio.open(path, "wb") as file:
        pickle.dump(value, file)
    for file in (dsaio.open(path), io.BufferedReader(dsaio.open(path))):
        with file:
            assert pickle.load(file) == value
    with dsaio.open(path, "w+b") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("one", b"1" * 100000)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("two", b"2", zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None and archive.read("one") == b"1" * 100000 and archive.read("two") == b"2"


def test_numpy(path):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(100000.0).reshape(100, 1000)
    for save, arguments in ((numpy.save, (array,)), (numpy.savez, ())):
        with dsaio.open(path, "wb") as file:
            save(file, *arguments, **({} if arguments else {"array": array}))
        with dsaio.open(path) as file:  # numpy reads an io.BufferedReader by its fileno()
            loaded = numpy.load(file)
            assert ((loaded if arguments else loaded["array"]) == array).all()


def test_torch(path):
    torch = pytest.importorskip("torch", reason="torch is not installed: make deps-python")
    state = {"weights": torch.randn(100, 1000), "step": 7}
    with dsaio.open(path, "wb") as file:
        torch.save(state, file)
    for file in (dsaio.open(path), io.BufferedReader(dsaio.open(path), MIB)):
        with file:
            loaded = torch.load(file)
            assert torch.equal(loaded["weights"], state["weights"]) and loaded["step"] == 7


def test_h5py(path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with dsaio.open(path, "w+b") as file:
        with h5py.File(file, "w") as h5:
            h5["values"] = list(range(1000))
    with dsaio.open(path) as file, h5py.File(file) as h5:
        assert list(h5["values"]) == list(range(1000))


def test_pyarrow(path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    table = pyarrow.table({"a": list(range(1000)), "b": ["x"] * 1000})
    with dsaio.open(path, "wb") as file:
        parquet.write_table(table, file)
    with dsaio.open(path) as file:
        assert parquet.read_table(file) == table


def test_fsspec(path):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    with dsaio.open(path, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("folder/one", b"1")
    with dsaio.open(path) as file:
        assert fsspec.filesystem("zip", fo=file).cat("folder/one") == b"1"
