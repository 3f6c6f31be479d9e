"""dsaio._replace: readers find the old file or the new one, whatever happens to the writer."""

import errno
import fcntl
import os
import signal
import struct

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

    was, real = os.stat(old), os.fstat
    monkeypatch.setattr(os, "fchown", fchown)
    os.chmod(old, 0o664)

    def other_group(fd):
        fields = list(real(fd))
        fields[5] += fields[1] == was.st_ino
        return os.stat_result(fields)

    with monkeypatch.context() as m:
        m.setattr(os, "fstat", other_group)
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


def temporary_of(folder):
    (name,) = [name for name in os.listdir(folder) if name.endswith(".new")]
    return os.path.join(folder, name)


def test_a_failure_frees_the_room_though_the_daemon_keeps_the_file_open(handle, old, folder):
    with pytest.raises(ValueError):
        with _replace.new_file(old, handle) as new:
            new.reserve(MIB)
            handle.submit_write(bytes(MIB), new.file).wait()
            kept = os.open(temporary_of(folder), os.O_RDONLY)
            raise ValueError
    try:
        assert os.fstat(kept).st_size == os.fstat(kept).st_blocks == 0
    finally:
        os.close(kept)


def test_a_failure_keeps_the_bytes_that_have_another_name(handle, old, folder):
    with pytest.raises(ValueError):
        with _replace.new_file(old, handle) as new:
            handle.submit_write(b"new", new.file).wait()
            os.link(temporary_of(folder), folder + "/other")
            raise ValueError
    assert sorted(os.listdir(folder)) == sorted([os.path.basename(old), "other"])
    assert file_bytes(folder + "/other") == b"new" and file_bytes(old) == b"old"


@pytest.mark.parametrize("is_replaced", (True, False), ids=("replaced", "removed"))
def test_a_reader_of_a_new_file_keeps_its_bytes_when_that_goes_before_the_save_has_ended(
    handle, old, folder, monkeypatch, is_replaced
):
    readers = []

    def sync_folder(path, fd=None):
        readers.append(os.open(old, os.O_RDONLY))
        if is_replaced:
            make_file(folder + "/later", b"later")
            os.replace(folder + "/later", old)
        else:
            os.unlink(old)

    monkeypatch.setattr(_replace, "sync_folder", sync_folder)
    write(handle, old, b"new")
    try:
        assert os.read(readers[0], 10) == b"new"
    finally:
        os.close(readers[0])


def test_a_signal_just_after_the_rename_leaves_the_new_file_whole(handle, old, folder, monkeypatch):
    real = os.rename

    def rename(*arguments, **options):
        real(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        write(handle, old, b"new")
    assert file_bytes(old) == b"new" and os.listdir(folder) == [os.path.basename(old)]


def test_a_failure_removes_no_file_of_another_process(handle, old, folder):
    with pytest.raises(ValueError):
        with _replace.new_file(old, handle):
            name = temporary_of(folder)
            os.unlink(name)
            make_file(name, b"other")
            raise ValueError
    assert file_bytes(name) == b"other" and file_bytes(old) == b"old"


def test_an_empty_path_is_refused_with_a_message(handle):
    with pytest.raises(FileNotFoundError, match="the path is empty: name a file"):
        _replace.NewFile("")


def test_an_error_of_the_library_says_which_file_the_temporary_one_is(handle, old, monkeypatch):
    code = errno.EMFILE
    monkeypatch.setattr(dsaio.File, "_of_descriptor", fails_with(code))
    with pytest.raises(OSError) as e:
        write(handle, old, b"new")
    assert (e.value.errno, e.value.strerror) == (code, f"the temporary file beside it: {os.strerror(code)}")


def test_no_op_is_open_when_the_temporary_file_is_removed(old, monkeypatch):
    n_open = []
    real = os.unlink

    def unlink(*arguments, **options):
        n_open.append(handle.stats().open)
        real(*arguments, **options)

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


@pytest.mark.parametrize(
    "where", ["os.rename", "os.fchmod", "dsaio._library.file_allocate", "dsaio.File._of_descriptor"]
)
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
    monkeypatch.setattr("dsaio._library.file_allocate", lambda *_: -errno.EOPNOTSUPP)
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
    make_file(folder + "/.dsaio-0123456789abcdef.tmp", b"of another program")
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
        if not removed:
            removed.append(True)  # first: that locks, too
            _replace.remove_leftovers(folder)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(handle, old, b"new")
    assert removed and file_bytes(old) == b"new" and os.listdir(folder) == [os.path.basename(old)]


ANOTHER_USER = 12345  # no user has to have it

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def shared(folder):
    """A folder as /tmp, beside the file `old`."""
    path = folder + "/shared"
    os.mkdir(path)
    os.chmod(path, 0o1777)
    return path


@as_root
@pytest.mark.parametrize("when", ["never", "os.readlink", "os.fstat", "os.open"])
def test_a_link_of_another_user_in_a_sticky_folder_is_refused(handle, old, shared, monkeypatch, when):
    link = shared + "/f"
    os.symlink(old, link)
    os.lchown(link, ANOTHER_USER, -1)
    assert os.path.realpath(link) == old

    def removes_the_link_after(function):
        def call(path, *arguments, **options):
            is_of_link = path in (link, "f") or isinstance(path, int) and os.path.basename(
                real_readlink(f"/proc/self/fd/{path}")
            ) == "f"
            result = function(path, *arguments, **options)
            if is_of_link and os.path.lexists(link):
                os.unlink(link)
            return result

        return call

    real_readlink = os.readlink
    if when != "never":
        monkeypatch.setattr(when, removes_the_link_after(getattr(os, when.partition(".")[2])))
    with pytest.raises(PermissionError, match="link of another user") as e:
        write(handle, link, b"new")
    assert e.value.filename == link
    monkeypatch.undo()
    assert file_bytes(old) == b"old" and os.path.lexists(link) == (when in ("never", "os.readlink"))


@as_root
def test_links_that_are_followed_in_folders_of_several_users(handle, old, shared):
    link = shared + "/f"
    os.symlink("../" + os.path.basename(old), link)
    write(handle, link, b"our own")
    assert file_bytes(old) == b"our own"
    os.lchown(link, ANOTHER_USER, -1)
    os.chown(shared, ANOTHER_USER, -1)
    write(handle, link, b"the folder's owner's")
    assert file_bytes(old) == b"the folder's owner's"
    os.chown(shared, 0, -1)
    os.chmod(shared, 0o777)
    write(handle, link, b"a folder that is not sticky")
    assert file_bytes(old) == b"a folder that is not sticky" and os.listdir(shared) == ["f"]


@as_root
@pytest.mark.parametrize("mode", [0o1777, 0o1770])
def test_a_file_of_another_user_in_a_sticky_folder_is_refused(handle, shared, mode):
    path = shared + "/f"
    make_file(path, b"old")
    os.chmod(shared, mode)
    write(handle, path, b"our own")
    os.chown(path, ANOTHER_USER, -1)
    with pytest.raises(PermissionError, match="file of another user") as e:
        write(handle, path, b"new")
    assert e.value.filename == path and file_bytes(path) == b"our own" and os.listdir(shared) == ["f"]


def test_a_link_that_changes_while_it_is_followed_does_not_mix_two(handle, old, folder, monkeypatch):
    link, other = folder + "/link", folder + "/other"
    make_file(other, b"other")
    os.symlink(old, link)
    real = os.readlink

    def readlink(*arguments, **options):
        os.unlink(link)
        os.symlink(other, link)
        return real(*arguments, **options)

    monkeypatch.setattr(os, "readlink", readlink)
    write(handle, link, b"new")
    assert file_bytes(old) == b"new" and file_bytes(other) == b"other"


def test_links_without_end(handle, folder):
    os.symlink("b", folder + "/a")
    os.symlink("a", folder + "/b")
    with pytest.raises(OSError) as e:
        write(handle, folder + "/a", b"x")
    assert e.value.errno == errno.ELOOP and e.value.filename == folder + "/a"


def test_a_folder_that_is_moved_meanwhile(handle, folder):
    os.mkdir(folder + "/a")
    with _replace.new_file(folder + "/a/f", handle) as new:
        os.rename(folder + "/a", folder + "/b")
        os.mkdir(folder + "/a")
        handle.submit_write(b"new", new.file).wait()
    assert file_bytes(folder + "/b/f") == b"new" and os.listdir(folder + "/a") == []


@pytest.mark.parametrize("is_link", [True, False])
def test_a_temporary_name_that_becomes_another_files(handle, old, folder, monkeypatch, is_link):
    other = folder + "/other"
    make_file(other, b"other")
    real = dsaio.File._of_descriptor

    def replace_the_name(*arguments):
        name = temporary_of(folder)
        os.unlink(name)
        (os.symlink if is_link else os.link)(other, name)
        return real(*arguments)

    monkeypatch.setattr(dsaio.File, "_of_descriptor", replace_the_name)
    with pytest.raises(OSError, match="replaced the temporary file") as e:
        write(handle, old, b"new")
    assert e.value.errno == errno.ESTALE and e.value.filename == old
    assert file_bytes(old) == b"old" and file_bytes(other) == b"other"


def test_a_temporary_name_that_is_removed(handle, old, folder):
    with pytest.raises(OSError) as e:
        with _replace.new_file(old, handle):
            os.unlink(temporary_of(folder))
    assert e.value.errno == errno.ESTALE and os.listdir(folder) == [os.path.basename(old)]


def test_a_new_file_is_nobody_elses_until_it_takes_its_place(handle, folder, path):
    with _replace.new_file(path, handle):
        (name,) = os.listdir(folder)
        assert mode_of(os.path.join(folder, name)) == 0o600
    assert mode_of(path) == 0o666 & ~umask()


def test_a_new_file_has_the_mode_that_the_folders_access_control_list_gives(handle, folder, path):
    entries = [(1, 6, -1), (2, 6, ANOTHER_USER), (4, 4, -1), (16, 6, -1), (32, 0, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_default", acl)
    except OSError as e:
        pytest.skip(f"no access control lists here: {e}")
    make_file(folder + "/by_open", b"")
    write(handle, path, b"x")
    assert mode_of(path) == mode_of(folder + "/by_open") == 0o660
    names = "system.posix_acl_access"
    assert os.getxattr(path, names) == os.getxattr(folder + "/by_open", names)


def test_a_lock_that_another_process_holds_is_not_waited_for(handle, old, folder, monkeypatch):
    real = fcntl.flock
    names = []

    def flock(fd, how):
        names.append(os.readlink(f"/proc/self/fd/{fd}"))
        assert how & fcntl.LOCK_NB
        if len(names) == 1:
            with open(names[0]) as other:
                real(other, fcntl.LOCK_EX)
                real(fd, how)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(handle, old, b"new")
    assert len(set(names)) == 2 and file_bytes(old) == b"new" and os.listdir(folder) == [os.path.basename(old)]


def test_what_is_no_leftover_is_neither_opened_nor_removed(folder, monkeypatch):
    number = "0123456789abcde"
    kept = {f".dsaio-{number}{end}.new" for end in ("", "ff", "F")} | {".dsaio-notes.new", ".dsaio-.new"}
    for name in kept:
        make_file(os.path.join(folder, name), b"")
    make_file(f"{folder}/.dsaio-{number}0.new", b"")
    os.mkfifo(f"{folder}/.dsaio-{number}1.new")
    os.symlink("nothing", f"{folder}/.dsaio-{number}2.new")
    kept |= {f".dsaio-{number}1.new", f".dsaio-{number}2.new"}
    if os.geteuid() == 0:
        make_file(f"{folder}/.dsaio-{number}3.new", b"")
        os.chown(f"{folder}/.dsaio-{number}3.new", ANOTHER_USER, -1)
        kept.add(f".dsaio-{number}3.new")
    real, opened = os.open, []

    def note_open(path, *arguments, **options):
        opened.append(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", note_open)
    _replace.remove_leftovers(folder)
    assert set(os.listdir(folder)) == kept and opened == [folder, f".dsaio-{number}0.new"]


def test_a_file_that_takes_the_name_of_a_leftover_before_it_is_locked_stays(folder, monkeypatch):
    path = os.path.join(folder, ".dsaio-0123456789abcdef.new")
    make_file(path, b"")
    real = fcntl.flock

    def flock(fd, how):
        os.rename(path, folder + "/f")  # as the process that wrote it does
        make_file(path, b"of another process")
        real(fd, how)

    with monkeypatch.context() as m:
        m.setattr(fcntl, "flock", flock)
        _replace.remove_leftovers(folder)
    assert file_bytes(path) == b"of another process"


def test_a_leftover_that_becomes_another_file_while_it_is_looked_at(folder, monkeypatch):
    name = ".dsaio-0123456789abcdef.new"
    path = os.path.join(folder, name)
    make_file(path, b"")
    real = os.stat

    def stat(*arguments, **options):
        result = real(*arguments, **options)
        os.unlink(path)
        os.mkfifo(path)
        return result

    with monkeypatch.context() as m:
        m.setattr(os, "stat", stat)
        _replace.remove_leftovers(folder)  # and does not wait for a writer
    assert os.listdir(folder) == [name]
