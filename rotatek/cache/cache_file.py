"""Filled caches as files, compressed by zstandard, with checksums.

    magic, version, crc32 of what follows here, bytes of the head | head | pieces

The head is four lines of JSON: which model filled the cache, the parts, the tensors, the content
(`rotatek.cache.file_content`). A part is the tensors of one type, one behind the other, in pieces
of up to 1 MiB, each with a checksum, and compressed where that saves something. Numbers of several
bytes are stored byte by byte: first all lowest bytes, so that the highest, which repeat, are
adjacent. Channels of a few bits are stored as attention reads them. Nothing is unpickled, and
nothing of a file is used before it has been checked.
"""

import hashlib
import importlib
import json
import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rotatek import errors
from rotatek.cache.file_content import Found, as_tree, dtype_of, from_tree, name_of

MAGIC: Final = b"RTKCACHE"
VERSION: Final = 6  # caches of older versions must be made again
PREFIX: Final = struct.Struct("<8sIII")  # magic, version, crc32, bytes of the head
LEVEL: Final = 1  # of zstd: 3 takes 2.5 times as long, and its files are not smaller
PIECE: Final = 1 << 20  # bytes that one thread compresses at a time
LEAST: Final = 0.03  # share of a piece that compression has to save
ALIGNED: Final = 16  # bytes: kernels read a tensor from such an address
SAMPLED: Final = 16  # numbers of each parameter that tell a model from its sisters
UNSTABLE: Final = ("_name_or_path", "transformers_version", "_attn_implementation", "dtype")
_LOWEST_FIRST: Final = 1 if sys.byteorder == "little" else -1


@contextmanager
def same_version(*more: type[Exception]) -> Iterator[None]:
    """Turn errors that a valid file of this version cannot cause into a version error.

    Raises:
        CacheFileVersion: in place of Python's errors, and of `more`.
    """
    plain = (ValueError, LookupError, TypeError, AttributeError, NameError)
    wrong: tuple[type[Exception], ...] = (*plain, *more)
    try:
        yield
    except wrong as error:
        raise errors.CacheFileVersion from error


class Draft:
    """A file's content in the host's memory, or on its way there: `write` may run in any thread.

    Args:
        model: the model that filled the cache.
        content: None, booleans, numbers, text, tensors, their types, and lists, tuples, mappings
            by text, named tuples and dataclasses of them. Tensors are copied now.
        owner: the model's `identity`, where it is known already.

    Raises:
        CompressorMissing: without zstandard.
        CacheNotStorable: for content of another kind.
    """

    def __init__(
        self, model: PreTrainedModel, content: Mapping[str, Any], owner: str | None = None
    ) -> None:
        _zstandard()
        self._owner = owner or identity(model)
        self._tree, found = as_tree(dict(content))
        self._parts = _Parts(found)

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the file at once or not at all; an existing one is replaced when it is complete.

        Returns:
            the file's bytes.

        Raises:
            CacheFileUnwritable: where it cannot be written, or is a folder or a device.
        """
        table, pieces = self._parts.packed()
        told = (self._owner, table, self._parts.told, self._tree)
        chunks = [*head_of("\n".join(map(json.dumps, told))), *pieces]
        path = Path(os.path.realpath(path))
        draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
        if path.exists() and not path.is_file():  # a device would be replaced by a file
            raise errors.CacheFileUnwritable
        try:
            try:
                with draft.open("wb") as file:
                    file.writelines(chunks)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise errors.CacheFileUnwritable from error
        return sum(map(len, chunks))


class _Parts:
    """Tensors as a file has them: one part for each type, device and use.

    told: the part and the shape of each tensor.
    """

    def __init__(self, tensors: Iterable[Found]) -> None:
        groups: dict[tuple[torch.dtype, str, torch.device], list[Tensor]] = {}
        numbers: dict[tuple, int] = {}
        self.told: list[tuple[int, list[int]]] = []
        for tensor, use in tensors:
            group = (tensor.dtype, use, tensor.device)
            groups.setdefault(group, []).append(tensor)
            part = numbers.setdefault(group, len(numbers))
            self.told.append((part, list(tensor.shape)))
        self._kinds = [(kind, bool(use)) for kind, use, _ in groups]
        self._bytes = [_one_behind_the_other(group) for group in groups.values()]
        self._copied = [
            torch.cuda.current_stream(device).record_event()
            for device in {device for *_, device in groups if device.type == "cuda"}
        ]

    def packed(self) -> tuple[list[tuple[str, bool, list[tuple[int, int, int]]]], list[bytes]]:
        """For the head, the type and use of each part, and of its pieces their bytes in the file,
        the checksums of those, and their bytes in memory; and all pieces."""
        for event in self._copied:
            event.synchronize()
        wholes = [part.numpy().data for part in self._bytes]
        plain = [[whole[at : at + PIECE] for at in range(0, len(whole), PIECE)] for whole in wholes]
        done = iter(_side_by_side(_piece, [(one,) for pieces in plain for one in pieces]))
        table, written = [], []
        for (kind, fixed), pieces in zip(self._kinds, plain, strict=True):
            rows = []
            for one in pieces:
                data, check = next(done)
                rows.append((len(data), check, len(one)))
                written.append(data)
            table.append((name_of(kind), fixed, rows))
        return table, written


def _one_behind_the_other(tensors: Sequence[Tensor]) -> Tensor:
    """Bytes of tensors of one type and device, each at a multiple of `ALIGNED`, byte by byte, on
    the host or on their way there."""
    flat, kind = [], tensors[0].dtype
    gap = torch.zeros(ALIGNED, dtype=torch.uint8, device=tensors[0].device)
    for each in tensors:
        flat.append(each.detach().contiguous().view(-1).view(torch.uint8))
        if each.nbytes % ALIGNED:
            flat.append(gap[each.nbytes % ALIGNED :])
    whole = torch.cat(flat)
    if _by_bytes(kind):
        whole = torch.cat(whole.view(-1, kind.itemsize).unbind(1)[::_LOWEST_FIRST])
    return whole.to("cpu", non_blocking=whole.is_cuda)  # into pinned memory


def _by_bytes(kind: torch.dtype) -> bool:
    """Whether a type's numbers are stored byte by byte; words of digits would gain nothing."""
    return kind.itemsize in (2, 4, 8) and kind != torch.int16


def _piece(plain: memoryview) -> tuple[bytes, int]:
    """A piece as the file has it, and its checksum."""
    data = bytes(_zstandard().ZstdCompressor(level=LEVEL).compress(plain))
    if len(data) > (1 - LEAST) * len(plain):
        data = bytes(plain)
    return data, zlib.crc32(data)


def _side_by_side(work: Callable, arguments: Sequence[tuple]) -> list[Any]:
    """What calls return that leave the interpreter to others; by as many threads as PyTorch's."""
    threads = min(torch.get_num_threads(), len(arguments))
    if threads < 2:
        return [work(*each) for each in arguments]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda each: work(*each), arguments))


def head_of(text: str) -> tuple[bytes, bytes]:
    """A file's first bytes, and its head."""
    head = bytes(_zstandard().ZstdCompressor(level=LEVEL).compress(text.encode()))
    length = len(head).to_bytes(4, "little")
    return PREFIX.pack(MAGIC, VERSION, zlib.crc32(head, zlib.crc32(length)), len(head)), head


def packed(tensors: Iterable[Tensor], text: str) -> bytes:
    """Numbers and a text as a file has them."""
    return b"".join((*head_of(text), *_Parts((each, "") for each in tensors).packed()[1]))


def read(
    path: str | os.PathLike[str],
    model: PreTrainedModel,
    device: torch.device,
    notes: type = dict,
    owner: str | None = None,
) -> dict[str, Any]:
    """Read a file back, after checking all of it.

    Args:
        path: of a file that a `Draft` wrote.
        model: the model that continues from it.
        device: of the tensors. Those of stores and of texts share memory, and are not written to.
        notes: a dataclass that may be in the content, beside stores.
        owner: the model's `identity`, where it is known already.

    Returns:
        the content that was written.

    Raises:
        CompressorMissing: without zstandard.
        FileUnreadable: where there is no such file.
        CacheFileForeign: for a file of something else.
        CacheFileVersion: for one of another version.
        CacheFileDamaged: for one that was changed after it was written.
        CacheOfAnotherModel: for one that another model filled.
    """
    library = _zstandard()
    try:
        data = memoryview(Path(path).read_bytes())
    except OSError as error:
        raise errors.FileUnreadable from error
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise errors.CacheFileForeign
    if len(data) < PREFIX.size:
        raise errors.CacheFileDamaged
    _, version, check, length = PREFIX.unpack(data[: PREFIX.size])
    if version != VERSION:
        raise errors.CacheFileVersion
    head, rest = data[PREFIX.size :][:length], data[PREFIX.size + length :]
    if zlib.crc32(head, zlib.crc32(data[PREFIX.size - 4 : PREFIX.size])) != check:
        raise errors.CacheFileDamaged
    with same_version(library.ZstdError):
        filled_by, table, told, tree = library.ZstdDecompressor().decompress(head).splitlines()
        if json.loads(filled_by) != (owner or identity(model)):
            raise errors.CacheOfAnotherModel
        parts = _unpacked(rest, json.loads(table), device)
        return from_tree(tree, _tensors(parts, json.loads(told)), notes)


Part = tuple[torch.dtype, bool, Tensor]  # its type, whether tensors share it, its numbers, 1-D


def _unpacked(data: memoryview, table: Sequence[Any], device: torch.device) -> list[Part]:
    """The parts again, all of them checked.

    Raises:
        CacheFileDamaged: where a piece is not what was written.
    """
    work, begun, parts = [], 0, []
    pinned = device.type == "cuda"
    for name, fixed, pieces in table:
        size, at = sum(plain for *_, plain in pieces), 0
        part = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        memory = part.numpy().data
        for length, check, plain in pieces:
            work.append((data[begun : begun + length], check, memory[at : at + plain]))
            begun, at = begun + length, at + plain
        parts.append((dtype_of(name), fixed, part))
    if begun != len(data):
        raise errors.CacheFileDamaged
    _side_by_side(_unpack, work)
    return [
        (kind, fixed, _numbers(part.to(device, non_blocking=True), kind))
        for kind, fixed, part in parts
    ]


def _unpack(data: memoryview, check: int, memory: memoryview) -> None:
    """Write a piece to its memory."""
    if zlib.crc32(data) != check:
        raise errors.CacheFileDamaged
    raw = len(data) == len(memory)
    memory[:] = data if raw else _zstandard().ZstdDecompressor().decompress(data)


def _numbers(part: Tensor, kind: torch.dtype) -> Tensor:
    """A part's numbers in one row, from its bytes."""
    if _by_bytes(kind):
        single = part.view(kind.itemsize, len(part) // kind.itemsize)
        part = torch.stack(single.unbind()[::_LOWEST_FIRST], 1).view(-1)
    return part.view(kind)


def _tensors(parts: Sequence[Part], told: Sequence[tuple[int, list[int]]]) -> list[Tensor]:
    """The tensors again; told: the part and the shape of each."""
    sizes: list[list[int]] = [[] for _ in parts]
    for number, shape in told:
        size = parts[number][0].itemsize
        sizes[number].append(-(-prod(shape) * size // ALIGNED) * ALIGNED // size)
    pieces = []
    for (kind, _, row), each in zip(parts, sizes, strict=True):
        if sum(each) != len(row):
            raise ValueError(f"there are {len(row)} numbers of {kind}")
        pieces.append(iter(row.split(each)))
    found = []
    for number, shape in told:
        piece = next(pieces[number])[: prod(shape)].view(shape)
        found.append(piece if parts[number][1] else piece.clone())
    return found


def _zstandard() -> Any:
    """The coder's library, which not every installation has."""
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise errors.CompressorMissing from error


def identity(model: PreTrainedModel) -> str:
    """A fingerprint of a model: its class, configuration and type, and a sample of weights.

    Names and paths do not count, so that a model may be moved.
    """
    stable = json.loads(
        json.dumps(model.config.to_dict(), default=str),
        object_hook=lambda one: {name: one[name] for name in one if name not in UNSTABLE},
    )
    told = [type(model).__name__, name_of(model.dtype), stable]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, value in model.named_parameters():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        if value.device.type != "meta":
            some = value.detach().flatten()[:SAMPLED].cpu().view(torch.uint8)
            digest.update(some.numpy().tobytes())
    return digest.hexdigest()
