"""OScaR's form of quantisation (arXiv 2605.19660): a rotation and each token's norm, then groups.

Keys and Values are turned by a Hadamard matrix, which spreads loud channels. A turned Key is
divided by its norm, kept in float16, so that loud tokens do not widen the groups of a channel. Both
are then stored as `kivi` stores them: Keys a channel at a time in groups of 32 tokens, Values a
token at a time in groups of 32 channels. Nothing is calibrated.
"""

from dataclasses import dataclass

from torch import Tensor

from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.kivi import Kivi
from rotatek.methods.channels.rebuilt import LARGEST, Form, RebuiltStore, hadamard


@dataclass(frozen=True)
class OmniScaled(Kivi):
    """KIVI's groups behind a Hadamard rotation and each Key's norm."""

    name, label = "omniscale", "OScaR"
    summary = "KIVI's groups behind a Hadamard rotation, Keys divided by each token's norm."
    colour = "#c2608a"

    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Turn, take out the Keys' norms, and quantise as KIVI does.

        beside: also key_norm, float16 [B, Hkv, n, 1].
        """
        turned = numbers.float() @ hadamard(numbers.shape[-1], numbers.device)  # its own inverse
        if side == "value":
            return super().stored(side, turned, alive, states)
        norms = turned.norm(dim=-1, keepdim=True).clamp(min=2.0**-14, max=LARGEST).half()
        form, beside = super().stored(side, turned / norms.float(), alive, states)
        return form, beside | {"key_norm": norms}

    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """KIVI's numbers times the norms, turned back."""
        turned = super().rebuild(side, stored, store)
        if side == "key":
            turned = turned * store.beside["key_norm"].float()
        return turned @ hadamard(store.width, turned.device)
