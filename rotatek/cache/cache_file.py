"""Filled caches as files: safetensors, compressed by zstandard, with a checksum.

    magic, version, sha256 of the rest | zstd of safetensors

The file has a text tensor, three lines of JSON that describe the model and the content, and one
tensor of numbers of each type, byte by byte: first all lowest bytes, so that the highest, which
repeat, are adjacent. Channels of a few bits are stored as attention reads them. Nothing is
unpickled, and nothing of a file is used before all of it has been checked.
"""

import hashlib
import importlib
import json
import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from math import prod
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from transformers import PreTrainedModel

from kernels.planes import covered
from kernels.reference import Visual
from rotatek import errors
from rotatek.methods.channels.store import Store

MAGIC: Final = b"RTKCACHE"
VERSION: Final = 5  # caches of older versions must be made again
PREFIX: Final = struct.Struct("<8sI32s")  # magic, version, sha256 of what follows
TEXT: Final = "text"  # the tensor of the JSON text; the others are one for each type of numbers
LEVEL: Final = 3  # of zstd: 9 is three times slower, and its files are not smaller
SAMPLED: Final = 16  # numbers of each parameter that tell a model from its sisters
UNSTABLE: Final = ("_name_or_path", "transformers_version", "_attn_implementation", "dtype")


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


def write(
    path: str | os.PathLike[str],
    model: PreTrainedModel,
    content: Mapping[str, Any],
    owner: str | None = None,
) -> int:
    """Write a file at once or not at all.

    Args:
        path: of the file; an existing one is replaced when the new one is complete.
        model: the model that filled the cache.
        content: None, booleans, numbers, text, tensors, their types, and lists, tuples, mappings
            by text, named tuples and dataclasses of them.
        owner: the model's `identity`, where it is known already.

    Returns:
        the file's bytes.

    Raises:
        CompressorMissing: without zstandard.
        CacheNotStorable: for content of another kind.
        CacheFileUnwritable: where the file cannot be written, or is a folder or a device.
    """
    owner = owner or identity(model)
    tensors: dict[tuple, tuple[int, Tensor]] = {}  # by address: a shared one is stored once
    tree = _as_tree(dict(content), tensors)
    each = [tensor for _, tensor in tensors.values()]
    told = [(_name(one.dtype), list(one.shape)) for one in each]
    body = packed(each, "\n".join(map(json.dumps, (owner, told, tree))))
    path = Path(os.path.realpath(path))
    prefix = PREFIX.pack(MAGIC, VERSION, hashlib.sha256(body).digest())
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise errors.CacheFileUnwritable
    try:
        try:
            with draft.open("wb") as file:
                file.writelines((prefix, body))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise errors.CacheFileUnwritable from error
    return len(prefix) + len(body)


def read(
    path: str | os.PathLike[str],
    model: PreTrainedModel,
    device: torch.device,
    notes: type = dict,
    owner: str | None = None,
) -> dict[str, Any]:
    """Read a file back, after checking all of it.

    Args:
        path: of a file that `write` made.
        model: the model that continues from it.
        device: of the tensors.
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
    _, version, digest = PREFIX.unpack(data[: PREFIX.size])
    body = data[PREFIX.size :]
    if version != VERSION:
        raise errors.CacheFileVersion
    if hashlib.sha256(body).digest() != digest:
        raise errors.CacheFileDamaged
    with same_version(library.ZstdError, SafetensorError):
        parts = load(library.ZstdDecompressor().decompress(body))
        filled_by, told, tree = parts.pop(TEXT).numpy().tobytes().splitlines()
        if json.loads(filled_by) != (owner or identity(model)):
            raise errors.CacheOfAnotherModel
        parts = {name: part.to(device) for name, part in parts.items()}  # few transfers
        tensors = _tensors(parts, json.loads(told))
        return dict(json.loads(tree, object_hook=_maker(tensors, _kinds(Store, notes))))


def packed(tensors: Collection[Tensor], text: str) -> bytes:
    """Numbers and a text as a file has them after its first bytes."""
    groups: dict[torch.dtype, dict[torch.device, list[tuple[int, Tensor]]]] = {}
    for number, each in enumerate(tensors):
        flat = each.detach().contiguous().view(-1).view(torch.uint8)
        groups.setdefault(each.dtype, {}).setdefault(each.device, []).append((number, flat))
    parts = {TEXT: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)}
    for kind, devices in groups.items():
        raw = _gathered(devices)
        each_byte = raw.view(len(raw) // kind.itemsize, kind.itemsize).T
        parts[_name(kind)] = each_byte.contiguous()
    return bytes(_zstandard().ZstdCompressor(level=LEVEL).compress(save(parts)))


def _gathered(devices: Mapping[torch.device, Sequence[tuple[int, Tensor]]]) -> Tensor:
    """Numbered bytes on the CPU, in order: a copy for each device they come from."""
    found: dict[int, Tensor] = {}
    for group in devices.values():
        numbers, parts = zip(*group, strict=True)
        flat = torch.cat(parts).cpu()
        found |= zip(numbers, flat.split([len(part) for part in parts]), strict=True)
    return torch.cat([found[number] for number in sorted(found)])


def _tensors(parts: Mapping[str, Tensor], told: Sequence[tuple[str, list[int]]]) -> list[Tensor]:
    """The tensors again: `parts` by the names of types; told: the type and shape of each."""
    pieces = {}
    for name, each_byte in parts.items():
        sizes = [prod(shape) * _dtype(name).itemsize for kind, shape in told if kind == name]
        if sum(sizes) != each_byte.numel():
            raise ValueError(f"{name} has {each_byte.numel()} bytes")
        pieces[name] = iter(each_byte.T.flatten().split(sizes))
    return [next(pieces[name]).clone().view(_dtype(name)).view(shape) for name, shape in told]


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    kind = getattr(torch, name)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"{name} is no type of numbers")
    return kind


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
    told = [type(model).__name__, _name(model.dtype), stable]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, value in model.named_parameters():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        if value.device.type != "meta":
            some = value.detach().flatten()[:SAMPLED].cpu().view(torch.uint8)
            digest.update(some.numpy().tobytes())
    return digest.hexdigest()


def _as_tree(thing: Any, tensors: dict[tuple, tuple[int, Tensor]]) -> Any:
    """Plain values for JSON; tensors are added to `tensors` and numbered, the same one once.

    Values that JSON has no form for become {"": their kind, "of": their content}.

    Raises:
        CacheNotStorable: for kinds that `write` does not support.
    """
    if isinstance(thing, NoneType | bool | int | float | str):
        return thing
    if isinstance(thing, list):
        return [_as_tree(one, tensors) for one in thing]
    if isinstance(thing, dict) and "" not in thing:
        return {str(name): _as_tree(one, tensors) for name, one in thing.items()}
    if isinstance(thing, Tensor):
        place = (thing.device, thing.data_ptr(), thing.dtype, thing.shape, thing.stride())
        return {"": "tensor", "of": tensors.setdefault(place, (len(tensors), thing))[0]}
    if isinstance(thing, torch.dtype):
        return {"": "dtype", "of": _name(thing)}
    if type(thing) is tuple:
        return {"": "tuple", "of": _as_tree(list(thing), tensors)}
    if not _has_fields(type(thing)):
        raise errors.CacheNotStorable
    return {"": _kind_of(type(thing)), "of": _as_tree(_fields(thing), tensors)}


def _maker(tensors: Sequence[Tensor], kinds: Mapping[str, Any]) -> Callable[[dict], Any]:
    """The inverse of `_as_tree` for one mapping of a JSON text whose values are converted already.

    Args:
        tensors: by their numbers.
        kinds: named tuples and dataclasses, by their names.
    """
    plain: dict[str, Callable] = {"tensor": tensors.__getitem__, "dtype": _dtype, "tuple": tuple}

    def made(told: dict[str, Any]) -> Any:
        if "" not in told:
            return told
        kind, of = told[""], told["of"]
        found = plain[kind](of) if kind in plain else kinds[kind](**of)
        for planes in (found.key_planes, found.value_planes) if isinstance(found, Visual) else ():
            if planes is not None and not covered(planes, found.tokens or 0):
                raise ValueError("there are fewer words than channels and tokens")
        return found

    return made


def moved(thing: Any, device: torch.device) -> Any:
    """The same, with every tensor in it on `device`."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, dict):
        return {name: moved(value, device) for name, value in thing.items()}
    if isinstance(thing, list):
        return [moved(value, device) for value in thing]
    return type(thing)(**moved(_fields(thing), device)) if _has_fields(type(thing)) else thing


def _kinds(*roots: Any) -> dict[str, type]:
    """Named tuples and dataclasses among `roots`, their subclasses and the types of their fields,
    by name: a file makes nothing else."""
    found: dict[str, type] = {}
    todo = list(roots)
    while todo:
        kind = todo.pop()
        todo += get_args(kind)
        if _has_fields(kind) and _kind_of(kind) not in found:
            found[_kind_of(kind)] = kind
            todo += [*get_type_hints(kind).values(), *kind.__subclasses__()]
    return found


def _kind_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def _fields(thing: Any) -> dict[str, Any]:
    """The fields of a named tuple or a dataclass."""
    if is_dataclass(thing):
        return {one.name: getattr(thing, one.name) for one in fields(thing) if one.init}
    made: dict[str, Any] = thing._asdict()
    return made
