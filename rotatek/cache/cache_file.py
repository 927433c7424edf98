"""Filled caches as files: safetensors inside one zstandard frame, which has a checksum.

`zstd -d` gives a safetensors file. Its tensors are rows of numbers, one for each type and use; its
metadata has, as JSON, which model filled the cache, where each tensor lies in those rows, and the
content, in which what JSON has no form for is {"": its kind, "of": its content}. Nothing is
unpickled, and nothing of a file is used before it has been checked.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any, Final, get_args, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from transformers import PreTrainedModel

from kernels.planes import Planes, covered
from kernels.reference import Packed
from rotatek import errors
from rotatek.bridge.layers import weight_of
from rotatek.cache.sliding_window import WindowPositions
from rotatek.cache.text_buffer import TextBuffer
from rotatek.methods.channels.base import Store

VERSION: Final = 11  # caches of older versions must be made again
FRAME: Final = b"\x28\xb5\x2f\xfd"  # how zstandard's frames begin
NAME: Final = "rotatek"  # of the metadata
LEVEL: Final = 1  # of zstd: 3 takes 2.5 times as long, and its files are not smaller
MOST: Final = 256  # bytes in memory for a byte of a file
ALIGNED: Final = 16  # bytes: kernels read a tensor from such an address
SAMPLED: Final = 16  # numbers of each parameter that tell a model from its sisters
UNSTABLE: Final = ("_name_or_path", "transformers_version", "_attn_implementation", "dtype")
HELD: Final = "held"  # the use of a store's tensors, which no step writes to: they share memory
OWN: Final = "own"


@contextmanager
def same_version() -> Iterator[None]:
    """Turn Python's errors, which a valid file of this version cannot cause, into a version error,
    `CacheFileVersion`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, NameError, RecursionError) as error:
        raise errors.CacheFileVersion from error


class Draft:
    """A file's content in the host's memory, or on its way there: any thread may write it.

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
        coder()
        rows: dict[str, list[Tensor]] = {}
        tree, found, told, used = *_as_tree(dict(content)), list[Any](), dict[str, int]()
        for tensor, use in found:
            row = f"{_name_of(tensor.dtype)} {use} {tensor.device}"
            told.append((row, used.get(row, 0), list(tensor.shape)))
            plain = tensor.detach().contiguous().view(-1).view(torch.uint8)
            gap = plain.new_zeros(-len(plain) % ALIGNED)
            rows.setdefault(row, []).extend((plain, gap))
            used[row] = used.get(row, 0) + (len(plain) + len(gap)) // tensor.dtype.itemsize
        self._rows = {
            name: torch.cat(each).view(_dtype_of(name.split()[0])).to("cpu", non_blocking=True)
            for name, each in rows.items()
        }
        self._copied = [
            torch.cuda.current_stream(device).record_event()
            for device in {tensor.device for tensor, _ in found}
            if device.type == "cuda"
        ]
        head = {"version": VERSION, "owner": owner or identity(model), "tensors": told}
        self._head = json.dumps(head | {"content": tree})

    def content(self) -> bytes:
        """The file's bytes; waits for what is on its way."""
        for event in self._copied:
            event.synchronize()
        return packed(self._rows, self._head)

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the file at once or not at all; an existing one is replaced when it is complete.

        Returns:
            the file's bytes.

        Raises:
            CacheFileUnwritable: where it cannot be written, or is a folder or a device.
        """
        data = self.content()
        path = Path(os.path.realpath(path))
        draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
        if path.exists() and not path.is_file():  # a device would be replaced by a file
            raise errors.CacheFileUnwritable
        try:
            try:
                with draft.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise errors.CacheFileUnwritable from error
        return len(data)


def packed(rows: Mapping[str, Tensor], head: str) -> bytes:
    """Numbers and a text as a file has them."""
    threads = torch.get_num_threads()
    packer = coder().ZstdCompressor(level=LEVEL, write_checksum=True, threads=threads)
    return bytes(packer.compress(save(dict(rows), {NAME: head})))


def read(
    path: str | os.PathLike[str],
    model: PreTrainedModel,
    device: torch.device,
    notes: type = dict,
    owner: str | None = None,
) -> dict[str, Any]:
    """The content of a file that a `Draft` wrote, after checking all of it. Tensors of stores share
    memory, and are not written to. Arguments and refusals are those of `RotateKCache.load`; notes:
    a dataclass that may be in the content, beside stores."""
    rows, head = _unpacked(path)
    with same_version():
        if head["version"] != VERSION:
            raise errors.CacheFileVersion
        if head["owner"] != (owner or identity(model)):
            raise errors.CacheOfAnotherModel
        placed = {name: row.to(device) for name, row in rows.items()}
        tensors = [_tensor(placed[name], name, *rest) for name, *rest in head["tensors"]]
        return _from_tree(head["content"], tensors, notes)


def _unpacked(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The rows of numbers of a file, and what its metadata says."""
    library = coder()
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise errors.FileUnreadable from error
    if not data or data[: len(FRAME)] != FRAME[: len(data)]:
        raise errors.CacheFileForeign
    try:
        if not 0 <= library.frame_content_size(data) <= MOST * len(data):
            raise errors.CacheFileDamaged
        plain = library.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except library.ZstdError as error:
        raise errors.CacheFileDamaged from error
    try:
        rows = load(plain)
        length = int.from_bytes(plain[:8], "little")
        head = json.loads(json.loads(plain[8 : 8 + length])["__metadata__"][NAME])
    except (SafetensorError, ValueError, LookupError, RecursionError) as error:
        raise errors.CacheFileForeign from error
    return rows, head


def _tensor(row: Tensor, name: str, start: int, shape: list[int]) -> Tensor:
    """A tensor again: in the memory of a row of numbers, or in its own."""
    end = start + prod(shape)
    if min(start, *shape, 0) < 0 or end > len(row) or start * row.itemsize % ALIGNED:
        raise ValueError(f"{shape} from {start} is not in {name}")
    found = row[start:end].view(shape)
    return found if name.split()[1] == HELD else found.clone()


def coder() -> Any:
    """The library that packs files, or `CompressorMissing`."""
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise errors.CompressorMissing from error


def identity(model: PreTrainedModel) -> str:
    """A fingerprint of a model: its class, configuration and type, and a sample of weights; not its
    name and path, so that it may be moved."""
    stable = json.loads(
        json.dumps(model.config.to_dict(), default=str),
        object_hook=lambda one: {name: one[name] for name in one if name not in UNSTABLE},
    )
    told = [type(model).__name__, _name_of(model.dtype), stable]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, value in model.named_parameters():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        kind = type(value) in (Tensor, torch.nn.Parameter)
        found = value if kind else weight_of(SimpleNamespace(weight=value))  # a quantiser's
        if found is not None and found.device.type != "meta":
            some = found.detach().flatten()[:SAMPLED].cpu().view(torch.uint8)
            digest.update(some.numpy().tobytes())
    return digest.hexdigest()


def _as_tree(content: Any) -> tuple[Any, list[tuple[Tensor, str]]]:
    """Plain values for JSON, and the tensors by their numbers in them, the same one once, each with
    its use."""
    numbers: dict[tuple, int] = {}  # by what is equal for the same tensor in the same use
    found: list[tuple[Tensor, str]] = []

    def tree(thing: Any, use: str) -> Any:
        if isinstance(thing, NoneType | bool | int | float | str):
            return thing
        if isinstance(thing, Tensor):
            place = (thing.device, thing.data_ptr(), thing.dtype, thing.shape, thing.stride())
            number = numbers.setdefault((place, use), len(found))
            if number == len(found):
                found.append((thing, use))
            return {"": "tensor", "of": number}
        if isinstance(thing, list):
            return [tree(one, use) for one in thing]
        if isinstance(thing, dict) and "" not in thing:
            return {str(name): tree(one, use) for name, one in thing.items()}
        if isinstance(thing, torch.dtype):
            return {"": "dtype", "of": _name_of(thing)}
        if type(thing) is tuple:
            return {"": "tuple", "of": tree(list(thing), use)}
        kind: Any = type(thing)
        if not _has_fields(kind):
            raise errors.CacheNotStorable
        inner = tree(_fields(thing), HELD if isinstance(thing, Store) else use)
        return {"": _kind_of(kind), "of": inner}

    return tree(content, OWN), found


def _from_tree(told: Any, tensors: Sequence[Tensor], notes: type) -> dict[str, Any]:
    """The inverse of `_as_tree`, which raises Python's errors for a tree of another hand."""
    kinds = _kinds(Store, TextBuffer, WindowPositions, notes)
    plain: dict[str, Callable] = {"tensor": tensors.__getitem__, "dtype": _dtype_of, "tuple": tuple}
    planes: list[tuple[Planes, int]] = []

    def made(thing: Any) -> Any:
        if isinstance(thing, list):
            return [made(one) for one in thing]
        if not isinstance(thing, dict):
            return thing
        if "" not in thing:
            return {name: made(one) for name, one in thing.items()}
        kind, of = thing[""], made(thing["of"])
        if kind in plain:
            return plain[kind](of)
        found = kinds[kind](**of)
        if isinstance(found, Packed):
            planes.extend((one, found.tokens) for one in (found.keys, found.values))
        return found

    content: dict[str, Any] = made(told)
    if not covered(planes):
        raise ValueError("there are fewer words than channels and tokens")
    return content


def moved(thing: Any, device: torch.device) -> Any:
    """The same, with every tensor in it on `device`."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, dict):
        return {name: moved(value, device) for name, value in thing.items()}
    if type(thing) in (list, tuple):
        return type(thing)(moved(value, device) for value in thing)
    if not _has_fields(type(thing)):
        return thing
    return type(thing)(**moved(_fields(thing), device))


def _name_of(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _dtype_of(name: str) -> torch.dtype:
    """The inverse of `_name_of`."""
    kind = getattr(torch, name)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"{name} is no type of numbers")
    return kind


def _kinds(*roots: Any) -> dict[str, type]:
    """Named tuples and dataclasses among `roots`, their subclasses and the types of their fields,
    by name: a file makes nothing else."""
    found: dict[str, type] = {}
    todo = list(roots)
    while todo:
        kind = todo.pop()
        if _has_fields(kind) and _kind_of(kind) not in found:
            found[_kind_of(kind)] = kind
            todo += [*_within(kind), *kind.__subclasses__()]
    return found


@cache
def _within(kind: type) -> list[type]:
    """Classes with fields among the types of a class's fields."""
    found, todo = [], list(get_type_hints(kind).values())
    while todo:
        one = todo.pop()
        todo += get_args(one)
        found += [one] if _has_fields(one) else []
    return found


@cache
def _kind_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (hasattr(kind, "_fields") or is_dataclass(kind))


def _fields(thing: Any) -> dict[str, Any]:
    """The fields of a named tuple or a dataclass that it is made from, by name."""
    kind: Any = type(thing)
    names = [one.name for one in fields(kind) if one.init] if is_dataclass(kind) else kind._fields
    return {name: getattr(thing, name) for name in names}
