"""Checkpoints of torch.distributed.checkpoint (DCP) through the daemon.

    import torch.distributed.checkpoint as dcp
    from dsaio.torch.checkpoint import StorageReader, StorageWriter

    dcp.save(state_dict, storage_writer=StorageWriter("/nvme/checkpoint"))
    dcp.load(state_dict, storage_reader=StorageReader("/nvme/checkpoint"))

Folders are those of torch's FileSystemWriter and FileSystemReader: each side loads what the other one saves.

A checkpoint is its file `.metadata`, which names the data files.  The data files of each save have names of
their own.  When all of them are on the device, a new `.metadata` takes the place of the old one in
one step, and the data files that it does not name are removed.  So a save that is interrupted at any point
leaves the previous checkpoint loadable, and the next one removes what is left of it.  Only one save into a
folder may run at a time.

FileSystemWriter, if it is killed between two calls, leaves its `.metadata` under the name `.metadata.tmp`, and
that may be the only one.  So it counts as a checkpoint, and nothing is removed that it names, until there is a
new `.metadata`.

rados://POOL/NAMESPACE/NAME takes the place of a folder: its files are NAME/.metadata and the like, in a RADOS store.
There `.metadata` is committed last.

Within a data file, the elements of large tensors begin at multiples of 4096 bytes, so they go between the
device and pinned tensors without a copy.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import itertools
import os
import re
import weakref
from pathlib import Path

import torch

try:
    from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter, _StorageInfo
except ImportError:
    raise ImportError(
        f"dsaio.torch.checkpoint needs torch 2.3 or newer, and this is torch {torch.__version__}", name="torch"
    ) from None
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed._state_dict_utils import _iterate_state_dict
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _memory as memory
from .._buffer import locate
from .._file import File, is_rados
from .._handle import Handle, handle_for
from .._rados import list_files, remove, stat
from .._raw import open as dsaio_open
from .._replace import new_file, remove_leftovers, sync_folder
from .._stream import ALIGNMENT, JOB_MAX, Job, Writer, new_pieces, read_jobs
from ._layout import Ends, Layouts

try:
    from torch.distributed.checkpoint.staging import BlockingAsyncStager as _Stager
except ImportError:  # torch 2.3: async_save() stages by itself
    _Stager = object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner

    from .._stream import Piece
    from ._layout import Layout

__all__ = ["AsyncStager", "StorageReader", "StorageWriter"]

# Names of data files: the rank, the save (not in those of FileSystemWriter), and a number.
_DATA_NAME = re.compile(rb"__(\d+)_([0-9a-f]{16}_)?\d+\.distcp")
_METADATA_NAME = re.compile(r"(?:__\d+)?\.metadata(?:\.tmp)?")
_ALIGNED_MIN = 64 << 10  # bytes of elements, from which they are aligned in the file
_ELEMENT_ALIGNMENT = 64  # of smaller tensors; torch aligns as much within its records
_HUGE = 1 << 20  # bytes of an item, from which it is not read together with others
_GAP_MAX = 64 << 10  # bytes that are read although nobody wants them, rather than in two reads
_HEAD, _TAIL = 16 << 10, 4 << 10  # bytes of an item, which hold all but the elements


# ---- saving ----


class _FileSystem(FileSystem):
    """What FileSystemWriter does to the folder and to `.metadata`, so that a crash loses nothing."""

    def mkdir(self, path: Union[str, os.PathLike[str]]) -> None:
        made = []
        parent = os.path.abspath(path)
        while not os.path.isdir(parent):
            made.append(parent)
            parent = os.path.dirname(parent)
        super().mkdir(path)
        for folder in made:
            sync_folder(os.path.dirname(folder))

    def create_stream(self, path: Union[str, os.PathLike[str]], mode: str) -> Any:
        """Opens the file; one to be written, `.metadata.tmp`, by another name: the old one may be needed."""
        return super().create_stream(Path(f"{path}.new") if "w" in mode else path, mode)

    def rm_file(self, path: Union[str, os.PathLike[str]]) -> None:
        """Nothing: rename() replaces the old `.metadata`."""

    def rename(self, path: Union[str, os.PathLike[str]], new_path: Union[str, os.PathLike[str]]) -> None:
        os.replace(f"{path}.new", new_path)
        sync_folder(os.path.dirname(os.path.abspath(new_path)))
        if os.path.exists(path):  # an old `.metadata.tmp`
            os.unlink(path)

    def exists(self, path: Union[str, os.PathLike[str]]) -> bool:
        return os.path.exists(path)

    def sync_names(self, path: Union[str, os.PathLike[str]]) -> None:
        sync_folder(os.fspath(path))

    def names(self, path: Union[str, os.PathLike[str]]) -> List[str]:
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(path)
        return []

    def remove(self, path: Union[str, os.PathLike[str]]) -> None:
        os.unlink(path)

    def remove_leftovers(self, path: Union[str, os.PathLike[str]]) -> None:
        with contextlib.suppress(FileNotFoundError):
            remove_leftovers(os.fspath(path))


class _RadosFileSystem(_FileSystem):
    """The same of names in a RADOS store, which are no paths: folders need not be made, and a commit is a rename."""

    def init_path(self, path: Any) -> Any:
        return path.rstrip("/")

    def concat_path(self, path: Any, suffix: str) -> Any:
        return f"{path}/{suffix}"

    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        if "w" not in mode:
            with io.BufferedReader(dsaio_open(path)) as reader:
                yield reader
            return
        content = io.BytesIO()
        yield content
        name = path[: -len(".tmp")] if path.endswith(".tmp") else path
        with handle_for(name) as handle, new_file(name, handle) as new:
            handle.submit_write(content.getvalue(), new.file).wait()

    def exists(self, path: Any) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return bool(stat(path))
        return False

    def _nothing(self, *_: Any) -> None:
        pass

    mkdir = rename = sync_names = remove_leftovers = _nothing  # type: ignore[assignment]

    def names(self, path: Any) -> List[str]:
        return [file.name.rpartition("/")[2] for file in list_files(f"{path}/")]

    def remove(self, path: Any) -> None:
        remove(path)


def _file_system(path: Union[str, os.PathLike[str]]) -> _FileSystem:
    return _RadosFileSystem() if is_rados(path) else _FileSystem()


class _Item:
    """A file object for torch.save() of one tensor.  It begins the item so that the elements are aligned."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._head: List[bytes] = []
        self._offset = -1

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._offset < 0 and view.nbytes < _ALIGNED_MIN:
            self._head.append(bytes(view))
            return view.nbytes
        if self._offset < 0:
            self._begin(ALIGNMENT, sum(map(len, self._head)))
        return self._writer.write(view)

    def _begin(self, alignment: int, n_before: int) -> None:
        self._writer.write(bytes(-(self._writer.tell() + n_before) % alignment))
        self._offset = self._writer.tell()
        self._writer.write(b"".join(self._head))

    def flush(self) -> None:
        """Nothing: the writer does it."""

    def finish(self) -> Tuple[int, int]:
        """The item's offset in the file, and its length in bytes."""
        if self._offset < 0:
            self._begin(_ELEMENT_ALIGNMENT, 0)
        return self._offset, self._writer.tell() - self._offset


def _save_tensor(tensor: torch.Tensor, writer: Writer) -> Tuple[int, int]:
    tensor = tensor.detach().cpu()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        tensor = tensor.clone()  # torch.save() would write the whole storage of a view
    item: Any = _Item(writer)
    torch.save(tensor, item)
    offset, length = item.finish()
    return offset, length


class StorageWriter(FileSystemWriter):
    """Saves into a folder, or below a name of a RADOS store, for dcp.save() and dcp.async_save().

    single_file_per_rank: False makes a file of each tensor and object.
    overwrite: False raises FileExistsError if there is a checkpoint in the folder.

    For async_save() it is the stager, too: an AsyncStager.

    Raises OSError, with errno and filename; dcp.save() makes a CheckpointException of it.  Pickles without the
    memory of the stager.
    """

    def __init__(
        self, path: Union[str, os.PathLike[str]], *, single_file_per_rank: bool = True, overwrite: bool = True
    ) -> None:
        super().__init__(path, single_file_per_rank=single_file_per_rank)
        self.fs = _file_system(path)
        self.path = self.fs.init_path(path)
        self.sync_files = not is_rados(path)
        self._may_overwrite = overwrite
        self._stager = self._new_stager()

    def _new_stager(self) -> AsyncStager:
        stager = AsyncStager()
        stager._is_rados = is_rados(self.path)
        return stager

    def stage(self, state_dict: Any) -> Any:
        return self._stager.stage(state_dict)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        if is_coordinator or self._own_rank() is not None:
            self._remove_stale(of_torch=False)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if not self._may_overwrite:
            rank = self._own_rank()
            name = self.fs.concat_path(self.path, ".metadata" if rank is None else f"__{rank}.metadata")
            if self.fs.exists(name):
                raise FileExistsError(f"dsaio: {name} is there, and overwrite is False")
            if not is_rados(name) and os.path.exists(f"{name}.tmp"):
                raise FileExistsError(
                    f"dsaio: {name}.tmp is there, of a save that was interrupted, and overwrite is False:"
                    f" rename it to {os.path.basename(name)} if it is whole, else remove it"
                )
        return super().prepare_local_plan(plan)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[List[WriteResult]]:
        # Not of the plan: planners may use one again for the next save.
        prefix = f"{plan.storage_data.prefix}{os.urandom(8).hex()}_"
        files = [plan.items] if self.single_file_per_rank else [[item] for item in plan.items]
        results: List[WriteResult] = []
        pieces = new_pieces(is_rados(self.path))
        with handle_for(self.path) as handle:
            for i, items in enumerate(files):
                results += self._write_file(f"{prefix}{i}.distcp", items, planner, handle, pieces)
        self.fs.sync_names(self.path)
        future: Future[List[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _write_file(
        self, name: str, items: Any, planner: SavePlanner, handle: Handle, pieces: List[Piece]
    ) -> List[WriteResult]:
        results = []
        with new_file(os.path.join(self.path, name), handle, syncs_name=False) as new:
            with Writer(new, handle, pieces=pieces) as writer:
                for item in items:
                    data: Any = planner.resolve_data(item)
                    if item.type == WriteItemType.BYTE_IO:
                        offset = writer.tell()
                        length = writer.write(data.getbuffer())
                    else:
                        offset, length = _save_tensor(data, writer)
                    info = _StorageInfo(name, offset, length)
                    results.append(WriteResult(index=item.index, size_in_bytes=length, storage_data=info))
        return results

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        super().finish(metadata, results)
        self._remove_stale(of_torch=True)

    def _own_rank(self) -> Optional[int]:
        """The rank, where each has metadata of its own; else None."""
        return None if getattr(self, "use_collectives", True) else getattr(self, "rank", None)

    def _remove_stale(self, of_torch: bool) -> None:
        """Removes data files that no metadata names, of this rank or of all, and temporary files.

        of_torch: also those of FileSystemWriter.
        """
        used: Set[bytes] = set()
        names = self.fs.names(self.path)
        for name in names:
            if _METADATA_NAME.fullmatch(name):
                with self.fs.create_stream(self.fs.concat_path(self.path, name), "rb") as f:
                    # Without unpickling it, which could run code.  The names stand in a pickle as they are.
                    used.update(match.group() for match in _DATA_NAME.finditer(f.read()))
        rank = self._own_rank()
        for name in names:
            match = _DATA_NAME.fullmatch(os.fsencode(name))
            if not match or match.group() in used or rank not in (None, int(match.group(1))):
                continue
            if of_torch or match.group(2):
                with contextlib.suppress(OSError):  # the checkpoint is complete without it
                    self.fs.remove(self.fs.concat_path(self.path, name))
        self.fs.remove_leftovers(self.path)

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_stager"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._stager = self._new_stager()


class AsyncStager(_Stager):
    """Copies the tensors of a state_dict into one range of pinned memory, for dcp.async_save().

    The next stage() uses that memory again, unless it is still being saved.  Tensors of a GPU are copied
    with torch.  Raises OSError: ENOMEM if the pool has no room.  Pickles without its memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory: Any = None
        self._is_rados = False  # is the memory of the daemon of RADOS stores?
        self._lease: Optional[Callable[[], Any]] = None  # a weak reference: what staged tensors keep

    def stage(self, state_dict: Any) -> Any:
        tensors: List[torch.Tensor] = []
        staged: Iterator[torch.Tensor]

        def collect(tensor: torch.Tensor) -> torch.Tensor:
            tensors.append(tensor.detach())
            return tensor

        def replace(_: torch.Tensor) -> torch.Tensor:
            return next(staged)

        with torch.no_grad():
            _each_tensor(state_dict, collect)
            staged = iter(self._copies(tensors))
            return _each_tensor(state_dict, replace)

    def _copies(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        starts = [0]
        for tensor in tensors:
            nbytes = tensor.numel() * tensor.element_size()
            starts.append(starts[-1] + nbytes + -nbytes % ALIGNMENT)
        view = memoryview(self._lend(max(1, starts[-1]))).cast("B")
        copies = []
        for tensor, start in zip(tensors, starts):
            if tensor.numel() == 0:
                copies.append(torch.empty(tensor.shape, dtype=tensor.dtype))
                continue
            nbytes = tensor.numel() * tensor.element_size()
            place = torch.frombuffer(view[start : start + nbytes], dtype=tensor.dtype).view(tensor.shape)
            copies.append(place.copy_(tensor))
        return copies

    def _lend(self, nbytes: int) -> Any:
        """Pinned memory, which stays lent until the last tensor in it is gone."""
        is_lent = self._lease is not None and self._lease() is not None
        is_ours = self._memory is not None and not self._memory.allocation.connection.is_of_parent
        if is_lent or not is_ours or len(self._memory) < nbytes:
            self._memory = None  # before: the pool may have no room for both
            self._memory = memory.array(nbytes, is_rados=self._is_rados)
        lease = (ctypes.c_char * nbytes).from_buffer(self._memory)
        self._lease = weakref.ref(lease)
        return lease

    def close(self) -> None:
        """Gives the memory back, when the tensors in it are gone."""
        self._memory = None

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_memory": None, "_lease": None}


def _each_tensor(state_dict: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of the state_dict with function(tensor) in the place of each tensor of this process."""

    def of_tensor(tensor: Any, *_: Any) -> Any:
        return function(tensor)

    def of_dtensor(tensor: Any, *_: Any) -> Any:
        return type(tensor).from_local(
            function(tensor.to_local()),
            tensor.device_mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=tensor.stride(),
        )

    def of_sharded(tensor: Any, *_: Any) -> Any:
        if not tensor.local_shards():
            return tensor
        other = copy.deepcopy(tensor) if tensor.device.type == "cpu" else tensor.cpu()
        for shard in other.local_shards():
            shard.tensor = function(shard.tensor)
        return other

    return _iterate_state_dict(state_dict, of_sharded, of_dtensor, of_tensor, type_check=False)


# ---- loading ----


class _Blob:
    """An item of a data file, and the requests for it."""

    __slots__ = ("path", "start", "end", "requests", "ends")

    def __init__(self, path: str, start: int, length: int) -> None:
        self.path = path
        self.start = start
        self.end = start + length
        self.requests: List[ReadItem] = []
        self.ends: Optional[Ends] = None


def _by_file(blobs: Iterable[_Blob]) -> Iterator[Tuple[File, Iterator[_Blob]]]:
    for path, of_file in itertools.groupby(blobs, lambda blob: blob.path):
        yield File(path), of_file


def _fill(file: File, start: int, target: torch.Tensor, then: Callable[[], object]) -> Iterator[Job]:
    """Jobs that read the bytes of a tensor from there on, and then call then()."""
    address, nbytes = target.data_ptr(), target.numel() * target.element_size()
    if nbytes == 0:
        then()

    def take(at: int) -> Callable[[memoryview], None]:
        def copy_piece(view: memoryview) -> None:
            ctypes.memmove(address + at, locate(view, False)[0], view.nbytes)
            if at + view.nbytes == nbytes:
                then()

        return copy_piece

    for at in range(0, nbytes, JOB_MAX):
        yield Job(file, start + at, start + min(at + JOB_MAX, nbytes), take(at))


class StorageReader(FileSystemReader):
    """Loads from a folder, or from below a name of a RADOS store, for dcp.load().

    Elements are read into the tensors of the state_dict; pinned ones get them without a copy.

    Raises OSError, with errno and filename; dcp.load() makes a CheckpointException of it.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        super().__init__(path)
        self.fs = _file_system(path)
        self.path = self.fs.init_path(path)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        infos = [self.storage_data[item.storage_index] for item in plan.items]
        future: Future[None]
        if any(getattr(info, "transform_descriptors", None) for info in infos):
            future = super().read_data(plan, planner)  # it is compressed, or the like
            return future
        found: Dict[Tuple[str, int], _Blob] = {}
        for item, info in zip(plan.items, infos):
            path = os.path.join(self.path, info.relative_path)
            blob = found.setdefault((path, info.offset), _Blob(path, info.offset, info.length))
            blob.requests.append(item)
        blobs = [found[key] for key in sorted(found)]
        with handle_for(self.path) as handle:
            loading = _Loading(planner)
            read_jobs(handle, loading.jobs_of_ends(blobs))
            read_jobs(handle, loading.jobs(blobs))
        future = Future()
        future.set_result(None)
        return future


class _Loading:
    """One read_data()."""

    def __init__(self, planner: LoadPlanner) -> None:
        self._planner = planner
        self._layouts = Layouts()

    def jobs_of_ends(self, blobs: List[_Blob]) -> Iterator[Job]:
        """Reads what tells where the elements of huge tensors are."""
        huge = [b for b in blobs if b.end - b.start >= _HUGE and b.requests[0].type != LoadItemType.BYTE_IO]
        for file, of_file in _by_file(huge):
            for blob in of_file:
                blob.ends = ends = Ends(blob.end - blob.start)

                def take_head(view: memoryview, ends: Ends = ends) -> None:
                    ends.head = bytes(view)

                def take_tail(view: memoryview, ends: Ends = ends) -> None:
                    ends.tail = bytes(view)

                yield Job(file, blob.start, blob.start + _HEAD, take_head)
                yield Job(file, blob.end - _TAIL, blob.end, take_tail)

    def jobs(self, blobs: List[_Blob]) -> Iterator[Job]:
        for file, of_file in _by_file(blobs):
            together: List[_Blob] = []
            for blob in of_file:
                if blob.end - blob.start >= _HUGE:
                    yield from self._huge(file, blob)
                    continue
                if together and (
                    blob.start - together[-1].end > _GAP_MAX or blob.end - together[0].start > JOB_MAX
                ):
                    yield self._small(file, together)
                    together = []
                together.append(blob)
            if together:
                yield self._small(file, together)

    def _small(self, file: File, blobs: List[_Blob]) -> Job:
        first = blobs[0].start

        def take(view: memoryview) -> None:
            for blob in blobs:
                self._take(blob, view[blob.start - first : blob.end - first])

        return Job(file, first, max(blob.end for blob in blobs), take)

    def _take(self, blob: _Blob, data: memoryview) -> None:
        """The bytes of an item are there."""
        tensor: Optional[torch.Tensor] = None
        for request in blob.requests:
            if request.type == LoadItemType.BYTE_IO:
                self._planner.load_bytes(request, io.BytesIO(data))
                continue
            if tensor is None:
                tensor = self._tensor(data)
            self._copy(request, narrow_tensor_by_index(tensor, request.storage_offsets, request.lengths))

    def _tensor(self, data: memoryview) -> torch.Tensor:
        layout = self._layouts.find(data)
        if layout is None:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        dtype, size, start = layout
        nbytes = size.numel() * dtype.itemsize
        if nbytes == 0:
            return torch.empty(size, dtype=dtype)
        elements = torch.frombuffer(data[start : start + nbytes], dtype=torch.uint8)
        if elements.data_ptr() % _ELEMENT_ALIGNMENT:
            elements = elements.clone()
        return elements.view(dtype).view(size)

    def _copy(self, request: ReadItem, tensor: torch.Tensor) -> None:
        target = self._target(request)
        target.copy_(tensor)
        self._planner.commit_tensor(request, target)

    def _target(self, request: ReadItem) -> torch.Tensor:
        target = self._planner.resolve_tensor(request).detach()
        if target.size() != request.lengths:
            raise AssertionError(
                f"req {request.storage_index} mismatch sizes {target.size()} vs {request.lengths}"
            )
        return target

    def _huge(self, file: File, blob: _Blob) -> Iterator[Job]:
        layout = None if blob.ends is None else self._layouts.find(blob.ends)
        if layout is None:
            data = bytearray(blob.end - blob.start)
            whole = torch.frombuffer(data, dtype=torch.uint8)
            yield from _fill(file, blob.start, whole, lambda: self._take(blob, memoryview(data)))
            return
        for request in blob.requests:
            yield from self._rows(file, blob.start, layout, request)

    def _rows(self, file: File, start: int, layout: Layout, request: ReadItem) -> Iterator[Job]:
        """Reads the rows (along dimension 0) of a tensor that have the elements of the request."""
        dtype, size, first = layout
        offsets, lengths = request.storage_offsets, request.lengths
        rows = torch.Size([lengths[0], *size[1:]])
        start += first + offsets[0] * size[1:].numel() * dtype.itemsize
        target = self._target(request)

        def commit(_: Any = None) -> None:
            self._planner.commit_tensor(request, target)

        if target.is_cpu and target.dtype == dtype and target.size() == rows and target.is_contiguous():
            address, nbytes = target.data_ptr(), rows.numel() * dtype.itemsize
            if start % ALIGNMENT == 0 == address % ALIGNMENT and memory.find(address, nbytes):
                yield Job(file, start, start + nbytes, commit, target)
                return
            yield from _fill(file, start, target, commit)
            return
        wanted = torch.empty(rows, dtype=dtype)

        def copy_wanted() -> None:
            target.copy_(narrow_tensor_by_index(wanted, [0, *offsets[1:]], lengths))
            commit()

        yield from _fill(file, start, wanted, copy_wanted)
