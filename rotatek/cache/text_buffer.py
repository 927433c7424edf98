"""Prompt, text and generated tokens in buffers that grow, at full width."""

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.reference import Text
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.cache.sliding_window import WindowSchedule
from rotatek.errors import ModeUnsupported


def write_tokens(text: Text, keys: Tensor, values: Tensor, slot: Tensor | None = None) -> None:
    """Write T tokens [B, Hkv, T, d] behind each row's last one, or from `slot` [B] on, where there
    is enough capacity; lengths do not change."""
    assert text.lengths is not None
    first = text.lengths if slot is None else slot
    slots = first.long()[:, None]
    if keys.shape[2] > 1:  # two launches that one token does not need
        slots = slots + torch.arange(keys.shape[2], device=keys.device)
    index = slots[:, None, :, None].expand_as(keys)
    text.keys.scatter_(2, index, keys)
    text.values.scatter_(2, index, values)


def take_tokens(states: Tensor, order: Tensor) -> Tensor:
    """Tokens `order` [B, T] of states [B, H, T, d]."""
    return states.gather(2, order[:, None, :, None].expand_as(states))


@dataclass(eq=False)
class TextBuffer:
    """Keys and Values [B, Hkv, M, d] with spare slots; lengths [B] are on the device.

    With `tables` they are the tokens inside a window, and lengths also count those that left it.
    longest: of the lengths; slots beyond it are undefined. static: a captured graph writes here, so
    that addresses stay, and slots come from lengths.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    ragged: bool
    longest: int
    tables: WindowSchedule | None = None
    static: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.lengths = self.lengths.clone()
        self.keys, self.values = self.keys.contiguous(), self.values.contiguous()
        self.reserve(self.longest)

    def trimmed(self) -> "TextBuffer":
        """A view without the spare slots."""
        used, made = self.longest, copy(self)
        used = used if self.tables is None else min(used, self.tables.width)
        made.keys, made.values = self.keys[:, :, :used], self.values[:, :, :used]
        return made

    def copied(self, tokens: int) -> "TextBuffer":
        """The same text in memory of its own, with capacity for `tokens` more at least."""
        made = self.trimmed()
        made.static = False
        made.select(torch.clone)
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
        plain = all(text.tables is None for text in texts)
        # Elsewhere one layer's backward pass would find that another layer has written there.
        if len(forms) > 1 or not plain or not torch.is_inference_mode_enabled():
            return [text.copied(tokens) for text in texts]
        size = -(-(first.longest + tokens) // TEXT_STEP) * TEXT_STEP

        def longer(each: list[Tensor]) -> Tensor:
            used = torch.stack([one[:, :, : first.longest] for one in each]).flatten(0, 1)
            return _longer(used, size).unflatten(0, (len(each), -1))

        keys, values = longer([one.keys for one in texts]), longer([one.values for one in texts])
        lengths, made = torch.stack([one.lengths for one in texts]), [copy(one) for one in texts]
        for one, *parts in zip(made, keys, values, lengths, strict=True):
            one.keys, one.values, one.lengths = parts
            one.static = False
        return made

    @property
    def room(self) -> int:
        """Capacity of each row in tokens."""
        slots = self.keys.shape[2]
        return sys.maxsize if self.tables is not None and slots >= self.tables.width else slots

    def reserve(self, slots: int) -> None:
        """Grow the capacity to `slots` tokens in all."""
        if self.tables is not None:
            slots = min(slots, self.tables.width)
        size = -(-slots // TEXT_STEP) * TEXT_STEP
        if size <= self.keys.shape[2]:
            return
        if self.static:
            raise ModeUnsupported(
                "The answer outgrew its reserved memory. Ask again with fewer new tokens."
            )
        self.keys, self.values = _longer(self.keys, size), _longer(self.values, size)

    def append(self, keys: Tensor, values: Tensor, real: Tensor | None = None) -> None:
        """Add T tokens [B, Hkv, T, d] behind each sample's last one; real: [B] the first ones that
        are added, where not all are."""
        T = keys.shape[2]
        self.reserve(self.longest + T)
        self.ragged = self.ragged or real is not None
        if self.tables is not None:
            write_tokens(self.read(), keys, values, self.tables.slot(self.lengths))
        elif self.ragged or self.static:
            write_tokens(self.read(), keys, values)
        else:
            self.keys[:, :, self.longest : self.longest + T] = keys
            self.values[:, :, self.longest : self.longest + T] = values
        self.longest += T
        self.lengths += T if real is None else real

    def forget(self, gone: Tensor) -> Tensor:
        """Give up the tokens in the slots `gone` [B, M] bool; the slots that stay, [B, M]."""
        alive = torch.arange(gone.shape[1], device=gone.device) < self.lengths[:, None]
        kept = alive & ~gone
        order = kept.long().argsort(dim=1, descending=True, stable=True)
        self.keys, self.values = (take_tokens(each, order) for each in (self.keys, self.values))
        self.lengths = kept.sum(1, dtype=self.lengths.dtype)
        self.ragged, self.static = True, False
        return order

    def leave_inference(self) -> None:
        """Become writable outside of inference mode, in which what there is was made."""
        if self.lengths.is_inference() or self.keys.is_inference():
            self.static = False  # no graph writes to the copies
            self.select(torch.clone)

    def mark(self) -> tuple[int, Tensor]:
        """The argument of `rewind`: counts of the host and the device."""
        return self.longest, self.lengths.clone()

    def rewind(self, mark: tuple[int, Tensor]) -> None:
        """Undo additions since `mark`; addresses stay."""
        self.longest = mark[0]
        self.lengths.copy_(mark[1])

    def read(self) -> Text:
        """The text as the attention's input."""
        held = self.lengths if self.tables is None else self.tables.held(self.lengths)
        return Text(self.keys, self.values, held)

    def opened(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and Values of every slot [B, Hkv, M, d] in the cache's type, and which of its text's
        tokens each holds [B, M], -1 for none."""
        M = self.keys.shape[2]
        if self.tables is not None:
            return self.keys, self.values, self.tables.numbers(self.lengths, M)
        slots = torch.arange(M, device=self.keys.device)
        alive = slots < self.lengths[:, None]
        values = self.values.masked_fill(~alive[:, None, :, None], 0.0)
        return self.keys, values, torch.where(alive, slots, -1)

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        self.keys, self.values = change(self.keys), change(self.values)
        self.tables = None if self.tables is None else WindowSchedule(*map(change, self.tables))
        self.lengths = change(self.lengths)


def _longer(old: Tensor, slots: int) -> Tensor:
    """[B, Hkv, slots, ...] with what there was, and zeros behind it."""
    new = old.new_zeros(*old.shape[:2], slots, *old.shape[3:])
    new[:, :, : old.shape[2]] = old
    return new
