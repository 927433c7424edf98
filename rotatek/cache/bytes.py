"""The size of a cache: the bytes of live tensors' storages, each counted once, by kind."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.layers import state_layers, tensors_of

PARTS: Final = ("visual_keys", "visual_values", "text", "state", "bases", "masks", "lengths")


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the unique storages behind `tensors`."""
    seen: dict[tuple[str, int], int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        seen[(str(tensor.device), storage.data_ptr())] = storage.nbytes()
    return sum(seen.values())


@dataclass
class ByteCount:
    """Bytes of live storages by kind; `total` counts every unique storage once.

    shared: bytes that the cache reads with all others of its model, no part of the total: a
        calibration's bases, and the output metrics that methods weigh Values by.
    """

    parts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    shared: int = 0


def count_bytes(tensors: list[tuple[str, Tensor]]) -> ByteCount:
    """Measure (kind, tensor) pairs. A storage of two kinds is counted for the first; or for each
    by its tensors, where those do not overlap, and for "lengths" what is between them."""
    whole: dict[tuple[torch.device, int], int] = {}
    views: dict[tuple[torch.device, int], dict[tuple[int, int], str]] = {}
    for part, tensor in tensors:
        storage = tensor.untyped_storage()
        place = (tensor.device, storage.data_ptr())
        whole[place] = storage.nbytes()
        views.setdefault(place, {}).setdefault((tensor.data_ptr(), tensor.nbytes), part)
    count = ByteCount(dict.fromkeys(PARTS, 0), sum(whole.values()))
    for place, own in views.items():
        left = whole[place] - sum(size for _, size in own)
        if left < 0 or len(own) == 1:
            count.parts[next(iter(own.values()))] += whole[place]
            continue
        count.parts["lengths"] += left
        for (_, size), part in own.items():
            count.parts[part] += size
    return count


def dynamic_bytes(cache: Cache) -> ByteCount:
    """Bytes of a plain transformers cache."""
    layers = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    held = [("text", t) for layer in layers for t in (layer.keys, layer.values)]
    held += [("state", t) for layer in state_layers(cache) for t in tensors_of(layer)]
    return count_bytes(held)
