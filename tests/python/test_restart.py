"""The daemon is restarted, and programs notice nothing but the time.

Each program ends its daemon, and starts the next one while other threads wait for it: a call that kept the
interpreter's lock meanwhile would hang the program.  tests/fault/restarts.c has a load in Python.
"""

import os
import textwrap

import pytest

from conftest import BUILD

ENDS = pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])

RESTART = f"""
import asyncio, errno, gc, select, subprocess, threading
from concurrent.futures import ThreadPoolExecutor, as_completed
def end_daemon(signal_number):
    process = os.pidfd_open(daemon)
    os.kill(daemon, signal_number)
    os.kill(daemon, signal.SIGCONT)
    select.select([process], [], [])
    os.close(process)
def next_daemon(*options):
    global daemon
    command = [{BUILD!r} + "/dsaiod", "--config", "/dev/null", "--socket", os.environ["DSAIO_SOCKET"]]
    command += ["--store", "t=" + folder, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert any(b" ready: " in line for line in process.stderr)
    daemon = process.pid
data = os.urandom(1 << 20)
path = folder + "/f"
handle, aio = dsaio.Handle(), dsaio.aio_handle()
pinned = dsaio.alloc(len(data))
pinned[:] = data
file = dsaio.File(path, os.O_RDWR | os.O_CREAT)
handle.submit_write(pinned, file).wait()
def reads(n):
    return [(dsaio.alloc(len(data)) if i % 2 else bytearray(len(data)), file) for i in range(n)]
for read in reads(2):  # what the first op makes is there
    assert handle.submit_read(*read).wait() == len(data) and aio.sync_pread(*read) == 1
"""


@pytest.fixture
def restart(python, own_daemon):
    """Runs a program after RESTART, with a library that waits for the next daemon without end."""

    def run(code, **more):
        code = RESTART + textwrap.dedent(code)
        return python(code, daemon=own_daemon, DSAIO_RECONNECT="3600", **more)

    return run


@ENDS
def test_new_objects_had_a_connection_of_their_own_while_the_daemon_was_away(restart, end):
    restart(
        f"""
        def transfers_alone(op):
            assert op.wait() == len(data)
            return op.path
        calls = (
            (lambda: transfers_alone(dsaio.Handle().submit_read(pinned, file)), "shared"),
            (lambda: transfers_alone(dsaio.aio_handle().submit_read(pinned, path)), "shared"),
            (lambda: transfers_alone(handle.submit_write(dsaio.alloc(len(data)), folder + "/g")), "shared"),
            (lambda: transfers_alone(handle.submit_write(bytes(len(data)), folder + "/h")), "copied"),
            (lambda: transfers_alone(handle.submit_read(pinned, dsaio.File(path))), "shared"),
            (lambda: dsaio.wait(handle.submit_reads(reads(3)))[1], set()),
            (lambda: handle.submit_fsync(file).wait(), 0),
            (lambda: dsaio.aio_handle().sync_pread(bytearray(len(data)), path), 1),
            (lambda: aio.wait(), 0),
            (lambda: dsaio.open(path, "rb").read() == data, True),
            (lambda: file.size(), len(data)),
            (lambda: dsaio.drop(), None),
        )
        end_daemon(signal.{end})
        with ThreadPoolExecutor(len(calls)) as pool:
            running = [pool.submit(call) for call, _ in calls]
            next_daemon()
        for i, (future, (_, wanted)) in enumerate(zip(running, calls)):
            assert future.exception() is None, (i, future.exception())
            assert future.result() == wanted, (i, future.result(), wanted)
        assert pinned == data
        """
    )


@ENDS
def test_open_ops_futures_and_awaits_go_on(restart, end):
    restart(
        f"""
        all_reads = [reads(4) for _ in range(5)]
        ops, first, futures, awaited, pending = all_reads
        freeze()
        ops = [handle.submit_read(*read) for read in ops]
        first = {{handle.submit_read(*read) for read in first}}
        futures = [handle.submit_read(*read).future() for read in futures]
        assert [aio.async_pread(*read) for read in pending] == [0] * 4
        async def read(buffer, file):
            return await handle.submit_read(buffer, file)
        async def main():
            tasks = [asyncio.ensure_future(read(*each)) for each in awaited]
            await asyncio.sleep(0)  # they are submitted
            end_daemon(signal.{end})
            await asyncio.get_running_loop().run_in_executor(None, next_daemon)
            assert await asyncio.gather(*tasks) == [len(data)] * 4
        asyncio.run(main())
        assert [future.result() for future in as_completed(futures)] == [len(data)] * 4
        while first:
            done, first = dsaio.wait(first, return_when=dsaio.FIRST_COMPLETED)
            assert done and {{op.wait() for op in done}} == {{len(data)}}
        assert [op.wait() for op in ops] == [len(data)] * 4
        assert aio.wait() == 4
        assert all(buffer == data for reads in all_reads for buffer, _ in reads)
        """
    )


@pytest.mark.parametrize("wait", ["op.wait()", "aio.wait()", "dsaio.wait([op])"])
def test_ctrl_c_ends_a_wait_while_the_daemon_is_away(restart, wait):
    restart(
        f"""
        freeze()
        buffer = bytearray(len(data))
        op = handle.submit_read(buffer, file)
        assert aio.async_pread(bytearray(len(data)), path) == 0
        end_daemon(signal.SIGKILL)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            {wait}
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:
            pass
        next_daemon()
        assert op.wait() == len(data) and aio.wait() == 1 and buffer == data
        """
    )


def test_a_child_that_was_forked_while_the_daemon_was_away_uses_the_next_one(restart):
    restart(
        """
        freeze()
        op = handle.submit_read(pinned, file)
        end_daemon(signal.SIGKILL)
        to_child, to_parent = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.read(to_child, 1)
                assert handle.submit_read(dsaio.alloc(len(data)), path).wait() == len(data)
                try:
                    op.wait()
                except PermissionError:
                    del op, handle, aio, file, pinned
                    gc.collect()
                    os._exit(0)
            finally:
                os._exit(1)
        next_daemon()
        assert op.wait() == len(data) and pinned == data
        os.write(to_parent, b"x")
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_a_program_ends_while_the_daemon_is_away(restart):
    restart(
        """
        freeze()
        op = handle.submit_read(pinned, file)
        assert aio.async_pread(bytearray(len(data)), path) == 0
        end_daemon(signal.SIGKILL)
        """
    )


def test_ops_are_cancelled_and_objects_closed_while_the_daemon_is_away(restart):
    restart(
        """
        freeze()
        op = handle.submit_read(pinned, file)
        end_daemon(signal.SIGKILL)
        op.cancel()
        try:
            op.wait()
            raise AssertionError("it has not failed")
        except OSError as e:
            assert e.errno == errno.ECANCELED, e
        handle.close()
        del op, handle, aio, file, pinned
        gc.collect()
        """
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a plan of faults")
def test_an_op_at_two_crashes_said_that_its_handle_was_of_no_use(restart):
    restart(
        """
        import struct
        from dsaio import _connection
        plan, never, all_bits = folder + "/plan", 5, 0xff
        with open(os.open(plan, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(struct.pack("9I", 1, never, 0, all_bits, all_bits, 0, 0, 1000, 0))
        freeze()
        op = handle.submit_read(pinned, file)
        for options in (("--fault-plan", plan), ()):
            end_daemon(signal.SIGKILL)
            next_daemon(*options)
            dsaio.Handle()  # the next daemon has taken the session over
        try:
            op.wait()
            raise AssertionError("it has not failed")
        except ConnectionResetError as e:
            assert "at two crashes" in e.strerror and "new dsaio.Handle" not in e.strerror, e
        assert handle.submit_read(pinned, file).wait() == len(data)
        """
    )
