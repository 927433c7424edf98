"""Filled caches as files: every tensor behind a lossless entropy coder, with what checks it.

    magic, version, bytes of the header, sha256 of the header | header | one zstd frame a tensor

The header is JSON behind zstd: whose cache it is, a tree of plain values, and for every tensor its
type, its shape, and its frame's size and checksum (the frame's, since zstd has bits that change no
number and a flipped one is damage all the same). Numbers of several bytes are stored byte by byte:
first all their lowest bytes, so that the highest, which repeat, lie together. Channels of a few
bits are stored as whole codes, a depth a frame and neighbouring tokens side by side
(`kernels.plane_codes`). Nothing is unpickled, and nothing of a file is used before all of it has
been checked.
"""

import hashlib
import importlib
import json
import os
import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from math import prod
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kernels.plane_codes import codes_of, data_of
from kernels.planes import Planes
from kernels.reference import Visual
from rotatek.errors import (
    CacheFileDamaged,
    CacheFileForeign,
    CacheFileUnwritable,
    CacheFileVersion,
    CacheNotStorable,
    CacheOfAnotherModel,
    CompressorMissing,
    FileUnreadable,
)
from rotatek.methods.channels.store import Store

MAGIC: Final = b"RTKCACHE"
VERSION: Final = 3  # 2 had planes as they lie in memory, 1 checksums of the numbers
_PREFIX: Final = struct.Struct("<8sII32s")  # magic, version, bytes of the header, its sha256
MOST_HEADER: Final = 64 << 20  # bytes, unpacked: a few thousand tensors take a few hundred thousand
LEVEL: Final = 9  # of zstd: 19 is ten times slower and saves a hundredth
DIGEST: Final = 12  # bytes of a frame's checksum
SAMPLED: Final = 16  # numbers of each parameter that tell a model from its sisters
UNSTABLE: Final = ("_name_or_path", "transformers_version", "_attn_implementation", "dtype")
DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
        torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip


Shelf = dict[Hashable, Tensor]  # by what two names of the same numbers share


class Coded(NamedTuple):
    """Planes as a file has them: without their data, which are codes by depth."""

    planes: Planes
    codes: tuple[Tensor, ...]
    values: bool

    @classmethod
    def of(cls, planes: Planes | None, values: bool) -> Any:
        """Planes in that form, where they can be."""
        codes = None if planes is None else codes_of(planes, values)
        if planes is None or codes is None:
            return planes
        return cls(planes._replace(data=planes.data[:0]), tuple(codes), values)

    def opened(self) -> Planes:
        """The planes again."""
        return self.planes._replace(data=data_of(self.codes, self.planes.counts, self.values))


class Stored(NamedTuple):
    """What a file holds: a tree of plain values, in which tensors are numbered, and the tensors."""

    tree: Any
    tensors: list[Tensor]

    def content(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """What was written; types: of what is not plain, by its name.

        Raises:
            CacheFileVersion: where this version cannot make it again.
        """
        with same_version():
            return dict(from_tree(self.tree, dict(types), self))


@contextmanager
def same_version() -> Iterator[None]:
    """What a whole file of this version never brings about is the work of another one.

    Raises:
        CacheFileVersion: in place of what Python raises.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, NameError) as error:
        raise CacheFileVersion from error


def write(path: str | os.PathLike[str], model: PreTrainedModel, content: Mapping[str, Any]) -> int:
    """Write a file at once or not at all.

    Args:
        path: where; a file that is there is replaced when the new one is complete.
        model: whose cache it is.
        content: values that `as_tree` knows.

    Returns:
        the file's bytes.

    Raises:
        CompressorMissing: without zstandard.
        CacheFileUnwritable: where the file cannot be made.
    """
    packer = _zstandard().ZstdCompressor(level=LEVEL)
    tensors: Shelf = {}
    tree = as_tree(dict(content), tensors)
    frames, told = [], []
    for tensor in tensors.values():
        frames.append(frame_of(tensor))
        digest = _digest(frames[-1])
        told.append([_name_of(tensor.dtype), list(tensor.shape), len(frames[-1]), digest])
    text = json.dumps({"model": identity(model), "tree": tree, "tensors": told}).encode()
    header = packer.compress(text)
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest())
    return _replace(Path(path), [prefix, header, *frames])


def read(
    path: str | os.PathLike[str],
    model: PreTrainedModel,
    device: torch.device | None = None,
    **types: Any,
) -> dict[str, Any]:
    """Read a file back, checked whole.

    Args:
        path: of a file that `write` made.
        model: that is to go on with it.
        device: of the tensors; the CPU by default.
        types: of what is not plain in the content, by its name.

    Returns:
        what was written.

    Raises:
        CompressorMissing: without zstandard.
        FileUnreadable: where there is no such file.
        CacheFileForeign: for a file of something else.
        CacheFileVersion: for one of another version.
        CacheFileDamaged: for one that is not what was written.
        CacheOfAnotherModel: for one that another model filled.
    """
    library = _zstandard()
    try:
        data = memoryview(Path(path).read_bytes())
    except OSError as error:
        raise FileUnreadable from error
    header, start = _header(data, library)
    if header["model"] != identity(model):
        raise CacheOfAnotherModel
    unpacker = library.ZstdDecompressor()
    tensors = []
    for told in header["tensors"]:
        kind, shape, size, digest = told
        frame, start = data[start : start + size], start + size
        tensors.append(_tensor(frame, DTYPES[kind], shape, digest, unpacker).to(device))
    if start != len(data):
        raise CacheFileDamaged
    return Stored(header["tree"], tensors).content(types)


def _header(data: memoryview, library: Any) -> tuple[dict[str, Any], int]:
    """The checked header, and where the first frame begins."""
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise CacheFileForeign
    if len(data) < _PREFIX.size:
        raise CacheFileDamaged
    _, version, size, digest = _PREFIX.unpack(data[: _PREFIX.size])
    if version != VERSION:
        raise CacheFileVersion
    packed = data[_PREFIX.size : _PREFIX.size + size]
    if hashlib.sha256(packed).digest() != digest:
        raise CacheFileDamaged
    try:
        text = library.ZstdDecompressor().decompress(packed, max_output_size=MOST_HEADER)
        header = json.loads(text)
        ends = sum(size for _, _, size, _ in header["tensors"])
        known = {"model", "tree", "tensors"} == header.keys()
        known = known and all(kind in DTYPES for kind, *_ in header["tensors"])
    except (library.ZstdError, ValueError, KeyError, TypeError) as error:
        raise CacheFileDamaged from error
    if not known:
        raise CacheFileVersion
    if _PREFIX.size + size + ends != len(data):
        raise CacheFileDamaged
    return header, _PREFIX.size + size


def _tensor(
    frame: memoryview, dtype: torch.dtype, shape: list[int], digest: str, unpacker: Any
) -> Tensor:
    """One tensor of its frame.

    Raises:
        CacheFileDamaged: where its size or its checksum is another.
    """
    size = prod(shape) * dtype.itemsize
    raw = b""
    if _digest(frame) != digest:
        raise CacheFileDamaged
    if size:
        with suppress(_zstandard().ZstdError):
            found = _zstandard().frame_content_size(frame)
            raw = unpacker.decompress(frame, max_output_size=size) if found == size else b""
    if len(raw) != size:
        raise CacheFileDamaged
    if not size:
        return torch.empty(shape, dtype=dtype)
    planes = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype.itemsize, -1)
    return planes.T.flatten().contiguous().view(dtype).view(shape)


def _raw_bytes(tensor: Tensor) -> bytes:
    """Its numbers byte by byte: all lowest bytes first."""
    flat = tensor.detach().cpu().contiguous().flatten()
    if not flat.numel():
        return b""
    planes = flat.view(torch.uint8).view(-1, tensor.dtype.itemsize).T.contiguous()
    return planes.numpy().tobytes()


def frame_of(tensor: Tensor) -> bytes:
    """A tensor's numbers behind the coder, as a file has them."""
    packed: bytes = _zstandard().ZstdCompressor(level=LEVEL).compress(_raw_bytes(tensor))
    return packed


def _digest(frame: bytes | memoryview) -> str:
    return hashlib.blake2b(frame, digest_size=DIGEST).hexdigest()


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _replace(path: Path, parts: Sequence[bytes]) -> int:
    """Write beside `path`, then take its place."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            with draft.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise CacheFileUnwritable from error
    return sum(map(len, parts))


def _zstandard() -> Any:
    """The coder's library, which not every installation has."""
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise CompressorMissing from error


def identity(model: PreTrainedModel) -> dict[str, str]:
    """What a cache belongs to: the model's class, configuration and type, and a sample of weights.

    Names and paths do not count, so that a model may be moved.
    """
    config = {key: value for key, value in model.config.to_dict().items() if key not in UNSTABLE}
    text = json.dumps(_without(config, UNSTABLE), sort_keys=True, default=str)
    digest = hashlib.sha256()
    for name, value in model.named_parameters():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        if value.device.type != "meta":
            digest.update(_raw_bytes(value.detach().flatten()[:SAMPLED]))
    return {
        "class": type(model).__name__,
        "config": hashlib.sha256(text.encode()).hexdigest()[:16],
        "dtype": _name_of(model.dtype),
        "weights": digest.hexdigest()[:16],
    }


def _without(tree: Any, names: Sequence[str]) -> Any:
    """A configuration without some names, at every depth."""
    if isinstance(tree, dict):
        return {key: _without(value, names) for key, value in tree.items() if key not in names}
    return [_without(one, names) for one in tree] if isinstance(tree, list) else tree


def as_tree(thing: Any, tensors: Shelf) -> Any:
    """Plain values for JSON; tensors are added to `tensors` and numbered, the same one once.

    Knows None, booleans, numbers, text, tensors, their types, lists, tuples, mappings by text,
    named tuples, dataclasses, and stores, whose kind is noted.

    Raises:
        CacheNotStorable: for anything else.
    """
    if isinstance(thing, NoneType | bool | int | float | str):
        return thing
    if isinstance(thing, Tensor):
        place = (thing.device, thing.data_ptr(), thing.dtype, thing.shape, thing.stride())
        tensors.setdefault(place, thing)
        return {"tensor": list(tensors).index(place)}
    if isinstance(thing, torch.dtype):
        return {"dtype": _name_of(thing)}
    if isinstance(thing, dict):
        return {"dict": {str(name): as_tree(value, tensors) for name, value in thing.items()}}
    if isinstance(thing, list) or type(thing) is tuple:
        return [as_tree(value, tensors) for value in thing]
    if not _has_fields(type(thing)):
        raise CacheNotStorable
    if isinstance(thing, Visual):
        keys, values = Coded.of(thing.key_planes, False), Coded.of(thing.value_planes, True)
        thing = thing._replace(key_planes=keys, value_planes=values)
    names = _field_names(type(thing))
    named = {"fields": {name: as_tree(getattr(thing, name), tensors) for name in names}}
    if isinstance(thing, Coded):
        return {"coded": named}
    return {"store": [_kind_of(type(thing)), named]} if isinstance(thing, Store) else named


def from_tree(tree: Any, hint: Any, stored: Stored) -> Any:
    """The inverse of `as_tree`.

    Args:
        tree: of plain values.
        hint: the type that is expected, which says whose fields are meant; for a mapping, types by
            its names.
        stored: whose tensors are numbered.

    Raises:
        CacheFileVersion, or what Python raises: where the tree is not of that type.
    """
    if isinstance(tree, list):
        lists = [one for one in _alternatives(hint) if get_origin(one) in (list, tuple)]
        each = get_args(lists[0])[0] if lists else Any  # a tuple here is tuple[kind, ...]
        made = [from_tree(one, each, stored) for one in tree]
        return tuple(made) if _is_tuple(hint) else made
    if not isinstance(tree, dict):
        return tree
    kind, value = _only(tree)
    if kind == "tensor":
        return stored.tensors[value]
    if kind == "dtype":
        return DTYPES[value]
    if kind == "dict":
        hints = hint if isinstance(hint, dict) else {}
        return {name: from_tree(one, hints.get(name), stored) for name, one in value.items()}
    if kind == "store":
        known = {_kind_of(one): one for one in _stores(Store)}
        return from_tree(value[1], known[value[0]], stored)
    if kind == "coded":
        return from_tree(value, Coded, stored).opened()
    own = next((one for one in _alternatives(hint) if _has_fields(one)), None)
    if kind != "fields" or own is None or value.keys() != set(_field_names(own)):
        raise CacheFileVersion
    types = get_type_hints(own)
    return own(**{name: from_tree(one, types[name], stored) for name, one in value.items()})


def _only(tree: Mapping[str, Any]) -> tuple[str, Any]:
    """The one name of a tree, and what is under it."""
    ((kind, value),) = tree.items()
    return kind, value


def moved(thing: Any, device: torch.device) -> Any:
    """The same, with every tensor in it on `device`."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, dict):
        return {name: moved(value, device) for name, value in thing.items()}
    if isinstance(thing, type) or not _has_fields(type(thing)):
        return thing
    names = _field_names(type(thing))
    return type(thing)(**{name: moved(getattr(thing, name), device) for name in names})


def _kind_of(store: type[Store]) -> str:
    return f"{store.__module__}:{store.__qualname__}"


def _stores(base: type[Store]) -> Iterator[type[Store]]:
    """Every kind of store that a registered method has brought."""
    yield base
    for kind in base.__subclasses__():
        yield from _stores(kind)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that a hint allows."""
    union = get_origin(hint) in (Union, type(int | str))
    return get_args(hint) if union else (hint,)


def _is_tuple(hint: Any) -> bool:
    return any(get_origin(one) is tuple for one in _alternatives(hint))


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def _field_names(kind: type) -> Sequence[str]:
    if is_dataclass(kind):
        return [one.name for one in fields(kind) if one.init]
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return names
