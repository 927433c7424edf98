"""Rows of one storage form in one layer, side by side in tensors that have room for more.

A row is one sample of one visitor's cache. Rows differ in length: visual tokens and text are padded
to the longest, and lengths on the device say what counts.
"""

from collections.abc import Hashable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from kernels.dispatch import attend
from kernels.planes import samples
from kernels.reference import Past, Text, Visual, opened
from rotatek.cache.text import TextBuffer, behind, room_in, write_tokens
from rotatek.channels.store import Store
from rotatek.channels.widths import take_samples
from rotatek.errors import ModeUnsupported
from rotatek.layout import TEXT_STEP

TOKENS: Final = 2  # the dimension of tokens, wherever there is one
SIZES: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # rows that a group has room for; then in 32s
COARSE_SIZES: Final = (4, 16, 32, 64)  # the same where each size is a captured graph
COARSE: Final = 64  # tokens that room grows by there
SPARSE: Final = 4  # a group a quarter full is laid again


class Piece(NamedTuple):
    """What one cache brings into one layer.

    store: its visual tokens, or None; keys, values: text [B, Hkv, M, d]; lengths: of each sample's
    text; logical: tokens seen; past: older text in 8 bits, and keys and values are then a ring.
    """

    store: Store | None
    keys: Tensor
    values: Tensor
    lengths: list[int]
    logical: int
    past: Past | None = None

    @property
    def text_form(self) -> int | None:
        """Equal for texts whose rows can lie in the same tensors."""
        return None if self.past is None else self.keys.shape[TOKENS]


def piece_of(cache: Cache, layer: int, settled: bool = False) -> Piece:
    """One layer of a filled cache, compressed or plain.

    Args:
        cache: a `RotateKCache`, or transformers' own, all of which counts as text.
        layer: index from 0.
        settled: rebuild once what a method would rebuild at every step.
    """
    held = cache.layers[layer]
    text: TextBuffer | None = getattr(held, "text", None)
    if text is None:
        length = held.keys.shape[TOKENS]
        return Piece(None, held.keys, held.values, [length] * held.keys.shape[0], length)
    lengths = [text.longest] if text.keys.shape[0] == 1 else text.lengths.tolist()
    store = held.store
    if settled and store is not None:
        visual = store.read()._replace(fresh=False)
        on_cpu = visual.keys.device.type == "cpu"  # where no kernel reads planes
        store = Store(opened(visual) if on_cpu else visual)
    return Piece(store, text.keys, text.values, lengths, held.logical, text.past)


def form_of(store: Store | None) -> Hashable | None:
    """Equal for stores whose rows can lie in the same tensors; None where a store is kept apart."""
    if store is None:
        return "text alone"
    visual = store.visual
    own = [getattr(store, f.name) for f in fields(store) if f.name != "visual"]
    others = [x for x in (*visual, *own) if x is not None and not isinstance(x, Tensor | int)]
    ragged = visual.keys.dim() != 4 or visual.values.dim() != 4
    if ragged or others or "per_token" not in vars(type(store)):
        return None
    shapes = []
    for name, tensor in sorted(_tensors(store).items()):
        rest = list(tensor.shape[1:])
        if name in store.per_token:
            rest.pop(TOKENS - 1)
        shapes.append((name, tensor.dtype, tuple(rest)))
    # Neighbours within a factor of two: what is padded stays below what is held.
    return type(store), tuple(shapes), visual.keys.shape[TOKENS].bit_length()


def _tensors(store: Store) -> dict[str, Tensor]:
    """Everything that a store holds of each sample, but for the lengths."""
    own = {f.name: getattr(store, f.name) for f in fields(store) if f.name != "visual"}
    parts = store.visual._asdict() | own
    return {n: t for n, t in parts.items() if isinstance(t, Tensor) and n != "lengths"}


def _with(store: Store, tensors: dict[str, Tensor], lengths: Tensor) -> Store:
    """A store of the same kind with other tensors."""
    own = {f.name for f in fields(store)} - {"visual"}
    seen: Any = {name: t for name, t in tensors.items() if name not in own}
    mine = {name: t for name, t in tensors.items() if name in own}
    return replace(store, visual=store.visual._replace(**seen, lengths=lengths), **mine)


def room_for(rows: int, coarse: bool = False) -> int:
    """The least size of a group that holds so many rows."""
    sizes = COARSE_SIZES if coarse else SIZES
    return next((size for size in sizes if size >= rows), -(-rows // 32) * 32)


class Slots:
    """Rows of one storage form in one layer.

    Args:
        first: a piece of the form; nothing of it is kept but its kind.

    Attributes:
        rows: places taken, the first ones of every tensor; under a graph there may be holes.
        width: rows that a step computes: those in use, or all where a graph has fixed them.
        size: rows there is room for.
        lengths, alive, visual_lengths: [size] int32 on the device: text tokens, 1 for rows in use,
            visual tokens. Views of what `RunningBatch` writes for all layers at once.
    """

    def __init__(self, first: Piece) -> None:
        self.rows = self.width = self.size = 0
        self.pattern = first.store
        self.own = first.store if form_of(first.store) is None else None  # kept apart, as it is
        self.static = False
        self._tensors: dict[str, Tensor] = {}
        self._seen: list[int] = []  # visual tokens of each row, its own padding included
        self._real: list[int] = []  # the same without padding
        self._text: list[int] = []  # text tokens of each row, less `_grown`
        self._grown = 0
        self._view: Store | None = None  # the visual tokens of the rows that a step computes
        like = first.keys
        self.keys = like.new_zeros(0, like.shape[1], 0, like.shape[3])
        self.values, self.window = self.keys.clone(), first.text_form
        self.past = None if first.past is None else Past(*(part[:0] for part in first.past))
        nobody = torch.zeros(3, 0, dtype=torch.int32, device=like.device)
        self.lengths, self.alive, self.visual_lengths = nobody

    @property
    def texts(self) -> list[int]:
        """Text tokens of each row."""
        return [length + self._grown for length in self._text]

    @property
    def room(self) -> int:
        """Text tokens that each row has room for."""
        return room_in(self.keys, self.past)

    def fit(
        self, pieces: Sequence[Piece], room: int, *, rows: int = 0, coarse: bool = False
    ) -> bool:
        """Make room for more rows.

        Args:
            pieces: what `add` will bring.
            room: text tokens of a row, at least.
            rows: places that will be taken then.
            coarse: leave room for others too, so that a graph need not be captured for each.

        Returns:
            Whether anything moved.
        """
        stores = [piece.store for piece in pieces if self.own is None]
        seen = [store.visual.keys.shape[TOKENS] for store in stores if store is not None]
        size = self.size if rows <= self.size else rows if self.own else room_for(rows, coarse)
        tokens, step = max([self._visual_room, *seen]), COARSE if coarse else 1
        tokens = -(-tokens // step) * step
        step = max(TEXT_STEP, step)
        room = self.room if room <= self.room else -(-room // step) * step
        if (size, tokens, room) == (self.size, self._visual_room, self.room):
            return False
        self._lay(size, tokens, room, pieces)
        return True

    def _is_stacked(self, piece: Piece) -> bool:
        return piece.store is not None and self.own is None

    @property
    def _visual_room(self) -> int:
        return self._tensors["keys"].shape[TOKENS] if self._tensors else 0

    def _lay(self, size: int, tokens: int, room: int, pieces: Sequence[Piece] = ()) -> None:
        """Lay every tensor again, for so many rows, visual tokens and text tokens."""
        if not self._tensors and pieces and self._is_stacked(pieces[0]):
            assert pieces[0].store is not None
            self._tensors = {n: t[:0] for n, t in _tensors(pieces[0].store).items()}
        for name, old in self._tensors.items():
            assert self.pattern is not None
            self._tensors[name] = self._moved(
                old, size, tokens if name in self.pattern.per_token else None
            )
        recent = self.window or room
        self.keys, self.values = (self._moved(t, size, recent) for t in (self.keys, self.values))
        if self.past is not None:
            data, scales, gain = self.past
            data, scales = (self._moved(t, size, behind(recent, room)) for t in (data, scales))
            self.past = Past(data, scales, self._moved(gain, size, None))
        self.size, self._view = size, None

    def _moved(self, old: Tensor, size: int, tokens: int | None) -> Tensor:
        shape = [size, *old.shape[1:]]
        if tokens is not None:
            shape[TOKENS] = tokens
        new = old.new_zeros(shape)
        if tokens is None:
            new[: self.rows] = old[: self.rows]
        else:
            least = min(tokens, old.shape[TOKENS])
            new[: self.rows, :, :least] = old[: self.rows, :, :least]
        return new

    def add(self, piece: Piece, start: int, seen: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Give rows the places from `start` on, for which `fit` has made room.

        Args:
            piece: of one cache.
            start: its first row's place.
            seen: visual tokens of each of its rows.

        Returns:
            (to, from): what is still to be copied.
        """
        count, tokens, copies = len(piece.lengths), 0, []
        rows = slice(start, start + count)
        if self._is_stacked(piece):
            assert piece.store is not None
            tokens = piece.store.visual.keys.shape[TOKENS]
            for name, tensor in _tensors(piece.store).items():
                place = self._tensors[name][rows]
                if name in piece.store.per_token:
                    place = place[:, :, :tokens]
                copies.append((place, tensor))
        longest = max(piece.lengths)
        copies.append((self.keys[rows, :, :longest], piece.keys[:, :, :longest]))
        copies.append((self.values[rows, :, :longest], piece.values[:, :, :longest]))
        for place, new in zip(self.past or (), piece.past or (), strict=True):
            used = min(place.shape[TOKENS], new.shape[TOKENS])  # of a gain: all its channels
            copies.append((place[rows, :, :used], new[:, :, :used]))
        spare = [0] * (rows.stop - len(self._text))
        for own in (self._seen, self._real, self._text):
            own += spare
        self._seen[rows], self._real[rows] = [tokens] * count, seen
        self._text[rows] = [length - self._grown for length in piece.lengths]
        self.rows = len(self._text)
        return copies

    def forget(self, places: Sequence[int]) -> None:
        """Rows that are no longer in use; their places stay where they are."""
        for place in places:
            self._seen[place] = self._real[place] = 0
            self._text[place] = 1 - self._grown

    def keep(self, order: list[int]) -> bool:
        """Leave only these rows, in this order; no row may move back. Whether anything moved to
        other tensors."""
        moves = [(new, old) for new, old in enumerate(order) if new != old]
        if self.own is not None and order != list(range(self.rows)) and order:
            self.own = Store(_samples(self.own.read(), order))
        if moves:
            to, source = torch.tensor(moves, device=self.keys.device).T
            everything = [self.keys, self.values, *(self.past or ()), *self._tensors.values()]
            for tensor in everything:
                # PyTorch cannot move rows of 8-bit floating point, but those of bytes
                rows = tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor
                rows.index_copy_(0, to, rows.index_select(0, source))
        self._seen = [self._seen[old] for old in order]
        self._real = [self._real[old] for old in order]
        self._text = [self._text[old] for old in order]
        self.rows, self._view = len(order), None
        if self.size > SIZES[2] and SPARSE * self.rows <= self.size and not self.static:
            self.shrink()
            return True
        return False

    def shrink(self) -> None:
        """Give back what no row needs; the text keeps its room where a graph wants it."""
        if self.own is not None:
            return
        room = self.room
        if not self.static:
            room = -(-max(self.texts, default=0) // TEXT_STEP) * TEXT_STEP
        self._lay(room_for(self.rows), max(self._seen, default=0), room)

    def marks(self, used: Sequence[bool], size: int) -> list[list[int]]:
        """Text tokens, use and visual tokens of `size` places, as the device has to know them; a
        row that is not in use has one token, of zeros."""
        free = size - len(used)
        text = [length if use else 1 for length, use in zip(self.texts, used, strict=True)]
        seen = [length if use else 0 for length, use in zip(self._real, used, strict=True)]
        return [text + [1] * free, [int(use) for use in used] + [0] * free, seen + [0] * free]

    def mark(self, marks: Tensor, width: int, static: bool) -> None:
        """Take the device's numbers [3, size] of `marks`, and compute so many rows; where a graph
        asks for it, keep every address from here on."""
        self.lengths, self.alive, self.visual_lengths = marks
        self.width, self.static, self._view = width, static, None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention output [rows, Hq, 1, d] of one new token a row, which is appended."""
        if max(self._text) + self._grown >= self.room:
            if self.static:
                raise ModeUnsupported("The answer outgrew the room that was reserved for it.")
            self.fit((), self.room + 2 * TEXT_STEP)
        self.append(key, value)
        return attend(query, self.visual(), self._rows(), scale)

    def _rows(self) -> Text:
        """The text of the rows that a step computes."""
        width = self.width
        past = None if self.past is None else Past(*(part[:width] for part in self.past))
        return Text(self.keys[:width], self.values[:width], self.lengths[:width], past)

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add one token [rows, Hkv, 1, d] behind each row's own last one."""
        alive = self.alive[: self.width]
        write_tokens(self._rows(), key, value, alive)
        self.lengths[: self.width] += alive
        self._grown += 1

    def visual(self) -> Visual | None:
        """The visual tokens of the rows that a step computes."""
        if self.own is not None:
            return self.own.read()
        if self.pattern is None:
            return None
        if self._view is None:
            rows = {name: tensor[: self.width] for name, tensor in self._tensors.items()}
            self._view = _with(self.pattern, rows, self.visual_lengths[: self.width])
        return self._view.read()

    def advance(self) -> None:
        """Count a token that a graph's replay has added."""
        self._grown += 1

    def grown(self) -> int:
        """For `rewind`."""
        return self._grown

    def rewind(self, grown: int) -> None:
        """Forget the tokens added since `grown()` was asked; the device is told by `mark`."""
        self._grown = grown

    def restored(self, place: int) -> tuple[Store | None, TextBuffer]:
        """Copies of one row's visual tokens and text, as a cache of its own holds them."""
        row, store = slice(place, place + 1), self.own
        if store is None and self.pattern is not None:
            taken = {}
            for name, tensor in self._tensors.items():
                own = tensor[row]
                if name in self.pattern.per_token:
                    own = own[:, :, : self._seen[place]]
                taken[name] = own.clone(memory_format=torch.contiguous_format)
            store = _with(self.pattern, taken, self.visual_lengths[row].clone())
        length = self.texts[place]
        keys, values = (t[row, :, :length].clone() for t in (self.keys, self.values))
        past = self.past
        if past is not None:
            older = behind(keys.shape[TOKENS], length)
            data, scales = past.data[row, :, :older].clone(), past.scales[row, :, :older].clone()
            past = Past(data, scales, past.gain[row].clone())
        return store, TextBuffer(keys, values, self.lengths[row], False, length, past)

    def tensors(self) -> list[Tensor]:
        """Everything that is held."""
        own = [] if self.own is None else [tensor for _, tensor in self.own.tensors()]
        lengths = [self.lengths, self.alive, self.visual_lengths]
        text = [self.keys, self.values, *(self.past or ())]
        return [*text, *lengths, *self._tensors.values(), *own]


def _samples(visual: Visual, rows: list[int]) -> Visual:
    """Some samples of one layer's visual tokens."""
    tensors = {name: t for name, t in visual._asdict().items() if isinstance(t, Tensor)}
    index = torch.tensor(rows, device=visual.keys.device)
    parts: Any = {name: t[index] for name, t in tensors.items() if t.dim() > 1}
    parts["lengths"] = tensors["lengths"][index]
    for name, kind in (("keys", "key"), ("values", "value")):
        if tensors[name].dim() == 1:
            widths, tokens = tensors[f"{kind}_widths"], visual.tokens or 0
            taken = take_samples(tensors[name], widths, tokens, rows)
            parts[name], parts[f"{kind}_offsets"] = taken
    for name in ("key_planes", "value_planes"):
        planes = getattr(visual, name)
        parts[name] = None if planes is None else samples(planes, index)
    return visual._replace(**parts)
