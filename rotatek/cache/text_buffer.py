"""Prompt, text and generated tokens in buffers that grow: at full width, or the older in 8 bits."""

import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels.dispatch import append
from kernels.reference import QuantisedText, Text, opened_text
from rotatek.bridge.row_layout import TEXT_STEP, Rows
from rotatek.cache.sliding_window import WindowSchedule
from rotatek.errors import ModeUnsupported

FLATTEST = 1 / 64  # of a head's largest channel: the least that a channel's Keys are divided by


class Mark(NamedTuple):
    """The argument of `TextBuffer.rewind`: counts of the host and the device, and the ring if
    any."""

    longest: int
    lengths: Tensor
    ring: tuple[Tensor, ...]


def behind(window: int, slots: int) -> int:
    """Slots of a past for texts of so many tokens: one more than have left the ring."""
    return -(-(max(slots - window, 0) + 1) // TEXT_STEP) * TEXT_STEP


def room_in(keys: Tensor, past: QuantisedText | None, window: int | None = None) -> int:
    """Capacity of each row of a text in tokens; window: at most that many of them are kept."""
    if window is not None and keys.shape[2] >= window:
        return sys.maxsize
    return keys.shape[2] if past is None else keys.shape[2] + past.data.shape[2] - 1


def write_tokens(
    text: Text, keys: Tensor, values: Tensor, added: Tensor | None, slot: Tensor | None = None
) -> None:
    """Write T tokens [B, Hkv, T, d] behind each row's last one; lengths do not change.

    Args:
        text: with enough capacity.
        keys: of the tokens.
        values: of the tokens.
        added: [B] how many are a row's; only 8-bit text needs it, since slots beyond are undefined.
        slot: [B] where they begin instead.
    """
    if text.past is not None and added is not None:
        append(text, keys, values, added)
        return
    assert text.lengths is not None
    first = text.lengths if slot is None else slot
    slots = first.long()[:, None]
    if keys.shape[2] > 1:  # two launches that one token does not need
        slots = slots + torch.arange(keys.shape[2], device=keys.device)
    index = slots[:, None, :, None].expand_as(keys)
    text.keys.scatter_(2, index, keys)
    text.values.scatter_(2, index, values)


class TextBuffer:
    """Keys and Values [B, Hkv, M, d] with spare slots; lengths are on the device.

    With `past` they are the ring of the newest tokens (`kernels.reference.Text`), and it grows.
    With `tables` they are the tokens inside a window, and lengths also count those that left it.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        lengths: Tensor,
        ragged: bool,
        longest: int | None = None,  # slots beyond it are undefined
        past: QuantisedText | None = None,
        tables: WindowSchedule | None = None,
    ) -> None:
        self.tables = tables
        self.longest = keys.shape[2] if longest is None else longest
        self.ragged = ragged
        self.lengths = lengths.clone()
        self.keys, self.values = keys.contiguous(), values.contiguous()
        self.past = None if past is None else QuantisedText(*(each.contiguous() for each in past))
        self.static = False  # a captured graph writes here: addresses stay, slots come from lengths
        self.reserve(self.longest)

    @classmethod
    def behind_window(cls, text: "TextBuffer", window: int) -> "TextBuffer":
        """The same tokens, all but the newest `window` of each row in 8 bits."""
        B, Hkv, _, d = text.keys.shape
        keys, values = text.keys[:, :, : text.longest], text.values[:, :, : text.longest]
        alive = torch.arange(text.longest, device=keys.device) < text.lengths[:, None]
        size = keys.float().abs().masked_fill(~alive[:, None, :, None], 0.0)
        gain = size.new_zeros(B, Hkv, d) if text.longest == 0 else size.amax(2)
        gain = torch.maximum(gain, FLATTEST * gain.amax(-1, keepdim=True))
        gain = torch.where(gain > 0, gain, 1.0)
        slots = behind(window, text.longest)
        data = torch.zeros(B, Hkv, slots, 2, d, dtype=torch.int8, device=keys.device)
        scales = torch.zeros(B, Hkv, slots, 2, dtype=torch.bfloat16, device=keys.device)
        ring = keys.new_zeros(B, Hkv, window, d)
        nothing = torch.zeros_like(text.lengths)
        made = cls(ring, ring.clone(), nothing, text.ragged, 0, QuantisedText(data, scales, gain))
        if text.longest:
            made.append(keys, values, text.lengths)
        made.longest = text.longest
        return made

    def follow(self, tables: WindowSchedule) -> None:
        """From here on hold what a window leaves, at full width."""
        if self.past is not None:
            keys, values, place = opened_text(self.read())
            index = torch.where(place < 0, self.longest, place)[:, None, :, None].expand_as(keys)
            self.keys, self.values = (
                part.new_zeros(*part.shape[:2], self.longest + 1, part.shape[3])
                .scatter_(2, index, part)[:, :, : self.longest]
                .to(self.keys.dtype)
                for part in (keys, values)
            )
            self.past = None
        self.tables = tables

    def state(self) -> dict[str, Any]:
        """The argument of `of` that restores this text, without the spare slots."""
        used, past = self.longest, self.past
        if self.tables is not None:
            used = min(used, self.tables.width)
        if past is not None:
            older = max(used - self.keys.shape[2], 0) + 1
            past = past._replace(data=past.data[:, :, :older], scales=past.scales[:, :, :older])
            used = self.keys.shape[2]  # the ring is as long as its window, however full
        return {
            "keys": self.keys[:, :, :used],
            "values": self.values[:, :, :used],
            "lengths": self.lengths,
            "ragged": self.ragged,
            "longest": self.longest,
            "past": None if past is None else past._asdict(),
            "tables": None if self.tables is None else self.tables._asdict(),
        }

    def copied(self, tokens: int) -> "TextBuffer":
        """The same text in memory of its own, with capacity for `tokens` more at least."""
        if self.past is not None or self.tables is not None:
            made = copy(self)
            made.static = False
            made.select(torch.clone)
        else:
            used, size = self.longest, -(-(self.longest + tokens) // TEXT_STEP) * TEXT_STEP
            keys, values = (_longer(each[:, :, :used], size) for each in (self.keys, self.values))
            made = TextBuffer(keys, values, self.lengths, self.ragged, used)
        made.reserve(self.longest + tokens)
        return made

    @staticmethod
    def all_copied(texts: Sequence["TextBuffer"], tokens: int = 0) -> list["TextBuffer"]:
        """`copied` of each layer's text. In inference mode texts of one form share an allocation,
        which takes seven launches in place of five a layer."""
        first = texts[0]
        forms = {
            (text.keys.shape, text.values.shape, text.keys.dtype, text.keys.device, text.longest)
            for text in texts
        }
        plain = all(text.past is text.tables is None for text in texts)
        # Elsewhere one layer's backward pass would find that another layer has written there.
        if len(forms) > 1 or not plain or not torch.is_inference_mode_enabled():
            return [text.copied(tokens) for text in texts]
        size = -(-(first.longest + tokens) // TEXT_STEP) * TEXT_STEP

        def longer(each: list[Tensor]) -> Tensor:
            used = torch.stack(each)[:, :, :, : first.longest].flatten(0, 1)
            return _longer(used, size).unflatten(0, (len(each), -1))

        keys, values = longer([one.keys for one in texts]), longer([one.values for one in texts])
        lengths, made = torch.stack([one.lengths for one in texts]), [copy(one) for one in texts]
        for one, *parts in zip(made, keys, values, lengths, strict=True):
            one.keys, one.values, one.lengths = parts
            one.static = False
        return made

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "TextBuffer":
        """A buffer on the tensors of a state, to be copied before anything is written to it; state:
        of `state`."""
        past, tables = state.get("past"), state.get("tables")
        told = {
            "past": past and QuantisedText(**past),
            "tables": tables and WindowSchedule(**tables),
        }
        made = cls.__new__(cls)
        vars(made).update(state, static=False, **told)
        return made

    @property
    def room(self) -> int:
        """Capacity of each row in tokens."""
        return room_in(self.keys, self.past, self.tables and self.tables.width)

    @property
    def growing(self) -> Tensor:
        """The tensor that is replaced when capacity grows."""
        return self.keys if self.past is None else self.past.data

    def reserve(self, slots: int) -> None:
        """Grow the capacity to `slots` tokens in all."""
        if self.tables is not None:
            slots = min(slots, self.tables.width)
        size = -(-slots // TEXT_STEP) * TEXT_STEP
        if self.past is not None:
            size = behind(self.keys.shape[2], slots)
        if size <= self.growing.shape[2]:
            return
        if self.static:
            raise ModeUnsupported(
                "The answer outgrew its reserved memory. Ask again with fewer new tokens."
            )
        if self.past is None:
            self.keys, self.values = _longer(self.keys, size), _longer(self.values, size)
        else:
            data, scales = (_longer(each, size) for each in self.past[:2])
            self.past = self.past._replace(data=data, scales=scales)

    def append(self, keys: Tensor, values: Tensor, added: Tensor | None = None) -> None:
        """Add T tokens [B, Hkv, T, d] behind each sample's last one, or `added` [B] of them."""
        T = keys.shape[2]
        self.reserve(self.longest + T)
        if self.past is not None and added is None:
            added = torch.full_like(self.lengths, T)
        if self.tables is not None:
            write_tokens(self.read(), keys, values, added, self.tables.slot(self.lengths))
        elif self.ragged or self.static or self.past is not None:
            write_tokens(self.read(), keys, values, added)
        else:
            self.keys[:, :, self.longest : self.longest + T] = keys
            self.values[:, :, self.longest : self.longest + T] = values
        self.longest += T
        self.lengths += T if added is None else added

    def leave_inference(self) -> None:
        """Become writable outside of inference mode, in which what there is was made."""
        if self.lengths.is_inference() or self.growing.is_inference():
            self.static = False  # no graph writes to the copies
            self.select(torch.clone)

    def extend(self, keys: Tensor, values: Tensor, rows: Rows) -> None:
        """Add the real ones of some tokens [B, Hkv, n, d], gathered by `rows`."""
        keys, values = keys[:, :, : rows.longest], values[:, :, : rows.longest]
        if not (self.ragged or rows.ragged):
            self.append(keys, values)
            return
        self.ragged = True
        if rows.longest:
            self.append(keys, values, rows.lengths.to(self.lengths))  # and some slots more
        self.longest = int(self.lengths.max())

    def mark(self) -> Mark:
        """For `rewind`."""
        ring = () if self.past is None else (self.keys.clone(), self.values.clone())
        return Mark(self.longest, self.lengths.clone(), ring)

    def rewind(self, mark: Mark) -> None:
        """Undo additions since then; addresses stay."""
        self.longest = mark.longest
        self.lengths.copy_(mark.lengths)
        for held, was in zip((self.keys, self.values), mark.ring, strict=False):
            held.copy_(was)

    def read(self) -> Text:
        """The text as the attention's input."""
        held = self.lengths if self.tables is None else self.tables.held(self.lengths)
        return Text(self.keys, self.values, held, self.past)

    def opened(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and Values of every slot [B, Hkv, M, d] in the cache's type, and which of its text's
        tokens each holds [B, M], -1 for none."""
        keys, values, number = opened_text(self.read())
        if self.tables is not None:
            number = self.tables.numbers(self.lengths, keys.shape[2])
        return keys.to(self.keys.dtype), values.to(self.values.dtype), number

    def tensors(self) -> list[Tensor]:
        """All but the lengths and tables."""
        return [self.keys, self.values, *(self.past or ())]

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        self.keys, self.values = change(self.keys), change(self.values)
        self.past = None if self.past is None else QuantisedText(*map(change, self.past))
        self.tables = None if self.tables is None else WindowSchedule(*map(change, self.tables))
        self.lengths = change(self.lengths)


def _longer(old: Tensor, slots: int) -> Tensor:
    """[B, Hkv, slots, ...] with what there was, and zeros behind it."""
    new = old.new_zeros(*old.shape[:2], slots, *old.shape[3:])
    new[:, :, : old.shape[2]] = old
    return new
