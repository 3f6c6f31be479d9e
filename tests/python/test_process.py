"""Processes: import, fork, the end of the interpreter, and the end of the daemon."""

import ctypes
import os
import subprocess
import textwrap
import time

import pytest

from conftest import BUILD, ROOT

# ---- import ----


def test_import_loads_nothing_that_is_not_used(python):
    python(
        """
        for name in ("ctypes", "asyncio", "numpy", "torch", "logging", "typing", "threading"):
            assert name not in sys.modules, name
        dsaio.aio_handle
        for name in ("asyncio", "numpy", "torch", "logging", "typing"):
            assert name not in sys.modules, name
        assert set(dsaio.__all__) <= set(dir(dsaio))
        for name in dsaio.__all__:
            assert getattr(dsaio, name).__doc__
        try:
            dsaio.none
        except AttributeError:
            pass
        """,
        options=("-S",),
    )


def test_the_version_is_the_library_s(python):
    assert python("from dsaio import _library as l; import ctypes; f = l.quick.dsaio_version; "
                  "f.restype = ctypes.c_char_p; print(f().decode() == dsaio.__version__)") == "True\n"


STRUCTS = {
    "Profile": "dsaio_profile",
    "HandleOptions": "dsaio_handle_options",
    "AllocOptions": "dsaio_alloc_options",
    "Memory": "dsaio_memory",
    "Io": "dsaio_io",
    "Completion": "dsaio_completion",
}


def test_structs_and_constants_are_those_of_dsaio_h(python, folder):
    import dsaio._library as library

    lines = []
    for name, struct in STRUCTS.items():
        python_struct = getattr(library, name)
        lines.append(f'P("{name} size", sizeof(struct {struct}), {ctypes.sizeof(python_struct)});')
        for field, _ in python_struct._fields_:
            place = getattr(python_struct, field)
            lines.append(f'P("{name}.{field}", offsetof(struct {struct}, {field}), {place.offset});')
            lines.append(f'P("{name}.{field} size", sizeof(((struct {struct} *)0)->{field}), {place.size});')
    names = "READ WRITE FSYNC DATASYNC CONNECTED RECONNECTING INHERIT YES NO ALLOC_NO_ZERO MEMORY_FD MEMORY_CUDA"
    for name in names.split():
        lines.append(f'P("{name}", DSAIO_{name}, {getattr(library, name.replace("ALLOC_", ""))});')
    for name, value in library.CLASSES.items():
        lines.append(f'P("class {name}", DSAIO_CLASS_{name.upper()}, {value});')
    source = """
        #include "client/lib/dsaio.h"
        #include <stdio.h>
        #define P(what, c, python) if ((long)(c) != (python)) printf("%s: %ld in C\\n", what, (long)(c))
        int main(void) { BODY return 0; }
        """.replace("BODY", "\n".join(lines))
    program = os.path.join(folder, "structs")
    subprocess.run(["gcc", "-I", ROOT, "-x", "c", "-", "-o", program], input=source.encode(), check=True)
    assert subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout.decode() == ""


def test_a_library_that_is_missing_is_named(python):
    code = """
    try:
        dsaio.aio_handle
    except ImportError as e:
        print(e)
    """
    assert "/none.so" in python(code, DSAIO_LIBRARY="/none.so")


def test_no_daemon_is_an_error_with_a_message(python, folder):
    code = """
    try:
        dsaio.aio_handle()
    except OSError as e:
        print(e.errno, e)
    """
    output = python(code, DSAIO_SOCKET=folder + "/none")
    assert output.startswith("2 ") and folder + "/none" in output


def test_every_public_function_has_annotations_and_a_docstring(python):
    python(
        """
        import inspect
        for name in dsaio.__all__:
            value = getattr(dsaio, name)
            members = vars(value) if inspect.isclass(value) else {}
            functions = [value] if inspect.isfunction(value) else \\
                [f for n, f in members.items() if inspect.isfunction(f) and not n.startswith("_")]
            for f in functions:
                assert f.__doc__, (name, f)
                missing = set(inspect.signature(f).parameters) - set(f.__annotations__) - {"self"}
                assert not missing and "return" in f.__annotations__, (name, f, missing)
        """
    )


def test_a_program_with_types_runs(python, folder):
    program = os.path.join(ROOT, "tests", "python", "typed_program.py")
    python(
        f"""
        import runpy
        sys.argv = ['typed_program.py', {folder!r}]
        runpy.run_path({program!r}, run_name='__main__')
        """
    )


def test_nothing_warns(python):
    """In Python's development mode, with each warning an error."""
    output = python(
        """
        import asyncio, gc
        with dsaio.aio_handle() as handle:
            assert handle.sync_pwrite(bytes(5000), folder + "/f") == 1
            assert handle.async_pread(dsaio.alloc(5000), folder + "/f") == 0
            assert handle.async_pread(bytearray(5000), folder + "/f") == 0
            assert handle.wait() == 2
            fd = os.open(folder + "/f", os.O_RDWR)
            with dsaio.File(folder + "/f", os.O_RDWR) as file:
                ops = [handle.submit_read(bytearray(5000), name) for name in (folder + "/f", fd, file)]
                ops += handle.submit_writes([(bytes(5000), file), (bytes(5000), file, 5000)])
                async def main():
                    await asyncio.gather(*ops, handle.submit_fsync(file))
                asyncio.run(main())
            os.close(fd)
            assert handle.read(bytearray(10000), folder + "/f", True) == 0
        handle = dsaio.aio_handle()
        handle.async_pwrite(bytes(5000), folder + "/f")
        del handle, ops, file
        gc.collect()
        """,
        options=("-X", "dev", "-W", "error", "-W", "ignore:pinned memory of dsaio is served unlocked"),
    )
    assert output.startswith("Elapsed time") or output.startswith("Pass")
    assert "arning" not in output


# ---- fork ----


def test_a_child_has_a_connection_of_its_own(python):
    python(
        """
        import gc
        handle = dsaio.aio_handle()
        memory = dsaio.alloc(1 << 20)
        memory[:] = b"p" * (1 << 20)
        file = dsaio.File(folder + "/parent", os.O_RDWR | os.O_CREAT)
        assert handle.async_pwrite(memory, folder + "/parent") == 0
        op = handle.submit_write(memory, folder + "/parent2")
        pid = os.fork()
        if pid == 0:
            try:
                assert handle.stats().open == 0
                assert handle.wait() == 0  # the op is the parent's
                assert not dsaio.is_pinned(memory)
                assert handle.sync_pwrite(memory, folder + "/child") == 1
                own = dsaio.alloc(1 << 20)
                assert dsaio.is_pinned(own)
                assert handle.submit_read(own, folder + "/child").wait() == 1 << 20
                assert own == memory
                read = lambda: handle.submit_read(own, file)
                many = lambda: handle.submit_reads([(own, file)])
                for call in (op.wait, op.done, op.cancel, file.size, read, many):
                    try:
                        call()
                    except PermissionError as e:
                        assert "before fork(), " in e.strerror and "dsaio_" not in e.strerror, e
                    else:
                        raise AssertionError(call)
                del memory, file, op, own
                gc.collect()
                handle.close()
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert handle.wait() == 1 and op.wait() == 1 << 20
        assert dsaio.is_pinned(memory)
        assert file.size() == 1 << 20
        """
    )


def test_a_child_never_sees_the_parents_new_data_in_memory_that_was_freed(python):
    python(
        """
        handle = dsaio.aio_handle()
        memory, kept = dsaio.alloc(1 << 20), dsaio.alloc(1 << 20)
        memory[:] = b"p" * (1 << 20)
        to_child, from_child = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                memory[:1] = b"c"
                os.write(from_child[1], b"x")
                os.read(to_child[0], 1)
                assert memory == b"c" + b"p" * ((1 << 20) - 1)
                memory[:] = b"c" * (1 << 20)
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        os.read(from_child[0], 1)
        assert memory[:2] == b"cp"  # it is shared
        del memory
        new = [dsaio.alloc(1 << 20) for _ in range(8)]
        for memory in new:
            memory[:] = b"n" * (1 << 20)
        os.write(to_child[1], b"x")
        assert os.waitpid(pid, 0)[1] == 0
        for memory in new:
            assert memory == b"n" * (1 << 20)
        """
    )


def test_workers_of_a_data_loader_read_pinned_tensors_of_their_parent(python):
    pytest.importorskip("torch", reason="torch is not installed: make deps-python")
    python(
        """
        import torch
        import torch.utils.data
        handle = dsaio.aio_handle()
        tensor = torch.frombuffer(dsaio.alloc(1 << 20), dtype=torch.float32)
        tensor.copy_(torch.arange(1 << 18))
        assert handle.sync_pwrite(tensor, folder + "/f") == 1
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 16
            def __getitem__(self, i):
                own = torch.empty(1 << 18)
                assert handle.sync_pread(own, folder + "/f") == 1 and own.equal(tensor)
                return tensor[i * 1000 : i * 1000 + 4]
        for epoch in range(3):
            unrelated = dsaio.alloc(1 << 20)  # it is there at the fork
            loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2)
            rows = torch.cat([batch for batch in loader])
            assert rows[:, 0].tolist() == [i * 1000 for i in range(16)]
            del unrelated
            assert handle.sync_pread(tensor, folder + "/f") == 1
        """
    )


def test_children_of_a_pool_read(python):
    python(
        """
        import multiprocessing
        handle = dsaio.aio_handle()
        handle.sync_pwrite(b"x" * 5000, folder + "/f")
        def work(i):
            buffer = bytearray(5000)
            return handle.sync_pread(buffer, folder + "/f"), buffer == b"x" * 5000
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(work, range(20)) == [(1, True)] * 20
        """
    )


def test_handles_could_not_be_pickled(python):
    """As spawn does it, which DataLoader can use for its workers."""
    output = python(
        """
        import copy, multiprocessing, pickle
        from operator import methodcaller
        class Own(dsaio.aio_handle):
            def __init__(self, name):
                super().__init__(block_size=8192)
                self.name = name
        path = folder + "/f"
        profile = dsaio.Profile(queue_depth=16)
        handles = [dsaio.Handle(profile, io_class="demand", weight=3, op_timeout=60), dsaio.aio_handle(4096, 8),
                   dsaio.gds_handle(), Own("x")]
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for i, handle in enumerate(handles[:3]):  # the children have no class Own
                if i:
                    assert handle.async_pwrite(b"%d" % i * 5000, path) == 0  # is the parent's
                    assert pool.apply(methodcaller("sync_pwrite", b"c" * 5000, path, 5000), (handle,)) == 1
                    assert handle.wait() == 1
                    assert open(path, "rb").read() == b"%d" % i * 5000 + b"c" * 5000
                assert pool.apply(methodcaller("stats"), (handle,)) == dsaio.Stats(0, 0, 0, 0, 0, 0, 0, 0.0)
            file = dsaio.File(path, os.O_RDWR | os.O_TRUNC)
            handles[0].submit_write(b"f" * 5000, file).wait()
            assert pool.apply(methodcaller("size"), (file,)) == 5000  # not truncated again
            pool.apply(methodcaller("truncate", 4000), (file,))
            assert file.size() == 4000
        for handle in handles:
            for other in (pickle.loads(pickle.dumps(handle)), copy.copy(handle), copy.deepcopy(handle)):
                assert type(other) is type(handle)
                assert other.submit_read(bytearray(4000), path).wait() == 4000
                assert other.stats().reads == 1 and handle.stats().reads == 0
                other.close()
        assert pickle.loads(pickle.dumps(handles[1])).get_block_size() == 4096
        assert pickle.loads(pickle.dumps(handles[3])).name == "x"
        again = pickle.loads(pickle.dumps(handles[0]))
        assert again._options.weight == 3 and again._options.profile.contents.queue_depth == 16
        assert handles[0].submit_read(bytearray(4000), path).wait() == 4000
        handles[0].close()
        closed = pickle.loads(pickle.dumps(handles[0]))
        op = handles[1].submit_read(bytearray(4000), path)
        file.close()
        for error, call, text in (
            (ValueError, lambda: closed.submit_read(bytearray(1), path), "the handle is closed"),
            (TypeError, lambda: pickle.dumps(op), "an op cannot be pickled"),
            (TypeError, lambda: pickle.dumps(file), "cannot be pickled: pickle the path"),
        ):
            try:
                call()
                raise AssertionError("it has not failed")
            except error as e:
                assert text in str(e), e
        """
    )
    assert output == ""


def test_fork_while_other_threads_submit(python):
    python(
        """
        import threading
        handle = dsaio.aio_handle()
        handle.sync_pwrite(bytes(65536), folder + "/f")
        stop = False
        def work():
            own = dsaio.aio_handle()
            while not stop:
                own.sync_pread(bytearray(65536), folder + "/f")
                handle.submit_read(bytearray(65536), folder + "/f").wait()
                dsaio.alloc(4096)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                try:
                    buffer = dsaio.alloc(65536)
                    os._exit(0 if handle.sync_pread(buffer, folder + "/f") == 1 else 1)
                except BaseException:
                    os._exit(2)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for t in threads:
            t.join()
        """
    )


# ---- the end of the interpreter ----

ENDS = {
    "with everything alive": "",
    "with ops open on memory of its own": """
        for i in range(8):
            handle.async_pwrite(bytes(8 << 20), folder + f"/{i}")
            handle.submit_write(bytearray(8 << 20), folder + f"/o{i}")
            handle.async_pread(bytearray(8 << 20), folder + "/big")
        """,
    "with a use of pinned memory at exit": """
        import atexit
        def last():
            memory[:] = b"z" * len(memory)
            assert handle.sync_pwrite(memory, folder + "/late") == 1
            assert dsaio.is_pinned(memory)
        atexit.register(last)
        """,
    "with a finalizer that frees": """
        class Buffer:
            def __init__(self):
                self.pins = dsaio.pin_handle()
                self.memory = dsaio.alloc(1 << 20)
            def __del__(self):
                self.pins.free_cpu_locked_tensor(self.memory)
                self.memory[0] = 1
        buffer = Buffer()
        import builtins
        builtins.buffer = buffer
        """,
    "in cycles": """
        class Node: pass
        a = Node(); a.self = a; a.handle = handle; a.memory = memory; a.op = handle.submit_read(memory, folder + "/big")
        del a, handle, memory
        """,
    "by sys.exit in a thread's presence": """
        import threading
        def work():
            while True:
                own = dsaio.aio_handle()
                own.sync_pread(bytearray(1 << 20), folder + "/big")
        threading.Thread(target=work, daemon=True).start()
        sys.exit(0)
        """,
}


@pytest.mark.parametrize("how", ENDS)
def test_the_interpreter_ends(python, how):
    code = """
        handle = dsaio.aio_handle()
        memory = dsaio.alloc(1 << 20)
        handle.sync_pwrite(bytes(8 << 20), folder + "/big")
        """
    output = python(textwrap.dedent(code) + textwrap.dedent(ENDS[how]))
    assert output == ""


def test_the_interpreter_ends_while_the_daemon_stands_still(python, own_daemon):
    """No call at the end asks the daemon, and the memory of open ops is not freed."""
    began = time.monotonic()
    output = python(
        """
        import array
        class Array(array.array):
            def __del__(self):
                print("freed")
        handle = dsaio.aio_handle()
        pinned = dsaio.alloc(300 << 20)
        file = dsaio.File(folder + "/f", os.O_RDWR | os.O_CREAT)
        handle.sync_pwrite(bytes(4096), folder + "/f")
        handle.sync_pread(bytearray(4096), folder + "/f")
        handle.submit_read(bytearray(4096), folder + "/f").wait()
        freeze()
        assert handle.async_pread(Array("b", bytes(4096)), folder + "/f") == 0
        handle.submit_read(Array("b", bytes(4096)), folder + "/f")
        """,
        daemon=own_daemon,
    )
    assert output == ""
    assert time.monotonic() - began < 29  # the library gives a daemon up after 30 s


def test_torch_tensors_at_the_end_of_the_interpreter(python):
    pytest.importorskip("torch")
    python(
        """
        import torch, weakref
        handle = dsaio.aio_handle()
        tensor = handle.new_cpu_locked_tensor(1 << 20, torch.empty(0))
        view = tensor[5:]
        other = torch.zeros(4 << 20)
        handle.async_pwrite(tensor, folder + "/f")
        handle.async_pwrite(other, folder + "/g")
        weakref.finalize(tensor, dsaio.pin_handle().free_cpu_locked_tensor_by_ptr, tensor.data_ptr())
        """
    )


@pytest.mark.parametrize("wait", ["handle.wait()", "op.wait()"])
def test_ctrl_c_ends_a_wait_and_the_op_goes_on(python, own_daemon, wait):
    python(
        f"""
        import threading
        handle = dsaio.aio_handle()
        handle.sync_pwrite(b"x" * 5000, folder + "/f")
        handle.sync_pread(bytearray(5000), folder + "/f")
        handle.submit_read(bytearray(5000), folder + "/f").wait()
        freeze()
        buffers = [bytearray(5000), bytearray(5000)]
        for _ in range(3):
            assert handle.async_pread(buffers[0], folder + "/f") == 0
        op = handle.submit_read(buffers[1], folder + "/f")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            {wait}
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:
            pass
        assert handle.stats().open == 4
        os.kill(daemon, signal.SIGCONT)
        assert handle.wait() == 3 and op.wait() == 5000
        assert buffers == [b"x" * 5000] * 2
        """,
        daemon=own_daemon,
    )


@pytest.mark.parametrize(
    "start",
    [
        "handle.submit_read(buffer, path)",
        "handle.submit_reads([(buffer, path)])",
        "handle.async_pread(buffer, path)",
        "handle.sync_pread(buffer, path)",
    ],
)
def test_a_signal_right_after_the_start_of_an_op_does_not_free_its_buffer(python, own_daemon, start):
    python(
        f"""
        import array, gc, weakref
        from dsaio import _library, _op
        class Array(array.array):
            pass
        path = folder + "/f"
        handle = dsaio.aio_handle()
        handle.sync_pwrite(b"x" * 5000, path)
        handle.sync_pread(bytearray(5000), path)
        handle.submit_read(bytearray(5000), path).wait()
        handle.submit_reads([(bytearray(5000), path)])[0].wait()
        handle.submit_fsync(path).wait()
        assert handle.async_pread(bytearray(1), path + "x") == -1
        try:
            handle.submit_reads([(bytearray(1), path + "x")])
        except FileNotFoundError:
            pass
        assert not [slot.kept for slot in _op._all_slots if slot.kept is not None]
        assert len(_op._all_slots) == len(_op._free_slots) == 1
        def interrupted(function):
            def call(*arguments):
                assert function(*arguments) >= 0
                raise KeyboardInterrupt
            return call
        _library.submit = interrupted(_library.submit)
        _op._BY_PATH = (None, interrupted(_library.pread_path))
        freeze()
        buffer = Array("b", bytes(5000))
        reference = weakref.ref(buffer)
        try:
            {start}
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:
            pass
        del buffer
        gc.collect()
        assert reference() is not None
        os.kill(daemon, signal.SIGCONT)
        """,
        daemon=own_daemon,
    )


# ---- the daemon goes away ----


def test_a_daemon_that_dies(python, own_daemon):
    python(
        """
        import errno
        handle = dsaio.aio_handle()
        memory = dsaio.alloc(1 << 20)
        memory[:] = b"m" * (1 << 20)
        path = folder + "/f"
        file = dsaio.File(path, os.O_RDWR | os.O_CREAT)
        handle.sync_pwrite(memory, path)
        handle.submit_write(memory, path).wait()
        freeze()
        assert handle.async_pwrite(memory, path) == 0
        op = handle.submit_write(memory, path)
        os.kill(daemon, signal.SIGKILL)
        for wait in (handle.wait, op.wait):
            try:
                wait()
                raise AssertionError("it has not failed")
            except ConnectionResetError as e:
                assert e.filename == path
        assert handle.async_pwrite(memory, path) == -1
        for call in (lambda: handle.submit_write(memory, path), lambda: dsaio.alloc(4096), dsaio.aio_handle):
            try:
                call()
                raise AssertionError("it has not failed")
            except OSError as e:
                assert e.errno in (errno.ENOTCONN, errno.ECONNREFUSED), repr(e)
        assert memory[5] == ord("m")  # still there
        handle.close()
        """,
        daemon=own_daemon,
    )


def test_wait_returned_0_after_the_daemon_was_killed(python, own_daemon):
    """The caller does not look at what async_pread() returns, as DeepSpeed's examples."""
    python(
        """
        import errno
        handle = dsaio.aio_handle()
        path = folder + "/f"
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        assert handle.sync_pwrite(b"x" * 5000, path) == 1
        assert handle.submit_read(bytearray(5000), path).wait() == 5000
        assert handle.wait() == 0
        freeze()
        op = handle.submit_read(bytearray(5000), path)
        assert handle.async_pread(bytearray(5000), path) == 0
        os.kill(daemon, signal.SIGKILL)
        advice = "connect again (dsaio_connect(); in Python a new Handle)"
        def fails(call, code, text=advice):
            try:
                call()
                raise AssertionError("it has not failed")
            except OSError as e:
                assert e.errno == code and e.strerror.endswith(text), repr(e)
                assert "start it again" not in e.strerror, repr(e)
        fails(op.wait, errno.ECONNRESET)
        fails(handle.wait, errno.ECONNRESET)
        for file in (path, fd):
            assert handle.async_pread(bytearray(5000), file) == -1
            fails(handle.wait, errno.ENOTCONN, "which connects to the next daemon, or starts one")
            fails(lambda: handle.submit_read(bytearray(5000), file), errno.ENOTCONN)
            fails(lambda: handle.submit_reads([(bytearray(5000), file)]), errno.ENOTCONN)
        pid = os.fork()
        if pid == 0:
            os._exit(handle.wait())  # its own handle has no ops, and has lost nothing
        assert os.waitpid(pid, 0)[1] == 0
        handle.close()
        """,
        daemon=own_daemon,
    )


def test_awaited_ops_end_when_the_daemon_dies(python, own_daemon):
    python(
        """
        import asyncio
        handle = dsaio.Handle()
        handle.submit_write(bytes(5000), folder + "/f").wait()
        handle.submit_read(bytearray(5000), folder + "/f").wait()
        async def main():
            async def read():
                return await handle.submit_read(bytearray(5000), folder + "/f")
            freeze()
            tasks = [asyncio.ensure_future(read()) for _ in range(8)]
            await asyncio.sleep(0)
            os.kill(daemon, signal.SIGKILL)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, ConnectionResetError) for r in results), results
        asyncio.run(main())
        """,
        daemon=own_daemon,
    )


def test_new_objects_find_a_new_daemon(python, own_daemon):
    python(
        f"""
        import errno, select, subprocess
        old = dsaio.aio_handle()
        memory = dsaio.alloc(1 << 20)
        memory[:] = b"m" * (1 << 20)
        old_handle = dsaio.Handle()
        old_file = dsaio.File(folder + "/old", os.O_RDWR | os.O_CREAT)
        process = os.pidfd_open(daemon)
        os.kill(daemon, signal.SIGKILL)
        select.select([process], [], [])  # the connection is lost, which may come after the lock of its socket is free
        # Its socket stays until the next daemon takes the place.
        command = [{BUILD!r} + "/dsaiod", "--config", "/dev/null", "--socket", os.environ["DSAIO_SOCKET"]]
        new_daemon = subprocess.Popen(command + ["--store", "t=" + folder], stderr=subprocess.PIPE)
        for line in new_daemon.stderr:
            if b" ready: " in line:
                break
        handle = dsaio.aio_handle()
        new = dsaio.alloc(1 << 20)
        assert handle.sync_pwrite(memory, folder + "/f") == 1  # copied: it was the other daemon's
        assert handle.sync_pread(new, folder + "/f") == 1
        assert new == memory
        assert old.async_pread(new, folder + "/f") == -1
        new_file = dsaio.File(folder + "/f")
        for call, wanted in (
            (lambda: handle.submit_read(new, old_file), "make a new dsaio.File"),
            (lambda: handle.submit_reads([(new, old_file)]), "make a new dsaio.File"),
            (lambda: old_handle.submit_read(new, new_file), "make a new dsaio.Handle"),
        ):
            try:
                call()
                raise AssertionError("it has not failed")
            except OSError as e:
                assert e.errno == errno.ENOTCONN and wanted in e.strerror, e
        del memory, old, old_handle, old_file
        assert handle.sync_pread(new, folder + "/f") == 1
        new_daemon.terminate()
        new_daemon.wait()
        """,
        daemon=own_daemon,
    )
