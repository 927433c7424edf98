"""A filled cache's content as plain values and numbered tensors, and back again.

Values that JSON has no form for become {"": their kind, "of": their content}.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

import torch
from torch import Tensor

from kernels.planes import Planes, covered
from kernels.reference import Visual
from rotatek import errors
from rotatek.methods.channels.store import Store

Found = tuple[Tensor, str]  # a tensor, and its use: in a store, in a layer's text, or another
STORE: Final = "store"  # no step writes to it
TEXT: Final = "text"  # also the name of a layer's, which is copied when a cache is loaded


def as_tree(content: Any) -> tuple[Any, list[Found]]:
    """Plain values for JSON, and the tensors by their numbers in them, the same one once.

    Raises:
        CacheNotStorable: for content that is not None, a boolean, a number, text, a tensor, a type
            of them, or a list, tuple, mapping by text, named tuple or dataclass of such.
    """
    numbers: dict[tuple, int] = {}  # by what is equal for the same tensor in the same use
    found: list[Found] = []

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
            return {
                str(name): tree(one, TEXT if name == TEXT else use) for name, one in thing.items()
            }
        if isinstance(thing, torch.dtype):
            return {"": "dtype", "of": name_of(thing)}
        if type(thing) is tuple:
            return {"": "tuple", "of": tree(list(thing), use)}
        kind: Any = type(thing)
        if not _has_fields(kind):
            raise errors.CacheNotStorable
        inner = tree(dict(_fields(thing)), STORE if isinstance(thing, Store) else use)
        return {"": _kind_of(kind), "of": inner}

    return tree(content, ""), found


def from_tree(text: str | bytes, tensors: Sequence[Tensor], notes: type) -> dict[str, Any]:
    """The inverse of `as_tree`.

    Args:
        text: the plain values, as JSON.
        tensors: by their numbers.
        notes: a dataclass that may be in the content, beside stores.

    Raises:
        ValueError, LookupError, TypeError: for a text of another version or hand.
    """
    kinds = _kinds(Store, notes)
    plain: dict[str, Callable] = {"tensor": tensors.__getitem__, "dtype": dtype_of, "tuple": tuple}
    planes: list[tuple[Planes, int]] = []

    def made(told: dict[str, Any]) -> Any:
        if "" not in told:
            return told
        kind, of = told[""], told["of"]
        if kind in plain:
            return plain[kind](of)
        found = kinds[kind](**of)
        if isinstance(found, Visual):
            both = (found.key_planes, found.value_planes)
            planes.extend((one, found.tokens or 0) for one in both if one is not None)
        return found

    content = dict(json.loads(text, object_hook=made))
    if not covered(planes):
        raise ValueError("there are fewer words than channels and tokens")
    return content


def moved(thing: Any, device: torch.device) -> Any:
    """The same, with every tensor in it on `device`."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, dict):
        return {name: moved(value, device) for name, value in thing.items()}
    if isinstance(thing, list):
        return [moved(value, device) for value in thing]
    if not _has_fields(type(thing)):
        return thing
    return type(thing)(**{name: moved(value, device) for name, value in _fields(thing)})


def name_of(kind: torch.dtype) -> str:
    """A type of numbers, as a file calls it."""
    return str(kind).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The inverse of `name_of`.

    Raises:
        AttributeError, ValueError: where there is no such type.
    """
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


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a named tuple or a dataclass that it is made from."""
    if is_dataclass(kind):
        return tuple(one.name for one in fields(kind) if one.init)
    names: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009
    return names


def _fields(thing: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of the fields of a named tuple or a dataclass."""
    kind: Any = type(thing)
    return ((name, getattr(thing, name)) for name in _names(kind))
