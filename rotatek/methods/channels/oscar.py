"""OSCAR's form of quantisation (arXiv 2605.17757): rotations calibrated offline, then two bits.

Keys are turned by R = U H P: U the eigenvectors of the queries' second moments Q^T Q, averaged over
a layer's heads, H a Hadamard matrix and P the bit-reversal order. Values are turned likewise by the
eigenvectors of V^T diag(w) V with w_t = k_t (Q^T Q) k_t^T. A token's turned numbers are stored as
codes in groups of at most 128 channels, with a scale and a zero point in float16 for each group,
over .96 (Keys) and .92 (Values) of its range.

OSCAR leaves the first 64 and the last 256 tokens whole; `whole` leaves so many visual tokens, or
none. Text is whole. R belongs to the model, so no cache counts it. It comes from a file of `rotatek
calibrate`; without one, from the prompt itself, which OSCAR does not do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from rotatek.methods.channels import rebuilt
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.kivi import quantised
from rotatek.methods.channels.rebuilt import Form, PackedMethod, RebuiltStore
from rotatek.methods.options import option
from rotatek.methods.rotation import load_bases

GROUP: Final = 128  # channels that share a scale
CLIPS: Final = (0.96, 0.92)  # of the range of Keys, and of Values
WHOLE: Final = {"0": (0, 0), "64+256": (64, 256)}  # first and last tokens


def moments(states: LayerStates) -> Tensor:
    """Q^T Q / n and V^T diag(w) V / n of each sample over its heads, [B, 2, d, d] float32."""
    queries = states.queries.float().masked_fill(~states.window_alive[:, None, :, None], 0.0)
    count = states.window_alive.sum(1).clamp(min=1) * queries.shape[1]
    queries = queries.flatten(1, 2)
    of_queries = queries.mT @ queries / count[:, None, None]
    keys, values = states.keys.float(), states.values.float()  # zero beyond each length
    weights = ((keys @ of_queries[:, None]) * keys).sum(-1, keepdim=True)
    count = states.lengths.clamp(min=1) * keys.shape[1]
    of_values = (weights * values).flatten(1, 2).mT @ values.flatten(1, 2)
    return torch.stack([of_queries, of_values / count[:, None, None]], 1)


def rotation_of(moment: Tensor) -> Tensor:
    """U H P [..., d, d] of a second moment [..., d, d]."""
    d = moment.shape[-1]
    basis = torch.linalg.eigh(moment.double().cpu()).eigenvectors.flip(-1)  # falling
    order = [int(f"{place:0{d.bit_length() - 1}b}"[::-1], 2) for place in range(d)]
    return (basis.float() @ rebuilt.hadamard(d, basis.device))[..., order].to(moment.device)


@dataclass(frozen=True)
class Oscar(PackedMethod):
    """A rotation of each layer from a calibration, then a few bits by token."""

    name, label = "oscar", "OSCAR"
    summary = "Every number in a few bits behind rotations calibrated from queries, by token."
    colour = "#6f6fd0"

    whole: str = option(
        "0",
        "Whole tokens",
        "first and last visual tokens that OSCAR leaves at full width, as it does all text",
        choices=[(name, name) for name in WHOLE],
    )
    calibration: str | None = option(
        None,
        "Rotations",
        "a file made by `rotatek calibrate`; replaces rotations of each prompt",
        kind="path",
    )

    @property
    def ends(self) -> tuple[int, int]:
        """By `whole`."""
        return WHOLE[self.whole]

    def bases(self, layers: int) -> Sequence[Tensor] | None:
        """R of Keys and of Values of each layer, [2, d, d], from the file."""
        return None if self.calibration is None else load_bases(self.calibration, layers, "oscar")

    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Turn, and quantise each token's groups of channels.

        beside: key_scale, key_zero, value_scale, value_zero, float16 [B, Hkv, n, d / group];
        without a calibration also each sample's R, key_turn and value_turn, float16 [B, 1, d, d].
        """
        place, bits, beside = rebuilt.SIDES.index(side), int(self.bits_of(side)), {}
        if states.basis is None:
            own = states.cached("oscar", lambda: rotation_of(moments(states)).half())
            turn = beside[f"{side}_turn"] = own[:, place, None].contiguous()
        else:
            turn = states.basis[place].to(numbers.device)
        groups = -(-numbers.shape[-1] // GROUP)
        turned = (numbers.float() @ turn.float()).unflatten(-1, (groups, -1))
        codes, scale, zero = quantised(turned, 4, bits, clip=CLIPS[place])
        beside |= {f"{side}_scale": scale, f"{side}_zero": zero}
        return rebuilt.pack(codes.flatten(-2), bits), beside

    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """Codes times scales and their zero points, turned back."""
        own = store.turns
        turn = store.beside[f"{side}_turn"] if own is None else own[rebuilt.SIDES.index(side)]
        codes = rebuilt.unpack(stored, int(self.bits_of(side)), store.width)
        scale, zero = (store.beside[f"{side}_{part}"].float() for part in ("scale", "zero"))
        grouped = codes.unflatten(-1, (scale.shape[-1], -1)) * scale[..., None] + zero[..., None]
        return grouped.flatten(-2) @ turn.float().mT
