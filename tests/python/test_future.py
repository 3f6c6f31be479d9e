"""Futures of ops, dsaio.wait(), and `async with`."""

import asyncio
import concurrent.futures
import errno
import os
import threading

import pytest

import dsaio
from conftest import MIB, file_bytes, make_file


@pytest.fixture(params=[dsaio.Handle, dsaio.aio_handle])
def handle(request):
    with request.param() as handle:
        yield handle


@pytest.fixture
def ops_of(handle, path):
    """Starts n reads of 4096 bytes, which stay open while the daemon is frozen."""
    make_file(path, os.urandom(4096))
    handle.submit_read(bytearray(4096), path).wait()  # the file is known from now on
    return lambda n: [handle.submit_read(bytearray(4096), path) for _ in range(n)]


def watch_threads():
    return [thread for thread in threading.enumerate() if thread.name == "dsaio"]


# ---- futures ----


def test_a_future_has_the_op_s_result_and_calls_back(handle, daemon, ops_of):
    called = threading.Event()
    with daemon.frozen():
        (op,) = ops_of(1)
        future = op.future()
        assert isinstance(future, concurrent.futures.Future) and op.future() is future
        future.add_done_callback(lambda f: called.set() if f is future else None)
        assert future.running() and not future.done() and not called.is_set()
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(0.01)
    assert future.result() == 4096 and future.exception() is None
    assert called.wait(60)
    assert op.done() and op.wait() == 4096 and not future.cancel()


def test_the_future_of_an_op_that_has_ended_is_done(handle, path, ops_of):
    (op,) = ops_of(1)
    op.wait()
    assert op.future().done() and op.future().result() == 4096 and not watch_threads()
    failed = handle.submit_read(bytearray(8192), path)
    with pytest.raises(OSError):
        failed.wait()
    assert failed.future().exception().errno == errno.ENODATA and not watch_threads()


def test_the_future_of_an_op_that_fails_has_its_error(handle, path, ops_of):
    ops_of(0)
    op = handle.submit_read(bytearray(8192), path)
    error = op.future().exception()
    assert error.errno == errno.ENODATA and error.filename == path
    with pytest.raises(OSError) as e:
        op.wait()
    assert e.value is error


def test_futures_of_many_ops_of_several_handles(handle, ops_of, path):
    with dsaio.Handle() as other:
        futures = [op.future() for _ in range(20) for op in ops_of(5)]
        futures += [other.submit_read(bytearray(100), path).future() for _ in range(100)]
        results = [future.result() for future in concurrent.futures.as_completed(futures)]
        assert sorted(results) == [100] * 100 + [4096] * 100
        done, not_done = concurrent.futures.wait(futures)
        assert len(done) == 200 and not not_done


def test_a_future_lives_without_its_op_and_handle(daemon, path):
    make_file(path, b"x" * 4096)
    handle = dsaio.Handle()
    handle.submit_read(bytearray(4096), path).wait()
    buffer = bytearray(4096)
    with daemon.frozen():
        future = handle.submit_read(buffer, path).future()
        del handle
    assert future.result() == 4096 and buffer == b"x" * 4096


def test_cancel_of_a_future_asks_for_the_end_of_the_op(handle, folder):
    buffer = bytes(64 * MIB)
    n_cancelled = 0
    while not n_cancelled:  # each round, it may come too late
        futures = [handle.submit_write(buffer, f"{folder}/{i}").future() for i in range(8)]
        assert not any([future.cancel() for future in futures])
        for future in futures:
            error = future.exception()
            assert not future.cancelled() and (error is None or error.errno == errno.ECANCELED)
            n_cancelled += error is not None


def test_a_callback_that_raises_stops_no_other(ops_of, caplog):
    def fail(future):
        raise ValueError("by the program")

    with caplog.at_level("CRITICAL", "concurrent.futures"):
        for op in ops_of(3):
            op.future().add_done_callback(fail)
        assert [op.future().result() for op in ops_of(3)] == [4096] * 3


def test_a_callback_starts_the_next_op(handle, path, ops_of):
    results = []
    ended = threading.Event()

    def go_on(future):
        results.append(future.result())
        if len(results) < 50:
            handle.submit_read(bytearray(4096), path).future().add_done_callback(go_on)
        else:
            ended.set()

    ops_of(1)[0].future().add_done_callback(go_on)
    assert ended.wait(60) and results == [4096] * 50


def test_one_thread_watches_while_futures_are_open(daemon, path):
    make_file(path, b"x" * 4096)
    with dsaio.Handle() as first, dsaio.Handle() as second:
        for handle in (first, second):
            handle.submit_read(bytearray(4096), path).wait()
        assert not watch_threads()
        with daemon.frozen():
            futures = [handle.submit_read(bytearray(4096), path).future() for handle in (first, second)]
            (thread,) = watch_threads()
            assert thread.daemon
        assert [future.result() for future in futures] == [4096] * 2
    thread.join(60)  # the handles are closed
    assert not thread.is_alive()


def test_closing_a_handle_leaves_the_futures_of_others(daemon, path):
    make_file(path, b"x" * 4096)
    with dsaio.Handle() as handle:
        handle.submit_read(bytearray(4096), path).wait()
        other = dsaio.Handle()
        kept = other.submit_read(bytearray(4096), path)  # the close need not ask the daemon while it is there
        kept.wait()
        with daemon.frozen():
            future = handle.submit_read(bytearray(4096), path).future()
            other.close()
            (thread,) = watch_threads()
        assert future.result() == 4096
    thread.join(60)
    assert not thread.is_alive()


def test_a_closed_handle_s_ops_have_futures(handle, ops_of):
    ops = ops_of(2)
    ops[0].future()
    handle.close()
    assert [op.future().result(0) for op in ops] == [4096] * 2


def test_no_thread_is_an_error_and_the_op_goes_on(ops_of, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    (op,) = ops_of(1)
    n_files = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            op.future()
    assert len(os.listdir("/proc/self/fd")) == n_files
    assert op.future().result() == 4096 and op.wait() == 4096


CHILD = """
    import concurrent.futures, threading
    handle = dsaio.Handle()
    handle.submit_write(bytes(4096), folder + "/f").wait()
    handle.submit_read(bytearray(4096), folder + "/f").wait()
    freeze()
    op, bare = [handle.submit_read(bytearray(4096), folder + "/f") for _ in range(2)]
    future = op.future()
    future.add_done_callback(lambda _: print("called", os.getpid() == parent, flush=True))
    parent = os.getpid()
    pid = os.fork()
    os.kill(daemon, signal.SIGCONT)
    if pid == 0:
        try:
            assert threading.active_count() == 1
            assert isinstance(future.exception(), PermissionError) and op.future() is future
            assert concurrent.futures.wait([future]).done == {future}
            for call in (bare.future, lambda: dsaio.wait([bare])):
                try:
                    call()
                except PermissionError as e:
                    assert "before fork(), " in e.strerror, e
                else:
                    raise AssertionError(call)
            own = handle.submit_read(bytearray(4096), folder + "/f")
            assert own.future().result() == 4096
            assert [t.name for t in threading.enumerate()] == ["MainThread", "dsaio"]
            handle.close()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert future.result() == 4096 and bare.future().result() == 4096
    handle.close()
    """


def test_a_child_of_fork_has_a_thread_of_its_own(python, own_daemon):
    assert python(CHILD, daemon=own_daemon) == "called True\n"


def test_the_interpreter_ends_with_a_future_open(python, own_daemon):
    output = python(
        """
        handle = dsaio.Handle()
        handle.submit_write(bytes(4096), folder + "/f").wait()
        handle.submit_read(bytearray(4096), folder + "/f").wait()
        freeze()
        future = handle.submit_read(bytearray(4096), folder + "/f").future()
        """,
        daemon=own_daemon,
    )
    assert output == ""


def test_futures_end_when_the_daemon_dies(python, own_daemon):
    python(
        """
        handle = dsaio.Handle()
        handle.submit_write(bytes(4096), folder + "/f").wait()
        handle.submit_read(bytearray(4096), folder + "/f").wait()
        freeze()
        ops = [handle.submit_read(bytearray(4096), folder + "/f") for _ in range(200)]
        futures = [op.future() for op in ops]
        os.kill(daemon, signal.SIGKILL)
        for future in futures:
            assert isinstance(future.exception(), ConnectionResetError), future.exception()
        assert dsaio.wait(ops) == (set(ops), set())
        """,
        daemon=own_daemon,
    )


# ---- event loops ----


def test_ops_in_asyncio_s_functions(daemon, ops_of):
    async def main():
        assert await asyncio.gather(*ops_of(3)) == [4096] * 3
        assert await asyncio.wait_for(ops_of(1)[0], 60) == 4096
        assert await asyncio.ensure_future(ops_of(1)[0]) == 4096
        assert await asyncio.wrap_future(ops_of(1)[0].future()) == 4096
        done, pending = await asyncio.wait([asyncio.ensure_future(op) for op in ops_of(3)])
        assert [task.result() for task in done] == [4096] * 3 and not pending
        with daemon.frozen():
            (op,) = ops_of(1)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(op, 0.01)
            assert not op.done()
        assert await op == 4096

    asyncio.run(main())


def test_a_loop_is_closed_while_an_op_is_awaited(daemon, ops_of):
    loop = asyncio.new_event_loop()
    with daemon.frozen():
        (op,) = ops_of(1)

        async def wait():
            return await op

        task = loop.create_task(wait())
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
    assert op.future().result() == 4096
    assert asyncio.run(wait()) == 4096


@pytest.mark.parametrize("kind", [dsaio.Handle, dsaio.aio_handle])
def test_async_with_closes_a_handle_beside_the_loop(kind, daemon, path):
    make_file(path, b"x" * 4096)

    async def main():
        async with kind() as handle:
            assert isinstance(handle, kind)
            handle.submit_read(bytearray(4096), path).wait()
            with daemon.frozen():
                op = handle.submit_read(bytearray(4096), path)
                end = asyncio.ensure_future(handle.__aexit__(None, None, None))
                for _ in range(100):  # the loop runs while the close waits
                    await asyncio.sleep(0)
                assert not end.done() and not op.done()
            await end
            assert op.done()
        with pytest.raises(ValueError, match="closed"):
            async with handle:
                pass

    asyncio.run(main())


def test_async_with_raises_the_block_s_error_and_that_of_the_close(folder, path):
    async def block():
        async with dsaio.Handle() as handle:
            handle.submit_write(b"x", path)
            raise KeyError

    async def close():
        async with dsaio.aio_handle() as handle:
            make_file(path, b"x")
            assert handle.async_pread(bytearray(10), path) == 0

    with pytest.raises(KeyError):
        asyncio.run(block())
    assert file_bytes(path) == b"x"
    with pytest.raises(OSError) as e:
        asyncio.run(close())
    assert e.value.errno == errno.ENODATA


def test_async_with_of_a_file(path):
    async def main():
        async with dsaio.File(path, os.O_RDWR | os.O_CREAT) as file:
            assert file.size() == 0
        with pytest.raises(ValueError, match="closed"):
            file.size()

    asyncio.run(main())


# ---- dsaio.wait ----


def test_wait_for_all(handle, ops_of, path):
    with dsaio.Handle() as other:
        ops = ops_of(3) + [other.submit_read(bytearray(100), path)]
        assert dsaio.wait(ops) == (set(ops), set())
        assert dsaio.wait(iter(ops), timeout=0) == (set(ops), set())
    assert dsaio.wait([]) == (set(), set())


def test_wait_for_the_first(handle, daemon, ops_of):
    (ended,) = ops_of(1)
    ended.wait()
    with daemon.frozen():
        ops = ops_of(3)
        assert dsaio.wait([ended] + ops, return_when=dsaio.FIRST_COMPLETED) == ({ended}, set(ops))
        assert dsaio.wait([ended] + ops, 0.01) == ({ended}, set(ops))
    done, not_done = dsaio.wait(ops, return_when=dsaio.FIRST_COMPLETED)
    assert done and not done & not_done and done | not_done == set(ops)


def test_wait_for_the_first_that_fails(handle, daemon, ops_of, path):
    ops_of(0)
    failed = handle.submit_read(bytearray(8192), path)
    assert dsaio.wait([failed]) == ({failed}, set())  # raises nothing
    with daemon.frozen():
        ops = ops_of(3)
        done, not_done = dsaio.wait(ops + [failed], return_when=dsaio.FIRST_EXCEPTION)
        assert done == {failed} and not_done == set(ops)
    assert dsaio.wait(ops, return_when=dsaio.FIRST_EXCEPTION) == (set(ops), set())


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (([1],), TypeError, "op 1: must be a dsaio.Op"),
        ((7,), TypeError, "not iterable"),
        (([], "x"), TypeError, "timeout 'x': must be a number of seconds"),
        (([], None, "SOME"), ValueError, "return_when 'SOME': must be one of ALL_COMPLETED, FIRST_COMPLETED"),
    ],
)
def test_wrong_arguments_of_wait(arguments, error, message):
    with pytest.raises(error, match=message):
        dsaio.wait(*arguments)


def test_ctrl_c_ends_wait(python, own_daemon):
    python(
        """
        import threading
        handle = dsaio.Handle()
        handle.submit_write(bytes(4096), folder + "/f").wait()
        handle.submit_read(bytearray(4096), folder + "/f").wait()
        freeze()
        op = handle.submit_read(bytearray(4096), folder + "/f")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            dsaio.wait([op])
            raise AssertionError("it has not raised")
        except KeyboardInterrupt:
            assert not op.done()
        os.kill(daemon, signal.SIGCONT)
        assert dsaio.wait([op]) == ({op}, set()) and op.wait() == 4096
        """,
        daemon=own_daemon,
    )


def test_a_callback_that_raises_ends_no_other_future(python, folder):
    code = """
    import sys, threading
    handle, path = dsaio.Handle(), folder + "/raises"
    open(path, "wb").write(bytes(65536))
    first = handle.submit_read(bytearray(65536), path).future()
    def leave(future):
        if threading.current_thread().name == "dsaio":  # not this one
            sys.exit(3)
    first.add_done_callback(leave)
    print(first.result())
    taken = handle.submit_read(bytearray(65536), path).future()
    try:
        taken.set_result(5)
    except Exception:
        pass  # it had ended
    other = dsaio.Handle()
    done, rest = dsaio.wait([other.submit_read(bytearray(65536), path)], 20)
    print(len(done), len(rest), dsaio.wait(done, -1) == (done, set()))
    """
    assert python(code) == "65536\n1 0 True\n"
