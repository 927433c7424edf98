"""The bytes that each prompt of a padded batch would take in a cache of its own.

A batch pads every prompt to the longest, and its tiles and text steps with it, so its bytes are not
those of a single user. Here every prompt is counted by itself: its visual tokens' numbers, bases,
steps, means, scales and masks, its text with the slack that a buffer has, and the counts beside
them.
"""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from kernels.planes import Planes, data_bytes
from kernels.reference import Visual
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.bridge.state_layers import key_layers, state_layers, tensors_of
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.sliding_window import NOWHERE
from rotatek.cache.text_buffer import behind
from rotatek.methods.channels.base import ChannelMethod

COUNT: Final = 4  # bytes of a length
# Of tensors beside heads of many widths: the side, and the dimension that its widest head sets.
WIDE: Final = {"basis": ("key", 3), "key_scale": ("key", 2), "value_basis": ("value", 2)}


def bytes_by_prompt(cache: RotateKCache) -> list[int]:
    """Live bytes of each sample of a filled cache, as if it were alone; `bytes` of it, to a few.

    Exact where a method's `head_bytes` is, and where bits or widths follow from the prompt: from
    what its heads were given.
    """
    totals = _marks(cache)
    shared: set[int] = set()  # what layers have in common
    for layer in state_layers(cache):
        totals = totals + sum(t.nbytes for t in tensors_of(layer)) // len(totals)
    for layer in key_layers(cache):
        totals = totals + _text(layer, cache.settings.channels.recent_text)
        if layer.span is not None and _is_new(layer.span.text, shared):
            places = (layer.span.text < NOWHERE).sum(1) + (layer.span.visual >= 0).sum(1) + 1
            totals = totals + COUNT * places.cpu()
        if layer.store is None:
            continue
        parts = getattr(layer.store, "heads", None)  # where each head is a store of its own
        if parts is not None:
            totals = totals + COUNT
        for store in [layer.store] if parts is None else parts:
            visual, method = store.visual, cache.settings.channels
            lengths = visual.lengths.tolist()
            each = _visual(layer, method, visual, lengths)
            count = COUNT if _is_new(visual.lengths, shared) else 0
            pairs = zip(each, lengths, strict=True)
            sizes = [size + count if tokens else 0 for size, tokens in pairs]
            totals = totals + torch.tensor(sizes)
    return totals.tolist()


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


def _text(layer: CompressedLayer, recent: int | None) -> Tensor:
    """[B] bytes of the text and of its count."""
    assert layer.text is not None
    keys, past, lengths = layer.text.keys, layer.text.past, layer.text.lengths.cpu().long()
    samples = keys.shape[0]
    row = 2 * keys.shape[1] * keys.shape[3] * keys.element_size()
    if past is None or recent is None:
        slots = -(-lengths // TEXT_STEP) * TEXT_STEP
        return slots * row + COUNT
    slots = torch.tensor([behind(recent, length) for length in lengths.tolist()])
    older = sum(part.nbytes // (samples * part.shape[2]) for part in (past.data, past.scales))
    ring = keys.shape[2] * row + past.gain.nbytes // samples
    return slots * older + ring + COUNT


def _visual(
    layer: CompressedLayer, method: ChannelMethod, visual: Visual, lengths: list[int]
) -> list[int]:
    """Bytes of each sample's visual tokens in one layer."""
    if visual.key_planes is not None and visual.value_planes is not None:
        means = _nbytes(t for t in (visual.mean, visual.value_mean) if t is not None)
        both = (visual.key_planes, visual.value_planes)
        return [
            sum(_planes(side, b, tokens) for side in both) + means // len(lengths)
            for b, tokens in enumerate(lengths)
        ]
    if visual.keys.dim() == 1:
        return [_narrowed(visual, b, tokens) for b, tokens in enumerate(lengths)]
    assert layer.text is not None
    heads, d = visual.keys.shape[1], layer.text.keys.shape[3]
    spectra = (0.9 ** torch.arange(d)).expand(1, heads, -1)  # widths are alike, whatever they are
    keys, values = method.key_widths(spectra), method.value_widths(spectra)
    itemsize = layer.text.keys.element_size()
    each = [torch.tensor([[tokens]]) for tokens in lengths]
    return [int(method.head_bytes(keys, values, one, d, itemsize).sum()) for one in each]


def _planes(planes: Planes, sample: int, tokens: int) -> int:
    """Bytes of one sample's digits, steps, rows of its basis, and what says where they begin."""
    counts = planes.counts[sample : sample + 1].cpu()
    rows = int(counts[..., 0].sum())
    own = planes.own
    row = planes.steps.element_size()
    if planes.axes is not None:
        row += planes.axes.element_size()
    else:
        row += planes.basis.shape[1] * planes.basis.element_size()
    tables = [own[name] for name in ("counts", "offsets", "starts", "places") if name in own]
    return data_bytes(counts, tokens) + rows * row + _nbytes(tables) // len(planes.counts)


def _narrowed(visual: Visual, sample: int, tokens: int) -> int:
    """Bytes of one sample's heads of many widths."""
    widths = {"key": visual.key_widths, "value": visual.value_widths}
    total, samples = 0, len(widths["key"]) if widths["key"] is not None else 1
    for name, part in visual._asdict().items():
        if not isinstance(part, Tensor) or name == "lengths":
            continue
        side = widths.get(name.removesuffix("s")) if name in ("keys", "values") else None
        if part.dim() == 1 and side is not None:
            total += int(side[sample].sum()) * tokens * part.element_size()
            continue
        size = part.nbytes // samples
        wide = WIDE.get(name)
        of_wide = widths[wide[0]] if wide else None
        if name in ("values", "value_scale"):  # these have a row a token
            size = size // max(1, part.shape[2]) * tokens
        elif wide is not None and of_wide is not None:
            size = size // part.shape[wide[1]] * int(of_wide[sample].max())
        total += size
    return total


def _nbytes(tensors: Iterator[Tensor] | list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
