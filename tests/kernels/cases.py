"""Cases of the correctness grid, their float64 truth and plain PyTorch's own error beside it."""

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from kernels.planes import GRANULE, Planes, granules, rows_of, unpack
from kernels.planes import pack as pack_planes
from kernels.reference import (
    MULTIPLE,
    QuantisedText,
    Text,
    Visual,
    append_plain,
    opened_text,
    pad_heads,
    value_scales,
)

DEVICE_BAR = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}  # absolute
FP8 = torch.float8_e4m3fn
FULL = (  # (pack, k, r) of batches that fill the GPU
    ("rotated", 32, None), ("rotated", 48, None), ("dense", 128, None), ("fp8", 32, None),
    ("int8", 32, None), ("fp8 values", 32, None), ("values", 32, 32), ("values", 16, 16),
    ("values", 32, 128),
)  # fmt: skip
WIDTHS = (64, 80, 96, 256)  # of heads, besides the 128 that configurations were measured at
PACKS = ("rotated", "dense", "index", "values", "flat", "fp8", "int8", "fp8 values")
FLAT = ("flat", "flat keys", "flat fp8", "flat int8")  # every head has a width of its own
TURNED = ("values", "flat", "flat fp8", "flat int8")  # Values are rotated, too
PLANES = ("planes", "planes, whole rows", "planes, shared")  # rows: int8, the case's type, lent


@dataclass(frozen=True)
class Case:
    """One call of decode attention; `pack` says how the visual cache is stored.

    strided: caches are views of larger token-major buffers. ragged: rows differ in length and the
    slots past each length hold NaN. past: tokens of text in 8 bits behind the newest M.
    """

    dtype: torch.dtype
    B: int = 2
    Hkv: int = 2
    G: int = 4
    N: int = 65
    M: int = 7
    d: int = 128
    k: int = 32
    r: int | None = None
    pack: str = "rotated"
    strided: bool = False
    ragged: bool = False
    past: int = 0


def grid() -> list[Case]:
    """The full grid, for hardware: every axis of the design's table, crossed where it matters."""
    cases = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for G, N, k in product((1, 4, 7, 8), (0, 1, 15, 16, 17, 63, 64, 65), (8, 32, 48, 128)):
            cases.append(Case(dtype, B=1 + N % 2, G=G, N=N, k=k, M=(1, 7, 200)[(N + k) % 3]))
        for G, N, M in product((4, 7), (864, 2880, 4097), (1, 7, 200)):
            cases += [Case(dtype, G=G, N=N, M=M, k=k, ragged=M == 7) for k in (16, 32, 48, 64, 80)]
        for pack, N, ragged in product(PACKS, (1, 17, 864, 2880), (False, True)):
            base = Case(dtype, N=N, M=40, pack=pack, ragged=ragged, strided=ragged)
            cases += [base, replace(base, G=7, B=3, k=48, r=24 if pack == "values" else base.r)]
        cases += [
            Case(dtype, d=d, k=k, N=300) for d, k in ((64, 16), (80, 24), (96, 96), (256, 64))
        ]
        cases += [Case(dtype, B=B, Hkv=8, N=700, strided=True) for B in (1, 5, 16)]
        if dtype == torch.float32:  # planes are for queries of 16 bits
            continue
        for pack, G, N in product(PLANES, (1, 4, 7, 8), (1, 127, 129, 700)):
            base = Case(dtype, B=3, G=G, N=N, k=48, pack=pack)
            cases += [base, replace(base, M=200, k=16 * (1 + N % 5), ragged=True, strided=True)]
        cases += [
            Case(dtype, B=B, Hkv=4, N=N, M=40, k=k, d=d, pack="planes", ragged=B == 2)
            for B, N, k, d in (
                (1, 2880, 32, 128), (2, 2880, 96, 128), (8, 16384, 32, 128), (64, 2880, 32, 128),
                (2, 300, 64, 64), (2, 300, 80, 80), (1, 300, 96, 96), (2, 300, 48, 256),
            )
        ]  # fmt: skip
    return cases


def branches() -> list[Case]:
    """Special paths of an H200; a sample of the grid always has them, too.

    8-bit and narrow caches: splits of one tile, to themselves or several a multiprocessor, and just
    beyond; 16 Value channels: sliced merges at any batch; text alone, and text beside single tiles.
    Batches that fill the GPU: splits that read the text too, one or several a head.
    """
    narrow = Case(torch.bfloat16, Hkv=8, N=2880, M=40, pack="values", r=32)
    narrowest = replace(narrow, k=16, r=16)
    found = [replace(narrow, B=B, ragged=B > 1) for B in (1, 2, 3)]
    found += [replace(narrowest, B=B, N=N) for B, N in ((1, 257), (2, 2880), (32, 576))]
    found += [replace(narrowest, B=32, N=300, M=700, G=7, ragged=True)]
    found += [replace(narrowest, B=5, N=17, ragged=True, pack="flat")]
    for pack in ("fp8", "int8", "fp8 values"):
        eight = Case(torch.bfloat16, Hkv=8, N=2880, M=40, pack=pack, ragged=True, strided=True)
        found += [replace(eight, B=B) for B in (1, 4, 6)]
        found += [replace(eight, B=3, N=N, M=M) for N, M in ((1, 1), (257, 1024))]
    full = Case(torch.bfloat16, Hkv=8, M=40, G=7)
    for pack, k, r in FULL:
        case = replace(full, pack=pack, k=k, r=r, ragged=pack != "fp8", strided=pack == "int8")
        found += [
            replace(case, B=64 if "8" in pack else 32, N=576),
            replace(case, B=16, N=2880, M=300),
        ]
    return [*found, Case(torch.bfloat16, B=3, N=0, M=700, ragged=True), *pasts()]


def pasts() -> list[Case]:
    """Text in 8 bits behind a window, beside every kind of visual cache, and alone."""
    found = []
    for dtype, pack in product((torch.bfloat16, torch.float16), ("rotated", "values", "int8")):
        base = Case(dtype, B=3, N=700, M=32, G=7, pack=pack, past=200, ragged=True)
        found += [base, replace(base, B=32, Hkv=8, N=576), replace(base, N=0, past=20, G=4)]
        found += [replace(base, pack="planes", k=48), replace(base, d=80, k=24, past=1, M=64)]
    found += [Case(torch.float32, N=65, M=16, past=past, ragged=past > 1) for past in (1, 33)]
    return found


def widths() -> list[Case]:
    """Every way to store a cache at every other head width, ragged and not; k a quarter or more.

    Then heads of many widths side by side, at every head width.
    """
    found = []
    for d, pack in product(WIDTHS, PACKS):
        base = Case(torch.bfloat16, d=d, k=d // 4, N=300, M=40, pack=pack)
        found += [base, replace(base, dtype=torch.float32, k=3 * d // 8, N=65, M=7, ragged=True)]
        found += [replace(base, Hkv=8, G=7, B=8, N=864, k=d // 4 + 8, ragged=True)]
    for d, pack in product(sorted({128, *WIDTHS}), FLAT):
        for k, N in ((d // 4, 65), (d // 2 + 4, 301), (d, 864)):
            found += [Case(torch.bfloat16, B=3, Hkv=4, d=d, k=k, N=N, pack=pack, ragged=N == 301)]
    return found


def make(case: Case, device: str, seed: int = 0) -> tuple[Tensor, Visual | None, Text]:
    """q, visual and text of a case, from a private generator."""
    generator = torch.Generator(device).manual_seed(seed)
    B, Hkv, d, N, k = case.B, case.Hkv, case.d, case.N, min(case.k, case.d)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def cache(tokens: int, width: int) -> Tensor:
        if case.strided:  # [B, T, H, w] storage with room to grow
            return draw(B, tokens + 3, Hkv, width)[:, :tokens].transpose(1, 2)
        return draw(B, Hkv, tokens, width)

    def send(tensor: Tensor) -> Tensor:
        return tensor.to(case.dtype)

    q = draw(B, 1, Hkv * case.G, d).transpose(1, 2) if case.strided else draw(B, Hkv * case.G, 1, d)
    rows, M = torch.arange(B, device=device), case.M + case.past
    text_keys, text_values = cache(M, d), cache(M, d)
    ends = (M - rows * M // 3).clamp(min=1).to(torch.int32) if case.ragged else None
    text = Text(_dead(text_keys, ends), _dead(text_values, ends))
    text = Text(send(text.keys), send(text.values), ends)
    if case.past:
        text = _behind(text, case.M)
    if N == 0:
        return send(q), None, text
    lengths = (N - rows * (N // 2)).clamp(min=0).to(torch.int32) if case.ragged else None
    if case.pack == "dense":
        k = d
    r = case.r or (d // 2 if case.pack in TURNED else d)
    if case.pack in PLANES:
        mean, shift = send(draw(B, Hkv, d) / 4), send(draw(B, Hkv, d))
        sides = [
            _planes(
                case, draw(B, Hkv, N, k), draw(B, Hkv, d, d), 0.4 + draw(B, Hkv, k).abs() / 6, side
            )
            for side in (0, 1)
        ]
        none = send(draw(B, Hkv, 0, 0))
        visual = Visual(none, none, lengths, mean=mean, value_mean=shift, tokens=N)
        return send(q), visual._replace(key_planes=sides[0], value_planes=sides[1]), text
    keys, values = _dead(cache(N, k), lengths), _dead(cache(N, r), lengths)
    visual = Visual(send(keys), send(values), lengths)
    basis = torch.linalg.qr(draw(B, Hkv, d, d))[0][..., :k].contiguous()
    if case.pack == "index":
        index = draw(B, Hkv, d).argsort(-1)[..., :k].sort(-1).values
        return send(q), visual._replace(index=index), text
    if case.pack != "dense":
        visual = visual._replace(basis=send(basis), mean=send(draw(B, Hkv, d) / 4))
    if case.pack in TURNED:
        up = torch.linalg.qr(draw(B, Hkv, d, d))[0][..., :r, :]
        visual = visual._replace(value_basis=send(up), value_mean=send(draw(B, Hkv, d)))
    if "8" in case.pack:
        visual = _quantise(visual, case.pack.removeprefix("flat "), lengths)
    if case.pack in FLAT:
        visual = _flatten(visual, generator)
    return send(q), visual, text


def _behind(text: Text, recent: int) -> Text:
    """The same text with all but each row's newest tokens in 8 bits; empty slots hold NaN."""
    B, Hkv, M, d = text.keys.shape
    ends = torch.full((B,), M, device=text.keys.device) if text.lengths is None else text.lengths
    gain = 10 ** torch.linspace(-1, 0.5, d, device=text.keys.device).expand(B, Hkv, d)
    scales = torch.full((B, Hkv, M - recent + 1, 2), float("nan"), dtype=torch.bfloat16)
    data = torch.full((B, Hkv, M - recent + 1, 2, d), 77, dtype=torch.int8)
    past = QuantisedText(data.to(gain.device), scales.to(gain.device), gain.contiguous())
    nothing = torch.zeros_like(ends)
    ring = torch.full_like(text.keys[:, :, :recent], float("nan"))
    made = Text(ring, ring.clone(), nothing, past)
    append_plain(made, gain[:, :, None].to(text.keys) * text.keys, text.values, ends)
    return made._replace(lengths=ends.to(torch.int32))


def _dead(tensor: Tensor, lengths: Tensor | None) -> Tensor:
    """NaN in the slots past each row's length."""
    if lengths is None:
        return tensor
    slot = torch.arange(tensor.shape[2], device=tensor.device)
    return tensor.masked_fill((slot >= lengths[:, None])[:, None, :, None], float("nan"))


def _flatten(visual: Visual, generator: torch.Generator) -> Visual:
    """A width for every head, drawn from all multiples of `MULTIPLE`, in one 1-D buffer a side.

    Values keep their one width where they are not rotated.
    """
    B, Hkv, N, _ = visual.keys.shape
    fields: dict[str, Tensor] = {}
    sides = [("key", visual.keys)]
    if visual.value_basis is not None:
        sides.append(("value", visual.values))
    for name, tensor in sides:
        most = tensor.shape[-1] // MULTIPLE
        draw = torch.randint(most, (B, Hkv), generator=generator, device=tensor.device)
        draw[0, 0] = most - 1
        widths = MULTIPLE * (draw + 1)
        blocks = [tensor[b, h, :, : widths[b, h]] for b in range(B) for h in range(Hkv)]
        sizes = N * widths.flatten()
        fields[f"{name}_offsets"] = (sizes.cumsum(0) - sizes).view(B, Hkv)
        fields[f"{name}_widths"] = widths.to(torch.int32)
        fields[f"{name}s"] = torch.cat([block.reshape(-1) for block in blocks])
        slot = torch.arange(tensor.shape[-1], device=tensor.device)
        fields[f"{name} gone"] = slot >= widths[..., None]
    gone = fields.pop("key gone")
    assert visual.basis is not None
    fields["basis"] = visual.basis.masked_fill(gone[:, :, None], 0.0)
    if visual.value_basis is not None:
        gone = fields.pop("value gone")
        fields["value_basis"] = visual.value_basis.masked_fill(gone[..., None], 0.0)
    return visual._replace(**fields, tokens=N)


def _planes(case: Case, coordinates: Tensor, square: Tensor, steps: Tensor, side: int) -> Planes:
    """Planes of mixtures that differ from head to head, of no channels to k of up to 8 bits."""
    B, Hkv, _, k = coordinates.shape
    head = torch.arange(B * Hkv, device=square.device).view(B, Hkv)
    counts, most = [], torch.full_like(head, k // GRANULE)
    for level in range(4):  # at least one head has all k channels
        most = (
            most - (head * (level + 1) + side) % (most + 1) if level else most - head % (most + 1)
        )
        counts.append(GRANULE * most)
    levels = torch.stack(counts, -1).int()
    data, offsets = pack_planes(coordinates, levels, steps, bool(side))
    own = levels[..., 0].flatten()
    live = torch.arange(k, device=own.device) < levels[..., :1]
    rows = torch.linalg.qr(square)[0].mT[..., :k, :][live]
    if case.pack == "planes, shared":
        return _lent(Planes(data, levels, offsets, square, steps, levels[..., 0], 0))
    if case.pack == "planes":
        scale = rows.abs().amax(-1, keepdim=True) / 127
        rows, steps = (rows / scale).round().to(torch.int8), steps[live] * scale[:, 0]
    else:
        rows, steps = rows.to(case.dtype), steps[live]
    starts = (own.cumsum(0) - own).view(B, Hkv).int()
    return Planes(data, levels, offsets, rows, steps, starts, int(granules(levels).max()))


def _lent(planes: Planes) -> Planes:
    """Planes whose even samples take axes of one basis, and odd ones rows of their own behind it.

    planes: with squares [B, Hkv, d, d] for a basis, steps [B, Hkv, k] and counts for starts.
    """
    B, Hkv, d, _ = planes.basis.shape
    rows = torch.linalg.qr(planes.basis)[0]
    blocks = [rows[0], *rows[1::2]]  # of a calibration; of every odd sample
    eight = (torch.cat(blocks).flatten(0, 1) * 127).round().to(torch.int8)
    sample = torch.arange(B, device=rows.device)[:, None]
    block = torch.where(sample % 2 == 1, (sample + 1) // 2, 0)
    places = ((block * Hkv + torch.arange(Hkv, device=rows.device)) * d).int()
    own = planes.starts.flatten()
    live = torch.arange(planes.steps.shape[-1], device=own.device) < planes.starts[..., None]
    order = (7 * torch.arange(d, device=own.device) + 3) % d  # d has no factor 7: every axis once
    axes = torch.where(sample[..., None] % 2 == 1, order.sort().values, order)
    axes = axes[..., : live.shape[-1]].expand(live.shape)[live].to(torch.uint8)
    starts = (own.cumsum(0) - own).view(B, Hkv).int()
    widest = int(granules(planes.counts).max())
    return planes._replace(
        basis=eight, steps=planes.steps[live] / 127, starts=starts, widest=widest, axes=axes,
        places=places,
    )  # fmt: skip


def _quantise(visual: Visual, pack: str, lengths: Tensor | None) -> Visual:
    """8-bit Keys with a scale a channel, 8-bit Values with a scale a token; dead slots random."""
    stored, top = (torch.int8, 127.0) if pack == "int8" else (FP8, 448.0)
    keys = visual.keys.float().nan_to_num(0.0)
    values = visual.values.float().nan_to_num(0.0)
    key_scale = keys.abs().amax(2).clamp(min=1e-6) / top
    value_scale = values.abs().amax(-1).clamp(min=1e-6) / top

    def pack_to(tensor: Tensor) -> Tensor:
        return (tensor.round() if stored == torch.int8 else tensor).clamp(-top, top).to(stored)

    visual = visual._replace(
        values=pack_to(values / value_scale[..., None]), value_scale=value_scale
    )
    if pack == "fp8 values":
        return visual
    value_top = value_scale.amax(-1)
    share = (value_scale / value_top[..., None]).half()
    visual = visual._replace(value_scale=share, value_top=value_top)
    return visual._replace(keys=pack_to(keys / key_scale[:, :, None]), key_scale=key_scale)


def attend_plain(
    q: Tensor, visual: Visual | None, text: Text, scale: float, dtype: torch.dtype
) -> Tensor:
    """The textbook formula with every product in `dtype`, T = 1: float64 gives the truth."""
    B, Hq, _, d = q.shape
    Hkv = text.keys.shape[1]
    query = q.to(dtype).view(B, Hkv, Hq // Hkv, d)
    keys, values, dead = _opened(text, dtype)
    scores = (query @ keys.mT * scale).masked_fill(dead, float("-inf"))
    if visual is None:
        return (scores.softmax(-1) @ values).view(B, Hq, 1, d)
    seen = _visual_scores(query, visual, scale, dtype)
    weights = torch.cat([seen, scores], -1).softmax(-1)
    N = seen.shape[-1]
    stored = visual.values
    if visual.value_planes is not None:
        stored = unpack(visual.value_planes, N, values=True)
    elif stored.dim() == 1:
        width = visual.value_basis.shape[-2]
        stored = pad_heads(stored, visual.value_widths, visual.value_offsets, N, width)
    stored = _masked(stored, visual.lengths, dtype)
    if visual.value_scale is not None:
        stored = stored * value_scales(visual).to(dtype)[..., None]
    out = weights[..., :N] @ stored
    if visual.value_planes is not None:
        out = out @ rows_of(visual.value_planes).to(dtype)
    elif visual.value_basis is not None:
        out = out @ visual.value_basis.to(dtype)
    if visual.value_mean is not None:
        out = out + weights[..., :N].sum(-1, keepdim=True) * visual.value_mean.to(dtype)[:, :, None]
    return (out + weights[..., N:] @ values).view(B, Hq, 1, d)


def _opened(text: Text, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and Values [B, Hkv, M, d] in `dtype`, and which slots are empty [B, 1, 1, M]."""
    if text.past is None:
        keys = _masked(text.keys, text.lengths, dtype)
        values = _masked(text.values, text.lengths, dtype)
        return keys, values, _dead_mask(text.keys, text.lengths)
    keys, values, place = opened_text(text)
    dead = (place < 0)[:, None, None]
    return keys.to(dtype).masked_fill(dead.mT, 0.0), values.to(dtype), dead


def _visual_scores(query: Tensor, visual: Visual, scale: float, dtype: torch.dtype) -> Tensor:
    """[B, Hkv, G, N] scores of the visual tokens, every product in `dtype`."""
    keys = visual.keys
    if visual.key_planes is not None:
        keys = unpack(visual.key_planes, visual.tokens)
    elif keys.dim() == 1:
        width = visual.basis.shape[-1]
        keys = pad_heads(keys, visual.key_widths, visual.key_offsets, visual.tokens, width)
    keys = _masked(keys, visual.lengths, dtype)
    if visual.key_scale is not None:
        keys = keys * visual.key_scale.to(dtype)[:, :, None]
    low = query
    if visual.key_planes is not None:
        low = query @ rows_of(visual.key_planes).to(dtype).mT
    if visual.basis is not None:
        low = query @ visual.basis.to(dtype)
    if visual.index is not None:
        low = query.gather(-1, visual.index[:, :, None].expand(-1, -1, query.shape[2], -1))
    scores = low @ keys.mT
    if visual.mean is not None:
        scores = scores + query @ visual.mean.to(dtype)[..., None]
    return (scores * scale).masked_fill(_dead_mask(keys, visual.lengths), float("-inf"))


def _dead_mask(cache: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, 1, 1, T] true past each length."""
    slot = torch.arange(cache.shape[2], device=cache.device)
    ends = cache.shape[2] if lengths is None else lengths[:, None]
    return (slot >= ends).expand(cache.shape[0], -1)[:, None, None]


def _masked(cache: Tensor, lengths: Tensor | None, dtype: torch.dtype) -> Tensor:
    return cache.to(dtype).masked_fill(_dead_mask(cache, lengths).mT, 0.0)
