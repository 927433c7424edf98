"""The bytes that each prompt of a padded batch would take in a cache of its own.

A batch pads every prompt to the longest, and its tiles and text steps with it, so its bytes are not
those of a single user. Here every prompt is counted by itself: its visual tokens' numbers, bases,
steps, means, scales and masks, its text with the slack that a buffer has, and the counts beside
them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from kernels.planes import Planes, head_words
from kernels.reference import Visual
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.bridge.state_layers import key_layers, state_layers, tensors_of
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.sliding_window import NOWHERE
from rotatek.methods.channels.base import ChannelMethod
from rotatek.methods.channels.store import Store

COUNT: Final = 4  # bytes of a length


def bytes_by_prompt(cache: RotateKCache) -> list[int]:
    """Live bytes of each sample of a filled cache, as if it were alone; `bytes` of it, to a few.

    Exact where a method's `head_bytes` is, and where bits follow from the prompt: from
    what its heads were given.
    """
    totals, told = _marks(cache), _on_host(cache)
    shared: set[int] = set()  # what layers have in common
    for layer in state_layers(cache):
        totals = totals + sum(t.nbytes for t in tensors_of(layer)) // len(totals)
    for layer in key_layers(cache):
        totals = totals + _text(layer, told)
        if layer.span is not None and _is_new(layer.span.text, shared):
            places = (layer.span.text < NOWHERE).sum(1) + (layer.span.visual >= 0).sum(1) + 1
            totals = totals + COUNT * places.cpu()
        if layer.store is None:
            continue
        if hasattr(layer.store, "heads"):
            totals = totals + COUNT
        for store in _stores(layer):
            visual, method = store.visual, cache.settings.channels
            assert visual.lengths is not None
            lengths = told[id(visual.lengths)].tolist()
            each = _visual(layer, method, visual, lengths, told)
            count = COUNT if _is_new(visual.lengths, shared) else 0
            pairs = zip(each, lengths, strict=True)
            sizes = [size + count if tokens else 0 for size, tokens in pairs]
            totals = totals + torch.tensor(sizes)
    return totals.tolist()


def _stores(layer: CompressedLayer) -> list[Store]:
    """A layer's store, or those of its heads where each is a store of its own."""
    return [] if layer.store is None else getattr(layer.store, "heads", [layer.store])


def _on_host(cache: RotateKCache) -> dict[int, Tensor]:
    """Copies on the host of the lengths and counts of all layers, by the `id` of each.

    They come in one transfer: where processes share a GPU, each transfer waits for a turn.
    """
    found: list[Tensor] = []
    for layer in key_layers(cache):
        assert layer.text is not None
        found.append(layer.text.lengths)
        for visual in (store.visual for store in _stores(layer)):
            planes = [
                one.counts for one in (visual.key_planes, visual.value_planes) if one is not None
            ]
            assert visual.lengths is not None
            found += [*planes, visual.lengths]
    flat = torch.cat([one.flatten().long() for one in found]).cpu()
    pairs = zip(found, flat.split([one.numel() for one in found]), strict=True)
    return {id(one): copy.view(one.shape) for one, copy in pairs}


def _is_new(tensor: Tensor, seen: set[int]) -> bool:
    """Whether its storage was not seen before; it is then."""
    place = tensor.untyped_storage().data_ptr()
    new = place not in seen
    seen.add(place)
    return new


def _marks(cache: RotateKCache) -> Tensor:
    """A byte a row for each of the plan's marks: what is visual, padding, or kept."""
    marks = list(cache.plan.tensors())
    return len(marks) * marks[1].sum(1).cpu()  # the second says what is no padding


def _text(layer: CompressedLayer, told: Mapping[int, Tensor]) -> Tensor:
    """[B] bytes of the text and of its count."""
    assert layer.text is not None
    keys, lengths = layer.text.keys, told[id(layer.text.lengths)]
    row = 2 * keys.shape[1] * keys.shape[3] * keys.element_size()
    return -(-lengths // TEXT_STEP) * TEXT_STEP * row + COUNT


def _visual(
    layer: CompressedLayer,
    method: ChannelMethod,
    visual: Visual,
    lengths: list[int],
    told: Mapping[int, Tensor],
) -> list[int]:
    """Bytes of each sample's visual tokens in one layer."""
    if visual.key_planes is not None and visual.value_planes is not None:
        means = _nbytes(t for t in (visual.mean, visual.value_mean) if t is not None)
        tokens = torch.tensor(lengths)
        both = (visual.key_planes, visual.value_planes)
        found = torch.stack([_planes(side, told[id(side.counts)], tokens) for side in both]).sum(0)
        return [size + means // len(lengths) for size in found.tolist()]
    assert layer.text is not None
    heads, d = visual.keys.shape[1], layer.text.keys.shape[3]
    spectra = (0.9 ** torch.arange(d)).expand(1, heads, -1)  # widths are alike, whatever they are
    keys, values = method.key_widths(spectra), method.value_widths(spectra)
    itemsize = layer.text.keys.element_size()
    each = [torch.tensor([[tokens]]) for tokens in lengths]
    return [int(method.head_bytes(keys, values, one, d, itemsize).sum()) for one in each]


def _planes(planes: Planes, counts: Tensor, tokens: Tensor) -> Tensor:
    """[B] bytes of each sample's digits, steps, rows of its basis, and what says where they begin;
    counts: the planes' own; tokens: [B]."""
    rows, digits = counts[..., 0].sum(1), 2 * head_words(counts, tokens[:, None]).sum(1)
    own = planes.own
    row = planes.steps.element_size()
    if planes.axes is not None:
        row += planes.axes.element_size()
    else:
        row += planes.basis.shape[1] * planes.basis.element_size()
    tables = [own[name] for name in ("counts", "offsets", "starts", "places") if name in own]
    return digits + rows * row + _nbytes(tables) // len(counts)


def _nbytes(tensors: Iterator[Tensor] | list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
