"""dsaio._replace: readers find the old file or the new one, whatever happens to the writer."""

import errno
import fcntl
import os
import signal

import pytest

from conftest import file_bytes, make_file

import dsaio
from dsaio import _replace

MIB = 1 << 20


@pytest.fixture
def old(path):
    """A file that is to be replaced."""
    make_file(path, b"old")
    return path


def write(handle, path, data):
    with _replace.new_file(path, handle) as new:
        new.reserve(len(data))
        handle.submit_write(data, new.file).wait()


def mode_of(path):
    return os.stat(path).st_mode & 0o7777


def umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 3 * MIB + 7])
def test_a_new_file_and_one_that_replaces_another(handle, folder, path, nbytes):
    for _ in range(2):
        data = os.urandom(nbytes)
        write(handle, path, data)
        assert file_bytes(path) == data
        assert os.listdir(folder) == [os.path.basename(path)]
        assert mode_of(path) == 0o666 & ~umask()


def test_paths_are_strings_bytes_or_path_like(handle, folder):
    import pathlib

    for path in (folder + "/s", os.fsencode(folder) + b"/b", pathlib.Path(folder, "p")):
        write(handle, path, b"x")
        assert file_bytes(path) == b"x"
    with pytest.raises(TypeError):
        write(handle, 3, b"x")


def test_a_relative_path(handle, folder, monkeypatch):
    monkeypatch.chdir(folder)
    write(handle, "f", b"new")
    assert file_bytes(folder + "/f") == b"new"


def test_until_the_end_of_the_block_readers_find_the_old_file(handle, old, folder):
    with _replace.new_file(old, handle) as new:
        new.reserve(3)
        handle.submit_write(b"new", new.file).wait()
        assert file_bytes(old) == b"old" and len(os.listdir(folder)) == 2
    assert file_bytes(old) == b"new"


def test_the_mode_of_the_old_file_is_kept_and_others_cannot_read_it_meanwhile(handle, old, folder):
    for mode in (0o600, 0o644, 0o777):
        os.chmod(old, mode)
        with _replace.new_file(old, handle):
            (name,) = [name for name in os.listdir(folder) if name != os.path.basename(old)]
            assert mode_of(os.path.join(folder, name)) == 0o600
        assert mode_of(old) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_owner_of_the_old_file_is_kept(handle, old):
    os.chown(old, 12345, 12346)
    write(handle, old, b"new")
    assert (os.stat(old).st_uid, os.stat(old).st_gid) == (12345, 12346)


def test_another_group_gets_no_more_rights_than_others_have(handle, old, monkeypatch):
    def fchown(*arguments):
        raise PermissionError

    gid = os.stat(old).st_gid
    monkeypatch.setattr(os, "fchown", fchown)
    os.chmod(old, 0o664)
    real = os.stat

    def other_group(path, **options):
        fields = list(real(path, **options))
        fields[5] = gid + 1
        return os.stat_result(fields)

    with monkeypatch.context() as m:
        m.setattr(os, "stat", other_group)
        write(handle, old, b"new")
    assert mode_of(old) == 0o644


def test_a_symbolic_link_stays_one(handle, old, folder):
    link = folder + "/link"
    os.symlink(os.path.basename(old), link)
    write(handle, link, b"new")
    assert os.path.islink(link) and file_bytes(old) == b"new"
    os.symlink("none", folder + "/dangling")
    write(handle, folder + "/dangling", b"made")
    assert file_bytes(folder + "/none") == b"made"


def test_another_name_of_the_old_file_keeps_its_content(handle, old, folder):
    os.link(old, folder + "/other")
    write(handle, old, b"new")
    assert file_bytes(folder + "/other") == b"old" and file_bytes(old) == b"new"


def test_what_cannot_be_replaced(handle, old, folder, monkeypatch):
    with pytest.raises(IsADirectoryError) as e:
        write(handle, folder, b"x")
    assert e.value.filename == folder
    with pytest.raises(FileNotFoundError) as e:
        write(handle, folder + "/none/f", b"x")
    assert e.value.filename == folder + "/none/f"
    with pytest.raises(FileNotFoundError):
        write(handle, folder + "/none/", b"x")
    with pytest.raises(OSError, match="no regular file"):
        write(handle, "/dev/null", b"x")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(PermissionError, match="must not be written"):
        write(handle, old, b"x")
    assert os.listdir(folder) == [os.path.basename(old)] and file_bytes(old) == b"old"


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("exception", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_removes_the_temporary_file(handle, old, folder, exception):
    write(handle, folder + "/warm", b"x")  # the library's own descriptors are there now
    os.unlink(folder + "/warm")
    n = descriptors()
    with pytest.raises(exception):
        with _replace.new_file(old, handle) as new:
            new.reserve(MIB)
            handle.submit_write(bytes(MIB), new.file)  # it may still be open
            raise exception
    assert os.listdir(folder) == [os.path.basename(old)] and file_bytes(old) == b"old"
    assert descriptors() <= n + 1  # the library closes its own a little later


def test_no_op_is_open_when_the_temporary_file_is_removed(old, monkeypatch):
    n_open = []
    real = os.unlink

    def unlink(name):
        n_open.append(handle.stats().open)
        real(name)

    monkeypatch.setattr(os, "unlink", unlink)
    with dsaio.Handle() as handle, pytest.raises(KeyboardInterrupt):
        with _replace.new_file(old, handle) as new:
            handle.submit_write(bytes(MIB), new.file)
            assert handle.stats().open == 1
            raise KeyboardInterrupt
    assert n_open == [0] and file_bytes(old) == b"old"


def fails_with(code):
    def function(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return function


@pytest.mark.parametrize("where", ["os.rename", "os.fchmod", "dsaio._replace._fallocate", "dsaio._replace.File"])
def test_a_failure_of_any_step_removes_the_temporary_file(handle, old, folder, monkeypatch, where):
    monkeypatch.setattr(where, fails_with(errno.ENOSPC))
    with pytest.raises(OSError) as e:
        write(handle, old, b"new")
    assert e.value.errno == errno.ENOSPC
    assert os.listdir(folder) == [os.path.basename(old)] and file_bytes(old) == b"old"


def test_no_room_is_an_error_before_the_first_write(python, folder):
    # The limit of a process stands for a full disk: the others on this machine need theirs.
    python(
        """
        import resource
        from dsaio import _replace
        handle = dsaio.Handle()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            with _replace.new_file(folder + "/f", handle) as new:
                new.reserve(2 << 20)
                assert False
        except OSError as e:
            assert "cannot reserve 2097152 bytes" in e.strerror and e.filename == folder + "/f", e
        assert os.listdir(folder) == []
        """
    )


def test_a_file_system_that_cannot_reserve_blocks(handle, path, monkeypatch):
    monkeypatch.setattr(_replace, "_fallocate", fails_with(errno.EOPNOTSUPP))
    with _replace.new_file(path, handle) as new:
        new.reserve(2 * MIB)
        assert new.file.size() == 2 * MIB
        handle.submit_write(b"x", new.file, MIB).wait()
    assert file_bytes(path) == bytes(MIB) + b"x" + bytes(MIB - 1)


def test_the_bytes_are_on_the_device_before_the_rename_and_the_name_after_it(handle, old, folder, monkeypatch):
    steps = []

    def note(name, function):
        def noting(*arguments, **options):
            result = function(*arguments, **options)
            steps.append((name, os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else None))
            return result

        return noting

    monkeypatch.setattr(dsaio._op.Op, "wait", note("wait", dsaio._op.Op.wait))
    monkeypatch.setattr(handle, "submit_fsync", note("data", handle.submit_fsync), raising=False)
    monkeypatch.setattr(os, "rename", note("rename", os.rename))
    monkeypatch.setattr(os, "fsync", note("fsync", os.fsync))
    write(handle, old, b"new")
    assert steps == [("wait", None), ("data", None), ("wait", None), ("rename", None), ("fsync", folder)]


def test_a_daemon_that_is_killed_meanwhile(python, own_daemon):
    python(
        """
        from dsaio import _replace
        path = folder + "/f"
        open(path, "w").write("old")
        handle = dsaio.Handle()
        try:
            with _replace.new_file(path, handle) as new:
                new.reserve(1 << 20)
                os.kill(daemon, signal.SIGKILL)
                handle.submit_write(bytes(1 << 20), new.file).wait()
        except OSError as e:
            print(e)
        else:
            assert False
        assert os.listdir(folder) == ["f"] and open(path).read() == "old"
        """,
        daemon=own_daemon,
    )


def test_leftovers_of_a_killed_process_are_removed_and_no_others(python, handle, old, folder):
    code = """
        from dsaio import _replace
        with _replace.new_file(folder + "/f", dsaio.Handle()) as new:
            new.reserve(1 << 20)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    for _ in range(2):
        python(code, status=-signal.SIGKILL)
    make_file(folder + "/.dsaio-0123456789abcdef.tmp", b"of dsaioctl")
    before = set(os.listdir(folder))
    assert len(before) == 4 and file_bytes(old) == b"old"
    with _replace.new_file(old, handle) as new:
        new.reserve(3)
        (own,) = set(os.listdir(folder)) - before
        _replace.remove_leftovers(folder)
        left = {own, os.path.basename(old), ".dsaio-0123456789abcdef.tmp"}
        assert set(os.listdir(folder)) == left
        handle.submit_write(b"new", new.file).wait()
    assert file_bytes(old) == b"new"
    assert set(os.listdir(folder)) == left - {own}


def test_a_folder_that_cannot_be_synced(folder, monkeypatch):
    n = descriptors()
    monkeypatch.setattr(os, "fsync", fails_with(errno.EINVAL))  # a file system that has no such thing
    _replace.sync_folder(folder)
    monkeypatch.setattr(os, "fsync", fails_with(errno.EIO))
    with pytest.raises(OSError, match="cannot sync the folder") as e:
        _replace.sync_folder(folder)
    assert e.value.errno == errno.EIO and e.value.filename == folder and descriptors() == n


def test_a_temporary_file_that_is_removed_before_it_is_locked_is_made_again(handle, old, folder, monkeypatch):
    real = fcntl.flock
    removed = []

    def flock(fd, how):
        if how == fcntl.LOCK_EX and not removed:
            removed.append(True)
            _replace.remove_leftovers(folder)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(handle, old, b"new")
    assert removed and file_bytes(old) == b"new" and os.listdir(folder) == [os.path.basename(old)]
